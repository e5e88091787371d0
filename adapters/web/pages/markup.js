// Renders a message's text as DOM nodes: plain text, ``` fences, `code`, and links. Never as HTML.

const INLINE = /`([^`\n]+)`|(https?:\/\/[^\s<>"'`]+)/g;
const TAIL = ".,;:!?*_~";
const LANGUAGE = /^[\w+#.-]{0,20}\n/;

export function render(text, into) {
  const parts = text.split("```");
  parts.forEach((part, index) => {
    if (index % 2) {
      into.append(block(part.replace(LANGUAGE, "").replace(/^\n|\n$/g, "")));
    } else {
      inline(part.replace(index ? /^\n+/ : "", "").replace(index < parts.length - 1 ? /\n+$/ : "", ""), into);
    }
  });
}

export function link(address, label = address) {
  const url = webAddress(address);
  if (!url) return document.createTextNode(label);
  const anchor = document.createElement("a");
  anchor.href = url.href;
  anchor.rel = "noopener noreferrer nofollow";
  anchor.target = "_blank";
  anchor.textContent = label;
  return anchor;
}

function inline(text, into) {
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    into.append(text.slice(end, match.index));
    if (match[1]) {
      const code = document.createElement("code");
      code.textContent = match[1];
      into.append(code);
      end = match.index + match[0].length;
    } else {
      const address = withoutTail(match[2]);
      into.append(link(address));
      end = match.index + address.length;
    }
  }
  into.append(text.slice(end));
}

function block(text) {
  const pre = document.createElement("pre");
  const code = document.createElement("code");
  code.textContent = text;
  pre.tabIndex = 0;
  pre.append(code);
  return pre;
}

// A full stop or a closing bracket after an address belongs to the sentence. One pass, because an address
// can be very long.
function withoutTail(address) {
  const spare = { ")": balance(address, "(", ")"), "]": balance(address, "[", "]") };
  let end = address.length;
  for (; end > 0; end -= 1) {
    const sign = address[end - 1];
    if (TAIL.includes(sign)) continue;
    if (!(spare[sign] < 0)) break;
    spare[sign] += 1;
  }
  return address.slice(0, end);
}

function balance(text, open, close) {
  return text.split(open).length - text.split(close).length;
}

function webAddress(address) {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url : null;
  } catch {
    return null;
  }
}
