// Values stored by the browser between visits; in memory if the browser stores nothing.

const fallback = new Map();

export function read(key, otherwise) {
  try {
    const text = localStorage.getItem(`greenroom.${key}`);
    return text === null ? (fallback.get(key) ?? otherwise) : JSON.parse(text);
  } catch {
    return fallback.get(key) ?? otherwise;
  }
}

export function write(key, value) {
  fallback.set(key, value);
  try {
    localStorage.setItem(`greenroom.${key}`, JSON.stringify(value));
  } catch {
    // the storage is full or disabled
  }
}

// crypto.randomUUID is available only over https and on localhost.
export function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
