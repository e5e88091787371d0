// Makes FOLDER/default-user, a data folder of SillyTavern, with its own server, which is asked as its page asks it.
//   npm install --ignore-scripts sillytavern@1.19.0
//   node make_sillytavern_folder.mjs FOLDER
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { createRequire } from "node:module";

const root = resolve(process.argv[2]), port = 18_000 + (process.pid % 1_000), home = `http://127.0.0.1:${port}`;
const server = dirname(createRequire(import.meta.url).resolve("sillytavern/package.json"));
const options = ["--dataRoot", root, "--configPath", `${root}/config.yaml`, "--port", port, "--disableCsrf", "--browserLaunchEnabled=false"];
mkdirSync(root, { recursive: true });
const child = spawn(process.execPath, ["server.js", ...options.map(String)], { cwd: server, stdio: "ignore" });
const ask = async (path, body) => {
  const is_form = body instanceof FormData;
  const headers = is_form ? {} : { "Content-Type": "application/json" };
  const response = await fetch(home + path, { method: "POST", headers, body: is_form ? body : JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (response.headers.get("content-type") ?? "").includes("json") ? response.json() : response.text();
};
const header = { chat_metadata: { integrity: "a" }, user_name: "unused", character_name: "unused" };
const line = (name, is_user, send_date, mes, more = {}) => ({ name, is_user, is_system: false, send_date, mes, extra: {}, ...more });
try {
  for (let tries = 0; ; tries += 1) {
    try { await ask("/api/characters/all", {}); break; } catch (error) {
      if (tries > 240) throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
  const card = new FormData();
  for (const [name, value] of Object.entries({
    ch_name: "Wren", description: "Wren maps the marsh.", first_mes: "Mind the reeds, {{user}}.", personality: "dry",
    world: "Marsh", talkativeness: "0.5", fav: "false", extensions: "{}",
  })) card.append(name, value);
  const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==";
  card.append("avatar", new Blob([Buffer.from(picture, "base64")], { type: "image/png" }), "wren.png");
  await ask("/api/characters/create", card);
  const entry = { uid: 0, key: ["heron"], keysecondary: [], comment: "", content: "The heron is called Ash.", constant: false, selective: false, order: 100, position: 0, disable: false };
  await ask("/api/worldinfo/edit", { name: "Marsh", data: { entries: { 0: entry } } });
  await ask("/api/worldinfo/edit", { name: "Unused", data: { entries: { 0: { ...entry, content: "Nobody names this." } } } });
  await ask("/api/chats/save", { ch_name: "Wren", avatar_url: "Wren.png", file_name: "Wren - 2026-03-01@12h00m00s000ms", chat: [
    header,
    line("Wren", false, "2026-03-01T12:00:00.000Z", "Mind the reeds, Mia."),
    line("Mia", true, "March 1, 2026 12:01pm", "Where is the heron?", { force_avatar: "User Avatars/mia.png" }),
    line("Wren", false, "2026-3-1 @12h 02m 03s 400ms", "On the third post.", { swipes: ["Gone.", "On the third post."], swipe_id: 1 }),
    line("Wren", false, "2026-03-01T12:03:00.000Z", "A note of the program.", { is_system: true }),
  ] });
  await ask("/api/groups/create", { name: "Marsh people", members: ["Wren.png", "default_Seraphina.png"], chat_id: "g1", chats: ["g1"] });
  await ask("/api/chats/group/save", { id: "g1", chat: [header, line("Mia", true, "2026-03-02T12:00:00.000Z", "Hello, both.")] });
  const settings = JSON.parse((await ask("/api/settings/get", {})).settings);
  settings.power_user.personas = { "mia.png": "Mia" };
  settings.power_user.persona_descriptions = { "mia.png": { description: "Mia draws birds.", position: 0 } };
  await ask("/api/settings/save", settings);
  await ask("/api/secrets/write", { key: "api_key_openai", value: "sk-tavern-0123456789abcdef", label: "" });
} finally {
  child.kill();
}
