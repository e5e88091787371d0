"""`Adapter`, the contract that a platform adapter implements, and the feeds in which an agent posts.

`AccountAdapter`: what adapters have in common whose accounts connect by themselves.

Which characters have an account on a platform.

`KnownPeople`: users seen per channel; only they may be mentioned there. `ChannelProblems`: what is to be changed there.

`TerminalSession`: what `bot chat` needs of an adapter for a terminal.

Per-room answering rules of a character file, the same for all platforms.

`ConnectionStatus`: how an account is connected to its platform; an outage is logged once.

`TokenCheck`: whether a platform accepts the token of an account.

How often an adapter sends: `SlidingWindow` limits requests, `TypingIndicator` repeats one while the agent works.
"""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.concurrency.clock import Backoff, Clock, Sleep, TimeSource, system_clock
from bot.concurrency.tasks import BoundedSet, TaskSet
from bot.domain.character import Character
from bot.domain.content import Content, MentionContext
from bot.domain.environment import Entity, Room, World
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.reactions import ReactionSet
from bot.errors import ConfigError, DeliveryHeld, SettingError, Undeliverable
from bot.settings import Settings

logger = logging.getLogger(__name__)
HALF_HOUR_SECONDS, HISTORY_LENGTH = 1800, 48
MIN_LOG_INTERVAL = timedelta(minutes=5)  # so that a flapping connection does not flood the log


