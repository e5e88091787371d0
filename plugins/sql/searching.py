"""Memories by their words, in an index of our own: so that every database finds the same."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, func, select
from sqlalchemy.sql.expression import Executable

from bot import SAID, Memory, MemoryKind, Reach, best_by_words, word_weights, wording, words_of
from plugins.sql.dialect import each_of
from plugins.sql.postgres_spelling import Spelled
from plugins.sql.schema import memories, words
from plugins.sql.statements import Insert, Listing, Statement, same, value
from plugins.sql.values import dumps
from plugins.sql.vectors import AUDIENCE, EVERYBODY

EVERY = ""  # the word that every memory has
WHOLE = "="  # what stands before the digest of a whole wording: no word begins so


def _insert(insert: Insert) -> Executable:
    given = each_of(bindparam("words")).table_valued("value", name="given")
    source = select(memories.c.agent_id, memories.c.kind, given.c.value, AUDIENCE, memories.c.position).where(
        same(memories.c.agent_id, "agent"), same(memories.c.id, "id")
    )
    names = ("agent_id", "kind", "word", "audience", "memory")
    return insert(words).from_select(names, source).on_conflict_do_nothing()  # type: ignore[no-any-return]


INSERT = Statement(_insert, "words", "agent", "id")
DROP = Listing(
    lambda ids: delete(words).where(
        words.c.memory.in_(
            select(memories.c.position).where(same(memories.c.agent_id, "agent"), memories.c.id.in_(ids))
        )
    ),
    "agent",
)
SCOPE = (
    same(words.c.agent_id, "agent"),
    same(words.c.kind, "kind"),
    words.c.audience.in_([value(words.c.audience, name) for name in ("all", "world", "room")]),
)
IN_SCOPE = ("agent", "kind", "all", "world", "room")
COUNTS = Listing(
    lambda asked: (
        select(words.c.word, func.count()).where(*SCOPE, words.c.word.in_(asked)).group_by(words.c.word)
    ),
    *IN_SCOPE,
)
FOUND = Listing(
    lambda asked: select(words.c.memory, words.c.word).where(*SCOPE, words.c.word.in_(asked)), *IN_SCOPE
)
ALIKE = Statement(
    lambda _: (
        select(memories.c.id)
        .join(words, words.c.memory == memories.c.position)
        .where(
            same(words.c.agent_id, "agent"),
            same(words.c.kind, "kind"),
            same(words.c.word, "word"),
            same(words.c.audience, "audience"),
        )
        .limit(1)
    ),
    "agent",
    "kind",
    "word",
    "audience",
)
ALONE = Spelled("SELECT pg_advisory_xact_lock(?)")


def put(connection: Connection, agent: int, kept: Sequence[Memory]) -> None:
    """Note the words of memories, of those that were not said."""
    INSERT.run_many(
        connection,
        [(dumps(_entries(one)), agent, one.id.bytes) for one in kept if one.kind not in SAID],
    )


def drop(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Forget the words of memories."""
    DROP.count(connection, agent, ids=[one.bytes for one in ids])


def found(
    connection: Connection, agent: int, text: str, reach: Reach, kind: MemoryKind, limit: int
) -> list[int]:
    """Find the positions of the memories that share the most words with a text, the best first."""
    asked = sorted(words_of(text))
    if not asked or not limit:
        return []
    scope = (agent, kind.value, EVERYBODY, reach.world_id.bytes, reach.room_id.bytes)
    counts = {row[0]: row[1] for row in COUNTS.rows(connection, *scope, ids=[EVERY, *asked])}
    total = counts.pop(EVERY, 0)
    weights = word_weights(counts, total)
    shared: defaultdict[int, set[str]] = defaultdict(set)
    for position, word in FOUND.rows(connection, *scope, ids=list(weights)):
        shared[position].add(word)
    newest = {position: shared[position] for position in sorted(shared, reverse=True)}
    return best_by_words(newest, weights, total, limit)


def alike(connection: Connection, agent: int, memory: Memory, audience: UUID | None) -> bytes | None:
    """Find the memory that says the same; in PostgreSQL, nobody else looks for it until this is committed."""
    digest = _digest(memory)
    if connection.dialect.name == "postgresql":
        ALONE.rows(connection, int.from_bytes(digest[:8], signed=True))
    key = (memory.kind.value, _whole(digest), audience.bytes if audience else EVERYBODY)
    row = ALIKE.first(connection, agent, *key)
    return row[0] if row else None


def _entries(memory: Memory) -> list[str]:
    return [EVERY, _whole(_digest(memory)), *words_of(memory.content.text)]


def _whole(digest: bytes) -> str:
    return WHOLE + digest.hex()


def _digest(memory: Memory) -> bytes:
    said = wording(memory.content.text).encode("utf-8", "replace")
    return sha256(memory.entity_id.bytes + said).digest()[:16]
