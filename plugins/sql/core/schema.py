"""The tables: what they hold, what is unique in them, and an index for every question on the road.

Everything belongs to an agent, whose small number leads every key. `position` is the order in which rows
were made: our own, because clocks step back. Foreign keys stand where the write itself sees to the
parent; a memory or a task may name a room that no platform has shown yet, and a receipt outlives its
message.
"""

from sqlalchemy import (
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)

from plugins.sql.core.columns import (
    BUSY,
    COUNTING,
    VECTOR,
    agent,
    belongs_to,
    ids,
    numbers,
    only,
    position,
    texts,
)

VERSION = "0001"
VERSION_TABLE = "alembic_version_sql"

# A later version can only change a constraint that has the same name in both databases.
NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
}

# Word for word what a statement says, or it does not get the index.
UNFINISHED = "state <> 'sent' AND state <> 'cancelled'"

metadata = MetaData(naming_convention=NAMES)

agents = Table(
    "agents",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("key", LargeBinary(16), nullable=False, unique=True),
)

worlds = Table(
    "worlds",
    metadata,
    position(),
    agent(),
    *ids("id"),
    *texts("platform", "external_id", "name", "roles", "metadata"),
    UniqueConstraint("agent_id", "id"),
)

rooms = Table(
    "rooms",
    metadata,
    position(),
    agent(),
    *ids("id", "world_id"),
    *texts("type", "platform", "external_id", "account", "name"),
    *ids("parent_id", missing=True),
    *texts("metadata"),
    *numbers("active"),
    UniqueConstraint("agent_id", "id"),
    Index("ix_rooms_active", "agent_id", "active"),
    Index("ix_rooms_world", "agent_id", "world_id", "active"),
    belongs_to("worlds", "world_id"),
)

entities = Table(
    "entities",
    metadata,
    position(),
    agent(),
    *ids("id"),
    *texts("platform", "external_id", "names"),
    *numbers("is_bot"),
    *texts("metadata"),
    UniqueConstraint("agent_id", "id"),
)

# Here "none" is an id of zeroes: no database takes two missing values for the same one.
components = Table(
    "components",
    metadata,
    position(),
    agent(),
    *ids("id", "entity_id"),
    *texts("type"),
    *ids("world_id", "source_entity_id"),
    *ids("room_id", missing=True),
    *texts("data"),
    *numbers("created_at", missing=True),
    UniqueConstraint("agent_id", "entity_id", "type", "world_id", "source_entity_id"),
    Index("ix_components_entity", "agent_id", "entity_id", "position"),
)

# `active` orders by the last sign of life; who has given none (the agent, deciding about a room) has 0.
participants = Table(
    "participants",
    metadata,
    agent(key=True),
    *ids("room_id", "entity_id", key=True),
    *numbers("active"),
    *texts("attendance"),
    Index("ix_participants_active", "agent_id", "room_id", "active"),
    belongs_to("entities", "entity_id"),
    sqlite_with_rowid=False,
)

relationships = Table(
    "relationships",
    metadata,
    position(),
    agent(),
    *ids("source_id", "target_id"),
    *texts("tags"),
    *numbers("interactions"),
    *texts("metadata"),
    UniqueConstraint("agent_id", "source_id", "target_id"),
    Index("ix_relationships_contact", "agent_id", "source_id", "interactions", "position"),
)

memories = Table(
    "memories",
    metadata,
    position(),
    agent(),
    *ids("id"),
    *texts("kind"),
    *ids("entity_id", "room_id", "world_id"),
    *texts("content"),
    *numbers("created_at"),
    *texts("external_id", "scope"),
    *ids("source_id", "turn_id", missing=True),
    *texts("metadata"),
    UniqueConstraint("agent_id", "id"),
    Index("ix_memories_room", "agent_id", "room_id", "kind", "created_at", "id"),
    Index("ix_memories_source", "agent_id", "source_id", **only("source_id IS NOT NULL")),
    Index("ix_memories_turn", "agent_id", "turn_id", "created_at", "id", **only("turn_id IS NOT NULL")),
)

# `audience` is who may be reminded: the room's id, the world's, or zeroes where everybody may. Rows lie
# in the order of their key, so that the vectors of one audience are read in one go.
embeddings = Table(
    "embeddings",
    metadata,
    agent(key=True),
    *texts("model", key=True),
    Column("dimension", Integer, primary_key=True),
    *texts("kind", key=True),
    *ids("audience", key=True),
    Column(
        "memory", COUNTING, ForeignKey("memories.position", ondelete="CASCADE"), primary_key=True, unique=True
    ),
    Column("vector", VECTOR, nullable=False),
    sqlite_with_rowid=False,
)

# The words of whatever was not said: a message would pay for them with every reply. Each memory has an
# empty word too, by which all are counted, and one that stands for its whole wording.
words = Table(
    "words",
    metadata,
    agent(key=True),
    *texts("kind", "word", key=True),
    *ids("audience", key=True),
    Column("memory", COUNTING, ForeignKey("memories.position", ondelete="CASCADE"), primary_key=True),
    Index("ix_words_memory", "memory"),
    sqlite_with_rowid=False,
)

