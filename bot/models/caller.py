"""Asking one handler until it answers or it is of no use."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bot.errors import BudgetSpent, ModelBusy, ModelError, ModelUnavailable, PromptTooLong
from bot.models.alarm import Alarm
from bot.models.attempt import Deadlines, Reserve, attempt
from bot.models.breaker import Breaker
from bot.models.handler import ModelHandler, Question, R
from bot.models.retrying import Retries

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
