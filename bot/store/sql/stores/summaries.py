"""Summaries of rooms, and what empties them: a change of the messages or the people whose words they repeat."""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Update

from bot.domain.environment import ANYBODY
from bot.domain.memory import MemoryKind, Summary
from bot.store.sql.core.base import SqlStorePart, reads, writes
from bot.store.sql.core.mapping import RowMapping, contains_text, matches, rows_of, text_literal, upsert
from bot.store.sql.core.schema import memories, summaries

SUMMARY = RowMapping(summaries, Summary)
FIND_SUMMARY = sa.select(*SUMMARY).where(matches(summaries, "room_id"))
SAVE_SUMMARY = upsert(summaries, ("agent_id", "room_id"), SUMMARY.stored_names)
DELETE_SUMMARY = sa.delete(summaries).where(matches(summaries, "room_id"))
POSITIONS = sa.select(memories.c.id, memories.c.position).where(
    matches(memories), memories.c.id.in_(sa.bindparam("items"))
)


FIRST_POSITIONS = (
    sa.select(memories.c.room_id, sa.func.min(memories.c.position))
    .where(
        matches(memories), memories.c.kind == text_literal(MemoryKind.MESSAGE), memories.c.id.in_(sa.bindparam("items"))
    )
    .group_by(memories.c.room_id)
)
NOTHING, WORDS = text_literal(""), ("text", "author_ids")


def _empty(*conditions: ColumnElement[bool], where: ColumnElement[bool] | None = None) -> Update:
    """Return a statement that withdraws summaries which are being written, and empties the stored ones, or some."""
    kept = {name: NOTHING if where is None else sa.case((where, NOTHING), else_=summaries.c[name]) for name in WORDS}
    return (
        sa.update(summaries)
        .where(*conditions)
        .values({**kept, "revision": summaries.c.revision + sa.literal_column("1")})
    )


EMPTY_IN_ROOM = _empty(matches(summaries, "room_id"))
EMPTY_FROM = _empty(matches(summaries, "room_id"), where=summaries.c.last_position >= sa.bindparam("position_"))
EMPTY_EXPIRED = _empty(matches(summaries, "room_id"), summaries.c.first_at < sa.bindparam("before"))
EMPTY_OF_AUTHOR = _empty(
    matches(summaries),
    sa.or_(contains_text(summaries.c.author_ids, "mark"), contains_text(summaries.c.author_ids, "anybody")),
)


def empty_summaries_with(connection: Connection, agent: int, message_ids: Collection[UUID]) -> None:
    """Empty the summaries that cover messages which are about to be changed or deleted."""
    for room_id, position in rows_of(connection, FIRST_POSITIONS, message_ids, agent=agent):
        connection.execute(EMPTY_FROM, {"agent": agent, "room_id_": room_id, "position_": position})


def empty_summaries_of(connection: Connection, agent: int, person_id: UUID) -> None:
    """Empty the summaries that may repeat words of a person."""
    connection.execute(EMPTY_OF_AUTHOR, {"agent": agent, "mark": person_id.hex, "anybody": ANYBODY.hex})


class SqlSummaries(SqlStorePart):
    """Stores the summaries of rooms; see `SummaryStore`."""

    @writes
    def begin(self, connection: Connection, room_id: UUID) -> Summary:
        stored = self._find(connection, room_id)
        if stored is None:
            stored = Summary(room_id)
            SAVE_SUMMARY.execute(connection, SUMMARY.values(stored, self._agent))
        return stored

    @reads
    def find(self, connection: Connection, room_id: UUID) -> Summary | None:
        summary = self._find(connection, room_id)
        return summary if summary is not None and summary.text else None

    def _find(self, connection: Connection, room_id: UUID) -> Summary | None:
        rows = connection.execute(FIND_SUMMARY, {"agent": self._agent, "room_id_": room_id})
        return next(SUMMARY.read_all(rows), None)

    @writes
    def save(self, connection: Connection, summary: Summary) -> bool:
        stored = self._find(connection, summary.room_id) or Summary(summary.room_id)
        rows = rows_of(connection, POSITIONS, [summary.first_id, summary.last_id], agent=self._agent)
        positions = {row[0]: row[1] for row in rows}
        if stored.revision != summary.revision or summary.last_id not in positions:
            return False
        first, last = positions.get(summary.first_id, 0), positions[summary.last_id]
        placed = replace(summary, first_position=first, last_position=last)
        SAVE_SUMMARY.execute(connection, SUMMARY.values(placed, self._agent))
        return True
