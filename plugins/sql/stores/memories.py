"""Memories in SQL."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, delete, func, literal_column, or_, select

from bot import Memory, MemoryKind, Reach, Scope
from bot.store import LAST_SAID, SAID, Recalled, Unembedded, audience_of, ranked_by_words
from plugins.sql.core.base import Book
from plugins.sql.core.recent_cache import Lane, is_small, told_by
from plugins.sql.core.schema import embeddings, memories
from plugins.sql.core.statements import Listing, Row, Statement, limit, same, upsert, value
from plugins.sql.core.values import (
    content_of,
    content_text,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    moment,
    moment_of,
    storable_text,
)
from plugins.sql.stores import search

MEMORY_NAMES = (
    "agent_id",
    "id",
    "kind",
    "entity_id",
    "room_id",
    "world_id",
    "content",
    "created_at",
    "external_id",
    "scope",
    "source_id",
    "turn_id",
    "metadata",
)
MEMORY = tuple(memories.c[name] for name in MEMORY_NAMES[1:])
WITH_VECTOR = (*MEMORY, embeddings.c.model, embeddings.c.vector, memories.c.position)
HAS_VECTOR = embeddings.c.memory == memories.c.position
OF_AGENT = same(memories.c.agent_id, "agent")
IN_LANE = and_(OF_AGENT, same(memories.c.room_id, "room"), same(memories.c.kind, "kind"))
WINDOW = 1000  # positions, of all agents together, that are looked at in one go
LAST = 2**62
NOTHING: ColumnElement[int] = literal_column("0")  # added to a column, it leads no index to it
EMBEDDED = (MemoryKind.MESSAGE, MemoryKind.FACT)
NEWEST = (memories.c.created_at.desc(), memories.c.id.desc())

UPSERT = upsert(memories, ("agent_id", "id"), MEMORY_NAMES)
FIND = Listing(
    lambda ids: (
        select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(OF_AGENT, memories.c.id.in_(ids))
    ),
    "agent",
)
AT_POSITIONS = Listing(
    lambda ids: select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(memories.c.position.in_(ids))
)
COUNT = Statement(
    lambda _: select(func.count()).where(OF_AGENT, same(memories.c.kind, "kind")), "agent", "kind"
)
COUNT_IN_ROOM = Statement(lambda _: select(func.count()).where(IN_LANE), "agent", "room", "kind")
RECENT = Statement(
    lambda _: select(*MEMORY).where(IN_LANE).order_by(*NEWEST).limit(limit()),
    "agent",
    "room",
    "kind",
    "limit",
)
RECENT_BEFORE = Statement(
    lambda _: (
        select(*MEMORY)
        .where(IN_LANE, memories.c.created_at < value(memories.c.created_at, "before"))
        .order_by(*NEWEST)
        .limit(limit())
    ),
    "agent",
    "room",
    "kind",
    "before",
    "limit",
)
BY_TURN = Statement(
    lambda _: (
        select(*WITH_VECTOR)
        .outerjoin(embeddings, HAS_VECTOR)
        .where(OF_AGENT, same(memories.c.turn_id, "turn"))
        .order_by(memories.c.created_at, memories.c.id)
    ),
    "agent",
    "turn",
)
NEWEST_BEFORE = Statement(
    lambda _: (
        select(memories.c.position)
        .where(memories.c.position < value(memories.c.position, "before"))
        .order_by(memories.c.position.desc())
        .limit(1)
    ),
    "before",
)
UNEMBEDDED = Statement(
    lambda _: (
        select(*MEMORY)
        .outerjoin(embeddings, and_(HAS_VECTOR, same(embeddings.c.model, "model")))
        .where(
            memories.c.position <= value(memories.c.position, "newest"),
            memories.c.position > value(memories.c.position, "oldest"),
            memories.c.agent_id + NOTHING == value(memories.c.agent_id, "agent"),
            or_(*(memories.c.kind == kind.value for kind in EMBEDDED)),
            embeddings.c.memory.is_(None),
        )
        .order_by(memories.c.position.desc())
    ),
    "model",
    "newest",
    "oldest",
    "agent",
)
REMOVE = Listing(lambda ids: delete(memories).where(OF_AGENT, memories.c.id.in_(ids)), "agent")


def put_memories(connection: Connection, agent: int, kept: Sequence[Memory]) -> None:
    """Insert, or replace the memory of that id; its words and a vector that comes along are kept too."""
    rows = [memory_values(agent, memory) for memory in kept]
    UPSERT.run_many(connection, rows)
    if recents := told_by(connection):
        recents.tell(rows, kept)
    search.store_words(connection, agent, kept)
    search.store_embeddings(
        connection,
        agent,
        [
            search.Kept(memory.id, memory.embedding, memory.embedding_model)
            for memory in kept
            if memory.embedding is not None
        ],
    )


def memory_of(row: Row) -> Memory:
    """Read a memory from its columns."""
    return _kept(row[:12]) if is_small(row) else _read(row)


def _read(row: Row) -> Memory:
    (memory_id, kind, entity_id, room_id, world_id, content) = row[:6]
    (created_at, external_id, scope, source_id, turn_id, metadata) = row[6:12]
    return Memory(
        id=id_of(memory_id),
        kind=MemoryKind(kind),
        entity_id=id_of(entity_id),
        room_id=id_of(room_id),
        world_id=id_of(world_id),
        content=content_of(content),
        created_at=moment_of(created_at),
        external_id=external_id,
        scope=Scope(scope),
        source_id=id_or_none(source_id),
        turn_id=id_or_none(turn_id),
        metadata=loads(metadata),
    )


_kept = lru_cache(maxsize=4096)(_read)  # a room's last messages are read with every turn, and rarely change


def as_read(row: Row, memory: Memory) -> Memory:
    """Give a memory as it comes back from its columns: nearly always as it is."""
    content = memory.content
    is_odd = memory.metadata or content.metadata or content.attachments or content.choices
    is_same = memory.embedding is None and not memory.embedding_model and row[7] == memory.external_id
    return memory if is_same and not is_odd and memory.created_at.tzinfo is UTC else memory_of(row)


def _with_vector(row: Row) -> Memory:
    memory = memory_of(row)
    model, vector = row[12:14]
    if vector is None:
        return memory
    return replace(memory, embedding=search.unpacked(vector), embedding_model=model)


def memory_values(agent: int, memory: Memory) -> Row:
    """Write a memory."""
    return (
        agent,
        memory.id.bytes,
        memory.kind.value,
        memory.entity_id.bytes,
        memory.room_id.bytes,
        memory.world_id.bytes,
        content_text(memory.content),
        moment(memory.created_at),
        storable_text(memory.external_id),
        memory.scope.value,
        id_bytes(memory.source_id),
        id_bytes(memory.turn_id),
        dumps(memory.metadata),
    )


def _add(agent: int, added: Sequence[Memory], connection: Connection) -> None:
    """What replaces a memory replaces its vector and words too: those of another text would mislead."""
    ids = [memory.id for memory in added]
    search.delete_embeddings(connection, agent, ids)
    search.delete_words(connection, agent, ids)
    put_memories(connection, agent, added)


def _add_unique(agent: int, memory: Memory, connection: Connection) -> Memory:
    known = search.alike(connection, agent, memory, audience_of(memory))
    if known is not None:
        return _with_vector(FIND.rows(connection, agent, ids=[known])[0])
    _add(agent, [memory], connection)
    return memory


def _recall(
    agent: int, wanted: search.Wanted, reach: Reach, limit: int, connection: Connection
) -> list[Recalled]:
    audiences = (search.EVERYBODY, reach.world_id.bytes, reach.room_id.bytes)
    scores = search.nearest(connection, agent, wanted, audiences, limit)
    rows = AT_POSITIONS.rows(connection, ids=list(scores))
    found = [Recalled(_with_vector(row), scores[row[14]]) for row in rows]
    return sorted(found, key=lambda one: -one.similarity)


def _search(
    agent: int, text: str, reach: Reach, kind: MemoryKind, limit: int, connection: Connection
) -> list[Memory]:
    if kind in SAID:
        rows = RECENT.rows(connection, agent, reach.room_id.bytes, kind.value, LAST_SAID)
        newest = [content_of(row[5]).text for row in rows]
        return [memory_of(rows[place]) for place in ranked_by_words(text, newest, limit)]
    positions = search.found(connection, agent, text, reach, kind, limit)
    found = {row[14]: _with_vector(row) for row in AT_POSITIONS.rows(connection, ids=positions)}
    return [found[one] for one in positions if one in found]


def _unembedded(agent: int, model: str, before: int, connection: Connection) -> Unembedded:
    """Go on at the next memory that there is: positions have gaps, some of them wide."""
    found = NEWEST_BEFORE.first(connection, before)
    if found is None:
        return Unembedded()
    newest = found[0]
    oldest = max(0, newest - WINDOW)
    rows = UNEMBEDDED.rows(connection, model, newest, oldest, agent)
    return Unembedded(tuple(map(memory_of, rows)), oldest + 1 if oldest else None)


class SqlMemories(Book):
    """Keeps memories; see `MemoryStore`. `recent` leaves out vectors, which the road does not need."""

    async def add(self, memories: Sequence[Memory]) -> None:
        if memories:
            await self._database.write(partial(_add, self._agent, memories))

    async def add_unique(self, memory: Memory) -> Memory:
        if memory.kind in SAID:
            raise ValueError(f"a {memory.kind} is told from others by its id: use add")
        return await self._database.write(partial(_add_unique, self._agent, memory))

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        keys = [one.bytes for one in ids]
        if not keys:
            return {}
        rows = await self._database.read(lambda db: FIND.rows(db, self._agent, ids=keys))
        return {memory.id: memory for memory in map(_with_vector, rows)}

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        if room_id is None:
            rows = await self._database.search(lambda db: COUNT.rows(db, self._agent, kind.value))
        else:
            lane = (self._agent, room_id.bytes, kind.value)
            rows = await self._database.search(lambda db: COUNT_IN_ROOM.rows(db, *lane))
        return int(rows[0][0])

    async def recent(
        self,
        room_id: UUID,
        limit: int = 20,
        *,
        kind: MemoryKind = MemoryKind.MESSAGE,
        before: datetime | None = None,
    ) -> list[Memory]:
        lane = Lane(self._agent, room_id.bytes, kind.value)
        if before is None:
            return await self._last(lane, limit)
        end = moment(before)
        rows = await self._database.read(lambda db: RECENT_BEFORE.rows(db, *lane, end, limit))
        return [memory_of(row) for row in reversed(rows)]

    async def _last(self, lane: Lane, limit: int) -> list[Memory]:
        recents = self._database.recents
        if recents is not None and (known := recents.get(lane, limit)) is not None:
            return known
        version = recents.version if recents is not None else 0
        rows = await self._database.read(lambda db: RECENT.rows(db, *lane, limit))
        found = [memory_of(row) for row in reversed(rows)]
        if recents is not None and all(map(is_small, rows)):
            recents.keep(lane, limit, found, version)
        return found

    async def by_turn(self, turn_id: UUID) -> list[Memory]:
        rows = await self._database.read(lambda db: BY_TURN.rows(db, self._agent, turn_id.bytes))
        return [_with_vector(row) for row in rows]

    async def recall(
        self, embedding: Sequence[float], model: str, reach: Reach, kind: MemoryKind, limit: int = 10
    ) -> list[Recalled]:
        wanted = search.Wanted(tuple(embedding), model, kind)
        return await self._database.search(partial(_recall, self._agent, wanted, reach, limit))

    async def search(self, text: str, reach: Reach, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        return await self._database.search(partial(_search, self._agent, text, reach, kind, limit))

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        row = search.Kept(memory_id, tuple(embedding), model)
        await self._database.write(lambda db: search.replace(db, self._agent, [row]))

    async def unembedded(self, model: str, before: int | None = None) -> Unembedded:
        work = partial(_unembedded, self._agent, storable_text(model), LAST if before is None else before)
        return await self._database.search(work)

    async def remove(self, ids: Collection[UUID]) -> int:
        keys = [one.bytes for one in ids]
        if not keys:
            return 0
        return await self._database.write(lambda db: REMOVE.count(db, self._agent, ids=keys))
