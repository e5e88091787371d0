"""Whose room is whose, where several processes work over one PostgreSQL database."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection

from bot.store import Commitment, LaneLost, Received
from plugins.sql.core.base import Owner
from plugins.sql.core.statements import Spelled
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.ledger_statements import Hold, unclaimed

TAKE = Spelled(
    """
INSERT INTO lanes (agent_id, room_id, owner)
SELECT CAST(? AS integer), room_id, CAST(? AS bigint) FROM unnest(CAST(? AS bytea[])) AS room_id
ORDER BY room_id
ON CONFLICT (agent_id, room_id) DO UPDATE SET owner = coalesce(lanes.owner, excluded.owner)
RETURNING room_id, owner
"""
)
UNCLAIM = Spelled(
    """
UPDATE receipts SET outcome = 'received', turn_id = NULL, attempts = 0, claimed_at = NULL
WHERE agent_id = ? AND id = ANY(CAST(? AS bytea[]))
"""
)


class Lanes:
    """The rooms that this process works on, as far as it knows: what it writes is checked all the same.

    `worker` is its number among those who share the work; None as long as it shares with nobody. `rung` is
    set where another one should look what there is to do.
    """

    def __init__(self, database: PostgresDatabase, owner: Owner) -> None:
        self._database = database
        self._agent = owner.number
        self._held: set[UUID] = set()
        self._is_lost = False
        self.worker: int | None = None
        self.rung = asyncio.Event()

    def holds(self, room_id: UUID) -> bool:
        """Tell whether a room is this process's work."""
        return self.worker is None or room_id in self._held

    def note(self, received: Sequence[Received]) -> None:
        """Note whose rooms those are in which something was received; one taken for dead gets none."""
        if self._is_lost:
            return
        new = [one for one in received if _is_to_do(one)]
        self._held |= {one.receipt.room_id for one in new if one.is_ours}
        if not all(one.is_ours for one in new):
            self.ring()

    def add(self, rooms: Iterable[UUID]) -> None:
        """Note rooms that were taken."""
        self._held.update(rooms)

    def begin(self, worker: int) -> None:
        """Share from now on under this number."""
        self.worker, self._is_lost = worker, False

    def lose(self) -> None:
        """Forget all rooms: others have taken this process for dead."""
        self._held.clear()
        self._is_lost = True

    def drop(self, rooms: Iterable[UUID]) -> None:
        """Forget rooms that turned out to be another one's."""
        self._held.difference_update(rooms)

    def ring(self) -> None:
        """Have the others look."""
        self.rung.set()

    def hold_of(self, room_id: UUID) -> Hold:
        """Say as whom something of a room is written; of another one's it is a person's decision."""
        if self.worker is None or room_id not in self._held:
            return Hold()
        return Hold(self.worker, frozenset({room_id}))

    async def hold_for(self, commitment: Commitment) -> Hold:
        """Say as whom a commitment is made; raises LaneLost where that is another one's now.

        What belongs to no message, such as a reminder, may be said in anybody's room: who holds it sends it.
        """
        if self.worker is None:
            return Hold()
        answered = frozenset(one.room_id for one in commitment.receipts)
        if self._is_lost or not answered <= self._held:
            raise LaneLost
        spoken = {one.room_id for one in commitment.deliveries}
        if others := spoken - self._held:
            await self._take(others)
        return Hold(self.worker, answered or frozenset(spoken & self._held))

    async def _take(self, rooms: Iterable[UUID]) -> None:
        key = (self._agent, self.worker, [one.bytes for one in rooms])
        rows = await self._database.road.once(lambda db: TAKE.rows(db, *key))
        self.add(UUID(bytes=room_id) for room_id, owner in rows if owner == self.worker)


def share(connection: Connection, agent: int, worker: int, received: Sequence[Received]) -> list[Received]:
    """Take the rooms of new events where they are free, and leave the other events to who has theirs."""
    rooms = {one.receipt.room_id.bytes for one in received if _is_to_do(one)}
    owners: dict[bytes, int] = dict(map(tuple, TAKE.rows(connection, agent, worker, list(rooms))))
    ours = [not _is_to_do(one) or owners[one.receipt.room_id.bytes] == worker for one in received]
    others = [one.receipt.id.bytes for one, is_ours in zip(received, ours, strict=True) if not is_ours]
    if others:
        UNCLAIM.rows(connection, agent, others)
    return [
        one if is_ours else replace(one, receipt=unclaimed(one.receipt), is_ours=False)
        for one, is_ours in zip(received, ours, strict=True)
    ]


def _is_to_do(received: Received) -> bool:
    return received.is_new and not received.receipt.outcome.is_final