tasks = Table(
    "tasks",
    metadata,
    position(),
    agent(),
    *ids("id"),
    *texts("name"),
    *numbers("next_run"),
    *texts("description"),
    *ids("room_id", "world_id", "entity_id", missing=True),
    *texts("tags", "metadata"),
    *numbers("attempts"),
    *numbers("leased_until", missing=True),
    *numbers("fence", "is_parked"),
    *texts("last_error"),
    *numbers("is_queued"),
    UniqueConstraint("agent_id", "id"),
    Index(
        "ix_tasks_due",
        "agent_id",
        "is_queued",
        "is_parked",
        "next_run",
        "room_id",
        **only("is_queued = 1 AND is_parked = 0"),
    ),
    Index("ix_tasks_all", "agent_id", "position"),
    Index("ix_tasks_name", "agent_id", "name", "position"),
    Index("ix_tasks_room", "agent_id", "room_id", "position"),
)

cache = Table(
    "cache",
    metadata,
    agent(key=True),
    *texts("key", key=True),
    *texts("value"),
    *numbers("expires_at", missing=True),
    Index("ix_cache_expires", "agent_id", "expires_at"),
    sqlite_with_rowid=False,
)

logs = Table(
    "logs",
    metadata,
    position(),
    agent(),
    *texts("kind"),
    *numbers("at"),
    *ids("room_id", "entity_id", missing=True),
    *texts("body"),
    Index("ix_logs_all", "agent_id", "position"),
    Index("ix_logs_kind", "agent_id", "kind", "position"),
    Index("ix_logs_room", "agent_id", "room_id", "position"),
)

# An event's key names the room it was said in, which is the receipt's room.
receipts = Table(
    "receipts",
    metadata,
    position(),
    agent(),
    *ids("id"),
    *texts("platform", "account", "event_id"),
    *ids("room_id"),
    *texts("message_id"),
    *numbers("revision"),
    *ids("author_id", "memory_id"),
    *numbers("received_at"),
    *texts("outcome", "reason", "rule"),
    *ids("turn_id", "superseded_by", missing=True),
    *numbers("attempts", "carried"),
    *numbers("claimed_at", "closed_at", missing=True),
    *texts("model_calls", "notes"),
    *numbers("is_learnt", "is_open"),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "platform", "account", "event_id"),
    UniqueConstraint("agent_id", "room_id", "message_id", "revision"),
    Index("ix_receipts_memory", "agent_id", "memory_id"),
    Index("ix_receipts_room", "agent_id", "room_id", "position"),
    Index("ix_receipts_all", "agent_id", "position"),
    Index("ix_receipts_open", "agent_id", "is_open", "position", **only("is_open = 1")),
    Index("ix_receipts_unlearnt", "agent_id", "is_learnt", "position", **only("is_learnt = 0")),
    belongs_to("rooms", "room_id"),
    belongs_to("entities", "author_id"),
)

steps = Table(
    "steps",
    metadata,
    agent(key=True),
    *ids("turn_id", key=True),
    *texts("key", key=True),
    *texts("kind", "state", "effect", "result"),
    *numbers("at", missing=True),
    sqlite_with_rowid=False,
)

deliveries = Table(
    "deliveries",
    metadata,
    position(),
    agent(),
    *texts("id"),
    *ids("turn_id", "room_id", "memory_id"),
    *texts("platform", "account", "target"),
    *numbers("part"),
    *texts("content"),
    *numbers("created_at", "seq"),
    *texts("state"),
    *numbers("attempts"),
    *numbers("first_attempt_at", missing=True),
    *texts("external_id", "reply_to", "cause"),
    *numbers("is_open"),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "room_id", "seq"),
    Index("ix_deliveries_turn", "agent_id", "turn_id", "position"),
    Index("ix_deliveries_open", "agent_id", "is_open", "position", **only("is_open = 1")),
    Index("ix_deliveries_unfinished", "agent_id", "position", **only(UNFINISHED)),
    Index("ix_deliveries_all", "agent_id", "position"),
)

cursors = Table(
    "cursors",
    metadata,
    agent(key=True),
    *texts("platform", "account", "name", key=True),
    *texts("value"),
    sqlite_with_rowid=False,
)

# What models have cost, in sums: a day as `2026-11-21`, zeroes for no room and for nobody, the cost in
# thousand-millionths of a dollar.
spending = Table(
    "spending",
    metadata,
    agent(key=True),
    *texts("day", key=True),
    *ids("room_id", "person_id", key=True),
    *texts("model", key=True),
    *numbers("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed"),
    sqlite_with_rowid=False,
)

# Where several processes share the work (PostgreSQL): who they are, until when each counts as alive, and
# whose room is whose. A number is given once: who has been taken for dead comes back as somebody else.
workers = Table(
    "workers",
    metadata,
    position(),
    agent(),
    *numbers("alive_until"),
    **BUSY,
)

lanes = Table(
    "lanes",
    metadata,
    agent(key=True),
    *ids("room_id", key=True),
    *numbers("owner", missing=True),
    Index("ix_lanes_owner", "agent_id", "owner"),
    sqlite_with_rowid=False,
    **BUSY,
)