class ConnectionState(StrEnum):
    """Whether an account is connected."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    DEGRADED = "degraded"
    OFF = "off"


WORST_STATES = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTED, ConnectionState.CONNECTING)


class DisconnectCause(StrEnum):
    """Why an account is not connected, as a code that contains no details."""

    DNS = "dns"
    TLS = "tls"
    PROXY = "proxy"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    LIMITED = "rate_limited"
    REFUSED = "refused"
    CLOCK = "clock"  # it is so wrong that the platform refuses what is signed
    FORBIDDEN = "forbidden"  # the token is valid and lacks a permission
    CONTESTED = "contested"
    WEBHOOK = "webhook"
    SWITCHED_OFF = "switched_off"
    PLATFORM = "platform_error"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class ConnectionSnapshot:
    """The state of a connection, since when, and the cause where it is not connected."""

    state: ConnectionState
    since: datetime
    cause: DisconnectCause | None = None

    @property
    def is_problem(self) -> bool:
        """Whether the connection has failed, rather than not being made yet."""
        return self.state in (ConnectionState.DEGRADED, ConnectionState.OFF)


class ConnectionHistory:
    """The worst state of a connection in each half hour since the process started, for one day.

    A half hour in which the connection was being made and was made counts as connected.
    """

    def __init__(self, first: ConnectionSnapshot) -> None:
        # By the number of the half hour: the worst state in it, and the state at its end.
        self._changes = {_half_hour(first.since): (first, first)}

    def record(self, previous: ConnectionSnapshot, snapshot: ConnectionSnapshot, at: datetime) -> None:
        """Record a change of the state."""
        number = _half_hour(at)
        worst, _ = self._changes.get(number, (previous, previous))
        self._changes[number] = (min(worst, snapshot, key=_rank), snapshot)
        while len(self._changes) > HISTORY_LENGTH + 1:
            del self._changes[next(iter(self._changes))]

    def read(self, now: datetime) -> list[ConnectionSnapshot | None]:
        """Return the worst states of the last 48 half hours, the current one last; None before the start."""
        end = _half_hour(now) + 1
        first = max((number for number in self._changes if number <= end - HISTORY_LENGTH), default=min(self._changes))
        states: list[ConnectionSnapshot | None] = []
        state: ConnectionSnapshot | None = None
        for number in range(first, end):
            worst, state = self._changes.get(number, (state, state))
            states.append(worst)
        return [None] * (HISTORY_LENGTH - len(states)) + states[-HISTORY_LENGTH:]


def _half_hour(at: datetime) -> int:
    return int(at.timestamp() // HALF_HOUR_SECONDS)


def _rank(snapshot: ConnectionSnapshot) -> int:
    return WORST_STATES.index(snapshot.state)


class ConnectionStatus:
    """The connection of one account, as its adapter reports it.

    `label` names the account in the log. The platform's error text goes only there; `off_reason` says why the account
    is off. `agent_id` is whose account it is; None for one that all agents share. `account` is its name on the
    platform, such as @marlo; empty until known.
    `unheard_since` says since when the platform has had a message that it has not brought.
    """

    def __init__(self, platform: str, label: str, clock: Clock = system_clock, *, agent_id: UUID | None = None) -> None:
        self.platform = platform
        self.agent_id = agent_id
        self.label = label
        self.account = ""
        self.off_reason = ""
        self.has_connected = False
        self.unheard_since: datetime | None = None  # set by an adapter that can ask what it did not bring
        self._clock = clock
        self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTING, clock())
        self._history = ConnectionHistory(self._snapshot)
        self._is_outage_logged = False
        self._logged_at: datetime | None = None

    @property
    def snapshot(self) -> ConnectionSnapshot:
        """The current state."""
        return self._snapshot

    def history(self) -> list[ConnectionSnapshot | None]:
        """Return the worst states of the last 48 half hours, the current one last; None before the start."""
        return self._history.read(self._clock())

    def connected(self) -> None:
        """Record that the platform answers."""
        previous = self._snapshot
        if previous.state in (ConnectionState.CONNECTED, ConnectionState.OFF):
            return
        self.has_connected = True
        self._change(ConnectionSnapshot(ConnectionState.CONNECTED, self._clock()))
        if self._is_outage_logged:
            self._is_outage_logged = False
            seconds = (self._snapshot.since - previous.since).total_seconds()
            logger.warning("%s is on %s again, after %.0f s", self.label, self.platform, seconds)

    def disconnected(self) -> None:
        """Record that a connection ended normally and the next one is being made."""
        if self._snapshot.state is ConnectionState.CONNECTED:
            self._change(ConnectionSnapshot(ConnectionState.CONNECTING, self._clock()))

    def failed(self, cause: DisconnectCause, detail: object) -> None:
        """Record that the platform cannot be reached; called after every failed attempt."""
        previous, now = self._snapshot, self._clock()
        if previous.state is ConnectionState.OFF:
            return
        since = previous.since if previous.state is ConnectionState.DEGRADED else now
        self._change(ConnectionSnapshot(ConnectionState.DEGRADED, since, cause))
        is_recent = self._logged_at is not None and now - self._logged_at < MIN_LOG_INTERVAL
        if self._is_outage_logged or is_recent:
            return
        self._is_outage_logged, self._logged_at = True, now
        logger.warning("%s is cut off from %s (%s): %s", self.label, self.platform, cause, detail)

    def stopped(self, cause: DisconnectCause, detail: object) -> None:
        """Record that no further attempt is made until the next start, or until `accepted` is called."""
        if self._snapshot.state is ConnectionState.OFF:
            return
        self.off_reason = str(detail)
        self._change(ConnectionSnapshot(ConnectionState.OFF, self._clock(), cause))
        logger.error("%s is off %s: %s", self.label, self.platform, detail)

    def accepted(self) -> None:
        """Record that the platform accepts an account again that was stopped, and answers."""
        if self._snapshot.state is ConnectionState.OFF:
            self._snapshot = replace(self._snapshot, state=ConnectionState.DEGRADED)
            self.off_reason, self._is_outage_logged = "", True
        self.connected()

    def _change(self, snapshot: ConnectionSnapshot) -> None:
        previous, self._snapshot = self._snapshot, snapshot
        if (previous.state, previous.cause) != (snapshot.state, snapshot.cause):
            self._history.record(previous, snapshot, self._clock())


FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 15.0, 900.0
PAUSES = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, jitter=0.0)  # between two questions


class TokenCheck:
    """Whether a platform accepts the token of one account; created and closed by its adapter.

    That a call was refused says nothing about the token before the platform's own "who am I" call is refused too:
    `ask` makes that call and returns whether the token is accepted, None where the platform cannot be asked. While
    the token is refused the account is off, which `status` reports to the operator with `problem`, and the platform
    is asked again with growing `pauses` until it accepts the token.
    """

    def __init__(
        self,
        status: ConnectionStatus,
        ask: Callable[[], Awaitable[bool | None]],
        problem: str,
        time_source: TimeSource | None = None,
        pauses: Backoff = PAUSES,
    ) -> None:
        self.problem = problem
        self._status, self._ask, self._pauses = status, ask, pauses
        self._time = time_source or TimeSource()
        self._lock = asyncio.Lock()
        self._accepted = asyncio.Event()
        self._accepted.set()
        self._asks_at = -math.inf  # by the monotonic clock
        self._tasks = TaskSet(f"the token of {status.label} on {status.platform}")

    @property
    def is_refused(self) -> bool:
        """Whether the platform refuses the token."""
        return not self._accepted.is_set()

    @property
    def retry_after(self) -> float:
        """The seconds until the platform has been asked again, at least one."""
        return max(1.0, self._asks_at - self._time.monotonic() + 1.0)

    async def confirm(self) -> bool:
        """Ask the platform after a call was refused, and return whether it refuses the token."""
        async with self._lock:
            if not self.is_refused and await self._ask() is False:
                self.refuse()
        return self.is_refused

    def refuse(self, problem: str = "") -> None:
        """Take the account off, because the "who am I" call was refused, and ask again with growing pauses.

        `problem` is what the operator reads of it, if it is another one than before.
        """
        if not self.is_refused:
            self.problem = problem or self.problem
            self._accepted.clear()
            self._asks_at = self._time.monotonic() + self._pauses.delay(1)
            self._status.stopped(DisconnectCause.REFUSED, self.problem)
            self._tasks.start(self._ask_again())

    async def wait_accepted(self) -> None:
        """Wait until the platform accepts the token."""
        await self._accepted.wait()

    async def close(self) -> None:
        """Ask no more."""
        await self._tasks.cancel()

    async def _ask_again(self) -> None:
        for failures in count(1):
            pause = self._pauses.delay(failures)
            self._asks_at = self._time.monotonic() + pause
            await self._time.sleep(pause)
            if await self._ask():
                self._status.accepted()
                self._accepted.set()
                return


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
    accounts = group_accounts(owners, platform, needs, key)
    for first, *others in accounts.values():
        if others:
            raise ConfigError(
                f"{first.character.name} and {others[0].character.name} have the same "
                f"{label or next(iter(needs))}: give each a value of its own in its file's secrets, or other "
                "`adapters` in the file of one"
            )
    return {account: first for account, [first] in accounts.items()}


def group_accounts(
    owners: Iterable[H], platform: str, needs: Collection[str], key: Callable[[H], K]
) -> dict[K, list[H]]:
    """Return the owners as `select_accounts` does, where several may share an account, in the order of `owners`."""
    accounts: dict[K, list[H]] = {}
    for owner in owners:
        if lists_platform(owner.character, platform) and all(name in owner.settings for name in needs):
            accounts.setdefault(key(owner), []).append(owner)
    return accounts


def share_accounts(
    owners: Iterable[H], platform: str, needs: Collection[str], key: Callable[[H], K], is_shared: Callable[[H], bool]
) -> list[list[H]]:
    """Return the owners of each account, in the order of `owners`; those for whom `is_shared` holds may share it.

    Raises ConfigError as `select_accounts` does where any other has the same key.
    """
    groups = group_accounts(owners, platform, needs, key).values()
    for group in groups:
        if not all(map(is_shared, group)):
            select_accounts(group, platform, needs, key)
    return [*groups]


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
    shows_notices: ClassVar[bool] = True  # the AI notice is a message of its own; else the profile has it
    labels_posts: bool = False  # what is sent has a label that says it is by an AI; known once it is built
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

    def render_notice(self, text: str) -> str:
        """Return the line of an AI notice as a small remark in the platform's markup; pure."""
        return text

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

    def find_reactions(self, room: Room) -> ReactionSet | None:
        """Return the reactions that the agent can set in a room; None where it can set none; pure."""
        return None

    async def react(self, delivery: Delivery) -> str:
        """Set the text of a part as the agent's reaction to the message `delivery.reply_to`; return its id there.

        It takes the place of the reaction `delivery.replaces_external_id`; with an empty text that is only removed.
        Called again whenever its outcome is unknown: a second call must change nothing. Raises as `edit` does.
        """
        raise Undeliverable(f"{self.platform} has no reactions")

    def can_open_thread(self, room: Room) -> bool:
        """Return whether the agent can open a thread or a topic at a message of a room, as far as is known; pure."""
        return False

    async def open_thread(self, delivery: Delivery, *, is_repeat: bool = False) -> str:
        """Open a thread with the text of a part as its name, and return the platform's id of its room.

        It is opened at the message `delivery.reply_to`, where the platform has threads of messages. With `is_repeat`
        an earlier attempt may have opened it: then that one is returned. Where this cannot be found out, the name is
        marked, or DeliveryHeld is raised. Raises as `edit` does.
        """
        raise Undeliverable(f"{self.platform} has no threads")

    def build_thread(self, delivery: Delivery, room: Room) -> Room:
        """Return the room of the thread that a delivery has opened in a room; pure."""
        raise NotImplementedError(f"{self.platform} has no threads")

    def thread_message_id(self, room: Room) -> str:
        """Return the platform's id of the message at which a thread was opened, in its parent room; pure.

        Empty where the platform's id of the thread does not say so.
        """
        return ""

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


