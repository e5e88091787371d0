"""`WorkSharing`: how processes share the work of one agent, their roles, and what is known about each of them."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from bot.domain.ledger import Receipt
from bot.store.ledger import SharedLimits


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
