// The pages of the Console, in the order of the navigation; one without a title is not in it. Each module exports
// `default function Page({ session, query, params, navigate })`; `params`: the rest of the path.

/** The first group; `key` is the path below /console. */
export const PAGES = [
  { key: "overview", title: "Overview", icon: "pulse", load: () => import("./overview.js") },
  { key: "control", title: "People in control", tab: "Control", icon: "key", load: () => import("./control.js") },
  { key: "rooms", title: "Rooms", icon: "rooms", load: () => import("./rooms.js") },
  { key: "deliveries", title: "Deliveries", icon: "outbox", load: () => import("./deliveries.js") },
  { key: "costs", title: "Costs", icon: "coin", load: () => import("./costs.js") },
  { key: "people", title: "People", icon: "people", load: () => import("./people.js") },
  { key: "duties", title: "Duties", icon: "check", load: () => import("./duties.js") },
  { key: "knowledge", title: "Knowledge", icon: "book", load: () => import("./knowledge.js") },
  { key: "tasks", title: "Tasks", icon: "clock", load: () => import("./tasks.js") },
  { key: "character", title: "Character", icon: "mask", load: () => import("./character.js") },
  { key: "rehearsal", load: () => import("./rehearsal.js") },
  { key: "receipts", load: () => import("./receipts.js") },
];

/** Pages of the group "System". */
export const SYSTEM = [
  { key: "plugins", title: "Plugins", icon: "plug", load: () => import("./plugins.js") },
  { key: "settings", title: "Settings", icon: "gear", load: () => import("./settings.js") },
  { key: "logs", title: "Log", icon: "lines", load: () => import("./logs.js") },
  { key: "doctor", title: "Doctor", icon: "pulse", load: () => import("./doctor.js") },
];

/** The keys of the tabs at the bottom of a phone; others are in "More". */
export const SHORT = ["overview", "rooms", "deliveries", "control"];
