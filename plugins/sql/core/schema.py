"""The tables of the store, their unique keys, and an index for every query of the message pipeline.

Every row belongs to an agent, whose number begins every key. `position` is the order of insertion, because
clocks may step back. There are foreign keys only where the write itself ensures that the parent exists: a
memory or a task may name a room that no platform has reported yet, and a receipt outlives its message.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

from plugins.sql.core.columns import (
    FREQUENTLY_UPDATED,
    ROW_NUMBER,
    VECTOR_TYPE,
    agent_column,
    cascading_key,
    id_columns,
    number_columns,
    partial_index,
    position_column,
    text_columns,
)

VERSION = "0009"
COMPATIBLE_FROM = "0005"  # processes of these versions and later may work beside this one
VERSION_TABLE = "alembic_version_sql"

# A later version can only change a constraint that has the same name in both databases.
NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
}

# Must equal the text of the statement, or the partial index is not used.
UNFINISHED = "state <> 'sent' AND state <> 'cancelled'"
UNDECIDED = "state = 'unknown' OR state = 'failed'"
IS_FACT = "kind = 'FACT'"
IS_PARKED = "outcome = 'parked'"
IS_UNCLAIMED = "outcome = 'received' AND is_open = 1"

metadata = MetaData(naming_convention=NAMING_CONVENTION)


def ordered_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """Return a table whose rows are in the order of their insertion."""
    return Table(name, metadata, position_column(), agent_column(), *items, **options)


def keyed_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """Return a table whose rows are in the order of their key, which begins with the agent."""
    return Table(name, metadata, agent_column(key=True), *items, sqlite_with_rowid=False, **options)


agents = Table(
    "agents",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("key", LargeBinary(16), nullable=False, unique=True),
)

worlds = ordered_table(
    "worlds",
    *id_columns("id"),
    *text_columns("platform", "external_id", "name", "roles", "metadata"),
    UniqueConstraint("agent_id", "id"),
)

rooms = ordered_table(
    "rooms",
    *id_columns("id", "world_id"),
    *text_columns("type", "platform", "external_id", "account", "name"),
    *id_columns("parent_id", nullable=True),
    *text_columns("metadata"),
    *number_columns("active"),
    UniqueConstraint("agent_id", "id"),
    Index("ix_rooms_active", "agent_id", "active"),
    Index("ix_rooms_world", "agent_id", "world_id", "active"),
    cascading_key("worlds", "world_id"),
)

entities = ordered_table(
    "entities",
    *id_columns("id"),
    *text_columns("platform", "external_id", "names"),
    *number_columns("is_bot"),
    *text_columns("metadata"),
    UniqueConstraint("agent_id", "id"),
)

# A missing id is all zeroes here: in a unique key NULL would equal no other NULL.
components = ordered_table(
    "components",
    *id_columns("id", "entity_id"),
    *text_columns("type"),
    *id_columns("world_id", "source_entity_id"),
    *id_columns("room_id", nullable=True),
    *text_columns("data"),
    *number_columns("created_at", nullable=True),
    UniqueConstraint("agent_id", "entity_id", "type", "world_id", "source_entity_id"),
    Index("ix_components_entity", "agent_id", "entity_id", "position"),
)

# `active` orders by the last activity; 0 for a participant without any (the agent's own state in a room).
participants = keyed_table(
    "participants",
    *id_columns("room_id", "entity_id", key=True),
    *number_columns("active"),
    *text_columns("attendance"),
    Index("ix_participants_active", "agent_id", "room_id", "active"),
    cascading_key("entities", "entity_id"),
)

# Who wrote when: counted in memory, and added every few seconds.
activity = keyed_table(
    "activity",
    *id_columns("entity_id", key=True),
    *number_columns("first_at", "last_at", "messages", "answered"),
    Index("ix_activity_last", "agent_id", "last_at", "entity_id"),
)

relationships = ordered_table(
    "relationships",
    *id_columns("source_id", "target_id"),
    *text_columns("tags"),
    *number_columns("interactions"),
    *text_columns("metadata"),
    UniqueConstraint("agent_id", "source_id", "target_id"),
    Index("ix_relationships_contact", "agent_id", "source_id", "interactions", "position"),
)

memories = ordered_table(
    "memories",
    *id_columns("id"),
    *text_columns("kind"),
    *id_columns("entity_id", "room_id", "world_id"),
    *text_columns("content"),
    *number_columns("created_at"),
    *text_columns("external_id", "scope"),
    *id_columns("source_id", "turn_id", nullable=True),
    *text_columns("metadata"),
    UniqueConstraint("agent_id", "id"),
    Index("ix_memories_room", "agent_id", "room_id", "kind", "position"),
    Index("ix_memories_source", "agent_id", "source_id", **partial_index("source_id IS NOT NULL")),
    Index("ix_memories_turn", "agent_id", "turn_id", "position", **partial_index("turn_id IS NOT NULL")),
    Index("ix_memories_facts", "agent_id", "entity_id", "position", **partial_index(IS_FACT)),
)

# `audience` is the recall scope: the id of the room or the world, or zeroes for everyone. Rows are stored
# in key order, so that the vectors of one audience are read sequentially.
embeddings = keyed_table(
    "embeddings",
    *text_columns("model", key=True),
    Column("dimension", Integer, primary_key=True),
    *text_columns("kind", key=True),
    *id_columns("audience", key=True),
    Column("memory", ROW_NUMBER, ForeignKey("memories.position", ondelete="CASCADE"), primary_key=True, unique=True),
    Column("vector", VECTOR_TYPE, nullable=False),
)

# The words of memories other than messages, for which indexing would cost time with every reply. Each memory
# also has an empty word, by which all are counted, and one that stands for its whole text.
words = keyed_table(
    "words",
    *text_columns("kind", "word", key=True),
    *id_columns("audience", key=True),
    Column("memory", ROW_NUMBER, ForeignKey("memories.position", ondelete="CASCADE"), primary_key=True),
    Index("ix_words_memory", "memory"),
)

tasks = ordered_table(
    "tasks",
    *id_columns("id"),
    *text_columns("name"),
    *number_columns("next_run"),
    *text_columns("description"),
    *id_columns("room_id", "world_id", "entity_id", nullable=True),
    *text_columns("tags", "metadata"),
    *number_columns("attempts"),
    *number_columns("leased_until", nullable=True),
    *number_columns("fence", "is_parked"),
    *text_columns("last_error"),
    *number_columns("is_queued"),
    UniqueConstraint("agent_id", "id"),
    Index(
        "ix_tasks_due",
        "agent_id",
        "is_queued",
        "is_parked",
        "next_run",
        "room_id",
        **partial_index("is_queued = 1 AND is_parked = 0"),
    ),
    Index("ix_tasks_all", "agent_id", "position"),
    Index("ix_tasks_next", "agent_id", "next_run", "id"),
    Index("ix_tasks_name", "agent_id", "name", "position"),
    Index("ix_tasks_room", "agent_id", "room_id", "position"),
)

cache = keyed_table(
    "cache",
    *text_columns("key", key=True),
    *text_columns("value"),
    *number_columns("expires_at", nullable=True),
    Index("ix_cache_expires", "agent_id", "expires_at"),
)

logs = ordered_table(
    "logs",
    *text_columns("kind"),
    *number_columns("at"),
    *id_columns("room_id", "entity_id", nullable=True),
    *text_columns("body"),
    Index("ix_logs_all", "agent_id", "position"),
    Index("ix_logs_kind", "agent_id", "kind", "position"),
    Index("ix_logs_room", "agent_id", "room_id", "position"),
)

# What lists of receipts are filtered by: their index holds it all.
LISTED_RECEIPT_COLUMNS = ("outcome", "rule", "platform", "author_id", "room_id")

# The room of an event's key is the receipt's room.
receipts = ordered_table(
    "receipts",
    *id_columns("id"),
    *text_columns("platform", "account", "event_id"),
    *id_columns("room_id"),
    *text_columns("message_id"),
    *number_columns("revision"),
    *id_columns("author_id", "memory_id"),
    *number_columns("received_at"),
    *text_columns("outcome", "reason", "rule"),
    *id_columns("turn_id", "superseded_by", nullable=True),
    *number_columns("attempts", "carried"),
    *number_columns("claimed_at", "closed_at", nullable=True),
    *text_columns("model_calls", "notes"),
    *number_columns("is_learnt", "is_open"),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "platform", "account", "event_id"),
    UniqueConstraint("agent_id", "room_id", "message_id", "revision"),
    Index("ix_receipts_memory", "agent_id", "memory_id"),
    Index("ix_receipts_room", "agent_id", "room_id", "position"),
    Index("ix_receipts_all", "agent_id", "position"),
    Index("ix_receipts_time", "agent_id", "received_at", "position", *LISTED_RECEIPT_COLUMNS),
    Index("ix_receipts_open", "agent_id", "is_open", "position", **partial_index("is_open = 1")),
    Index("ix_receipts_unlearnt", "agent_id", "is_learnt", "position", **partial_index("is_learnt = 0")),
    Index("ix_receipts_parked", "agent_id", "outcome", "received_at", **partial_index(IS_PARKED)),
    Index("ix_receipts_unclaimed", "agent_id", "room_id", **partial_index(IS_UNCLAIMED)),
    cascading_key("rooms", "room_id"),
    cascading_key("entities", "author_id"),
)

steps = keyed_table(
    "steps",
    *id_columns("turn_id", key=True),
    *text_columns("key", key=True),
    *text_columns("kind", "state", "effect", "result"),
    *number_columns("at", nullable=True),
)

deliveries = ordered_table(
    "deliveries",
    *text_columns("id"),
    *id_columns("turn_id", "room_id", "memory_id"),
    *text_columns("platform", "account", "target"),
    *number_columns("part"),
    *text_columns("content"),
    *number_columns("created_at", "seq"),
    *text_columns("state"),
    *number_columns("attempts"),
    *number_columns("first_attempt_at", nullable=True),
    *text_columns("external_id", "reply_to", "cause"),
    *number_columns("is_open"),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "room_id", "seq"),
    Index("ix_deliveries_turn", "agent_id", "turn_id", "position"),
    Index("ix_deliveries_open", "agent_id", "is_open", "position", **partial_index("is_open = 1")),
    Index("ix_deliveries_unfinished", "agent_id", "position", **partial_index(UNFINISHED)),
    Index("ix_deliveries_undecided", "agent_id", "state", "position", **partial_index(UNDECIDED)),
    Index("ix_deliveries_all", "agent_id", "position"),
)

cursors = keyed_table("cursors", *text_columns("platform", "account", "name", key=True), *text_columns("value"))

# What an adapter could not read, as it came; bounded in number and age.
unreadable_events = ordered_table(
    "unreadable_events",
    *text_columns("platform", "account", "event_id"),
    *number_columns("received_at"),
    *text_columns("cause", "raw"),
    UniqueConstraint("agent_id", "platform", "account", "event_id"),
    Index("ix_unreadable_events_all", "agent_id", "position"),
)

# Sums of model costs: the day as `2026-11-21`, zeroes for no room or no person, an empty purpose for what is
# older than purposes, the cost in billionths of a dollar.
COST_SUMS = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")
spending = keyed_table(
    "spending",
    *text_columns("day", key=True),
    *id_columns("room_id", "person_id", key=True),
    *text_columns("model", "purpose", key=True),
    *number_columns(*COST_SUMS),
)

# The same costs in fewer rows, written together with them: `work` has those by model and purpose, `room` and
# `person` those by room and person; the other columns of the key are empty.
spending_sums = keyed_table(
    "spending_sums",
    *text_columns("grouping", "day", key=True),
    *id_columns("room_id", "person_id", key=True),
    *text_columns("model", "purpose", key=True),
    *number_columns(*COST_SUMS),
)

# For processes that share the work (PostgreSQL): each worker with the time until which it counts as alive,
# and the worker that owns each room. A number is used once: a worker that was declared dead gets a new one.
workers = ordered_table("workers", *number_columns("alive_until"), **FREQUENTLY_UPDATED)

lanes = keyed_table(
    "lanes",
    *id_columns("room_id", key=True),
    *number_columns("owner", nullable=True),
    Index("ix_lanes_owner", "agent_id", "owner"),
    **FREQUENTLY_UPDATED,
)

# What each worker holds of the limits of a day, in the units and with the keys of `spending_sums`, and the buckets
# of messages: their tokens in millionths.
cost_holds = keyed_table(
    "cost_holds",
    *text_columns("day", "grouping", key=True),
    *id_columns("room_id", "person_id", key=True),
    Column("worker", BigInteger, primary_key=True),
    *number_columns("cost", "tokens"),
    ForeignKeyConstraint(["worker"], ["workers.position"], ondelete="CASCADE"),
    Index("ix_cost_holds_worker", "worker"),
    **FREQUENTLY_UPDATED,
)

message_buckets = keyed_table(
    "message_buckets",
    *text_columns("setting", key=True),
    *id_columns("key", key=True),
    *number_columns("level", "capacity", "filled_at", "wanted", "taken"),
    **FREQUENTLY_UPDATED,
)
