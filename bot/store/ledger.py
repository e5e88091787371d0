"""Protocols of the ledger, of edits and of room leases; `StoreHealth`."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.environment import Entity, Room, World
from bot.domain.inbound import (
    DeletionResult,
    EditResult,
    ErasureResult,
    InboundMessage,
    MembershipChange,
    MembershipUpdate,
    Reaction,
    StoredEvent,
    StreamCursor,
    UnreadableEvent,
)
from bot.domain.ledger import CostEntry, CostHold, Delivery, HeldCosts, ModelCall, Outcome, Receipt, Step
from bot.domain.memory import Memory
from bot.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class EditStore(Protocol):
    """Edits, deletions, reactions, erasure, membership and room migration. Each method is one transaction,
    and repeating it changes nothing. Cancelled deliveries are those of `cancel_unsent`.
    """

    async def apply_edit(self, edit: InboundMessage, now: datetime, *, is_answering: bool = False) -> EditResult:
        """Store an edit of a message as `plan_edit` decides; for an unknown message it is a new event."""

    async def delete_messages(self, room_id: UUID, message_ids: Collection[str], now: datetime) -> DeletionResult:
        """Delete messages by their ids on the platform, the agent's included, and what was derived only from
        them.

        Their open receipts are cancelled, and deliveries that answer nothing else.
        """

    async def clear_room(self, room_id: UUID, now: datetime) -> DeletionResult:
        """Delete all messages of a room and what was derived from them, and cancel its open work."""

    async def cancel_open_work(self, room_ids: Collection[UUID], now: datetime, reason: str) -> DeletionResult:
        """Cancel the open receipts and the deliveries of rooms, and delete nothing."""

    async def save_reaction(self, reaction: Reaction) -> Memory | None:
        """Store a reaction to a message; return None if it is stored already."""

    async def apply_membership(self, update: MembershipUpdate, now: datetime) -> MembershipChange:
        """Store an update of a world; entities and rooms do not become active by it.

        An update whose event is known changes nothing. Events are remembered for thirty days.
        """

    async def erase_entity(
        self, entity_id: UUID, now: datetime, on_cancelled: Callable[[DeletionResult], Awaitable[None]] | None = None
    ) -> ErasureResult:
        """Delete all data of an entity: messages, the replies to them, and what was derived from either.

        Its words are removed from what the agent wrote to others. Receipts without text, roles, and a component that
        marks the erasure remain. A large store is erased in batches, with other work in between; `on_cancelled` is
        called first, with the open work that was cancelled. What was interrupted is completed by a repetition.
        """

    async def migrate_room(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        """Continue a room under another id, with its messages and its pending deliveries; return these
        deliveries.

        Receipts stay with the old room.
        """


@dataclass(frozen=True, slots=True)
class BucketRequest:
    """Tokens wanted from a bucket of `capacity` tokens that fills in `seconds`: the setting and whose bucket it is."""

    setting: str
    key: UUID
    capacity: int
    seconds: float
    count: int = 1


class SharedLimits(Protocol):
    """Limits that hold for all processes of one agent together. A process that dies holds nothing any more."""

    async def hold_costs(
        self, day: date, holds: Sequence[CostHold], entries: Sequence[CostEntry], number: int
    ) -> list[HeldCosts] | None:
        """Add costs to the sums, then set what this process holds of the limits of a day.

        All holds get what they want, or none. `number` is another one for every call: costs are added
        once if the call is repeated. Return None, with the costs added, if this process is not a member.
        """

    async def take_tokens(self, requests: Sequence[BucketRequest], age: float = 0.0) -> list[int]:
        """Take tokens as they were available `age` seconds ago; return how many of each request were."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """A store outage: its code, its message, and when it began."""

    cause: str
    message: str
    since: datetime


class StoreHealth:
    """The current outage of a store, if any; logs once when it begins and once when it ends."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._problem: StoreProblem | None = None

    @property
    def problem(self) -> StoreProblem | None:
        """The current outage; None while the store works."""
        return self._problem

    def fail(self, error: StoreUnavailable) -> None:
        """Record that the store cannot be written."""
        previous = self._problem
        if previous is not None and previous.cause == error.cause:
            return
        self._problem = StoreProblem(error.cause, str(error), previous.since if previous else self._clock())
        logger.error("messages are not accepted, because the store is unavailable (%s): %s", error.cause, error)

    def recover(self) -> None:
        """Record that the store can be written again."""
        previous, self._problem = self._problem, None
        if previous is not None:
            seconds = (self._clock() - previous.since).total_seconds()
            logger.warning("messages are accepted again after %.0f s (%s)", seconds, previous.cause)

    def check_available(self) -> None:
        """Raise StoreUnavailable while the store cannot be written."""
        if self._problem is not None:
            raise StoreUnavailable(self._problem.message, cause=self._problem.cause)


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """What a turn writes in one transaction: `replies` to memory, with the results of its actions,
    `deliveries` to the outbox, `receipts` in their new state.
    """

    replies: tuple[Memory, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiptQuery:
    """Which receipts are searched: those for which all holds that is set.

    Of several outcomes, rules or platforms one must be the receipt's; a message was received from `since` on and
    before `until`.
    """

    room_id: UUID | None = None
    author_id: UUID | None = None
    outcomes: Collection[Outcome] = ()
    rules: Collection[str] = ()
    platforms: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, receipt: Receipt) -> bool:
        """Return whether a receipt is one of them."""
        return (
            self.room_id in (None, receipt.room_id)
            and self.author_id in (None, receipt.author_id)
            and (not self.outcomes or receipt.outcome in self.outcomes)
            and (not self.rules or receipt.rule in self.rules)
            and (not self.platforms or receipt.key.platform in self.platforms)
            and (self.since is None or receipt.received_at >= self.since)
            and (self.until is None or receipt.received_at < self.until)
        )


