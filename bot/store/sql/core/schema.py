"""The tables of the store, their unique keys, and an index for every query of the message pipeline.

Every row belongs to an agent, whose number begins every key. `position` is the order of insertion, because
clocks may step back. There are foreign keys only where the write itself ensures that the parent exists: a
memory or a task may name a room that no platform has reported yet, and a receipt outlives its message.
"""

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    event,
    func,
    literal_column,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from bot.domain.environment import ChannelType, MarkOrigin, ParticipantState, PersonMark, Role
from bot.domain.ledger import DeliveryKind, DeliveryState, EditState, EventOrigin, Outcome, StepState
from bot.domain.memory import MemoryKind, MemoryScope
from bot.domain.proposal import ProposalState
from bot.store.sql.core.mapping import (
    ContentJson,
    Day,
    Dollars,
    EnumText,
    Flag,
    HalfVector,
    Id,
    IdList,
    Json,
    ModelCallsJson,
    OptionalId,
    PlainText,
    RolesJson,
    SettingsJson,
    StrictJson,
    Time,
)

VERSION = "0016"
COMPATIBLE_FROM = "0015"  # processes of these versions and later may work beside this one
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
IS_VOTE = "vote <> 0"
IS_PARKED = "outcome = 'parked'"
IS_UNCLAIMED = "outcome = 'received' AND is_open = 1"
IS_WAITING = "state = 'waiting'"

metadata = MetaData(naming_convention=NAMING_CONVENTION)


ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only with an INTEGER key
VECTOR_TYPE = LargeBinary().with_variant(HalfVector(), "postgresql")

# Options of PostgreSQL that a table or an index carries until it is created there: given to its constructor, they would
# load the dialect of PostgreSQL into every bot, which takes 40 ms.
POSTGRES_OPTIONS = "postgres options"
# For rows that change with every message: PostgreSQL leaves free space in each page and vacuums early.
FREQUENTLY_UPDATED: dict[str, Any] = {
    "info": {
        POSTGRES_OPTIONS: {
            "with": {
                "fillfactor": 50,
                "autovacuum_vacuum_threshold": 500,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_cost_delay": 0,
            }
        }
    }
}


def add_postgres_options(metadata: MetaData) -> None:
    """Add to the tables and indexes their options of PostgreSQL, before they are created there."""
    for table in metadata.tables.values():
        items: list[Table | Index] = [table, *table.indexes]
        for item in items:
            item.dialect_options["postgresql"].update(item.info.get(POSTGRES_OPTIONS, {}))


def _columns(type_: TypeEngine[Any], *names: str, nullable: bool = False, key: bool = False) -> list[Column[Any]]:
    return [Column(name, type_, nullable=nullable, primary_key=key) for name in names]


def _added_column(name: str, type_: TypeEngine[Any], default: str) -> Column[Any]:
    """Return a column that a migration has added: the last of its table, with the value of the rows before it."""
    return Column(name, type_, nullable=False, server_default=str(default))


def _ids(*names: str, nullable: bool = False, key: bool = False) -> list[Column[Any]]:
    return _columns(Id(), *names, nullable=nullable, key=key)


def _times(*names: str, nullable: bool = False) -> list[Column[Any]]:
    return _columns(Time(), *names, nullable=nullable)


def _numbers(*names: str, nullable: bool = False) -> list[Column[Any]]:
    return _columns(BigInteger(), *names, nullable=nullable)


def _texts(*names: str, key: bool = False) -> list[Column[Any]]:
    return _columns(PlainText(), *names, key=key)


def _agent_column(*, key: bool = False) -> Column[int]:
    return Column("agent_id", Integer, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, primary_key=key)


def _ordered_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """Return a table whose rows are in the order of their insertion."""
    position = Column("position", ROW_NUMBER, Identity(), primary_key=True)
    return Table(name, metadata, position, _agent_column(), *items, **options)


def _keyed_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """Return a table whose rows are in the order of their key, which begins with the agent."""
    return Table(name, metadata, _agent_column(key=True), *items, sqlite_with_rowid=False, **options)


def _cascading_key(table: str, column: str) -> ForeignKeyConstraint:
    """Return a reference to a row of the same agent; deleting that row deletes this one."""
    return ForeignKeyConstraint(["agent_id", column], [f"{table}.agent_id", f"{table}.id"], ondelete="CASCADE")


def _partial_index(condition: str) -> dict[str, Any]:
    """Return the options that restrict an index to rows for which the condition holds."""
    where: ColumnElement[bool] = literal_column(condition)
    return {"sqlite_where": where, "info": {POSTGRES_OPTIONS: {"where": where}}}


