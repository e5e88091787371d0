"""`ConnectionStatus`: how an account is connected to its platform; an outage is logged once."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.concurrency.clock import Clock, system_clock

logger = logging.getLogger(__name__)
MIN_LOG_INTERVAL = timedelta(minutes=5)  # so that a flapping connection does not flood the log


class ConnectionState(StrEnum):
    """Whether an account is connected."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    DEGRADED = "degraded"
    OFF = "off"


class DisconnectCause(StrEnum):
    """Why an account is not connected, as a code that contains no details."""

    DNS = "dns"
    TLS = "tls"
    PROXY = "proxy"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    LIMITED = "rate_limited"
    REFUSED = "refused"
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


class ConnectionStatus:
    """The connection of one account, as its adapter reports it.

    `label` names the account in the log. The platform's error text goes only there.
    """

    def __init__(self, platform: str, label: str, clock: Clock = system_clock) -> None:
        self.platform = platform
        self._label = label
        self._clock = clock
        self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTING, clock())
        self._is_outage_logged = False
        self._logged_at: datetime | None = None

    @property
    def snapshot(self) -> ConnectionSnapshot:
        """The current state."""
        return self._snapshot

    def connected(self) -> None:
        """Record that the platform answers."""
        previous = self._snapshot
        if previous.state in (ConnectionState.CONNECTED, ConnectionState.OFF):
            return
        self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTED, self._clock())
        if self._is_outage_logged:
            self._is_outage_logged = False
            seconds = (self._snapshot.since - previous.since).total_seconds()
            logger.warning("%s is on %s again, after %.0f s", self._label, self.platform, seconds)

    def disconnected(self) -> None:
        """Record that a connection ended normally and the next one is being made."""
        if self._snapshot.state is ConnectionState.CONNECTED:
            self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTING, self._clock())

    def failed(self, cause: DisconnectCause, detail: object) -> None:
        """Record that the platform cannot be reached; called after every failed attempt."""
        previous, now = self._snapshot, self._clock()
        if previous.state is ConnectionState.OFF:
            return
        since = previous.since if previous.state is ConnectionState.DEGRADED else now
        self._snapshot = ConnectionSnapshot(ConnectionState.DEGRADED, since, cause)
        is_recent = self._logged_at is not None and now - self._logged_at < MIN_LOG_INTERVAL
        if self._is_outage_logged or is_recent:
            return
        self._is_outage_logged, self._logged_at = True, now
        logger.warning("%s is cut off from %s (%s): %s", self._label, self.platform, cause, detail)

    def stopped(self, cause: DisconnectCause, detail: object) -> None:
        """Record that no further attempt is made until the next start."""
        if self._snapshot.state is ConnectionState.OFF:
            return
        self._snapshot = ConnectionSnapshot(ConnectionState.OFF, self._clock(), cause)
        logger.error("%s is off %s: %s", self._label, self.platform, detail)
