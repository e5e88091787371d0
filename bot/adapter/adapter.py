"""`Adapter` ABC, `Feed`, `FoundPost`."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import ClassVar, Self
from uuid import UUID

from bot.adapter.connection_status import ConnectionStatus
from bot.adapter.terminal import TerminalSession
from bot.domain.content import Content
from bot.domain.environment import Room, World
from bot.domain.ledger import Delivery
from bot.errors import DeliveryUnknown, Undeliverable


@dataclass(frozen=True, slots=True)
class FoundPost:
    """A post that a search has found: what a stranger has written, and where it stands."""

    author: str
    text: str
    url: str
    posted_at: datetime | None = None


Search = Callable[[str], Awaitable[Sequence[FoundPost]]]


@dataclass(frozen=True, slots=True)
class Feed:
    """A room of type FEED in which an agent posts, and the world that is part of.

    `every` is the shortest and the longest pause between two posts of its own accord; None where it
    posts only when somebody asks for it. `rests` says why nothing is posted unasked just now, such as quiet
    hours; it is asked again a minute later. `search` looks through what everybody posts there, and raises
    TryAgain where that cannot be had now; None where the platform has no search.
    """

    world: World
    room: Room
    interval: tuple[timedelta, timedelta] | None = None
    pause_reason: str = ""
    search: Search | None = None


class Adapter(ABC):
    """Brings a platform's messages to the inbox and takes replies out.

    Entering the context connects, leaving it disconnects. An adapter never touches the store. Where
    sending a part again does no harm, no attempt is written down before it leaves: after a crash it is
    simply sent again.
    """

    platform: ClassVar[str]
    supports_idempotent_send: ClassVar[bool] = False  # a part that is sent twice is shown once
    is_trusted_audience: bool = (
        False  # nobody writes there whom the operator has not let in; known once entered
    )
    can_edit: bool = False
    shows_choices: ClassVar[bool] = False  # as buttons or a list; else they stand in the text, numbered

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """How each account stands with the platform; none where that is not told."""
        return ()

    def split_content(self, content: Content) -> list[Content]:
        """Cut a reply into pieces that the platform takes; pure."""
        return [content]

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and give back the platform's id for it.

        Raises NotSent where it surely was not sent and may be tried again, Undeliverable where it
        never can be, Unclear where nobody knows. Any other error counts as Unclear.
        """

    async def edit(self, delivery: Delivery) -> str:
        """Put a part in the place of the one that `delivery.edits` names, and give back the platform's id.

        A part that holds nothing takes that one away. Called where `can_edit` says so, and again
        wherever its outcome is unclear: the second time changes nothing. Raises as `deliver` does, and
        TakenAway where somebody has removed what was to be edited.
        """
        raise Undeliverable(f"{self.platform} cannot change what was said")

    def stream_interval(self, room: Room) -> float | None:
        """Tell how many seconds apart a reply may be shown while it is written; None for whole ones only.

        Where `can_edit` says so, what is written so far is delivered as one part and then edited.
        """
        return None

    async def preview(self, delivery: Delivery) -> None:
        """Show what is written of a reply so far; nothing of it where it is not said after all.

        For platforms on which that is gone by itself once the reply is delivered, or the process ends;
        they need not be able to edit.
        """

    async def reconcile(self, delivery: Delivery) -> str:
        """Find out what became of an unclear delivery: give back its id, or raise as `deliver` does.

        Asked before a part is tried again. Raising Unclear holds the part for a person to decide.
        """
        raise DeliveryUnknown(f"{self.platform} has no way to ask whether {delivery.id} arrived")

    async def set_typing(self, room: Room, active: bool) -> None:
        """Show, or stop showing, that the agent is at work in a room."""

    async def download(self, url: str) -> bytes | None:
        """Read a file that came in, which `Attachment.url` names in this platform's own way.

        None for any other address: it is fetched as everybody would. Raises FetchError where it cannot be
        had.
        """
        return None

    def session(self) -> TerminalSession | None:
        """Return the session with the user of a terminal; None on every other platform."""
        return None

    def feed(self, agent_id: UUID) -> Feed | None:
        """Give where an agent posts on this platform, asked once that is connected; None for nowhere."""
        return None
