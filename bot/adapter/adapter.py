"""`Adapter`, the contract that a platform adapter implements, and the feeds in which an agent posts.

Which characters have an account on a platform.

`KnownPeople`: users seen per channel; only they may be mentioned there. `ChannelProblems`: what is to be changed there.

`TerminalSession`: what `bot chat` needs of an adapter for a terminal.

Per-room answering rules of a character file, the same for all platforms.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.adapter.connection_status import ConnectionStatus
from bot.concurrency.tasks import BoundedSet
from bot.domain.character import Character
from bot.domain.content import Content, MentionContext
from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import Delivery, Receipt
from bot.errors import ConfigError, DeliveryHeld, SettingError, Undeliverable
from bot.settings import Settings

K = TypeVar("K", bound=Hashable)


class Owner(Protocol):
    """A character with its settings, such as an `AgentHandle`."""

    @property
    def character(self) -> Character: ...
    @property
    def settings(self) -> Settings: ...


H = TypeVar("H", bound=Owner)


def lists_platform(character: Character, platform: str) -> bool:
    """Return whether a character's file allows a platform: its `adapters` name it, or are empty."""
    return not character.adapters or platform in character.adapters


def select_accounts(
    owners: Iterable[H], platform: str, needs: Collection[str], key: Callable[[H], K], *, label: str = ""
) -> dict[K, H]:
    """Return the owners that have every setting in `needs` and list the platform, by their account's key.

    `key` finds what no two accounts may share, such as the token; `label` is the variable that holds it, by
    default the first of `needs`. Raises ConfigError, naming both characters, where two share it.
    """
    accounts: dict[K, H] = {}
    for owner in owners:
        if not lists_platform(owner.character, platform) or not all(name in owner.settings for name in needs):
            continue
        other = accounts.setdefault(key(owner), owner)
        if other is not owner:
            raise ConfigError(
                f"{other.character.name} and {owner.character.name} have the same "
                f"{label or next(iter(needs))}: give each a value of its own in its file's secrets, or other "
                "`adapters` in the file of one"
            )
    return accounts


C = TypeVar("C", bound=Hashable)
MAX_REPORTED_PROBLEMS = 2000


class KnownPeople(Generic[C]):
    """Users who wrote in a channel lately, for each of the channels used last.

    Only they may be mentioned there, so that a model cannot be made to notify strangers. Belongs to one
    account; at most `max_channels` channels and `max_people` users of each are remembered.
    """

    def __init__(self, *, max_channels: int = 2000, max_people: int = 200) -> None:
        self._max_channels = max_channels
        self._max_people = max_people
        self._bots: dict[str, None] = {}
        self._users: dict[C, dict[str, None]] = {}

    def add_bot(self, user: str) -> None:
        """Allow a user in every channel: the account's own name, which calls no other person."""
        self._bots[user] = None

    def note_user(self, channel: C, user: str) -> None:
        """Record that a user wrote in a channel."""
        users = self._users.pop(channel, {})
        users.pop(user, None)
        users[user] = None
        self._users[channel] = users
        if len(users) > self._max_people:
            del users[next(iter(users))]
        if len(self._users) > self._max_channels:
            del self._users[next(iter(self._users))]

    def of(self, channel: C) -> Collection[str]:
        """Return the users who may be mentioned in a channel: the account's own names and recent authors."""
        return {**self._bots, **self._users.get(channel, {})}.keys()


class ChannelProblems:
    """Logs what an operator should change in a channel, such as a permission that the bot lacks: each problem once."""

    def __init__(self, logger: logging.Logger, label: str) -> None:
        self._logger, self._label = logger, label
        self._reported = BoundedSet[tuple[str, str]](MAX_REPORTED_PROBLEMS)

    def report(self, channel: str, problem: str) -> None:
        """Log a problem unless it was logged for this channel lately."""
        if (channel, problem) not in self._reported:
            self._reported.add((channel, problem))
            self._logger.warning("%s %s: %s", self._label, channel, problem)


