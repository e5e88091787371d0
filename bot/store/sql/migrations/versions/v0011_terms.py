"""The terms by which memories are found, instead of the table of words."""

from uuid import UUID

import sqlalchemy as sa
from alembic import op

from bot.domain.memory import MemoryKind, MemoryScope
from bot.store.search import stored_terms
from bot.store.sql.core.mapping import loads
from bot.store.storage import report_progress

revision = "0011"
down_revision = "0010"

BATCH_SIZE = 2_000
ADD = "INSERT INTO memory_terms (rowid, terms) VALUES (new.position, new.terms);"
REMOVE = "INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.position, old.terms);"
SQLITE_INDEX = (
    "CREATE VIRTUAL TABLE memory_terms USING fts5 (terms, content = 'memories', content_rowid = 'position', "
    "tokenize = 'ascii', detail = 'none', columnsize = 0)",
    "INSERT INTO memory_terms (memory_terms) VALUES ('rebuild')",
    f"CREATE TRIGGER memories_terms_insert AFTER INSERT ON memories BEGIN {ADD} END",
    f"CREATE TRIGGER memories_terms_delete AFTER DELETE ON memories BEGIN {REMOVE} END",
    "CREATE TRIGGER memories_terms_update AFTER UPDATE OF terms ON memories WHEN old.terms <> new.terms "
    f"BEGIN {REMOVE} {ADD} END",
)
POSTGRES_INDEX = (
    "CREATE INDEX ix_memories_terms ON memories USING gin (string_to_array(terms, ' ')) WITH (fastupdate = off)",
)


def upgrade() -> None:
    """Add the column, fill it, and create its index."""
    op.drop_table("words")
    op.add_column("memories", sa.Column("terms", sa.Text, nullable=False, server_default=""))
    connection = op.get_bind()
    _fill(connection)
    for statement in SQLITE_INDEX if connection.dialect.name == "sqlite" else POSTGRES_INDEX:
        op.execute(statement)


def _fill(connection: sa.Connection) -> None:
    select = sa.text(
        "SELECT position, kind, scope, room_id, world_id, entity_id, content FROM memories "
        "WHERE position > :after ORDER BY position LIMIT :limit"
    )
    update = sa.text("UPDATE memories SET terms = :terms WHERE position = :position")
    total = connection.scalar(sa.text("SELECT count(*) FROM memories")) or 0
    done = after = 0
    while rows := connection.execute(select, {"after": after, "limit": BATCH_SIZE}).all():
        connection.execute(update, [{"position": row[0], "terms": _terms(*row[1:])} for row in rows])
        done, after = done + len(rows), rows[-1][0]
        report_progress("indexing what was said", done, total)


def _terms(kind: str, scope: str, room_id: bytes, world_id: bytes, entity_id: bytes, content: str) -> str:
    """Return the terms of a row, "" for one that cannot be read."""
    audiences = {MemoryScope.ROOM: room_id, MemoryScope.WORLD: world_id, MemoryScope.SHARED: None}
    try:
        audience, text = audiences[MemoryScope(scope)], loads(content)["text"]
        place = UUID(bytes=bytes(audience)) if audience is not None else None
        return stored_terms(MemoryKind(kind), text, UUID(bytes=bytes(entity_id)), place)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""
