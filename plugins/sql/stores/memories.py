"""Memories: storage, recall and search."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, literal_column, or_, select, union_all

from bot import Memory, MemoryKind, RecallScope
from bot.store import (
    MAX_CONVERSATION_REACTIONS,
    MAX_CONVERSATION_RESULTS,
    MAX_TRANSCRIPT_SCAN,
    TRANSCRIPT_KINDS,
    Conversation,
    MemoryMatch,
    MemoryPage,
    UnembeddedPage,
    rank_by_word_overlap,
    recall_audience,
)
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.inserts import upsert
from plugins.sql.core.memory_rows import MEMORY, MEMORY_NAMES, memory_values
from plugins.sql.core.recent_cache import WindowKey, recent_cache_of
from plugins.sql.core.schema import IS_FACT, embeddings, memories
from plugins.sql.core.statements import ListStatement, Row, Statement, limit_parameter, matches, typed_parameter
from plugins.sql.core.values import content_of, id_of, microseconds_of, storable_text
from plugins.sql.stores import search

WITH_VECTOR = (*MEMORY, embeddings.c.model, embeddings.c.vector, memories.c.position)
KIND, CONTENT, EXTERNAL_ID = map(MEMORY.names.index, ("kind", "content", "external_id"))
HAS_VECTOR = embeddings.c.memory == memories.c.position
OF_AGENT = matches(memories, "agent_id")
IN_ROOM_OF_KIND = matches(memories, "agent_id", "room_id", "kind")
SCAN_WINDOW = 1000  # positions of all agents that one query examines
EXPORT_WINDOW = 20_000  # likewise, of an export
MAX_POSITION = 2**62
ZERO: ColumnElement[int] = literal_column("0")  # added to a column, it prevents the use of an index
EMBEDDED_KINDS = (MemoryKind.MESSAGE, MemoryKind.FACT)
NEWEST_FIRST = memories.c.position.desc()

UPSERT_MEMORY = upsert(memories, ("agent_id", "id"), MEMORY_NAMES)
FIND_MEMORIES = ListStatement(
    lambda ids: select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(OF_AGENT, memories.c.id.in_(ids))
)
AT_POSITIONS = ListStatement(
    lambda ids: select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(memories.c.position.in_(ids))
)
COUNT_OF_KIND = Statement(lambda _: select(func.count()).where(OF_AGENT, matches(memories, "kind")))
COUNT_IN_ROOM = Statement(lambda _: select(func.count()).where(IN_ROOM_OF_KIND))
RECENT = Statement(lambda _: select(*MEMORY).where(IN_ROOM_OF_KIND).order_by(NEWEST_FIRST).limit(limit_parameter()))
RECENT_BEFORE = Statement(
    lambda _: (
        select(*MEMORY)
        .where(IN_ROOM_OF_KIND, memories.c.created_at < typed_parameter(memories.c.created_at, "before"))
        .order_by(NEWEST_FIRST)
        .limit(limit_parameter())
    )
)
CONVERSATION_LIMITS = {
    MemoryKind.ACTION_RESULT: MAX_CONVERSATION_RESULTS,
    MemoryKind.REACTION: MAX_CONVERSATION_REACTIONS,
}


def _select_last(kind: MemoryKind, limit: Any) -> Select[Any]:
    """Select the last memories of one kind in a room."""
    condition = and_(matches(memories, "agent_id", "room_id"), memories.c.kind == kind.value)
    last = select(*MEMORY).where(condition).order_by(NEWEST_FIRST).limit(limit).subquery()
    return select(*last.c)


CONVERSATION = Statement(
    lambda _: union_all(
        _select_last(MemoryKind.MESSAGE, limit_parameter()),
        *(_select_last(kind, limit) for kind, limit in CONVERSATION_LIMITS.items()),
    )
)
MEMORIES_OF_TURN = Statement(
    lambda _: (
        select(*WITH_VECTOR)
        .outerjoin(embeddings, HAS_VECTOR)
        .where(OF_AGENT, matches(memories, "turn_id"))
        .order_by(memories.c.position)
    )
)
NEWEST_BEFORE = Statement(
    lambda _: (
        select(memories.c.position)
        .where(memories.c.position < typed_parameter(memories.c.position, "before"))
        .order_by(memories.c.position.desc())
        .limit(1)
    )
)
UNEMBEDDED = Statement(
    lambda _: (
        select(*MEMORY)
        .outerjoin(embeddings, and_(HAS_VECTOR, matches(embeddings, "model")))
        .where(
            memories.c.position <= typed_parameter(memories.c.position, "newest"),
            memories.c.position > typed_parameter(memories.c.position, "oldest"),
            memories.c.agent_id + ZERO == typed_parameter(memories.c.agent_id, "agent_id"),
            or_(*(memories.c.kind == kind.value for kind in EMBEDDED_KINDS)),
            embeddings.c.memory.is_(None),
        )
        .order_by(memories.c.position.desc())
    )
)
OF_FACTS = and_(OF_AGENT, matches(memories, "entity_id"), literal_column(IS_FACT))
FACTS = Statement(
    lambda _: (
        select(*MEMORY, memories.c.position)
        .where(OF_FACTS, memories.c.position < typed_parameter(memories.c.position, "before"))
        .order_by(NEWEST_FIRST)
        .limit(limit_parameter())
    )
)
COUNT_FACTS = ListStatement(
    lambda ids: (
        select(memories.c.entity_id, func.count())
        .where(OF_AGENT, literal_column(IS_FACT), memories.c.entity_id.in_(ids))
        .group_by(memories.c.entity_id)
    )
)
OF_ENTITY = Statement(
    lambda _: (
        select(*MEMORY)
        .where(
            memories.c.position <= typed_parameter(memories.c.position, "newest"),
            memories.c.position > typed_parameter(memories.c.position, "oldest"),
            memories.c.agent_id + ZERO == typed_parameter(memories.c.agent_id, "agent_id"),
            matches(memories, "entity_id"),
        )
        .order_by(NEWEST_FIRST)
    )
)
EXPIRED = Statement(
    lambda _: (
        select(memories.c.id)
        .where(
            OF_AGENT,
            matches(memories, "kind"),
            memories.c.created_at < typed_parameter(memories.c.created_at, "before"),
        )
        .limit(limit_parameter())
    )
)
DELETE_MEMORIES = ListStatement(lambda ids: delete(memories).where(OF_AGENT, memories.c.id.in_(ids)))
DERIVED_MEMORIES = ListStatement(
    lambda ids: select(memories.c.id).where(matches(memories, "agent_id"), memories.c.source_id.in_(ids))
)


def delete_with_derived(connection: Connection, agent: int, ids: Sequence[bytes]) -> int:
    """Delete memories and, repeatedly, those derived from them, with their vectors; return how many."""
    count, keys = 0, list(ids)
    while keys:
        count += DELETE_MEMORIES.count(connection, agent, ids=keys)
        keys = [row[0] for row in DERIVED_MEMORIES.rows(connection, agent, ids=keys)]
    return count


def put_memories(connection: Connection, agent: int, stored: Sequence[Memory]) -> None:
    """Insert or replace memories by id, with their words and vectors."""
    rows = [memory_values(agent, memory) for memory in stored]
    UPSERT_MEMORY.run_many(connection, rows)
    if recent_cache := recent_cache_of(connection):
        recent_cache.notify(rows, stored)
    search.store_words(connection, agent, stored)
    search.store_embeddings(connection, agent, search.vectors_of(stored))


def as_stored(row: Row, memory: Memory) -> Memory:
    """Return a memory as it would be read from its row; nearly always the memory itself."""
    content = memory.content
    is_odd = memory.metadata or content.metadata or content.all_attachments or content.choices
    is_same = memory.embedding is None and not memory.embedding_model and row[EXTERNAL_ID] == memory.external_id
    return memory if is_same and not is_odd and memory.created_at.tzinfo is UTC else MEMORY.read(row)


def _read_with_vectors(rows: Iterable[Row]) -> Iterator[tuple[int, Memory]]:
    """Yield position and memory of rows of WITH_VECTOR, without those that cannot be read."""
    for row in rows:
        model, vector, position = row[MEMORY.width :]
        memory = MEMORY.read_or_report(row)
        if memory is not None and vector is not None:
            memory = replace(memory, embedding=search.unpack_vector(vector), embedding_model=model)
        if memory is not None:
            yield position, memory


def read_memories(rows: Iterable[Row]) -> list[Memory]:
    """Return the memories of rows of WITH_VECTOR."""
    return [memory for _, memory in _read_with_vectors(rows)]


def _add_memories(agent: int, new_memories: Sequence[Memory], connection: Connection) -> None:
    """Insert or replace memories; vectors and words of a replaced text are deleted."""
    ids = [memory.id for memory in new_memories]
    search.delete_embeddings(connection, agent, ids)
    search.delete_words(connection, agent, ids)
    put_memories(connection, agent, new_memories)


def _add_unique(agent: int, memory: Memory, connection: Connection) -> Memory:
    existing_id = search.find_same_wording(connection, agent, memory, recall_audience(memory))
    if existing_id is not None:
        return read_memories(FIND_MEMORIES.rows(connection, agent, ids=[existing_id]))[0]
    _add_memories(agent, [memory], connection)
    return memory


def _find_nearest(
    agent: int, query: search.VectorQuery, scope: RecallScope, limit: int, connection: Connection
) -> list[MemoryMatch]:
    scores = search.find_nearest(connection, agent, query, search.audiences_of(scope), limit)
    rows = AT_POSITIONS.rows(connection, ids=list(scores))
    matches = [MemoryMatch(memory, scores[position]) for position, memory in _read_with_vectors(rows)]
    return sorted(matches, key=lambda match: -match.similarity)


def _search_words(
    agent: int, text: str, scope: RecallScope, kind: MemoryKind, limit: int, connection: Connection
) -> list[Memory]:
    if kind in TRANSCRIPT_KINDS:
        limit_per_room = MAX_TRANSCRIPT_SCAN // (len(scope.also) + 1)
        rooms = scope.audiences if scope.also else (scope.room_id,)
        rows = [
            row
            for room_id in rooms
            for row in RECENT.rows(connection, agent, room_id.bytes, kind.value, limit_per_room)
        ]
        texts = [content_of(row[CONTENT]).text for row in rows]
        return list(
            MEMORY.read_all(rows[index] for index in rank_by_word_overlap(text, texts, limit, is_transcript=True))
        )
    positions = search.find_by_words(connection, agent, text, scope, kind, limit)
    memories_by_position = dict(_read_with_vectors(AT_POSITIONS.rows(connection, ids=positions)))
    return [memories_by_position[position] for position in positions if position in memories_by_position]


def _find_unembedded(agent: int, model: str, before: int, connection: Connection) -> UnembeddedPage:
    """Return a page, starting at the next existing position: gaps may be wide."""
    row = NEWEST_BEFORE.first(connection, before)
    if row is None:
        return UnembeddedPage()
    newest = row[0]
    oldest = max(0, newest - SCAN_WINDOW)
    rows = UNEMBEDDED.rows(connection, model, newest, oldest, agent)
    return UnembeddedPage(tuple(MEMORY.read_all(rows)), oldest + 1 if oldest else None)


def _find_of_entity(agent: int, entity_id: UUID, before: int, connection: Connection) -> MemoryPage:
    """Return a page of what an entity has, starting at the next existing position."""
    row = NEWEST_BEFORE.first(connection, before)
    if row is None:
        return MemoryPage()
    newest = row[0]
    oldest = max(0, newest - EXPORT_WINDOW)
    rows = OF_ENTITY.rows(connection, newest, oldest, agent, entity_id.bytes)
    return MemoryPage(tuple(MEMORY.read_all(rows)), oldest + 1 if oldest else None)


class SqlMemories(SqlStorePart):
    """Stores memories; see `MemoryStore`. `recent` omits vectors, which the pipeline does not need."""

    async def add(self, memories: Sequence[Memory]) -> None:
        if memories:
            await self._database.write(partial(_add_memories, self._agent, memories))

    async def add_unique(self, memory: Memory) -> Memory:
        if memory.kind in TRANSCRIPT_KINDS:
            raise ValueError(f"a {memory.kind} is identified by its id: use add")
        return await self._database.write(partial(_add_unique, self._agent, memory))

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        keys = [memory_id.bytes for memory_id in ids]
        if not keys:
            return {}
        rows = await self._database.read(lambda db: FIND_MEMORIES.rows(db, self._agent, ids=keys))
        return {memory.id: memory for memory in read_memories(rows)}

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        if room_id is None:
            rows = await self._database.search(lambda db: COUNT_OF_KIND.rows(db, self._agent, kind.value))
        else:
            key = (self._agent, room_id.bytes, kind.value)
            rows = await self._database.search(lambda db: COUNT_IN_ROOM.rows(db, *key))
        return int(rows[0][0])

    async def recent(
        self, room_id: UUID, limit: int = 20, *, kind: MemoryKind = MemoryKind.MESSAGE, before: datetime | None = None
    ) -> list[Memory]:
        key = WindowKey(self._agent, room_id.bytes, kind.value)
        if before is None:
            return await self._find_recent(key, limit)
        end = microseconds_of(before)
        rows = await self._database.read(lambda db: RECENT_BEFORE.rows(db, *key, end, limit))
        return list(MEMORY.read_all(reversed(rows)))

    async def _find_recent(self, key: WindowKey, limit: int) -> list[Memory]:
        recent_cache = self._database.recent_cache
        if recent_cache is not None and (cached := recent_cache.get(key, limit)) is not None:
            return cached
        version = recent_cache.version if recent_cache is not None else 0
        rows = await self._database.read(lambda db: RECENT.rows(db, *key, limit))
        memories = list(MEMORY.read_all(reversed(rows)))
        if recent_cache is not None:
            recent_cache.store(key, limit, rows[::-1], memories, version)
        return memories

    async def conversation(self, room_id: UUID, limit: int = 20) -> Conversation:
        limits = {MemoryKind.MESSAGE: limit, **CONVERSATION_LIMITS}
        keys = {kind: WindowKey(self._agent, room_id.bytes, kind.value) for kind in limits}
        recent_cache = self._database.recent_cache
        if recent_cache is not None:
            cached = [window for kind in limits if (window := recent_cache.get(keys[kind], limits[kind])) is not None]
            if len(cached) == len(limits):
                return Conversation(*cached)
        version = recent_cache.version if recent_cache is not None else 0
        rows = await self._database.read(lambda db: CONVERSATION.rows(db, self._agent, room_id.bytes, limit))
        found = []
        for kind in limits:
            own_rows = [row for row in reversed(rows) if row[KIND] == kind.value]
            found.append(list(MEMORY.read_all(own_rows)))
            if recent_cache is not None:
                recent_cache.store(keys[kind], limits[kind], own_rows, found[-1], version)
        return Conversation(*found)

    async def by_turn(self, turn_id: UUID, room_id: UUID | None = None) -> list[Memory]:
        if room_id is not None and (cache := self._database.recent_cache) is not None:
            key = WindowKey(self._agent, room_id.bytes, MemoryKind.MESSAGE.value)
            if cached := cache.find_replies(key, turn_id):
                return cached
        rows = await self._database.read(lambda db: MEMORIES_OF_TURN.rows(db, self._agent, turn_id.bytes))
        found = read_memories(rows)
        wanted = (MemoryKind.MESSAGE, room_id)
        return [memory for memory in found if room_id is None or (memory.kind, memory.room_id) == wanted]

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        key = (self._agent, entity_id.bytes, MAX_POSITION if before is None else before, limit + 1)
        rows = await self._database.read(lambda db: FACTS.rows(db, *key))
        page = tuple(MEMORY.read_all(rows[:limit]))
        positions = tuple(row[-1] for row in rows[:limit])
        return MemoryPage(page, positions[-1] if len(rows) > limit else None, positions)

    async def count_facts(self, entity_ids: Collection[UUID]) -> dict[UUID, int]:
        keys = list({entity_id.bytes for entity_id in entity_ids})
        rows = await self._database.read(lambda db: COUNT_FACTS.rows(db, self._agent, ids=keys))
        return {id_of(key): count for key, count in rows}

    async def of_entity(self, entity_id: UUID, before: int | None = None) -> MemoryPage:
        end = MAX_POSITION if before is None else before
        return await self._database.search(partial(_find_of_entity, self._agent, entity_id, end))

    async def recall(
        self, embedding: Sequence[float], model: str, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[MemoryMatch]:
        query = search.VectorQuery(tuple(embedding), model, kind)
        return await self._database.search(partial(_find_nearest, self._agent, query, scope, limit))

    async def search(self, text: str, scope: RecallScope, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        return await self._database.search(partial(_search_words, self._agent, text, scope, kind, limit))

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        await self.set_embeddings({memory_id: embedding}, model)

    async def set_embeddings(self, embeddings: Mapping[UUID, Sequence[float]], model: str) -> None:
        rows = [search.StoredVector(memory_id, tuple(vector), model) for memory_id, vector in embeddings.items()]
        # not durable: what is lost in a power cut is embedded again
        await self._database.write(lambda db: search.store_embeddings(db, self._agent, rows), durable=False)

    async def unembedded(self, model: str, before: int | None = None) -> UnembeddedPage:
        work = partial(_find_unembedded, self._agent, storable_text(model), MAX_POSITION if before is None else before)
        return await self._database.search(work)

    async def expired(self, kind: MemoryKind, before: datetime, limit: int = 500) -> list[UUID]:
        values = (self._agent, kind.value, microseconds_of(before), limit)
        rows = await self._database.search(lambda db: EXPIRED.rows(db, *values))
        return [id_of(row[0]) for row in rows]

    async def remove(self, ids: Collection[UUID]) -> int:
        keys = [memory_id.bytes for memory_id in ids]
        if not keys:
            return 0
        return await self._database.write(lambda db: DELETE_MEMORIES.count(db, self._agent, ids=keys))