def find_previous_part(parts: Iterable[Delivery], delivery: Delivery) -> str:
    """Return the platform's id of the part that a further part of a thread follows.

    `parts` are the deliveries of its turn. Raises Undeliverable if the part before it was not sent.
    """
    place = (delivery.memory_id, delivery.part - 1)
    previous = next((part for part in parts if (part.memory_id, part.part) == place), None)
    if previous is None or previous.state is not DeliveryState.SENT or not previous.external_id:
        state = previous.state if previous is not None else "gone"
        raise Undeliverable(
            f"part {delivery.part} of the thread waits: the part before it is {state} "
            f"(bot outbox send {previous.id if previous else 'ID'}, then {delivery.id})"
        )
    return previous.external_id


class Account(ABC):
    """An account of a platform, which receives and sends in the background while it is open.

    `keys` are what `Delivery.account` and `Room.account` call it: several where characters share it.
    """

    keys: Sequence[str]
    status: ConnectionStatus
    is_receiving = True  # False, set before it is opened, where the process only sends

    @abstractmethod
    async def open(self) -> None:
        """Start in the background."""

    @abstractmethod
    async def close(self) -> None:
        """Stop all tasks, and close the connections."""

    @property
    def feed(self) -> Feed | None:
        """Where its character posts; None for nowhere."""
        return None


