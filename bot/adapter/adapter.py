"""`Adapter`, the contract that a platform adapter implements, and the feeds in which an agent posts."""

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
from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import Delivery
from bot.errors import DeliveryHeld, Undeliverable


@dataclass(frozen=True, slots=True)
class FoundPost:
    """A post that a search found, written by a user of the platform."""

    author: str
    text: str
    url: str
    posted_at: datetime | None = None


Search = Callable[[str], Awaitable[Sequence[FoundPost]]]
DeletePost = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Feed:
    """A room of type FEED in which an agent posts, and its world.

    `interval` is the shortest and the longest time between two scheduled posts; None where posts are only
    published on request. `pause_reason` says why nothing is posted at the moment, such as quiet hours; it is
    read again a minute later. `search` searches all posts of the platform and raises TemporaryError where
    that is not possible at the moment; None where the platform has no search. `delete` deletes a post of the
    agent by its id, on the platform and in the store, and returns False where it was gone already; it raises
    as `Adapter.deliver` does, and repeating it changes nothing. None where posts cannot be deleted.
    """

    world: World
    room: Room
    interval: tuple[timedelta, timedelta] | None = None
    pause_reason: str = ""
    search: Search | None = None
    delete: DeletePost | None = None


class Adapter(ABC):
    """Brings a platform's messages to the inbox and delivers replies, for all agents of the process.

    Entering the context connects, leaving it disconnects. An adapter never uses the store. Where
    `supports_idempotent_send`, no attempt is stored before it is made: after a crash the part is simply sent
    again.
    """

    platform: ClassVar[str]
    supports_idempotent_send: ClassVar[bool] = False  # a part that is sent twice is shown once
    is_trusted_audience: bool = False  # only people the operator admitted can write; known once entered
    is_receiving: bool = True  # False, set before it is entered, where a process only sends
    serves_clients: ClassVar[bool] = False  # it is the server of its clients: each sees what its own process sends
    can_edit: bool = False
    links_parts: ClassVar[bool] = False  # a part refers to the one before it, and cannot be sent before it
    marks_late_parts: ClassVar[bool] = True  # a part that later ones have passed begins with a notice
    shows_versions: ClassVar[bool] = False  # readers see that a reply is incomplete, or is being replaced by a new one
    shows_choices: ClassVar[bool] = False  # as buttons or a list; else they stand in the text, numbered
    sends_response_files: ClassVar[bool] = False  # of commands: the `attachments` of a `CommandResponse`
    hides_responses: ClassVar[bool] = False  # a response that is ephemeral is seen by the sender of the command only
    voice_type: ClassVar[str] = ""  # media type of recordings that people can play there; empty: none is sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """The connection of each account; empty where the adapter does not report it."""
        return ()

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into parts that the platform accepts; pure."""
        return [content]

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the platform's id for it.

        Raises NotSent where it was certainly not sent and may be tried again, Undeliverable where it can
        never be sent, DeliveryUnknown where the platform may have it. Any other error counts as
        DeliveryUnknown.
        """

    async def edit(self, delivery: Delivery) -> str:
        """Replace the message that `delivery.replaces_external_id` names, and return the platform's id.

        An empty part deletes that message. Called only where `can_edit`, and again whenever its outcome is
        unknown: a second call must change nothing. Raises as `deliver` does, and MessageGone where a user
        deleted the message.
        """
        raise Undeliverable(f"{self.platform} cannot change what was said")

    def shows_greeting(self, room: Room) -> bool:
        """Return whether a conversation in a room begins with the character's first greeting; pure.

        The adapter shows it, `Character.greet`; it is not stored, and the prompt has it as the first line.
        """
        return False

    def stream_interval(self, room: Room) -> float | None:
        """Return the seconds between two updates of a streamed reply; None where only whole replies are sent.

        Where `can_edit`, the text so far is delivered as one part, which is then edited.
        """
        return None

    async def preview(self, delivery: Delivery) -> None:
        """Show the text of a reply so far; an empty part means that the reply was discarded.

        For platforms that drop a preview by themselves when the reply is delivered or the process ends; they
        need not be able to edit.
        """

    async def reconcile(self, delivery: Delivery) -> str:
        """Find out whether a part of unknown outcome was delivered: return its id, or raise as `deliver`.

        Called before such a part is tried again, and again after a pause where it raises DeliveryUnknown; it
        may send the part once more where that cannot be seen twice, or is marked. NotSent means that the
        platform does not have the part. DeliveryHeld holds it until an operator decides.
        """
        raise DeliveryHeld(f"{self.platform} has no way to ask whether {delivery.id} arrived")

    async def show_model_busy(self, room: Room) -> None:
        """Show, where the platform can, that the model is busy and will be called again.

        Called while the agent is typing; the end of typing ends it.
        """

    async def show_control(self, room_id: UUID, action: str, target: str) -> None:
        """Do what the agent asks a front end for, such as `disable_input`, where the platform has one of its own."""

    async def set_typing(self, room: Room, active: bool) -> None:
        """Show, or stop showing, that the agent is at work in a room."""

    async def download(self, url: str) -> bytes | None:
        """Read a received file that `Attachment.url` names in this platform's own form.

        Return None for any other address, which is then fetched over HTTP. Raises FetchError where the file
        cannot be read.
        """
        return None

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the private chat of an agent with a person, and its world; opened if there is none yet.

        None where the platform lets an agent only answer. Raises as `deliver` does.
        """
        return None

    def trusted_origin(self, account: str) -> str:
        """Return the origin of the server that the operator has set for an account; empty for the public platform.

        Files that this account receives are read from there even if it is not a public address.
        """
        return ""

    def session(self) -> TerminalSession | None:
        """Return the session with the user of a terminal; None on every other platform."""
        return None

    def feed(self, agent_id: UUID) -> Feed | None:
        """Return where an agent posts on this platform; None for nowhere. Called once connected."""
        return None