@dataclass(frozen=True, slots=True)
class ListedReceipt:
    """A receipt with its message, author, room and world; None for what was deleted."""

    receipt: Receipt
    message: Memory | None
    author: Entity | None
    room: Room | None
    world: World | None


@dataclass(frozen=True, slots=True)
class ReceiptCount:
    """How many receipts have one outcome and rule, and the latest of them."""

    outcome: Outcome
    rule: str
    count: int
    example: Receipt


class ReceiptStore(Protocol):
    """Receipts of inbound events."""

    @property
    def health(self) -> StoreHealth:
        """Whether inbound events can be stored now."""

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        """Store events with the rows they need, and the read position of their stream.

        A new event is returned claimed by the turn that will answer it. An event whose id or message is known
        changes nothing and is returned with its existing receipt.
        """

    async def receive_command(self, receipt: Receipt, world: World, room: Room, author: Entity) -> Receipt:
        """Store the receipt of a command with the rows that it lacks, and return it; the one it has if it is known.

        A command is no message of its room, and any process may run it, whichever owns the room.
        """

    async def close_command(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> list[Delivery]:
        """Store how a command ended: its receipt, the deliveries of its response, or the response as a step.

        Return the deliveries with their position in the room. A final receipt stays unchanged, and then the step is
        not stored: the person had their data deleted.
        """

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Return the read position of a stream; None if none is stored."""

    async def last_message_ids(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the platform's id of the message stored last, for each room; edits do not count."""

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        """Store the new state of receipts; a final or unknown one stays unchanged."""

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        """Return a receipt by its id, or the latest by the id of its message."""

    async def inbound_message(self, receipt: Receipt) -> InboundMessage | None:
        """Return the rows a receipt was stored with; None if its message was deleted.

        The room is the current room of the message.
        """

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        """Return the receipts that match, newest first."""

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        """Return closed receipts whose evaluators have not run, oldest first."""

    async def mark_evaluated(self, receipt_ids: Sequence[UUID]) -> None:
        """Record that the evaluators have run for these receipts."""

    async def add_model_calls(self, receipt_id: UUID, calls: Sequence[ModelCall]) -> bool:
        """Add calls that ended after a receipt was closed; return False, and add nothing, if it is open or unknown."""

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        """Store a commit; return its deliveries with their position in the room.

        A delivery that is already stored stays unchanged; a receipt as in `save_receipts`. If every receipt
        is final already, another process has closed them, and nothing new is stored.
        """


class StepStore(Protocol):
    """The journal of paid and side-effecting steps."""

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        """Store the state of a step, together with the receipts that it closes."""

    async def save_traces(self, steps: Sequence[Step]) -> None:
        """Store what turns have noted, each as a step of its turn."""

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        """Return the steps of a turn by key."""


class DeliveryStore(Protocol):
    """Outgoing parts."""

    async def save_delivery(self, delivery: Delivery) -> None:
        """Store the new state of a delivery."""

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        """Return the deliveries that match, in sending order."""


class LookupStore(Protocol):
    """Look-ups by ids that an operator knows."""

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        """Return the receipts of messages with this id on their platforms, newest first."""

    async def search_receipts(
        self, query: ReceiptQuery, *, before: UUID | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[ListedReceipt]:
        """Return the latest receipts of a query, newest first; only those older than the receipt `before`.

        With `after` instead, those newer than that receipt, oldest first.
        """

    async def count_receipts(self, query: ReceiptQuery) -> list[ReceiptCount]:
        """Return how many receipts of a query there are of each outcome and rule, the most frequent first."""

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """Return a delivery by its id."""

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        """Return the latest deliveries that have not arrived, in sending order.

        They are pending, being sent, failed, or their result is unknown.
        """


class UnreadableEventStore(Protocol):
    """Events that could not be read: the latest thousand, without those that are older than log entries."""

    async def record_unreadable(self, events: Sequence[UnreadableEvent]) -> None:
        """Store events; one whose id is known stays unchanged."""

    async def unreadable_events(self, limit: int = 100) -> list[UnreadableEvent]:
        """Return the events recorded last, newest first."""


class Ledger(ReceiptStore, StepStore, DeliveryStore, LookupStore, UnreadableEventStore, Protocol):
    """Receipts, steps and deliveries, which one commit changes together; unreadable events."""
