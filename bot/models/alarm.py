"""Telling the operator of a model that does not answer: at once, then once an hour, and when it does."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)
HOUR = 3600.0


@dataclass(slots=True)
class _Trouble:
    told_at: float
    since: float
    untold: int = 0
    is_told: bool = True
    is_over: bool = False


class Alarm:
    """What is wrong with each model; the log is told, never more than once an hour a model."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}

    def fails(self, name: str, cause: str) -> None:
        """Note that a model could not be used."""
        now = self._clock()
        trouble = self._troubles.get(name)
        if trouble is None:
            self._troubles[name] = _Trouble(told_at=now, since=now)
            logger.error("model %s does not answer: %s", name, cause)
            return
        if trouble.is_over:
            trouble.since, trouble.is_over, trouble.is_told = now, False, False
        trouble.untold += 1
        if now - trouble.told_at >= HOUR:
            logger.error("model %s does not answer, %d times since: %s", name, trouble.untold, cause)
            trouble.told_at, trouble.untold, trouble.is_told = now, 0, True

    def answers(self, name: str) -> None:
        """Note that a model could be used."""
        trouble = self._troubles.get(name)
        if trouble is None or trouble.is_over:
            return
        trouble.is_over = True
        if trouble.is_told:
            logger.warning("model %s answers again, after %.0f s", name, self._clock() - trouble.since)
