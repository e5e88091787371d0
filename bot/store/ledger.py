"""Protocols of the ledger, of edits, of room leases; `StoreHealth`."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.edits import DeletionResult, EditResult, ErasureResult, Reaction
from bot.domain.environment import Room, World
from bot.domain.inbound import InboundMessage, MembershipChange, MembershipUpdate, StoredEvent, StreamCursor
from bot.domain.ledger import Delivery, Receipt, Step
from bot.domain.memory import Memory
from bot.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class EditStore(Protocol):
    """What platforms change afterwards: each change moves all that it concerns; repeated, it moves no more.

    A part that is on its way already is never held back.
    """

    async def apply_edit(
        self, edit: InboundMessage, now: datetime, *, is_answering: bool = False
    ) -> EditResult:
        """Keep an edit of a message, as `weighed` decides; of an unknown message it is an event like any."""

    async def delete_messages(
        self, room_id: UUID, message_ids: Collection[str], now: datetime
    ) -> DeletionResult:
        """Forget messages that a platform calls so, ours included, and whatever was drawn from them alone.

        Their open receipts are cancelled, and so are the waiting parts of replies to nothing else.
        """

    async def clear_room(self, room_id: UUID, now: datetime) -> DeletionResult:
        """Forget all that was said in a room and was drawn from it, and cancel what is open there."""

    async def cancel_open_work(
        self, room_ids: Collection[UUID], now: datetime, reason: str
    ) -> DeletionResult:
        """Cancel what is open in rooms, and forget nothing."""

    async def save_reaction(self, reaction: Reaction) -> Memory | None:
        """Keep a sign on a message; None where it is known already."""

    async def apply_membership(self, update: MembershipUpdate, now: datetime) -> MembershipChange:
        """Keep what is told of a world: however much it is, nobody becomes active by it, nor any room.

        One whose event is known changes nothing. Events are known for thirty days.
        """

    async def erase_entity(self, entity_id: UUID, now: datetime) -> ErasureResult:
        """Delete what is kept of somebody, answers to them and what was drawn from either.

        Left are receipts without a word in them, roles, and a component of the kind FORGOTTEN.
        """

    async def migrate_room(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        """Have a room go on as another one: what was said there and what is still to leave go along.

        Receipts stay with the room in which their messages were counted. Gives the parts to leave.
        """


@dataclass(frozen=True, slots=True)
class OpenWork:
    """In which of a process's rooms messages are open, and in which parts are to leave."""

    message_rooms: frozenset[UUID] = frozenset()
    delivery_rooms: frozenset[UUID] = frozenset()


class WorkSharing(Protocol):
    """The work on one agent's rooms, shared by several processes: a room is one process's at a time.

    Who receives something in a room that is nobody's works on it from then on. What is written of a room
    for another one's message raises LaneLost.
    """

    def owns_room(self, room_id: UUID) -> bool:
        """Tell whether a room is this process's work, as far as it knows."""

    async def join(self) -> None:
        """Begin to share, as somebody new."""

    async def heartbeat(self) -> bool:
        """Say that this process lives, and take over what the dead have left; to be called twice a second.

        False where it has itself been taken for dead and has no room any more: before it joins again, all
        that it has under way must have ended.
        """

    async def open_work(self) -> OpenWork:
        """Tell what is open in this process's rooms, whether it is under way or not."""

    async def wait_for_work(self, timeout: float) -> None:
        """Wait until another process has left something to do, but no longer than this."""

    async def leave(self) -> None:
        """Give all rooms back, for others to take over at once."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """What is wrong, as a word and as a sentence, and since when."""

    cause: str
    message: str
    since: datetime


class StoreHealth:
    """What is wrong with a store now; the log is told once when it begins and once when it is over."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._problem: StoreProblem | None = None

    @property
    def problem(self) -> StoreProblem | None:
        """What is wrong; None where all is well."""
        return self._problem

    def fail(self, error: StoreUnavailable) -> None:
        """Note that nothing can be kept."""
        previous = self._problem
        if previous is not None and previous.cause == error.cause:
            return
        self._problem = StoreProblem(error.cause, str(error), previous.since if previous else self._clock())
        logger.error("nothing is taken in any more (%s): %s", error.cause, error)

    def recover(self) -> None:
        """Note that everything can be kept again."""
        previous, self._problem = self._problem, None
        if previous is not None:
            seconds = (self._clock() - previous.since).total_seconds()
            logger.warning("messages are taken in again, after %.0f s (%s)", seconds, previous.cause)

    def check_available(self) -> None:
        """Raise StoreUnavailable while nothing can be kept."""
        if self._problem is not None:
            raise StoreUnavailable(self._problem.message, cause=self._problem.cause)


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """What one commit of a turn moves together: all of it, or nothing.

    `replies` go into memory, `deliveries` into the outbox, `receipts` to their new state.
    """

    replies: tuple[Memory, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()


class ReceiptStore(Protocol):
    """The book of what came in."""

    @property
    def health(self) -> StoreHealth:
        """Whether what comes in can be kept just now."""

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        """Keep events with the rows they need, and how far the stream has been read with them.

        A new one comes back claimed by the turn that is to answer it. One whose event id or message is
        known changes nothing and gets the receipt it has.
        """

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find how far a stream has been read; None where nothing has been kept of it."""

    async def last_message_ids(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Find what platforms call the message of each room that was kept last; edits do not count."""

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        """Write the new state of receipts; one that is final, or not known, stays as it is."""

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        """Find a receipt by its id, or the latest by the id of its message."""

    async def inbound_message(self, receipt: Receipt) -> InboundMessage | None:
        """Find the rows a receipt was kept with; None where its message is gone.

        The room is the one in which the message is now.
        """

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        """List receipts that match, newest first."""

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        """List closed receipts from which is still to be learnt, oldest first."""

    async def mark_evaluated(self, receipt_ids: Sequence[UUID]) -> None:
        """Note that the evaluators have looked at what these receipts are about."""

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        """Carry out a commitment; the deliveries come back with their place in the room's order.

        A delivery that is already in the outbox stays as it is; a receipt as in `save_receipts`. Where
        every receipt is final already, somebody else has closed them: nothing new is kept then.
        """


class StepStore(Protocol):
    """The journal of what was paid for or done."""

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        """Write a step, or its new state, and with it the receipts that it closes."""

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        """List the steps of a turn by key."""


class DeliveryStore(Protocol):
    """The book of what goes out."""

    async def save_delivery(self, delivery: Delivery) -> None:
        """Write a delivery's new state."""

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        """List deliveries that match, in the order in which they leave."""


class LookupStore(Protocol):
    """What a person asks the books for, by the names that a person has."""

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        """Find the receipts of messages that their platforms call so, newest first."""

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """Find a part by its id."""

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        """List the latest parts that have not arrived, in the order in which they leave.

        They wait, are under way, are held because nobody knows, or have failed.
        """


class Ledger(ReceiptStore, StepStore, DeliveryStore, LookupStore, Protocol):
    """The books together: one commit moves all of them."""
