"""How an account stands with its platform: told the log once when it is cut off, and once when it is back."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.concurrency.clock import Clock, system_clock

logger = logging.getLogger(__name__)
TOLD_AGAIN_AFTER = timedelta(minutes=5)  # what comes and goes faster than that floods no log


class Standing(StrEnum):
    """Whether an account is connected."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    DEGRADED = "degraded"
    OFF = "off"


class Cause(StrEnum):
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
class LinkState:
    """How an account stands, since when, and why where it is not well."""

    standing: Standing
    since: datetime
    cause: Cause | None = None

    @property
    def is_trouble(self) -> bool:
        """Whether it is more than not connected yet."""
        return self.standing in (Standing.DEGRADED, Standing.OFF)


class Link:
    """One account's standing with its platform, as its adapter finds it.

    `who` names the account in the log. What a platform says of a failure goes there and nowhere else.
    """

    def __init__(self, platform: str, who: str, clock: Clock = system_clock) -> None:
        self.platform = platform
        self._who = who
        self._clock = clock
        self._state = LinkState(Standing.CONNECTING, clock())
        self._is_told = False
        self._told_at: datetime | None = None

    @property
    def state(self) -> LinkState:
        """How it stands now."""
        return self._state

    def stands(self) -> None:
        """Note that the platform is there."""
        before = self._state
        if before.standing in (Standing.CONNECTED, Standing.OFF):
            return
        self._state = LinkState(Standing.CONNECTED, self._clock())
        if self._is_told:
            self._is_told = False
            seconds = (self._state.since - before.since).total_seconds()
            logger.warning("%s is on %s again, after %.0f s", self._who, self.platform, seconds)

    def drops(self) -> None:
        """Note that a connection has ended as they all do, and the next one is being made."""
        if self._state.standing is Standing.CONNECTED:
            self._state = LinkState(Standing.CONNECTING, self._clock())

    def fails(self, cause: Cause, why: object) -> None:
        """Note that the platform is not to be had; called whenever that was found again."""
        before, now = self._state, self._clock()
        if before.standing is Standing.OFF:
            return
        since = before.since if before.standing is Standing.DEGRADED else now
        self._state = LinkState(Standing.DEGRADED, since, cause)
        is_soon = self._told_at is not None and now - self._told_at < TOLD_AGAIN_AFTER
        if self._is_told or is_soon:
            return
        self._is_told, self._told_at = True, now
        logger.warning("%s is cut off from %s (%s): %s", self._who, self.platform, cause, why)

    def ends(self, cause: Cause, why: object) -> None:
        """Note that it is given up until the next start."""
        if self._state.standing is Standing.OFF:
            return
        self._state = LinkState(Standing.OFF, self._clock(), cause)
        logger.error("%s is off %s: %s", self._who, self.platform, why)