agents = Table(
    "agents",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("key", Id(), nullable=False, unique=True),
)

worlds = _ordered_table(
    "worlds",
    *_ids("id"),
    *_texts("platform", "external_id", "name"),
    *_columns(RolesJson(unset=Role.MEMBER), "roles"),
    *_columns(Json(), "metadata"),
    _added_column("grants", RolesJson(), "{}"),
    _added_column("settings", SettingsJson(), "{}"),
    UniqueConstraint("agent_id", "id"),
)

# `active` orders the rooms by their last activity: a room that becomes active gets the next number.
rooms = _ordered_table(
    "rooms",
    *_ids("id", "world_id"),
    *_columns(EnumText(ChannelType), "type"),
    *_texts("platform", "external_id", "account", "name"),
    *_ids("parent_id", nullable=True),
    *_columns(Json(), "metadata"),
    *_numbers("active"),
    _added_column("is_age_restricted", Flag(), "0"),
    UniqueConstraint("agent_id", "id"),
    Index("ix_rooms_active", "agent_id", "active"),
    Index("ix_rooms_world", "agent_id", "world_id", "active"),
    _cascading_key("worlds", "world_id"),
)

entities = _ordered_table(
    "entities",
    *_ids("id"),
    *_texts("platform", "external_id"),
    *_columns(Json(tuple), "names"),
    *_columns(Flag(), "is_bot"),
    *_columns(Json(), "metadata"),
    UniqueConstraint("agent_id", "id"),
)

# A missing id is all zeroes here: in a unique key NULL would equal no other NULL.
components = _ordered_table(
    "components",
    *_ids("id", "entity_id"),
    *_texts("type"),
    *_columns(OptionalId(), "world_id", "source_entity_id"),
    *_ids("room_id", nullable=True),
    *_columns(Json(), "data"),
    *_times("created_at", nullable=True),
    UniqueConstraint("agent_id", "entity_id", "type", "world_id", "source_entity_id"),
    Index("ix_components_entity", "agent_id", "entity_id", "position"),
)

# `active` orders them likewise; 0 for one without activity: the agent's row, whose `state` is its own in the room.
participants = _keyed_table(
    "participants",
    *_ids("room_id", "entity_id", key=True),
    *_numbers("active"),
    *_columns(EnumText(ParticipantState), "state"),
    Index("ix_participants_active", "agent_id", "room_id", "active"),
    _cascading_key("entities", "entity_id"),
)

# Who wrote when: counted in memory, and added every few seconds.
activity = _keyed_table(
    "activity",
    *_ids("entity_id", key=True),
    *_times("first_at", "last_at"),
    *_numbers("messages", "answered"),
    Index("ix_activity_last", "agent_id", "last_at", "entity_id"),
)

# Marks of platform accounts, which stay when the person's rows are erased.
person_marks = _keyed_table(
    "person_marks",
    *_ids("entity_id", key=True),
    *_columns(EnumText(PersonMark), "mark", key=True),
    *_columns(EnumText(MarkOrigin), "origin", key=True),
    *_columns(OptionalId(), "world_id", key=True),
    *_texts("platform", "external_id"),
    *_times("at"),
)

# Rooms and people whom a person answers in place of the agent, and the last of each that has ended.
take_overs = _keyed_table(
    "take_overs",
    *_ids("room_id", key=True),
    *_columns(OptionalId(), "person_id", key=True),
    *_columns(OptionalId(), "by_id"),
    *_texts("name", "origin", "reason"),
    *_times("since"),
    *_times("ended_at", nullable=True),
)

# What was said in a room before its last messages; the text is empty where it has to be written anew. `revision` counts
# what has changed in the room's messages, so that a text that was being written meanwhile is not stored.
summaries = _keyed_table(
    "summaries",
    *_ids("room_id", key=True),
    *_texts("text", "model"),
    *_columns(IdList(), "author_ids"),
    *_ids("first_id", "last_id", nullable=True),
    *_numbers("first_position", "last_position", "revision"),
    *_times("first_at", "at", nullable=True),
)

# The last notice and the last referral of each person.
disclosures = _keyed_table(
    "disclosures",
    *_ids("entity_id", key=True),
    *_columns(EnumText(DeliveryKind), "kind", key=True),
    *_times("at"),
    *_ids("room_id"),
    *_texts("delivery_id"),
)

# How many referrals there were on a day (UTC), by the category of distress; whose they were is not stored.
care_counts = _keyed_table(
    "care_counts", *_columns(Day(), "day", key=True), *_texts("category", key=True), *_numbers("count")
)

