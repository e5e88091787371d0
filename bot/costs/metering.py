"""`CostMeter`: price, count, write to the store; reservation before a call."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from types import TracebackType
from typing import Any, Self

from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.isolation import run_isolated
from bot.costs.budget import Budget, Usage
from bot.costs.prices import PriceList
from bot.domain.costs import CostEntry, CostKey
from bot.domain.ledger import CANCELLED_ERROR, ModelCall
from bot.errors import StoreUnavailable
from bot.models.attempt import Record
from bot.models.handler import ModelHandler, PendingCall
from bot.models.usage import estimate_usage
from bot.runs import Run, current_run
from bot.store.protocols import CostStore

FLUSH_INTERVAL_SECONDS = 10.0
FLUSH_TIMEOUT = 5.0
FLUSH_LABEL = "writing what was spent"
MAX_MODEL_NAME_LENGTH = 200


class CostMeter:
    """Keeps what is spent: in the budget at once, in the store ten seconds later or at the end.

    A message costs no statement for it. What a crash takes is those seconds of the sums; each message's
    own cost is in its receipt. Where the work `is_shared` with other processes, what they spend counts too.
    """

    def __init__(
        self,
        store: CostStore,
        prices: PriceList,
        budget: Budget,
        *,
        clock: Clock = system_clock,
        shutdown_deadline: ShutdownDeadline | None = None,
        is_shared: bool = False,
        interval: float = FLUSH_INTERVAL_SECONDS,
    ) -> None:
        self._store = store
        self._prices = prices
        self._budget = budget
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._is_shared = is_shared
        self._interval = interval
        self._unwritten: dict[CostKey, CostEntry] = {}
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._reload()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()  # not cancelled: what is being written would be counted twice
        if self._task is not None:
            await run_isolated(
                self._task, label=FLUSH_LABEL, timeout=self._shutdown_deadline.remaining(FLUSH_TIMEOUT)
            )

    def record(self, call: ModelCall, run: Run | None) -> ModelCall:
        """Give a call with its cost, and count it for the room and the person it was made for."""
        call = replace(call, cost=self._prices.cost_of(call))
        entry = _to_cost_entry(call, self._clock().date(), run)
        self._budget.record(entry)
        self._add_unwritten([entry])
        return call

    async def flush(self) -> None:
        """Add what is not written yet to the store's sums; an outage leaves it for the next time."""
        entries, self._unwritten = list(self._unwritten.values()), {}
        if not entries:
            return
        try:
            await self._store.add(entries)
        except BaseException:
            self._add_unwritten(entries)
            raise

    def _add_unwritten(self, entries: Iterable[CostEntry]) -> None:
        for entry in entries:
            total = self._unwritten.get(entry.key)
            self._unwritten[entry.key] = entry if total is None else total.plus(entry)

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._closing.wait()
            is_last = self._closing.is_set()
            await run_isolated(self._flush_and_reload(), label=FLUSH_LABEL, timeout=FLUSH_TIMEOUT)

    async def _flush_and_reload(self) -> None:
        with suppress(StoreUnavailable):  # whoever writes meets it too, and tells
            await self.flush()
            if self._is_shared:
                await self._reload()

    async def _reload(self) -> None:
        """See what is spent today, before this start and by others, where there is a limit for it."""
        if not self._budget.limits:
            return
        today = self._clock().date()
        entries = await self._store.costs_between(today, today)
        self._budget.reload([*entries, *self._unwritten.values()])


def _to_cost_entry(call: ModelCall, day: date, run: Run | None) -> CostEntry:
    """Count a call, for the room and the person of its run, if any.

    One that failed without having been counted is taken to have cost nothing.

    One that was called off is not: the provider has begun on it.
    """
    room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
    model = call.model[:MAX_MODEL_NAME_LENGTH]
    if call.error and call.error != CANCELLED_ERROR and call.is_estimate:
        return CostEntry(day, model, room_id, person_id, calls=1, failed_calls=1)
    return CostEntry(
        day,
        model,
        room_id,
        person_id,
        calls=1,
        tokens_in=call.tokens_in,
        tokens_cached=call.tokens_cached,
        tokens_out=call.tokens_out,
        cost=call.cost or 0.0,
        unpriced_calls=int(call.cost is None),
        estimated_calls=int(call.is_estimate),
    )


inside_model_call: ContextVar[bool] = ContextVar(
    "is_within", default=False
)  # a handler that asks another one


class ReservationLedger:
    """Where calls that are made side by side see what the others are about to spend.

    Which model a handler has is known once it has answered; until then it may be the dearest there is.
    """

    def __init__(self, budget: Budget, prices: PriceList, record: Record) -> None:
        self._budget = budget
        self._prices = prices
        self._record = record
        self._models: dict[tuple[str, str], str] = {}

    async def reserve(self, handler: ModelHandler, pending: PendingCall[Any]) -> Record:
        """Hold back what a call may take; what comes back books it, and gives back what it did not take.

        Waits where it does not fit in beside what is under way, unless it is part of that itself. Raises
        BudgetSpent where nothing is left.
        """
        if not self._budget.limits:
            return self._record
        run, source = current_run.get(), (handler.name, pending.kind.value)
        room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
        estimate = self._estimate(pending, source)
        reservation = await self._budget.reserve(
            estimate, room_id, person_id, wait=not inside_model_call.get()
        )
        token = inside_model_call.set(True)

        def record_and_release(call: ModelCall) -> None:
            try:
                if not call.error:
                    self._models[source] = call.model
                self._record(call)
            finally:
                self._budget.release(reservation)
                with suppress(ValueError):  # whoever is ended by force ends in another's context
                    inside_model_call.reset(token)

        return record_and_release

    def _estimate(self, pending: PendingCall[Any], source: tuple[str, str]) -> Usage:
        call = estimate_usage(pending.kind, pending.request)
        model = self._models.get(source)
        if model is None:
            cost = self._prices.max_cost_of(call)
        else:
            cost = self._prices.cost_of(replace(call, model=model)) or 0.0
        return Usage(cost, call.tokens_in + call.tokens_out)