class TerminalSession(Protocol):
    """The conversation with the user of a terminal, driven line by line; owned by its adapter."""

    @property
    def is_interactive(self) -> bool:
        """Whether input and output are a terminal."""

    async def read_line(self) -> str | None:
        """Wait for the next line; None at the end of the input."""

    async def send_message(self, text: str) -> Receipt:
        """Submit a message; return its final receipt once all replies are written."""

    async def run_command(self, line: str) -> str:
        """Run a command; return the text to show once all replies are written."""

    async def show(self, text: str) -> None:
        """Write a text that is not a reply."""

    async def show_greeting(self) -> None:
        """Write the character's first greeting, if there is one and nothing has been said yet."""

    def restore_terminal(self) -> None:
        """Restore the terminal's state."""


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


ANY_ROOM = "*"


class AnswerPolicy(StrEnum):
    """Which messages of a room are answered."""

    USUAL = "usual"
    MENTIONS = "mentions"
    LISTEN = "listen"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class RoomRule:
    """Which messages of a room are answered, and where in the file the rule stands.

    `usual`: the agent decides; `mentions`: only messages that mention it or reply to it; `listen`: none, but
    they are stored; `ignore`: they are not even stored.
    """

    policy: AnswerPolicy = AnswerPolicy.USUAL
    location: str = ""

    @property
    def is_ignored(self) -> bool:
        """Whether messages of the room must not be submitted to the inbox."""
        return self.policy is AnswerPolicy.IGNORE

    def refusal_for(self, mention: MentionContext, *, is_direct: bool = False) -> str:
        """Return the rule that forbids answering a message; empty where it may be answered.

        `is_direct` is set for messages in a private conversation with the agent.
        """
        expects_reply = is_direct or mention.is_mention or mention.is_reply
        is_allowed = self.policy is AnswerPolicy.USUAL or (self.policy is AnswerPolicy.MENTIONS and expects_reply)
        return "" if is_allowed else f"{self.location} ({self.policy})"


class RoomRuleError(SettingError):
    """A rule of a room cannot be read; `path` is its place below the settings of the file."""

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"settings.{'.'.join(path)}: {problem}")
        self.path = path
        self.problem = problem


class _RuleEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    answers: AnswerPolicy


class RoomRules:
    """The rules of a character: `settings.<platform>.rooms.<the platform's id of a room or world>`.

    The rules of an agent are one object as long as it runs; a changed character file replaces what it holds.
    """

    def __init__(self, rules: Mapping[tuple[str, str], RoomRule]) -> None:
        self._rules = dict(rules)

    def update(self, other: "RoomRules") -> None:
        """Take over the rules of another object, and drop all others."""
        self._rules = other._rules

    def find(self, platform: str, *external_ids: str) -> RoomRule:
        """Return the rule of the first of these ids that has one, else that of `*`.

        Pass the narrowest first: a thread, its channel, its server.
        """
        names = (*external_ids, ANY_ROOM)
        matches = (self._rules.get((platform.lower(), name)) for name in names)
        return next((rule for rule in matches if rule is not None), RoomRule())


def parse_room_rules(character: Character) -> RoomRules:
    """Read a character's rules; raises SettingError that names the place of a malformed one."""
    rules: dict[tuple[str, str], RoomRule] = {}
    for platform, platform_settings in character.settings.items():
        rooms: Any = platform_settings.get("rooms") if isinstance(platform_settings, Mapping) else None
        if rooms is None:
            continue
        if not isinstance(rooms, Mapping):
            raise RoomRuleError((platform, "rooms"), "it must name rooms by their ids")
        for name, entry in rooms.items():
            location = f"settings.{platform}.rooms.{name}"
            try:
                rules[platform.lower(), str(name)] = RoomRule(_RuleEntry.model_validate(entry).answers, location)
            except ValidationError:
                policies = ", ".join(AnswerPolicy)
                message = f'it must read like {{"answers": "mentions"}}; the answers are {policies}'
                raise RoomRuleError((platform, "rooms", str(name)), message) from None
    return RoomRules(rules)