relationships = _ordered_table(
    "relationships",
    *_ids("source_id", "target_id"),
    *_columns(Json(tuple), "tags"),
    *_numbers("interactions"),
    *_columns(Json(), "metadata"),
    UniqueConstraint("agent_id", "source_id", "target_id"),
    Index("ix_relationships_contact", "agent_id", "source_id", "interactions", "position"),
)

memories = _ordered_table(
    "memories",
    *_ids("id"),
    *_columns(EnumText(MemoryKind), "kind"),
    *_ids("entity_id", "room_id", "world_id"),
    *_columns(ContentJson(), "content"),
    *_times("created_at"),
    *_texts("external_id"),
    *_columns(EnumText(MemoryScope), "scope"),
    *_ids("source_id", "turn_id", nullable=True),
    *_columns(Json(), "metadata"),
    Column("terms", PlainText(), nullable=False, server_default=""),
    _added_column("vote", BigInteger(), "0"),  # of a reaction: 1 if it likes its message, -1 if it does not
    UniqueConstraint("agent_id", "id"),
    Index("ix_memories_room", "agent_id", "room_id", "kind", "position"),
    Index("ix_memories_source", "agent_id", "source_id", **_partial_index("source_id IS NOT NULL")),
    Index("ix_memories_turn", "agent_id", "turn_id", "position", **_partial_index("turn_id IS NOT NULL")),
    Index("ix_memories_facts", "agent_id", "entity_id", "position", **_partial_index(IS_FACT)),
    Index("ix_memories_votes", "agent_id", "created_at", **_partial_index(IS_VOTE)),
)

# `audience` is the recall scope: the id of the room or the world, or zeroes for everyone. Rows are stored
# in key order, so that the vectors of one audience are read sequentially.
embeddings = _keyed_table(
    "embeddings",
    *_texts("model", key=True),
    Column("dimension", Integer, primary_key=True),
    *_texts("kind", key=True),
    *_ids("audience", key=True),
    Column("memory", ROW_NUMBER, ForeignKey("memories.position", ondelete="CASCADE"), primary_key=True, unique=True),
    Column("vector", VECTOR_TYPE, nullable=False),
)

# Memories are found by their terms: in PostgreSQL by an index of the lists of terms, in SQLite by a table of its
# full-text search that refers to `memories` for its content and is kept up to date by triggers, whatever changes them.
Index(
    "ix_memories_terms",
    func.string_to_array(memories.c.terms, literal_column("' '")),
    info={POSTGRES_OPTIONS: {"using": "gin", "with": {"fastupdate": "off"}}},
).ddl_if(dialect="postgresql")
ADD_TERMS = "INSERT INTO memory_terms (rowid, terms) VALUES (new.position, new.terms);"
REMOVE_TERMS = "INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.position, old.terms);"
for statement in (
    "CREATE VIRTUAL TABLE memory_terms USING fts5 (terms, content = 'memories', content_rowid = 'position', "
    "tokenize = 'ascii', detail = 'none', columnsize = 0)",
    f"CREATE TRIGGER memories_terms_insert AFTER INSERT ON memories BEGIN {ADD_TERMS} END",
    f"CREATE TRIGGER memories_terms_delete AFTER DELETE ON memories BEGIN {REMOVE_TERMS} END",
    "CREATE TRIGGER memories_terms_update AFTER UPDATE OF terms ON memories WHEN old.terms <> new.terms "
    f"BEGIN {REMOVE_TERMS} {ADD_TERMS} END",
):
    event.listen(memories, "after_create", DDL(statement).execute_if(dialect="sqlite"))  # type: ignore[no-untyped-call]

tasks = _ordered_table(
    "tasks",
    *_ids("id"),
    *_texts("name"),
    *_times("next_run"),
    *_texts("description"),
    *_ids("room_id", "world_id", "entity_id", nullable=True),
    *_columns(Json(frozenset), "tags"),
    *_columns(Json(), "metadata"),
    *_numbers("attempts"),
    *_times("leased_until", nullable=True),
    *_numbers("fencing_token"),
    *_columns(Flag(), "is_parked"),
    *_texts("last_error"),
    *_columns(Flag(), "is_queued"),
    UniqueConstraint("agent_id", "id"),
    Index(
        "ix_tasks_due",
        "agent_id",
        "is_queued",
        "is_parked",
        "next_run",
        "room_id",
        **_partial_index("is_queued = 1 AND is_parked = 0"),
    ),
    Index("ix_tasks_all", "agent_id", "position"),
    Index("ix_tasks_next", "agent_id", "next_run", "id"),
    Index("ix_tasks_name", "agent_id", "name", "position"),
    Index("ix_tasks_room", "agent_id", "room_id", "position"),
)

