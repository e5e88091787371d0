"""Retry policy, circuit breaker, outage log, per-handler caller."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from bot.errors import BudgetSpent, ModelBusy, ModelError, ModelUnavailable, PromptTooLong
from bot.models.attempt import Deadlines, Reserve, attempt
from bot.models.handler import ModelHandler, Question, R

logger = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
JITTER = 0.25  # so much of a wait is left to chance, so that not all come back at once


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a caller is: how often it asks again, and for how many seconds after the first try.

    Where another model can be asked instead, its patience is `hurry`.
    """

    most: int = 8
    patience: float = 90.0
    hurry: float = 10.0
    chance: Callable[[], float] = random.random

    def wait(self, failed: int, passed: float, told: float | None, *, has_next: bool) -> float | None:
        """Give the seconds to wait after so many failed tries and seconds; None to give it up.

        `told` is what the provider asks for: never less than that, and rather not at all.
        """
        if failed > self.most:
            return None
        if told is None:
            told = 0.0
            wait = min(FIRST_WAIT * 2.0 ** (failed - 1), LONGEST_WAIT) * (1 - JITTER * self.chance())
        else:
            told = max(told, 0.0) if isfinite(told) else self.patience
            wait = told * (1 + JITTER * self.chance())
        left = (self.hurry if has_next else self.patience) - passed
        return None if max(told, wait) > left else wait


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read after how many seconds a server wants to be asked again: a number, or a date.

    None where it does not say, or says nonsense.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if value.replace(".", "", 1).isdecimal():
            return float(value) / unit
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


FAILURES = 3
REST = 30.0  # seconds


class Breaker:
    """After three calls in a row that found it busy or away, a model is not asked for half a minute.

    Then one call goes first: if that fails too, it rests again.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0
        self._is_tried = False

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Ask the model within this; raises ModelUnavailable at once while it rests."""
        is_trial = self._rested()
        self._is_tried |= is_trial
        try:
            yield
        except BudgetSpent:
            raise  # it was not asked
        except ModelBusy:
            self._fail()
            raise
        except ModelError:
            self._failures = 0  # it is there, whatever it says
            raise
        else:
            self._failures = 0
        finally:
            if is_trial:  # not one that was asked before the rest, and ends now
                self._is_tried = False

    def _rested(self) -> bool:
        """Tell whether this is the call that goes first after a rest; raises while it may not be asked."""
        if self._failures < FAILURES:
            return False
        left = self._rests_until - self._clock()
        if left > 0:
            raise ModelUnavailable(f"{self._name}: has failed again and again, is asked in {left:.0f} s")
        if self._is_tried:
            raise ModelUnavailable(f"{self._name}: has failed again and again, is being tried now")
        return True

    def _fail(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._rests_until = self._clock() + REST


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


MOST_AT_ONCE = 128  # calls to one handler; those behind them learn from what becomes of them


@dataclass(frozen=True, slots=True)
class Manner:
    """How handlers are asked: within which deadlines, how patiently, and by which clock."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: Retries = field(default_factory=Retries)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Caller:
    """A handler, and how it has fared lately."""

    def __init__(self, handler: ModelHandler, manner: Manner, *, reserve: Reserve, alarm: Alarm) -> None:
        self.handler = handler
        self._manner = manner
        self._reserve = reserve
        self._alarm = alarm
        self._breaker = Breaker(handler.name, manner.clock)
        self._gate = asyncio.Semaphore(MOST_AT_ONCE)

    async def call(self, question: Question[R], *, has_next: bool) -> R:
        """Ask it, and where it is busy again and again; less patiently where there is a next one to ask.

        Raises ModelUnavailable where it stays busy, ModelError for what the handler raised.
        """
        try:
            async with self._gate:
                with self._breaker.guarding():
                    return await self._watched(question, has_next=has_next)
        except ModelBusy as error:
            raise ModelUnavailable(str(error)) from error

    async def _watched(self, question: Question[R], *, has_next: bool) -> R:
        """Have the operator told of what is wrong with it, which a long prompt or an empty purse is not."""
        who = f"{self.handler.name} ({self.handler.type})"
        try:
            result = await self._persist(question, has_next=has_next)
        except ModelError as error:
            if not isinstance(error, PromptTooLong | BudgetSpent):
                self._alarm.fails(who, str(error))
            raise
        self._alarm.answers(who)
        return result

    async def _persist(self, question: Question[R], *, has_next: bool) -> R:
        manner = self._manner
        started, failed = manner.clock(), 0
        while True:
            try:
                return await attempt(self.handler, question, manner.deadlines, self._reserve)
            except ModelBusy as error:
                failed += 1
                passed = manner.clock() - started
                wait = manner.retries.wait(failed, passed, error.retry_after, has_next=has_next)
                if wait is None or question.is_urgent:
                    raise
            await manner.sleep(wait)
