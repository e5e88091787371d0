"""Marks of platform accounts: few, and all of them in memory."""

import asyncio
from collections.abc import Collection, Sequence, Set
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, delete, select

from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart
from bot.store.sql.core.mapping import RowMapping, items_parameter, matches, rows_of, upsert
from bot.store.sql.core.schema import participants, person_marks, rooms
from bot.store.sql.stores.erasure import delete_traces_of
from bot.store.sql.stores.ledger import withdraw_proposals

MARK = RowMapping(person_marks, MarkedPerson)
MARK_KEY = ("entity_id", "mark", "origin", "world_id")
ALL_MARKS = select(*MARK).where(matches(person_marks))
SAVE_MARK = upsert(person_marks, ("agent_id", *MARK_KEY), MARK.stored_names)
DELETE_MARK = delete(person_marks).where(matches(person_marks, *MARK_KEY))
ROOMS_OF_PEOPLE = (
    select(rooms.c.id, rooms.c.type)
    .join(participants, and_(participants.c.agent_id == rooms.c.agent_id, participants.c.room_id == rooms.c.id))
    .where(matches(participants), participants.c.entity_id.in_(items_parameter(participants.c.entity_id)))
)


def _find_private_chats(agent: int, people: Collection[UUID], connection: Connection) -> set[UUID]:
    return {row[0] for row in rows_of(connection, ROOMS_OF_PEOPLE, people, agent=agent) if row[1].is_direct}


def _save_mark(agent: int, marked: MarkedPerson, row: dict[str, Any], connection: Connection) -> None:
    """Store a mark; of a person who is not read, what waits for a decision as an answer to them is withdrawn."""
    SAVE_MARK.execute_all(connection, [row])
    if marked.mark is PersonMark.NOT_READ:
        cause = "its author is not read"
        withdraw_proposals(connection, agent, marked.at, cause, lambda item: marked.entity_id in item.subject_ids)


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
        chats = await self._database.read(partial(_find_private_chats, self._agent, marked)) if marked else set[UUID]()
        for kept, found in ((self._agent_row.not_read, marked), (self._agent_row.unnamed_rooms, chats)):
            kept &= found
            kept |= found

    async def save(self, marked: MarkedPerson) -> None:
        row = MARK.values(marked, self._agent)
        async with self._lock:
            if marked.mark is PersonMark.NOT_READ:  # what comes in while the mark is stored is not read either
                self._agent_row.not_read.add(marked.entity_id)
            await self._database.write(partial(_save_mark, self._agent, marked, row))
            await self._refresh()
        if marked.mark is PersonMark.NOT_READ:
            await delete_traces_of(self._database, self._agent, marked.entity_id)

    async def remove(self, entity_id: UUID, mark: PersonMark, origin: MarkOrigin, world_id: UUID | None = None) -> bool:
        key = {"entity_id_": entity_id, "mark_": mark, "origin_": origin, "world_id_": world_id}
        values = {"agent": self._agent, **key}
        async with self._lock:
            count = await self._database.write(lambda db: db.execute(DELETE_MARK, values).rowcount)
            await self._refresh()
        return count > 0
