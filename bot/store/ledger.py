"""Protocols of the ledger, of edits and of room leases; `StoreHealth`.

`WorkSharing`: how processes share the work of one agent, their roles, and what is known about each of them.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
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
from bot.domain.ledger import (
    CareCount,
    CostEntry,
    CostHold,
    Delivery,
    DeliveryKind,
    Disclosure,
    HeldCosts,
    ModelCall,
    Outcome,
    Receipt,
    Step,
)
from bot.domain.memory import Memory
from bot.domain.proposal import Proposal, ProposalState
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

    async def find_message(self, room_id: UUID, message_id: str) -> UUID | None:
        """Return the memory id of the message with an id of the platform, also of one that the agent has sent."""

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
    """The current outage of a store (`problem`), if any; logs once when it begins and once when it ends."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self.problem: StoreProblem | None = None

    def fail(self, error: StoreUnavailable) -> None:
        """Record that the store cannot be written."""
        previous = self.problem
        if previous is not None and previous.cause == error.cause:
            return
        self.problem = StoreProblem(error.cause, str(error), previous.since if previous else self._clock())
        logger.error("messages are not accepted, because the store is unavailable (%s): %s", error.cause, error)

    def recover(self) -> None:
        """Record that the store can be written again."""
        previous, self.problem = self.problem, None
        if previous is not None:
            seconds = (self._clock() - previous.since).total_seconds()
            logger.warning("messages are accepted again after %.0f s (%s)", seconds, previous.cause)

    def check_available(self) -> None:
        """Raise StoreUnavailable while the store cannot be written."""
        if self.problem is not None:
            raise StoreUnavailable(self.problem.message, cause=self.problem.cause)


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """What a turn writes in one transaction: `replies` to memory, with the results of its actions,
    `deliveries` to the outbox, `receipts` in their new state, `disclosures` that the deliveries make to people.

    A new referral is counted for `care_category` on the day of its disclosure. `commit` raises AlreadyReferred, with
    nothing written, if its person got another one after `referred_before`.

    A `proposal` is stored if the commit closes its receipt; then the proposals whose ids are `replaced`, as far as they
    wait and no person edits them, are replaced by it.
    """

    replies: tuple[Memory, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    disclosures: tuple[Disclosure, ...] = ()
    care_category: str = ""
    referred_before: datetime | None = None
    proposal: Proposal | None = None
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiptQuery:
    """Which receipts are searched: those for which all holds that is set.

    Of several outcomes, rules or platforms one must be the receipt's; a message was received from `since` on and
    before `until`. `is_filtered` are those of which a filter stopped, replaced or held a text, `is_degraded` those that
    a step of DEGRADE shaped.
    """

    room_id: UUID | None = None
    author_id: UUID | None = None
    outcomes: Collection[Outcome] = ()
    rules: Collection[str] = ()
    platforms: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    is_filtered: bool = False
    is_degraded: bool = False


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

    async def add_model_calls(self, receipt_id: UUID, calls: Sequence[ModelCall], notes: Sequence[str] = ()) -> bool:
        """Add calls that ended after a receipt was closed, and notes that it does not have yet.

        Return False, and add nothing, if it is open or unknown.
        """

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        """Store a commit; return its deliveries with their position in the room.

        A delivery that is already stored stays unchanged; a receipt as in `save_receipts`. If every receipt
        is final already, another process has closed them, and nothing new is stored. A disclosure replaces the
        person's last one of its kind; one whose delivery is not stored is left out.
        """


class StepStore(Protocol):
    """The journal of paid and side-effecting steps."""

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        """Store the state of a step, together with the receipts that it closes."""

    async def save_traces(self, steps: Sequence[Step]) -> None:
        """Store what turns have noted, each as a step of its turn, but not of words of people who are not read."""

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

    async def disclosures(self, entity_ids: Collection[UUID]) -> list[Disclosure]:
        """Return the last notice and the last referral of each of these people, if any."""

    async def count_disclosed(self, kind: DeliveryKind) -> int:
        """Return how many people have got a notice, or a referral."""

    async def care_counts(self, since: date) -> list[CareCount]:
        """Return how many referrals there were on each day from `since` on, by category, the earliest day first."""

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


class ProposalStore(Protocol):
    """Replies and posts that wait for a person's decision."""

    async def proposals(
        self, *, state: ProposalState | None = None, turn_id: UUID | None = None, limit: int = 100
    ) -> list[Proposal]:
        """Return the latest proposals that match, oldest first."""

    async def proposal(self, proposal_id: str) -> Proposal | None:
        """Return a proposal by its id."""

    async def decide_proposal(
        self, decided: Proposal, revision: int, turn_commit: TurnCommit | None = None, *, editor: str | None = None
    ) -> list[Delivery] | None:
        """Store a proposal in its new state with the receipt that this closes, the replies and the deliveries.

        Any process may do so, whichever owns the room. Return the deliveries as `commit` does; None, with nothing
        written, if the stored proposal does not wait any more or has another revision, or another `editor` if one is
        given.
        """


class Ledger(ReceiptStore, StepStore, DeliveryStore, LookupStore, ProposalStore, UnreadableEventStore, Protocol):
    """Receipts, steps, deliveries and proposals, which one commit changes together; unreadable events."""


class ProcessRole(StrEnum):
    """What a process does for its agents."""

    ALL = "all"
    GATEWAY = "gateway"  # it holds the connections of platforms and stores what comes in
    WORKER = "worker"  # it answers, and has no platform
    SENDER = "sender"  # it sends what workers have committed

    @property
    def answers(self) -> bool:
        """Whether it owns rooms, answers in them and runs scheduled tasks."""
        return self in (ProcessRole.ALL, ProcessRole.WORKER)


class Duty(StrEnum):
    """What one of the processes does for all of them, while it has the lease of this name."""

    OWNER_NOTICES = "notices to the owner"
    BACKUPS = "scheduled backups"


def account_name(platform: str, account: str) -> str:
    """Return the name of the lease under which an account's deliveries are sent."""
    return f"{platform}/{account}"


def connection_name(platform: str) -> str:
    """Return the name of the lease under which a platform's messages are received."""
    return f"connection to {platform}"


def part_name(name: str, number: int, count: int) -> str:
    """Return the name of one of several parts, numbered from 0; a whole keeps its name."""
    return name if count == 1 else f"{name} {number}/{count}"


@dataclass(frozen=True, slots=True)
class Member:
    """A process that shares the work: its number, what it is, until when it counts as alive, and what it owns.

    `host` is empty for a version that does not tell what it is. `rooms` and `accounts` are numbers of leases.
    """

    number: int
    role: str
    host: str
    process: int
    version: str
    since: datetime | None
    last_heartbeat: datetime
    is_draining: bool
    rooms: int
    accounts: Sequence[str]


@dataclass(frozen=True, slots=True)
class WorkLag:
    """When the oldest message without an outcome was received, and the oldest open delivery was created."""

    oldest_unanswered: datetime | None
    oldest_undelivered: datetime | None


class Members(Protocol):
    """The processes that share the work of an agent."""

    async def find(self) -> tuple[list[Member], WorkLag]:
        """Return the processes in the order in which they joined, and how late the work is."""

    async def drain(self, number: int) -> bool:
        """Request that a process release its rooms and accounts and take no others; return whether it exists."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """The rooms of a process that have open messages, and those that have pending deliveries."""

    message_rooms: frozenset[UUID] = frozenset()
    delivery_rooms: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class NewWork:
    """What other processes have told this one.

    `has_open_work` is False if there is none, `closed` are the receipts of messages received here that another
    process has closed. It is None if there may be work of any kind; else the work is messages that were not claimed,
    and for a process that does not answer, deliveries.
    """

    has_open_work: bool = True
    closed: frozenset[UUID] | None = None


class LeaseSharing(Protocol):
    """Leases of what one process does at a time, by name."""

    async def hold_lease(self, name: str) -> bool:
        """Return whether this process has the lease of an account or a duty; it is taken if it is free."""

    async def share_leases(self, name: str, count: int) -> frozenset[int]:
        """Return the numbers of the parts, named by `part_name`, of which this process has the leases.

        Free ones are taken, up to an equal share among the processes of the same role. Of more than its share,
        those beyond it are left out, and to be released once this process has ended what it does for them.
        """

    async def release_lease(self, name: str) -> None:
        """Release a lease, so that another process can take it at once."""


class WorkSharing(LeaseSharing, Protocol):
    """Room leases, by which processes share the work of one agent: each room belongs to one process at a
    time.

    A process that receives an event in a free room takes its lease. Writing for a room that another process
    owns raises LeaseLost. A process whose `role` does not answer owns no room: it leaves messages to the
    processes that do. `is_draining` is True once an operator has told the process to release its work.
    """

    role: ProcessRole

    @property
    def is_draining(self) -> bool:
        """Whether the process takes no further rooms and accounts."""

    @property
    def agent_count(self) -> int:
        """The number of agents of this process that share their work over the same database."""

    @property
    def members(self) -> Members:
        """All processes."""

    @property
    def limits(self) -> SharedLimits:
        """The limits that all processes share."""

    @property
    def unsettled_rooms(self) -> AbstractSet[UUID]:
        """The rooms of this process in which an earlier owner may have left work that has not been resumed yet."""

    def settle(self, rooms: Collection[UUID]) -> None:
        """Record that the open work of these rooms has been resumed."""

    def owns_room(self, room_id: UUID) -> bool:
        """Return whether this process holds the lease of a room, as far as it knows."""

    def sends_room(self, room_id: UUID) -> bool:
        """Return whether this process sends the deliveries of a room: as owner of the room or of the account."""

    async def join(self) -> None:
        """Start sharing, as a new member; raise ConfigError if the others have roles that do not fit to this one."""

    async def heartbeat(self) -> bool:
        """Renew the leases of this process, and take over those of dead processes; call it twice a second.

        Returns False if this process was itself considered dead and has no leases left: all its work must end
        before it joins again.
        """

    async def open_work(self, platforms: Collection[str] = ()) -> OpenWork:
        """Return the open work in this process's rooms, whether it is running or not.

        A process that owns no room is given the deliveries on these platforms whose accounts it can lease.
        """

    async def receipts_to_claim(self) -> list[Receipt]:
        """Return the open receipts of this process's rooms in which some are unclaimed, in order of arrival."""

    async def wait_for_work(self, timeout: float) -> NewWork:
        """Wait until another process has told of work, for at most `timeout` seconds; return what is known of it."""

    async def release_idle(self) -> None:
        """Release the rooms in which nothing is open, and all accounts."""

    async def leave(self) -> None:
        """Release all leases, so that other processes can take them at once."""