A = TypeVar("A", bound=Account)


class AccountAdapter(Adapter, Generic[A]):
    """An adapter whose accounts are opened and closed with it, and send the deliveries that name them."""

    def __init__(self, accounts: Iterable[A]) -> None:
        self.accounts = tuple(accounts)
        self._accounts = {key: account for account in self.accounts for key in account.keys}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self)  # closes them if one cannot be opened
            for account in self.accounts:
                account.is_receiving = self.is_receiving
                await account.open()
            stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(account.close() for account in self.accounts))

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """The connection of each account."""
        return [account.status for account in self.accounts]

    def feed(self, agent_id: UUID) -> Feed | None:
        """Return where a character posts."""
        account = self.account_of(agent_id)
        return account.feed if account is not None else None

    def account_of(self, agent_id: UUID) -> A | None:
        """Return the account of a character."""
        return next((account for account in self.accounts if account.status.agent_id == agent_id), None)

    def find_account(self, key: str) -> A | None:
        """Return the account that has a key in this process."""
        return self._accounts.get(key)

    def account_for(self, delivery: Delivery) -> A:
        """Return the account that a delivery names. Raises Undeliverable if this process has none."""
        if (account := self.find_account(delivery.account)) is None:
            raise Undeliverable(f"no character in this process has the account {delivery.account} on {self.platform}")
        return account


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


@dataclass(slots=True)
class SlidingWindow:
    """Allows `limit` requests in any period of so many seconds; `times` are those of the sent and the reserved ones."""

    limit: int
    seconds: float
    times: list[float] = field(default_factory=list)
    blocked_until: float = 0.0

    def find_time(self, earliest: float) -> float:
        """Return the first time from `earliest` on at which one more request may be sent."""
        time = max(earliest, self.blocked_until)
        while len(near := self._find_near(time)) >= self.limit:
            time = near[len(near) - self.limit] + self.seconds
        return time

    def count_spare(self, now: float) -> int:
        """Return how many requests could be sent at once."""
        return self.limit - len(self._find_near(now))

    def reserve(self, time: float, now: float) -> None:
        """Count a request that is sent at a time, and forget those that are too old to matter."""
        del self.times[: bisect_right(self.times, now - self.seconds)]
        insort(self.times, time)

    def block(self, until: float) -> None:
        """Allow nothing before a time; an earlier block that ends later stays."""
        self.blocked_until = max(self.blocked_until, until)

    def _find_near(self, time: float) -> list[float]:
        """Return the times that may lie in one period with a time."""
        first = bisect_right(self.times, time, key=lambda at: at + self.seconds)
        return self.times[first : bisect_left(self.times, time + self.seconds)]


class TypingIndicator(Generic[C]):
    """Calls `send` every `interval` seconds for each channel in which the agent is at work, first after `delay`.

    It ends in a channel where `send` returns False, and with `stop`. A call that has begun is not cancelled by the end
    of the work: its connection is kept.
    """

    def __init__(
        self, send: Callable[[C], Coroutine[Any, Any, bool]], sleep: Sleep, *, interval: float, delay: float = 0.0
    ) -> None:
        self._send, self._sleep = send, sleep
        self._interval, self._delay = interval, delay
        self._tasks: dict[C, asyncio.Task[None]] = {}
        self._requests = TaskSet("a typing request")

    def show(self, channel: C, active: bool) -> None:
        """Start or end the indicator in a channel."""
        if (task := self._tasks.pop(channel, None)) is not None:
            task.cancel()
        if active:
            self._tasks[channel] = asyncio.get_running_loop().create_task(self._repeat(channel))

    async def stop(self) -> None:
        """End the indicator everywhere."""
        for channel in list(self._tasks):
            self.show(channel, active=False)
        await self._requests.cancel()

    async def _repeat(self, channel: C) -> None:
        if self._delay:
            await self._sleep(self._delay)
        while await asyncio.shield(self._requests.start(self._send(channel))):
            await self._sleep(self._interval)
