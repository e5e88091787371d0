"""Marks of platform accounts, and rooms that a person has taken over: few, and all of them in memory."""

import asyncio
from collections.abc import Collection, Sequence, Set
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Connection

from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark, TakeOver
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart, reads, writes
from bot.store.sql.core.mapping import RowMapping, matches, rows_of, upsert
from bot.store.sql.core.schema import participants, person_marks, rooms, take_overs
from bot.store.sql.stores.erasure import delete_traces_of
from bot.store.sql.stores.ledger import withdraw_proposals
from bot.store.sql.stores.summaries import empty_summaries_of

MARK = RowMapping(person_marks, MarkedPerson)
MARK_KEY = ("entity_id", "mark", "origin", "world_id")
ALL_MARKS = sa.select(*MARK).where(matches(person_marks))
SAVE_MARK = upsert(person_marks, ("agent_id", *MARK_KEY), MARK.stored_names)
DELETE_MARK = sa.delete(person_marks).where(matches(person_marks, *MARK_KEY))
ROOMS_OF_PEOPLE = (
    sa.select(rooms.c.id, rooms.c.type)
    .join(participants, sa.and_(participants.c.agent_id == rooms.c.agent_id, participants.c.room_id == rooms.c.id))
    .where(matches(participants), participants.c.entity_id.in_(sa.bindparam("items")))
)


class SqlMarks(SqlStorePart):
    """Stores marks of people; see `MarkStore`. The people who are not read are in the agent's row for all parts."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._marks: Sequence[MarkedPerson] = ()
        self.not_read: Set[UUID] = agent_row.not_read
        self.minors: Set[UUID] = frozenset()
        self._lock = asyncio.Lock()  # a mark that is being stored must not be taken for one that was removed

    def find(self, entity_id: UUID | None = None, *, mark: PersonMark | None = None) -> list[MarkedPerson]:
        return [item for item in self._marks if entity_id in (None, item.entity_id) and mark in (None, item.mark)]

    async def refresh(self) -> None:
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        stored = MARK.read_all(await self._read(ALL_MARKS))
        self._marks = sorted(stored, key=lambda item: item.at, reverse=True)
        self.minors = frozenset(item.entity_id for item in self.find(mark=PersonMark.MINOR))
        marked = {item.entity_id for item in self.find(mark=PersonMark.NOT_READ)}
        chats = await self._find_private_chats(marked) if marked else set[UUID]()
        for kept, found in ((self._agent_row.not_read, marked), (self._agent_row.unnamed_rooms, chats)):
            kept &= found
            kept |= found

    @reads
    def _find_private_chats(self, connection: Connection, people: Collection[UUID]) -> set[UUID]:
        rows = rows_of(connection, ROOMS_OF_PEOPLE, people, agent=self._agent)
        return {room_id for room_id, room_type in rows if room_type.is_direct}

    async def save(self, marked: MarkedPerson) -> None:
        async with self._lock:
            if marked.mark is PersonMark.NOT_READ:  # what comes in while the mark is stored is not read either
                self._agent_row.not_read.add(marked.entity_id)
            await self._store(marked)
            await self._refresh()
        if marked.mark is PersonMark.NOT_READ:
            await delete_traces_of(self._database, self._agent, marked.entity_id)

    @writes
    def _store(self, connection: Connection, marked: MarkedPerson) -> None:
        """Store a mark; of a person who is not read, what waits for a decision as an answer to them is withdrawn."""
        SAVE_MARK.execute(connection, MARK.values(marked, self._agent))
        if marked.mark is PersonMark.NOT_READ:
            empty_summaries_of(connection, self._agent, marked.entity_id)
            cause = "its author is not read"
            withdraw_proposals(
                connection, self._agent, marked.at, cause, lambda item: marked.entity_id in item.subject_ids
            )

    async def remove(self, entity_id: UUID, mark: PersonMark, origin: MarkOrigin, world_id: UUID | None = None) -> bool:
        key = {"entity_id_": entity_id, "mark_": mark, "origin_": origin, "world_id_": world_id}
        values = {"agent": self._agent, **key}
        async with self._lock:
            count = await self._database.write(lambda db: db.execute(DELETE_MARK, values).rowcount)
            await self._refresh()
        return count > 0


TAKE_OVER = RowMapping(take_overs, TakeOver)
TAKE_OVER_KEY = ("room_id", "person_id")
ALL_TAKE_OVERS = sa.select(*TAKE_OVER).where(matches(take_overs))
FIND_TAKE_OVER = sa.select(*TAKE_OVER).where(matches(take_overs, *TAKE_OVER_KEY))
SAVE_TAKE_OVER = upsert(take_overs, ("agent_id", *TAKE_OVER_KEY), TAKE_OVER.stored_names)


class SqlTakeOvers(SqlStorePart):
    """Stores who has taken over which rooms; see `TakeOverStore`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self.current: dict[tuple[UUID, UUID | None], TakeOver] = {}
        self.ended: dict[tuple[UUID, UUID | None], TakeOver] = {}
        self._lock = asyncio.Lock()  # as that of the marks

    async def refresh(self) -> None:
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        stored = list(TAKE_OVER.read_all(await self._read(ALL_TAKE_OVERS)))
        for kept, is_ended in ((self.current, False), (self.ended, True)):
            kept.clear()
            kept.update({(item.room_id, item.person_id): item for item in stored if bool(item.ended_at) is is_ended})

    async def begin(self, take_over: TakeOver) -> TakeOver:
        async with self._lock:
            held = await self._begin(take_over)
            await self._refresh()
        return held

    @writes
    def _begin(self, connection: Connection, take_over: TakeOver) -> TakeOver:
        current = self._find_current(connection, take_over.room_id, take_over.person_id)
        if current is None:
            SAVE_TAKE_OVER.execute(connection, TAKE_OVER.values(take_over, self._agent))
        return current or take_over

    async def end(self, room_id: UUID, person_id: UUID | None, ended_at: datetime) -> TakeOver | None:
        async with self._lock:
            ended = await self._end(room_id, person_id, ended_at)
            await self._refresh()
        return ended

    @writes
    def _end(
        self, connection: Connection, room_id: UUID, person_id: UUID | None, ended_at: datetime
    ) -> TakeOver | None:
        current = self._find_current(connection, room_id, person_id)
        if current is None:
            return None
        ended = replace(current, ended_at=ended_at)
        SAVE_TAKE_OVER.execute(connection, TAKE_OVER.values(ended, self._agent))
        return ended

    def _find_current(self, connection: Connection, room_id: UUID, person_id: UUID | None) -> TakeOver | None:
        values = {"agent": self._agent, "room_id_": room_id, "person_id_": person_id}
        rows = connection.execute(FIND_TAKE_OVER, values).all()
        return next((take_over for take_over in map(TAKE_OVER.read, rows) if take_over.ended_at is None), None)
