"""`CostMeter`: price, count, write to the store; reservation before a call."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from types import TracebackType
from typing import Any, Self

from bot.concurrency.clock import Clock, Patience, system_clock
from bot.concurrency.isolation import contained
from bot.costs.budget import Budget, Spent
from bot.costs.prices import PriceList
from bot.domain.costs import Key, Spending
from bot.domain.ledger import CANCELLED, ModelCall
from bot.errors import StoreUnavailable
from bot.models.attempt import Record
from bot.models.handler import ModelHandler, Question
from bot.models.usage import expected
from bot.runs import Run, current_run
from bot.store.protocols import SpendingStore

EVERY = 10.0
DEADLINE = 5.0
WRITING = "writing what was spent"
LONGEST_NAME = 200


class Meter:
    """Keeps what is spent: in the budget at once, in the store ten seconds later or at the end.

    A message costs no statement for it. What a crash takes is those seconds of the sums; each message's
    own cost is in its receipt. Where the work `is_shared` with other processes, what they spend counts too.
    """

    def __init__(
        self,
        store: SpendingStore,
        prices: PriceList,
        budget: Budget,
        *,
        clock: Clock = system_clock,
        patience: Patience | None = None,
        is_shared: bool = False,
        every: float = EVERY,
    ) -> None:
        self._store = store
        self._prices = prices
        self._budget = budget
        self._clock = clock
        self._patience = patience or Patience()
        self._is_shared = is_shared
        self._every = every
        self._unwritten: dict[Key, Spending] = {}
        self._is_over = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._look()
        self._loop = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()  # not cancelled: what is being written would be counted twice
        if self._loop is not None:
            await contained(self._loop, what=WRITING, deadline=self._patience.left(DEADLINE))

    def book(self, call: ModelCall, run: Run | None) -> ModelCall:
        """Give a call with its cost, and count it for the room and the person it was made for."""
        call = replace(call, cost=self._prices.cost(call))
        spending = _figures(call, self._clock().date(), run)
        self._budget.spend(spending)
        self._keep([spending])
        return call

    async def write(self) -> None:
        """Add what is not written yet to the store's sums; an outage leaves it for the next time."""
        taken, self._unwritten = list(self._unwritten.values()), {}
        if not taken:
            return
        try:
            await self._store.add(taken)
        except BaseException:
            self._keep(taken)
            raise

    def _keep(self, spendings: Iterable[Spending]) -> None:
        for one in spendings:
            known = self._unwritten.get(one.key)
            self._unwritten[one.key] = one if known is None else known.plus(one)

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._is_over.wait()
            is_last = self._is_over.is_set()
            await contained(self._beat(), what=WRITING, deadline=DEADLINE)

    async def _beat(self) -> None:
        with suppress(StoreUnavailable):  # whoever writes meets it too, and tells
            await self.write()
            if self._is_shared:
                await self._look()

    async def _look(self) -> None:
        """See what is spent today, before this start and by others, where there is a limit for it."""
        if not self._budget.limits:
            return
        today = self._clock().date()
        spent = await self._store.spent(today, today)
        self._budget.begin_from([*spent, *self._unwritten.values()])


def _figures(call: ModelCall, day: date, run: Run | None) -> Spending:
    """Count a call, for the room and the person of its run, if any.

    One that failed without having been counted is taken to have cost nothing.

    One that was called off is not: the provider has begun on it.
    """
    room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
    model = call.model[:LONGEST_NAME]
    if call.error and call.error != CANCELLED and call.is_estimate:
        return Spending(day, model, room_id, person_id, calls=1, failed=1)
    return Spending(
        day,
        model,
        room_id,
        person_id,
        calls=1,
        tokens_in=call.tokens_in,
        tokens_cached=call.tokens_cached,
        tokens_out=call.tokens_out,
        cost=call.cost or 0.0,
        unpriced=int(call.cost is None),
        estimated=int(call.is_estimate),
    )


is_within: ContextVar[bool] = ContextVar("is_within", default=False)  # a handler that asks another one


class Till:
    """Where calls that are made side by side see what the others are about to spend.

    Which model a handler has is known once it has answered; until then it may be the dearest there is.
    """

    def __init__(self, budget: Budget, prices: PriceList, record: Record) -> None:
        self._budget = budget
        self._prices = prices
        self._record = record
        self._models: dict[tuple[str, str], str] = {}

    async def reserve(self, handler: ModelHandler, question: Question[Any]) -> Record:
        """Hold back what a call may take; what comes back books it, and gives back what it did not take.

        Waits where it does not fit in beside what is under way, unless it is part of that itself. Raises
        BudgetSpent where nothing is left.
        """
        if not self._budget.limits:
            return self._record
        run, source = current_run.get(), (handler.name, question.kind.value)
        room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
        amount = self._estimate(question, source)
        held = await self._budget.hold(amount, room_id, person_id, waits=not is_within.get())
        token = is_within.set(True)

        def settle(call: ModelCall) -> None:
            try:
                if not call.error:
                    self._models[source] = call.model
                self._record(call)
            finally:
                self._budget.give_back(held)
                with suppress(ValueError):  # whoever is ended by force ends in another's context
                    is_within.reset(token)

        return settle

    def _estimate(self, question: Question[Any], source: tuple[str, str]) -> Spent:
        call = expected(question.kind, question.request)
        model = self._models.get(source)
        if model is None:
            cost = self._prices.most(call)
        else:
            cost = self._prices.cost(replace(call, model=model)) or 0.0
        return Spent(cost, call.tokens_in + call.tokens_out)