cache = _keyed_table(
    "cache",
    *_texts("key", key=True),
    *_columns(StrictJson(), "value"),
    *_times("expires_at", nullable=True),
    Index("ix_cache_expires", "agent_id", "expires_at"),
)

logs = _ordered_table(
    "logs",
    *_texts("kind"),
    *_times("at"),
    *_ids("room_id", "entity_id", nullable=True),
    *_columns(Json(), "body"),
    Index("ix_logs_all", "agent_id", "position"),
    Index("ix_logs_kind", "agent_id", "kind", "position"),
    Index("ix_logs_room", "agent_id", "room_id", "position"),
)

# What lists of receipts are filtered by: their index holds it all.
LISTED_RECEIPT_COLUMNS = ("outcome", "rule", "platform", "author_id", "room_id")

# The room of an event's key is the receipt's room.
receipts = _ordered_table(
    "receipts",
    *_ids("id"),
    *_texts("platform", "account", "event_id"),
    *_ids("room_id"),
    *_texts("message_id"),
    *_numbers("revision"),
    *_ids("author_id", "memory_id"),
    *_times("received_at"),
    *_columns(EnumText(Outcome), "outcome"),
    *_texts("reason", "rule"),
    *_ids("turn_id", "superseded_by", nullable=True),
    *_numbers("attempts", "supersede_count"),
    *_times("claimed_at", "closed_at", nullable=True),
    *_columns(ModelCallsJson(), "model_calls"),
    *_columns(Json(tuple), "notes"),
    *_columns(Flag(), "is_evaluated", "is_open"),
    _added_column("crash_count", BigInteger(), "0"),
    _added_column("edit_state", EnumText(EditState), EditState.NORMAL),
    _added_column("origin", EnumText(EventOrigin), EventOrigin.PLATFORM),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "platform", "account", "event_id"),
    UniqueConstraint("agent_id", "room_id", "message_id", "revision"),
    Index("ix_receipts_memory", "agent_id", "memory_id"),
    Index("ix_receipts_room", "agent_id", "room_id", "position"),
    Index("ix_receipts_all", "agent_id", "position"),
    Index("ix_receipts_time", "agent_id", "received_at", "position", *LISTED_RECEIPT_COLUMNS),
    Index("ix_receipts_open", "agent_id", "is_open", "position", **_partial_index("is_open = 1")),
    Index("ix_receipts_unevaluated", "agent_id", "is_evaluated", "position", **_partial_index("is_evaluated = 0")),
    Index("ix_receipts_parked", "agent_id", "outcome", "received_at", "rule", **_partial_index(IS_PARKED)),
    Index("ix_receipts_unclaimed", "agent_id", "room_id", **_partial_index(IS_UNCLAIMED)),
    _cascading_key("rooms", "room_id"),
    _cascading_key("entities", "author_id"),
)

steps = _keyed_table(
    "steps",
    *_ids("turn_id", key=True),
    *_texts("key", key=True),
    *_texts("kind"),
    *_columns(EnumText(StepState), "state"),
    *_columns(IdList(), "subject_ids"),
    *_columns(Json(), "result"),
    *_times("recorded_at", nullable=True),
    _added_column("effect", PlainText(), ""),
)

deliveries = _ordered_table(
    "deliveries",
    *_texts("id"),
    *_ids("turn_id", "room_id", "memory_id"),
    *_texts("platform", "account", "target"),
    *_numbers("part"),
    *_columns(ContentJson(), "content"),
    *_times("created_at"),
    *_numbers("seq"),
    *_columns(EnumText(DeliveryState), "state"),
    *_numbers("attempts"),
    *_times("first_attempt_at", nullable=True),
    *_texts("external_id", "reply_to", "cause"),
    *_columns(Flag(), "is_open"),
    _added_column("kind", EnumText(DeliveryKind), DeliveryKind.REPLY),
    *_times("next_attempt_at", nullable=True),
    UniqueConstraint("agent_id", "id"),
    UniqueConstraint("agent_id", "room_id", "seq"),
    Index("ix_deliveries_turn", "agent_id", "turn_id", "position"),
    Index("ix_deliveries_open", "agent_id", "is_open", "position", **_partial_index("is_open = 1")),
    Index("ix_deliveries_unfinished", "agent_id", "position", **_partial_index(UNFINISHED)),
    Index("ix_deliveries_undecided", "agent_id", "state", "position", **_partial_index(UNDECIDED)),
    Index("ix_deliveries_all", "agent_id", "position"),
)

