"""Whether what comes in can be kept just now: told by a store, read by whoever takes something in."""

import logging
from dataclasses import dataclass
from datetime import datetime

from bot.concurrency.clock import Clock, system_clock
from bot.errors import StoreUnavailable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, as a word and as a sentence, and since when."""

    cause: str
    message: str
    since: datetime


class Health:
    """What is wrong with a store now; the log is told once when it begins and once when it is over."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._trouble: Trouble | None = None

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong; None where all is well."""
        return self._trouble

    def fails(self, error: StoreUnavailable) -> None:
        """Note that nothing can be kept."""
        before = self._trouble
        if before is not None and before.cause == error.cause:
            return
        self._trouble = Trouble(error.cause, str(error), before.since if before else self._clock())
        logger.error("nothing is taken in any more (%s): %s", error.cause, error)

    def recovers(self) -> None:
        """Note that everything can be kept again."""
        before, self._trouble = self._trouble, None
        if before is not None:
            seconds = (self._clock() - before.since).total_seconds()
            logger.warning("messages are taken in again, after %.0f s (%s)", seconds, before.cause)

    def check(self) -> None:
        """Raise StoreUnavailable while nothing can be kept."""
        if self._trouble is not None:
            raise StoreUnavailable(self._trouble.message, cause=self._trouble.cause)
