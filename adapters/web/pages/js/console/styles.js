// The styles of pages that are rarely the first one: imported by those pages, which are shown once they are loaded.

import { address } from "../api.js";

const sheet = document.createElement("link");
sheet.rel = "stylesheet";
sheet.href = address("pages/console_more.css").href;
await new Promise((done) => {
  sheet.onload = sheet.onerror = done;
  document.head.append(sheet);
});
