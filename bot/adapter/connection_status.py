"""How an account stands with its platform: told the log once when it is cut off, and once when it is back."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.concurrency.clock import Clock, system_clock

logger = logging.getLogger(__name__)
MIN_LOG_INTERVAL = timedelta(minutes=5)  # what comes and goes faster than that floods no log


class ConnectionState(StrEnum):
    """Whether an account is connected."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    DEGRADED = "degraded"
    OFF = "off"


class DisconnectCause(StrEnum):
    """Why an account is not connected, as a word that gives nothing away."""

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
    """How an account stands, since when, and why where it is not well."""

    state: ConnectionState
    since: datetime
    cause: DisconnectCause | None = None

    @property
    def is_problem(self) -> bool:
        """Whether it is more than not connected yet."""
        return self.state in (ConnectionState.DEGRADED, ConnectionState.OFF)


class ConnectionStatus:
    """One account's standing with its platform, as its adapter finds it.

    `who` names the account in the log. What a platform says of a failure goes there and nowhere else.
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
        """How it stands now."""
        return self._snapshot

    def connected(self) -> None:
        """Note that the platform is there."""
        previous = self._snapshot
        if previous.state in (ConnectionState.CONNECTED, ConnectionState.OFF):
            return
        self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTED, self._clock())
        if self._is_outage_logged:
            self._is_outage_logged = False
            seconds = (self._snapshot.since - previous.since).total_seconds()
            logger.warning("%s is on %s again, after %.0f s", self._label, self.platform, seconds)

    def disconnected(self) -> None:
        """Note that a connection has ended as they all do, and the next one is being made."""
        if self._snapshot.state is ConnectionState.CONNECTED:
            self._snapshot = ConnectionSnapshot(ConnectionState.CONNECTING, self._clock())

    def failed(self, cause: DisconnectCause, detail: object) -> None:
        """Note that the platform is not to be had; called whenever that was found again."""
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
        """Note that it is given up until the next start."""
        if self._snapshot.state is ConnectionState.OFF:
            return
        self._snapshot = ConnectionSnapshot(ConnectionState.OFF, self._clock(), cause)
        logger.error("%s is off %s: %s", self._label, self.platform, detail)