cursors = _keyed_table("cursors", *_texts("platform", "account", "name", key=True), *_texts("value"))

# What an adapter could not read, as it came; bounded in number and age.
unreadable_events = _ordered_table(
    "unreadable_events",
    *_texts("platform", "account", "event_id"),
    *_times("received_at"),
    *_texts("cause", "raw"),
    UniqueConstraint("agent_id", "platform", "account", "event_id"),
    Index("ix_unreadable_events_all", "agent_id", "position"),
)

# Sums of model costs: the day as `2026-11-21`, zeroes for no room or no person, an empty purpose for what is
# older than purposes, the cost in billionths of a dollar.
COST_FIGURES = (
    "calls",
    "tokens_in",
    "tokens_cached",
    "tokens_out",
    "cost",
    "unpriced_calls",
    "estimated_calls",
    "failed_calls",
)


def _cost_figures() -> list[Column[Any]]:
    return [Column(name, Dollars() if name == "cost" else BigInteger(), nullable=False) for name in COST_FIGURES]


costs = _keyed_table(
    "costs",
    *_columns(Day(), "day", key=True),
    *_columns(OptionalId(), "room_id", "person_id", key=True),
    *_texts("model", "purpose", key=True),
    *_cost_figures(),
)

# The same costs in fewer rows, written together with them: `work` has those by model and purpose, `room` and
# `person` those by room and person; the other columns of the key are empty.
cost_sums = _keyed_table(
    "cost_sums",
    *_texts("grouping", key=True),
    *_columns(Day(), "day", key=True),
    *_columns(OptionalId(), "room_id", "person_id", key=True),
    *_texts("model", "purpose", key=True),
    *_cost_figures(),
)

# For processes that share the work (PostgreSQL): each worker with the time until which it counts as alive,
# and the worker that owns each room. A number is used once: a worker that was declared dead gets a new one.
workers = _ordered_table("workers", *_numbers("alive_until"), **FREQUENTLY_UPDATED)

room_leases = _keyed_table(
    "room_leases",
    *_ids("room_id", key=True),
    *_numbers("owner", nullable=True),
    Index("ix_room_leases_owner", "agent_id", "owner"),
    **FREQUENTLY_UPDATED,
)

# What each worker holds of the limits of a day, in the units and with the keys of `cost_sums`, and the buckets
# of messages: their tokens in millionths.
cost_holds = _keyed_table(
    "cost_holds",
    *_texts("day", "grouping", key=True),
    *_ids("room_id", "person_id", key=True),
    Column("worker", BigInteger, primary_key=True),
    *_numbers("cost", "tokens"),
    ForeignKeyConstraint(["worker"], ["workers.position"], ondelete="CASCADE"),
    Index("ix_cost_holds_worker", "worker"),
    **FREQUENTLY_UPDATED,
)

message_buckets = _keyed_table(
    "message_buckets",
    *_texts("setting", key=True),
    *_ids("key", key=True),
    *_numbers("level", "capacity", "filled_at", "wanted", "taken"),
    **FREQUENTLY_UPDATED,
)

# Replies and posts that wait for a person's decision, and what became of them.
proposals = _ordered_table(
    "proposals",
    *_texts("id"),
    *_ids("room_id", "turn_id", "memory_id"),
    *_columns(ContentJson(), "content", "proposed"),
    *_times("created_at", "expires_at"),
    *_texts("reason"),
    *_ids("receipt_id", "message_id", "replaces_id", nullable=True),
    *_texts("reply_to"),
    *_columns(Json(), "metadata"),
    *_columns(IdList(), "subject_ids", "author_ids"),
    *_texts("notice"),
    *_columns(IdList(), "unnotified_ids"),
    *_numbers("revision"),
    *_columns(EnumText(ProposalState), "state"),
    *_texts("decided_by"),
    *_times("decided_at", nullable=True),
    *_texts("editor"),
    *_times("edited_until", nullable=True),
    *_texts("replaced_by"),
    _added_column("action", PlainText(), ""),
    *_ids("decided_by_id", nullable=True),
    UniqueConstraint("agent_id", "id"),
    Index("ix_proposals_all", "agent_id", "position"),
    Index("ix_proposals_turn", "agent_id", "turn_id"),
    Index("ix_proposals_waiting", "agent_id", "state", "position", **_partial_index(IS_WAITING)),
)
