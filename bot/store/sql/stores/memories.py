"""Memories: storage, recall and search."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Connection, Select

from bot.domain.hiding import HIDDEN_TEXT, find_sources, hide_memory
from bot.domain.memory import (
    MAX_CONVERSATION_REACTIONS,
    MAX_CONVERSATION_RESULTS,
    Conversation,
    Memory,
    MemoryKind,
    MemoryMatch,
)
from bot.domain.reactions import vote_of
from bot.store.protocols import MemoryPage, RecallScope, UnembeddedPage
from bot.store.search import SearchQuery, SearchResult, memory_terms, recall_audience
from bot.store.similarity import TRANSCRIPT_KINDS
from bot.store.sql.core.base import (
    INFO_KEY,
    AgentRow,
    RecentMemoryCache,
    SqlStorePart,
    WindowKey,
    searches,
    writes,
    writes_not_durably,
)
from bot.store.sql.core.mapping import (
    LIMIT,
    Row,
    RowMapping,
    count_changed,
    is_item,
    matches,
    rows_of,
    storable_text,
    upsert,
)
from bot.store.sql.core.schema import IS_FACT, embeddings, memories
from bot.store.sql.stores import search
from bot.store.sql.stores.summaries import empty_summaries_with

MEMORY = RowMapping(memories, Memory, unread=["terms", "vote"])
WITH_VECTOR = (*MEMORY, embeddings.c.model, embeddings.c.vector, memories.c.position)
HAS_VECTOR = embeddings.c.memory == memories.c.position
IN_ROOM_OF_KIND = matches(memories, "room_id", "kind")
ARE_ITEMS = sa.and_(matches(memories), memories.c.id.in_(sa.bindparam("items")))
SCAN_WINDOW = 1000  # positions of all agents that one query examines
EXPORT_WINDOW = 20_000  # likewise, of an export
MAX_POSITION = 2**62
EMBEDDED_KINDS = (MemoryKind.MESSAGE, MemoryKind.FACT)
NEWEST_FIRST = memories.c.position.desc()
BEFORE = memories.c.position < sa.bindparam("before")
IN_WINDOW = sa.and_(
    memories.c.position <= sa.bindparam("newest"),
    memories.c.position > sa.bindparam("oldest"),
    memories.c.agent_id + search.ZERO == sa.bindparam("agent"),
)

UPSERT_MEMORY = upsert(memories, ("agent_id", "id"), MEMORY.stored_names)
FIND_MEMORIES = sa.select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(ARE_ITEMS)
AT_POSITIONS = sa.select(*WITH_VECTOR).outerjoin(embeddings, HAS_VECTOR).where(is_item(memories.c.position))
FIND_AUTHORS = sa.select(memories.c.id, memories.c.entity_id).where(ARE_ITEMS)
COUNT_OF_KIND = sa.select(sa.func.count()).where(matches(memories, "kind"))
COUNT_IN_ROOM = sa.select(sa.func.count()).where(IN_ROOM_OF_KIND)
RECENT = sa.select(*MEMORY, memories.c.position).where(IN_ROOM_OF_KIND).order_by(NEWEST_FIRST).limit(LIMIT)
RECENT_BEFORE = RECENT.where(memories.c.created_at < sa.bindparam("before"))
CONVERSATION_LIMITS = {
    MemoryKind.ACTION_RESULT: MAX_CONVERSATION_RESULTS,
    MemoryKind.REACTION: MAX_CONVERSATION_REACTIONS,
}


def _select_last(kind: MemoryKind, limit: Any) -> Select[Any]:
    """Select the last memories of one kind in a room."""
    condition = sa.and_(matches(memories, "room_id"), memories.c.kind == kind.value)
    last = sa.select(*MEMORY).where(condition).order_by(NEWEST_FIRST).limit(limit).subquery()
    return sa.select(*last.c)


CONVERSATION = sa.union_all(
    _select_last(MemoryKind.MESSAGE, LIMIT), *(_select_last(kind, limit) for kind, limit in CONVERSATION_LIMITS.items())
)
MEMORIES_OF_TURN = (
    sa.select(*WITH_VECTOR)
    .outerjoin(embeddings, HAS_VECTOR)
    .where(matches(memories, "turn_id"))
    .order_by(memories.c.position)
)
NEWEST_BEFORE = sa.select(memories.c.position).where(BEFORE).order_by(NEWEST_FIRST).limit(1)
UNEMBEDDED = (
    sa.select(*MEMORY)
    .outerjoin(embeddings, sa.and_(HAS_VECTOR, embeddings.c.model == sa.bindparam("model")))
    .where(
        IN_WINDOW, sa.or_(*(memories.c.kind == kind.value for kind in EMBEDDED_KINDS)), embeddings.c.memory.is_(None)
    )
    .order_by(NEWEST_FIRST)
)
FACTS = (
    sa.select(*MEMORY, memories.c.position)
    .where(matches(memories, "entity_id"), sa.literal_column(IS_FACT), BEFORE)
    .order_by(NEWEST_FIRST)
    .limit(LIMIT)
)
COUNT_FACTS = (
    sa.select(memories.c.entity_id, sa.func.count())
    .where(matches(memories), sa.literal_column(IS_FACT), memories.c.entity_id.in_(sa.bindparam("items")))
    .group_by(memories.c.entity_id)
)
OF_ENTITY = sa.select(*MEMORY).where(IN_WINDOW, memories.c.entity_id == sa.bindparam("entity")).order_by(NEWEST_FIRST)
EXPIRED = (
    sa.select(memories.c.id)
    .where(matches(memories, "kind"), memories.c.created_at < sa.bindparam("before"))
    .limit(LIMIT)
)
DELETE_MEMORIES = sa.delete(memories).where(ARE_ITEMS)
DERIVED_MEMORIES = sa.select(memories.c.id).where(matches(memories), memories.c.source_id.in_(sa.bindparam("items")))


def delete_with_derived(connection: Connection, agent: int, ids: Collection[UUID]) -> int:
    """Delete memories and, repeatedly, those derived from them, with their vectors; return how many."""
    count = 0
    empty_summaries_with(connection, agent, ids)
    while ids:
        count += count_changed(connection, DELETE_MEMORIES, ids, agent=agent)
        ids = [row[0] for row in rows_of(connection, DERIVED_MEMORIES, ids, agent=agent)]
    return count


def memory_columns(memory: Memory) -> dict[str, Any]:
    """Return the values of the columns of a memory that are no fields of it."""
    vote = vote_of(memory.content.text) if memory.kind is MemoryKind.REACTION else 0
    return {"terms": memory_terms(memory), "vote": vote}


def put_memories(connection: Connection, agent: int, stored: Sequence[Memory]) -> None:
    """Insert or replace memories by id, with their vectors."""
    embedded = [memory for memory in stored if memory.embedding is not None]
    UPSERT_MEMORY.execute_all(connection, [MEMORY.values(memory, agent, memory_columns(memory)) for memory in stored])
    recent_cache: RecentMemoryCache | None = connection.info.get(INFO_KEY)
    if recent_cache is not None:
        recent_cache.notify(agent, stored)
    if embedded:
        search.store_embeddings(connection, agent, search.vectors_of(embedded))


def as_stored(memory: Memory) -> Memory:
    """Return a memory as it would be read; nearly always the memory itself."""
    content = memory.content
    is_odd = memory.metadata or content.metadata or content.all_attachments or content.choices or memory.embedding_model
    if not is_odd and memory.external_id.isascii() and memory.created_at.tzinfo is UTC:
        return memory if memory.embedding is None else replace(memory, embedding=None)
    return MEMORY.decode(MEMORY.encode(memory, 0, names=MEMORY.names))


def hide_memories(connection: Connection, agent_row: AgentRow, found: Sequence[Memory]) -> list[Memory]:
    """Return memories without the words of people who are not read; see `hide_memory`."""
    not_read = agent_row.not_read
    if not not_read:
        return list(found)
    sources = {source for memory in found for source in find_sources(memory)}
    authors = rows_of(connection, FIND_AUTHORS, sources, agent=agent_row.number)
    hidden_ids = {memory_id for memory_id, author in authors if author in not_read}
    hidden = (hide_memory(memory, not_read, hidden_ids) for memory in found)
    return [memory for memory in hidden if memory is not None]


def _read_with_vectors(rows: Iterable[Row]) -> Iterator[tuple[int, Memory]]:
    """Yield position and memory of rows of WITH_VECTOR, without those that cannot be read."""
    for row in rows:
        model, vector, position = row[MEMORY.width :]
        memory = MEMORY.read_or_report(row)
        if memory is not None and vector is not None:
            memory = replace(memory, embedding=search.unpack_vector(vector), embedding_model=model)
        if memory is not None:
            yield position, memory


def find_memories(connection: Connection, agent: int, ids: Iterable[UUID]) -> dict[UUID, Memory]:
    """Return memories by id, with their vectors."""
    rows = rows_of(connection, FIND_MEMORIES, ids, agent=agent)
    return {memory.id: memory for _, memory in _read_with_vectors(rows)}


def _memories_at(connection: Connection, positions: Iterable[int]) -> dict[int, Memory]:
    return dict(_read_with_vectors(rows_of(connection, AT_POSITIONS, positions)))


class SqlMemories(SqlStorePart):
    """Stores memories; see `MemoryStore`. `recent` omits vectors, which the pipeline does not need."""

    async def add(self, memories: Sequence[Memory]) -> None:
        if memories:
            await self._database.write(lambda connection: self._put(connection, memories))

    def _put(self, connection: Connection, new_memories: Sequence[Memory]) -> None:
        """Insert or replace memories; the vector of a replaced text is deleted."""
        search.delete_embeddings(connection, self._agent, [memory.id for memory in new_memories])
        put_memories(connection, self._agent, new_memories)

    @writes
    def add_unique(self, connection: Connection, memory: Memory) -> Memory:
        if memory.kind in TRANSCRIPT_KINDS:
            raise ValueError(f"a {memory.kind} is identified by its id: use add")
        existing_id = search.find_same_wording(connection, self._agent, memory, recall_audience(memory))
        if existing_id is not None:
            return find_memories(connection, self._agent, [existing_id])[existing_id]
        self._put(connection, [memory])
        return memory

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        if not ids:
            return {}
        found = await self._database.read(lambda db: find_memories(db, self._agent, ids))
        return {memory.id: memory for memory in await self._hide([*found.values()])}

    async def _hide(self, found: list[Memory]) -> list[Memory]:
        """Return memories without the words of people who are not read; nearly always there are none."""
        if not self._agent_row.not_read:
            return found
        return await self._database.read(lambda connection: hide_memories(connection, self._agent_row, found))

    async def _find_hidden(self, found: Sequence[Memory]) -> set[UUID]:
        """Return the ids of those memories whose own words are hidden: they are not found by them."""
        if not self._agent_row.not_read:
            return set()
        shown = {memory.id: memory.content.text for memory in await self._hide(list(found))}
        return {memory.id for memory in found if shown.get(memory.id) != memory.content.text}

    async def _find(self, query: SearchQuery, place: search.Place, limit: int) -> list[SearchResult]:
        """Search for words while a server compares vectors, which takes it longer than all else."""
        if query.vector is None:
            return await self._database.search(
                lambda db: self._rank(db, place, query, search.match_words(place, query, db), {}, limit)
            )
        near, matches = await asyncio.gather(
            self._database.search(partial(search.find_near, place, query)),
            self._database.search(partial(search.match_words, place, query)),
        )
        return await self._database.search(lambda db: self._rank(db, place, query, matches, near, limit))

    def _rank(
        self,
        connection: Connection,
        place: search.Place,
        query: SearchQuery,
        matches: search.WordMatches,
        near: Mapping[int, float],
        limit: int,
    ) -> list[SearchResult]:
        ranked = search.rank_found(connection, place, query, matches, near)[:limit]
        found = _memories_at(connection, [position for position, *_ in ranked])
        return [SearchResult(found[position], score, parts) for position, score, parts in ranked if position in found]

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        if room_id is None:
            rows = await self._search(COUNT_OF_KIND, kind_=kind)
        else:
            rows = await self._search(COUNT_IN_ROOM, room_id_=room_id, kind_=kind)
        return int(rows[0][0])

    async def recent(
        self, room_id: UUID, limit: int = 20, *, kind: MemoryKind = MemoryKind.MESSAGE, before: datetime | None = None
    ) -> list[Memory]:
        if before is not None:
            rows = await self._read(RECENT_BEFORE, room_id_=room_id, kind_=kind, before=before, limit=limit)
            return await self._hide(list(MEMORY.read_all(reversed(rows))))
        key = WindowKey(self._agent, room_id.bytes, kind.value)
        recent_cache = self._database.recent_cache
        if recent_cache is not None and (cached := recent_cache.get(key, limit)) is not None:
            return await self._hide(cached)
        version = recent_cache.version if recent_cache is not None else 0
        rows = await self._read(RECENT, room_id_=room_id, kind_=kind, limit=limit)
        memories = list(MEMORY.read_all(reversed(rows)))
        if recent_cache is not None:
            recent_cache.store(key, limit, memories, version)
        return await self._hide(memories)

    async def conversation(self, room_id: UUID, limit: int = 20) -> Conversation:
        limits = {MemoryKind.MESSAGE: limit, **CONVERSATION_LIMITS}
        keys = {kind: WindowKey(self._agent, room_id.bytes, kind.value) for kind in limits}
        recent_cache = self._database.recent_cache
        if recent_cache is not None:
            cached = [window for kind in limits if (window := recent_cache.get(keys[kind], limits[kind])) is not None]
            if len(cached) == len(limits):
                return Conversation(*[await self._hide(window) for window in cached])
        version = recent_cache.version if recent_cache is not None else 0
        rows = await self._read(CONVERSATION, room_id_=room_id, limit=limit)
        memories = list(MEMORY.read_all(reversed(rows)))
        windows = {kind: [memory for memory in memories if memory.kind == kind] for kind in limits}
        if recent_cache is not None:
            for kind, window in windows.items():
                recent_cache.store(keys[kind], limits[kind], window, version)
        return Conversation(*[await self._hide(window) for window in windows.values()])

    async def by_turn(self, turn_id: UUID, room_id: UUID | None = None) -> list[Memory]:
        if room_id is not None and (cache := self._database.recent_cache) is not None:
            key = WindowKey(self._agent, room_id.bytes, MemoryKind.MESSAGE.value)
            if cached := cache.find_replies(key, turn_id):
                return await self._hide(cached)
        found = [memory for _, memory in _read_with_vectors(await self._read(MEMORIES_OF_TURN, turn_id_=turn_id))]
        wanted = (MemoryKind.MESSAGE, room_id)
        return await self._hide(
            [memory for memory in found if room_id is None or (memory.kind, memory.room_id) == wanted]
        )

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        end = MAX_POSITION if before is None else before
        rows = await self._read(FACTS, entity_id_=entity_id, before=end, limit=limit + 1)
        positions = {fact.id: row[-1] for row in rows[:limit] if (fact := MEMORY.read_or_report(row)) is not None}
        page = await self._hide(list(MEMORY.read_all(rows[:limit])))
        following = rows[limit - 1][-1] if len(rows) > limit else None
        return MemoryPage(tuple(page), following, tuple(positions[fact.id] for fact in page))

    async def count_facts(self, entity_ids: Collection[UUID]) -> dict[UUID, int]:
        ids = set(entity_ids) - self._agent_row.not_read
        rows = await self._database.read(lambda db: rows_of(db, COUNT_FACTS, ids, agent=self._agent))
        return {row[0]: row[1] for row in rows}

    async def of_entity(self, entity_id: UUID, before: int | None = None, *, with_hidden: bool = False) -> MemoryPage:
        page, following = await self._find_page(OF_ENTITY, EXPORT_WINDOW, before, {"entity": entity_id})
        return MemoryPage(page if with_hidden else tuple(await self._hide(list(page))), following)

    @searches
    def _find_page(
        self, connection: Connection, statement: Select[Any], size: int, before: int | None, values: Mapping[str, Any]
    ) -> tuple[tuple[Memory, ...], int | None]:
        """Return the memories of a window of positions that begins at the next existing one: gaps may be wide."""
        end = MAX_POSITION if before is None else before
        newest = connection.execute(NEWEST_BEFORE, {"before": end}).scalar()
        if newest is None:
            return (), None
        oldest = max(0, newest - size)
        rows = connection.execute(statement, {"agent": self._agent, "newest": newest, "oldest": oldest, **values})
        return tuple(MEMORY.read_all(rows)), oldest + 1 if oldest else None

    async def recall(
        self, embedding: Sequence[float], model: str, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[MemoryMatch]:
        found = await self._find_nearest(search.VectorQuery(tuple(embedding), model, kind), scope, limit)
        hidden = await self._find_hidden([match.memory for match in found])
        return [match for match in found if match.memory.id not in hidden]

    @searches
    def _find_nearest(
        self, connection: Connection, query: search.VectorQuery, scope: RecallScope, limit: int
    ) -> list[MemoryMatch]:
        scores = search.find_nearest(connection, self._agent, query, search.audiences_of(scope), limit)
        matches = (MemoryMatch(memory, scores[at]) for at, memory in _memories_at(connection, scores).items())
        return sorted(matches, key=lambda match: -match.similarity)

    async def search(self, text: str, scope: RecallScope, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        return [
            result.memory for result in await self.find(SearchQuery(text, with_neighbours=False), scope, kind, limit)
        ]

    async def find(
        self, query: SearchQuery, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[SearchResult]:
        found = await self._find(query, search.place_of(self._agent, scope, kind), limit)
        hidden = await self._find_hidden([result.memory for result in found])
        return [result for result in found if result.memory.id not in hidden]

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        await self.set_embeddings({memory_id: embedding}, model)

    @writes_not_durably  # what is lost in a power cut is embedded again
    def set_embeddings(self, connection: Connection, embeddings: Mapping[UUID, Sequence[float]], model: str) -> None:
        rows = [search.StoredVector(memory_id, tuple(vector), model) for memory_id, vector in embeddings.items()]
        search.store_embeddings(connection, self._agent, rows)

    async def unembedded(self, model: str, before: int | None = None) -> UnembeddedPage:
        page, following = await self._find_page(UNEMBEDDED, SCAN_WINDOW, before, {"model": storable_text(model)})
        hidden = await self._find_hidden(page)
        waiting = (memory for memory in page if memory.id not in hidden and memory.content.text != HIDDEN_TEXT)
        return UnembeddedPage(tuple(waiting), following)

    async def expired(self, kind: MemoryKind, before: datetime, limit: int = 500) -> list[UUID]:
        return [row[0] for row in await self._search(EXPIRED, kind_=kind, before=before, limit=limit)]

    @writes
    def remove(self, connection: Connection, ids: Collection[UUID]) -> int:
        empty_summaries_with(connection, self._agent, ids)
        return count_changed(connection, DELETE_MEMORIES, ids, agent=self._agent)
