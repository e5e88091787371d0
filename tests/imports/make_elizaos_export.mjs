// Writes FILE, an SQL dump of a database of elizaOS 1.7.2: its own migrations and its own adapter on PGlite.
//   npm install @elizaos/plugin-sql@1.7.2 @elizaos/core@1.7.2 @electric-sql/pglite@0.3.16 @electric-sql/pglite-tools@0.2.21
//   node make_elizaos_export.mjs FILE
import { rmSync, writeFileSync } from "node:fs";
import { PGlite } from "@electric-sql/pglite";
import { fuzzystrmatch } from "@electric-sql/pglite/contrib/fuzzystrmatch";
import { vector } from "@electric-sql/pglite/vector";
import { pgDump } from "@electric-sql/pglite-tools/pg_dump";
import { createDatabaseAdapter, DatabaseMigrationService, plugin } from "@elizaos/plugin-sql";

const folder = "./pglite-of-elizaos", file = process.argv[2];
const id = (number) => `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`;
const [agent, world, lounge, direct, ann, ben] = [1, 2, 3, 4, 5, 6].map(id);
const at = (minute) => Date.UTC(2026, 2, 1, 12, minute);
rmSync(folder, { recursive: true, force: true });
const db = createDatabaseAdapter({ dataDir: folder }, agent);
await db.initialize();
const migrations = new DatabaseMigrationService();
await migrations.initializeWithDatabase(db.getDatabase?.() ?? db.db);
migrations.discoverAndRegisterPluginSchemas([plugin]);
await migrations.runAllPluginMigrations({ verbose: false });
await db.ensureEmbeddingDimension(384);
const secrets = { OPENAI_API_KEY: "sk-eliza-0123456789abcdef", DISCORD_API_TOKEN: "token-of-the-old-bot" };
await db.createAgent({
  id: agent, name: "Robin", bio: ["Robin keeps the lighthouse."], settings: { secrets }, createdAt: at(0), updatedAt: at(0),
});
await db.createWorld({
  id: world, name: "Lighthouse", agentId: agent, messageServerId: id(20),
  metadata: { ownership: { ownerId: ann }, roles: { [ann]: "OWNER" }, settings: { WEATHER_KEY: "w4x9-7h3k-22ab-91zz" } },
});
await db.createRooms([
  { id: lounge, agentId: agent, name: "lounge", source: "discord", type: "GROUP", channelId: "1021", worldId: world, messageServerId: id(20) },
  { id: direct, agentId: agent, name: "Ann", source: "telegram", type: "DM", channelId: "77", worldId: world, messageServerId: id(20) },
]);
await db.createEntities([
  { id: agent, agentId: agent, names: ["Robin"], metadata: {} },
  { id: ann, agentId: agent, names: ["Ann", "ann \"the\" keeper, O'Hara"], metadata: { discord: { id: "501", userName: "ann", name: "Ann" } } },
  { id: ben, agentId: agent, names: ["Ben"], metadata: { discord: { id: "502", userName: "ben", name: "Ben" } } },
]);
await db.addParticipantsRoom([agent, ann, ben], lounge);
await db.addParticipantsRoom([agent, ann], direct);
const say = (number, roomId, entityId, minute, text, more = {}) => db.createMemory({
  id: id(number), agentId: agent, entityId, roomId, worldId: world, createdAt: at(minute),
  content: { text, source: roomId === lounge ? "discord" : "telegram", ...more }, metadata: { type: "message", source: "discord" },
}, "messages");
await say(100, lounge, ann, 1, "Is the lamp lit?\nIt's 'dark'; really;");
await say(101, lounge, agent, 2, "Since four. I keep it company.", { inReplyTo: id(100), thought: "She asks about the lamp." });
await say(102, lounge, ben, 3, "I am allergic to seaweed \\ and to \t tabs.", { attachments: [{ id: "a", url: "https://example.org/a.png", contentType: "image/png", title: "a.png" }] });
await say(103, direct, ann, 4, "My boat is called Heron.");
await say(104, direct, agent, 5, "A good name for a patient boat.", { inReplyTo: id(103) });
await say(105, direct, ann, 6, "");
await db.createMemory({
  id: id(200), agentId: agent, entityId: ann, roomId: direct, worldId: world, createdAt: at(7),
  content: { text: "Ann's boat is called Heron." }, metadata: { type: "fact" }, embedding: Array(384).fill(0.1),
}, "facts");
await db.createMemory({
  id: id(201), agentId: agent, entityId: agent, roomId: lounge, worldId: world, createdAt: at(8),
  content: { text: "Ben is allergic to seaweed." }, metadata: { type: "fact" },
}, "facts");
await db.createMemory({
  id: id(202), agentId: agent, entityId: agent, roomId: agent === lounge ? direct : lounge, worldId: world, createdAt: at(9),
  content: { text: "Tide tables of March." }, metadata: { type: "document", timestamp: at(9) },
}, "documents");
await db.createRelationship({ sourceEntityId: ann, targetEntityId: ben, tags: ["friends"], metadata: { interactions: 3 } });
await db.createComponent({ id: id(300), entityId: ann, agentId: agent, roomId: lounge, worldId: world, sourceEntityId: agent, type: "profile", data: { token: "private" }, createdAt: at(1) });
await db.createTask({ name: "REMIND", description: "Remind Ann", roomId: lounge, worldId: world, tags: ["queue"], metadata: {} });
await db.setCache("weather", { is: "calm" });
await db.close();
const pg = await PGlite.create(folder, { extensions: { vector, fuzzystrmatch } });
writeFileSync(file, await (await pgDump({ pg, args: ["--column-inserts"] })).text());
rmSync(folder, { recursive: true, force: true });
process.exit(0);
