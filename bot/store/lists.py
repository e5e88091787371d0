"""Lists for operators, page by page: rooms, messages of a room, and deliveries that have not arrived."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from bot.domain.environment import Room
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import Memory

T = TypeVar("T")
PageKey = tuple[int, ...]
MAX_EXAMINED_ROWS = 2000  # of a list with filters, for one page


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, each with its key; `next` is the key after which the list goes on, None at its end.

    A page may be shorter than asked for, even empty, and have a `next`: only so many rows are examined for it.
    """

    items: tuple[tuple[PageKey, T], ...] = ()
    next: PageKey | None = None


@dataclass(frozen=True, slots=True)
class RoomFilter:
    """Which rooms are wanted: of a platform, of a world, with a text in their name or their platform's id."""

    platform: str = ""
    world_id: UUID | None = None
    text: str = ""

    def accepts(self, *, platform: str, world_id: UUID, name: str, external_id: str) -> bool:
        """Return whether a room is wanted."""
        text = self.text.casefold()
        return (
            self.platform in ("", platform)
            and self.world_id in (None, world_id)
            and (not text or text in name.casefold() or text in external_id.casefold())
        )


@dataclass(frozen=True, slots=True)
class RoomSummary:
    """A room, its world's name, and what happened there: `message_count` are the messages since a time."""

    room: Room
    world_name: str
    is_muted: bool
    last_event_at: datetime | None
    message_count: int


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages of a room are wanted; those with an outcome or a rule are messages to the agent.

    `since` is included, `until` is not.
    """

    outcomes: frozenset[Outcome] = frozenset()
    rules: frozenset[str] = frozenset()
    author_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    def accepts(self, author_id: UUID, created_at: datetime, receipt: tuple[Outcome, str] | None) -> bool:
        """Return whether a message is wanted; `receipt` are its outcome and the rule, if it has one."""
        if (self.since is not None and created_at < self.since) or (self.until and created_at >= self.until):
            return False
        if self.author_id not in (None, author_id):
            return False
        if not (self.outcomes or self.rules):
            return True
        if receipt is None:
            return False
        outcome, rule = receipt
        return (not self.outcomes or outcome in self.outcomes) and (not self.rules or rule in self.rules)


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message of a room, with the latest receipt of one that came from a person."""

    memory: Memory
    receipt: Receipt | None


class ListStore(Protocol):
    """Pages of lists, newest first; `before` and `after` are keys of their items."""

    async def rooms(
        self, wanted: RoomFilter, *, counted_since: datetime, before: PageKey | None = None, limit: int = 50
    ) -> Page[RoomSummary]:
        """Return rooms, the most recently active first, with the number of messages since a time."""

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        """Return rooms by id."""

    async def messages(
        self, room_id: UUID, wanted: MessageFilter, *, before: PageKey | None = None, limit: int = 50
    ) -> Page[ListedMessage]:
        """Return messages of a room, the last one that arrived first."""

    async def messages_after(self, room_id: UUID, after: PageKey, limit: int = 50) -> Page[ListedMessage]:
        """Return the messages of a room that arrived after one, the first of them first."""

    async def receipts_of(self, message_ids: Collection[UUID]) -> dict[UUID, Receipt]:
        """Return the latest receipts of messages, by the ids of the messages."""

    async def deliveries(
        self, states: Collection[DeliveryState], *, before: PageKey | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """Return deliveries that have not arrived and are in one of these states, the latest first."""

    async def count_deliveries(self, *, without_cause: str = "") -> Mapping[DeliveryState, int]:
        """Return the number of deliveries that have not arrived, by state; those with a cause can be left out."""
