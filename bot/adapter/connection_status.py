"""`ConnectionStatus`: how an account is connected to its platform; an outage is logged once.

`TokenCheck`: whether a platform accepts the token of an account.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from uuid import UUID

from bot.concurrency.clock import Backoff, Clock, TimeSource, system_clock
from bot.concurrency.tasks import TaskSet

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
