CREATE TABLE agents (
  id INTEGER NOT NULL,
  "key" BLOB NOT NULL,
  CONSTRAINT pk_agents PRIMARY KEY (id),
  CONSTRAINT uq_agents_key UNIQUE ("key")
);

CREATE TABLE cache (
  agent_id INTEGER NOT NULL,
  "key" TEXT NOT NULL,
  value TEXT NOT NULL,
  expires_at BIGINT,
  CONSTRAINT pk_cache PRIMARY KEY (agent_id, "key"),
  CONSTRAINT fk_cache_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE INDEX ix_cache_expires ON cache (agent_id, expires_at);

CREATE TABLE components (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  entity_id BLOB NOT NULL,
  type TEXT NOT NULL,
  world_id BLOB NOT NULL,
  source_entity_id BLOB NOT NULL,
  room_id BLOB,
  data TEXT NOT NULL,
  created_at BIGINT,
  CONSTRAINT pk_components PRIMARY KEY (position),
  CONSTRAINT uq_components_agent_id_entity_id_type_world_id_source_entity_id UNIQUE (agent_id, entity_id, type, world_id, source_entity_id),
  CONSTRAINT fk_components_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_components_entity ON components (agent_id, entity_id, position);

CREATE TABLE cursors (
  agent_id INTEGER NOT NULL,
  platform TEXT NOT NULL,
  account TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  CONSTRAINT pk_cursors PRIMARY KEY (agent_id, platform, account, name),
  CONSTRAINT fk_cursors_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE TABLE deliveries (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id TEXT NOT NULL,
  turn_id BLOB NOT NULL,
  room_id BLOB NOT NULL,
  memory_id BLOB NOT NULL,
  platform TEXT NOT NULL,
  account TEXT NOT NULL,
  target TEXT NOT NULL,
  part BIGINT NOT NULL,
  content TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  first_attempt_at BIGINT,
  external_id TEXT NOT NULL,
  reply_to TEXT NOT NULL,
  cause TEXT NOT NULL,
  is_open BIGINT NOT NULL,
  CONSTRAINT pk_deliveries PRIMARY KEY (position),
  CONSTRAINT uq_deliveries_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT uq_deliveries_agent_id_room_id_seq UNIQUE (agent_id, room_id, seq),
  CONSTRAINT fk_deliveries_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_deliveries_all ON deliveries (agent_id, position);

CREATE INDEX ix_deliveries_open ON deliveries (agent_id, is_open, position) WHERE is_open = 1;

CREATE INDEX ix_deliveries_turn ON deliveries (agent_id, turn_id, position);

CREATE INDEX ix_deliveries_unfinished ON deliveries (agent_id, position) WHERE state <> 'sent' AND state <> 'cancelled';

CREATE TABLE entities (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  platform TEXT NOT NULL,
  external_id TEXT NOT NULL,
  names TEXT NOT NULL,
  is_bot BIGINT NOT NULL,
  metadata TEXT NOT NULL,
  CONSTRAINT pk_entities PRIMARY KEY (position),
  CONSTRAINT uq_entities_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT fk_entities_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE TABLE lanes (
  agent_id INTEGER NOT NULL,
  room_id BLOB NOT NULL,
  owner BIGINT,
  CONSTRAINT pk_lanes PRIMARY KEY (agent_id, room_id),
  CONSTRAINT fk_lanes_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE INDEX ix_lanes_owner ON lanes (agent_id, owner);

CREATE TABLE logs (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  at BIGINT NOT NULL,
  room_id BLOB,
  entity_id BLOB,
  body TEXT NOT NULL,
  CONSTRAINT pk_logs PRIMARY KEY (position),
  CONSTRAINT fk_logs_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_logs_all ON logs (agent_id, position);

CREATE INDEX ix_logs_kind ON logs (agent_id, kind, position);

CREATE INDEX ix_logs_room ON logs (agent_id, room_id, position);

CREATE TABLE memories (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  kind TEXT NOT NULL,
  entity_id BLOB NOT NULL,
  room_id BLOB NOT NULL,
  world_id BLOB NOT NULL,
  content TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  external_id TEXT NOT NULL,
  scope TEXT NOT NULL,
  source_id BLOB,
  turn_id BLOB,
  metadata TEXT NOT NULL,
  CONSTRAINT pk_memories PRIMARY KEY (position),
  CONSTRAINT uq_memories_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT fk_memories_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_memories_room ON memories (agent_id, room_id, kind, created_at, id);

CREATE INDEX ix_memories_source ON memories (agent_id, source_id) WHERE source_id IS NOT NULL;

CREATE INDEX ix_memories_turn ON memories (agent_id, turn_id, created_at, id) WHERE turn_id IS NOT NULL;

CREATE TABLE relationships (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  source_id BLOB NOT NULL,
  target_id BLOB NOT NULL,
  tags TEXT NOT NULL,
  interactions BIGINT NOT NULL,
  metadata TEXT NOT NULL,
  CONSTRAINT pk_relationships PRIMARY KEY (position),
  CONSTRAINT uq_relationships_agent_id_source_id_target_id UNIQUE (agent_id, source_id, target_id),
  CONSTRAINT fk_relationships_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_relationships_contact ON relationships (agent_id, source_id, interactions, position);

CREATE TABLE spending (
  agent_id INTEGER NOT NULL,
  day TEXT NOT NULL,
  room_id BLOB NOT NULL,
  person_id BLOB NOT NULL,
  model TEXT NOT NULL,
  calls BIGINT NOT NULL,
  tokens_in BIGINT NOT NULL,
  tokens_cached BIGINT NOT NULL,
  tokens_out BIGINT NOT NULL,
  cost BIGINT NOT NULL,
  unpriced BIGINT NOT NULL,
  estimated BIGINT NOT NULL,
  failed BIGINT NOT NULL,
  CONSTRAINT pk_spending PRIMARY KEY (agent_id, day, room_id, person_id, model),
  CONSTRAINT fk_spending_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE TABLE steps (
  agent_id INTEGER NOT NULL,
  turn_id BLOB NOT NULL,
  "key" TEXT NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  effect TEXT NOT NULL,
  result TEXT NOT NULL,
  at BIGINT,
  CONSTRAINT pk_steps PRIMARY KEY (agent_id, turn_id, "key"),
  CONSTRAINT fk_steps_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE TABLE tasks (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  name TEXT NOT NULL,
  next_run BIGINT NOT NULL,
  description TEXT NOT NULL,
  room_id BLOB,
  world_id BLOB,
  entity_id BLOB,
  tags TEXT NOT NULL,
  metadata TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  leased_until BIGINT,
  fence BIGINT NOT NULL,
  is_parked BIGINT NOT NULL,
  last_error TEXT NOT NULL,
  is_queued BIGINT NOT NULL,
  CONSTRAINT pk_tasks PRIMARY KEY (position),
  CONSTRAINT uq_tasks_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT fk_tasks_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_tasks_all ON tasks (agent_id, position);

CREATE INDEX ix_tasks_due ON tasks (agent_id, is_queued, is_parked, next_run, room_id) WHERE is_queued = 1 AND is_parked = 0;

CREATE INDEX ix_tasks_name ON tasks (agent_id, name, position);

CREATE INDEX ix_tasks_room ON tasks (agent_id, room_id, position);

CREATE TABLE workers (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  alive_until BIGINT NOT NULL,
  CONSTRAINT pk_workers PRIMARY KEY (position),
  CONSTRAINT fk_workers_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE TABLE worlds (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  platform TEXT NOT NULL,
  external_id TEXT NOT NULL,
  name TEXT NOT NULL,
  roles TEXT NOT NULL,
  metadata TEXT NOT NULL,
  CONSTRAINT pk_worlds PRIMARY KEY (position),
  CONSTRAINT uq_worlds_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT fk_worlds_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE TABLE embeddings (
  agent_id INTEGER NOT NULL,
  model TEXT NOT NULL,
  dimension INTEGER NOT NULL,
  kind TEXT NOT NULL,
  audience BLOB NOT NULL,
  memory INTEGER NOT NULL,
  vector BLOB NOT NULL,
  CONSTRAINT pk_embeddings PRIMARY KEY (agent_id, model, dimension, kind, audience, memory),
  CONSTRAINT fk_embeddings_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE,
  CONSTRAINT uq_embeddings_memory UNIQUE (memory),
  CONSTRAINT fk_embeddings_memory FOREIGN KEY(memory) REFERENCES memories (position) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE TABLE participants (
  agent_id INTEGER NOT NULL,
  room_id BLOB NOT NULL,
  entity_id BLOB NOT NULL,
  active BIGINT NOT NULL,
  attendance TEXT NOT NULL,
  CONSTRAINT pk_participants PRIMARY KEY (agent_id, room_id, entity_id),
  CONSTRAINT fk_participants_agent_id_entity_id FOREIGN KEY(agent_id, entity_id) REFERENCES entities (agent_id, id) ON DELETE CASCADE,
  CONSTRAINT fk_participants_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE INDEX ix_participants_active ON participants (agent_id, room_id, active);

CREATE TABLE rooms (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  world_id BLOB NOT NULL,
  type TEXT NOT NULL,
  platform TEXT NOT NULL,
  external_id TEXT NOT NULL,
  account TEXT NOT NULL,
  name TEXT NOT NULL,
  parent_id BLOB,
  metadata TEXT NOT NULL,
  active BIGINT NOT NULL,
  CONSTRAINT pk_rooms PRIMARY KEY (position),
  CONSTRAINT uq_rooms_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT fk_rooms_agent_id_world_id FOREIGN KEY(agent_id, world_id) REFERENCES worlds (agent_id, id) ON DELETE CASCADE,
  CONSTRAINT fk_rooms_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_rooms_active ON rooms (agent_id, active);

CREATE INDEX ix_rooms_world ON rooms (agent_id, world_id, active);

CREATE TABLE words (
  agent_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  word TEXT NOT NULL,
  audience BLOB NOT NULL,
  memory INTEGER NOT NULL,
  CONSTRAINT pk_words PRIMARY KEY (agent_id, kind, word, audience, memory),
  CONSTRAINT fk_words_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE,
  CONSTRAINT fk_words_memory FOREIGN KEY(memory) REFERENCES memories (position) ON DELETE CASCADE
)
 WITHOUT ROWID;

CREATE INDEX ix_words_memory ON words (memory);

CREATE TABLE receipts (
  position INTEGER NOT NULL,
  agent_id INTEGER NOT NULL,
  id BLOB NOT NULL,
  platform TEXT NOT NULL,
  account TEXT NOT NULL,
  event_id TEXT NOT NULL,
  room_id BLOB NOT NULL,
  message_id TEXT NOT NULL,
  revision BIGINT NOT NULL,
  author_id BLOB NOT NULL,
  memory_id BLOB NOT NULL,
  received_at BIGINT NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT NOT NULL,
  rule TEXT NOT NULL,
  turn_id BLOB,
  superseded_by BLOB,
  attempts BIGINT NOT NULL,
  carried BIGINT NOT NULL,
  claimed_at BIGINT,
  closed_at BIGINT,
  model_calls TEXT NOT NULL,
  notes TEXT NOT NULL,
  is_learnt BIGINT NOT NULL,
  is_open BIGINT NOT NULL,
  CONSTRAINT pk_receipts PRIMARY KEY (position),
  CONSTRAINT uq_receipts_agent_id_id UNIQUE (agent_id, id),
  CONSTRAINT uq_receipts_agent_id_platform_account_event_id UNIQUE (agent_id, platform, account, event_id),
  CONSTRAINT uq_receipts_agent_id_room_id_message_id_revision UNIQUE (agent_id, room_id, message_id, revision),
  CONSTRAINT fk_receipts_agent_id_room_id FOREIGN KEY(agent_id, room_id) REFERENCES rooms (agent_id, id) ON DELETE CASCADE,
  CONSTRAINT fk_receipts_agent_id_author_id FOREIGN KEY(agent_id, author_id) REFERENCES entities (agent_id, id) ON DELETE CASCADE,
  CONSTRAINT fk_receipts_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
);

CREATE INDEX ix_receipts_all ON receipts (agent_id, position);

CREATE INDEX ix_receipts_memory ON receipts (agent_id, memory_id);

CREATE INDEX ix_receipts_open ON receipts (agent_id, is_open, position) WHERE is_open = 1;

CREATE INDEX ix_receipts_room ON receipts (agent_id, room_id, position);

CREATE INDEX ix_receipts_unlearnt ON receipts (agent_id, is_learnt, position) WHERE is_learnt = 0;
