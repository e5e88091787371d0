"""Cost accounting: price, count and store each call; reserve before a call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import date, datetime, timedelta
from math import ceil
from types import TracebackType
from typing import Any, Self

from bot.concurrency.clock import Clock, ShutdownDeadline, every, system_clock
from bot.concurrency.tasks import TaskSet, run_isolated
from bot.costs.budget import Budget, PriceList
from bot.domain.ledger import CostEntry, CostKey, CostUsage, ModelCall
from bot.errors import StoreUnavailable
from bot.models.handler import ModelHandler, PendingCall, Record, estimate_usage
from bot.models.types import ModelRequest, TextRequest
from bot.runs import Run, current_run
from bot.store.protocols import CostStore

FLUSH_INTERVAL_SECONDS = 10.0
FLUSH_TIMEOUT = 5.0
RECENT_COST_STEP, MAX_RECENT_COSTS = timedelta(minutes=10), 150  # a day and an hour of them
FLUSH_LABEL = "storing costs"
MAX_MODEL_NAME_LENGTH = 200


class CostMeter:
    """Adds costs to the budget at once, and to the store every ten seconds and at the end.

    So messages cause no extra statements. A crash loses at most ten seconds of the sums; each message's own
    cost is in its receipt. With `is_shared`, the costs of other processes are loaded too, and the limits that
    they have stored.
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
        load_limits: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._prices = prices
        self._budget = budget
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._is_shared = is_shared
        self._interval = interval
        self._load_limits = load_limits
        self._unwritten: dict[CostKey, CostEntry] = {}
        self._store_lock = asyncio.Lock()  # while entries are stored, they are neither here nor there
        self._recent_costs: dict[datetime, float] = {clock(): 0.0}
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushes = TaskSet(FLUSH_LABEL, logs_failures=False)
        if budget.sharing is not None:
            budget.sharing.bind(self._take_unwritten, self._note_stored)

    async def __aenter__(self) -> Self:
        await self.reload()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._budget.sharing is not None:
            await self._budget.sharing.close()
        self._closing.set()  # not cancelled: entries being written would be counted twice
        if self._task is not None:
            await run_isolated(self._task, label=FLUSH_LABEL, timeout=self._shutdown_deadline.remaining(FLUSH_TIMEOUT))

    def record(self, call: ModelCall, run: Run | None) -> ModelCall:
        """Return a call with its cost, and count it for its room and person; a call that is not counted is free."""
        cost: float | None = 0.0
        if call.is_counted:
            cost = self._prices.cost_of(call, assume_unknown=self._budget.has_money_limit)
        call = replace(call, cost=cost)
        entry = _to_cost_entry(call, self._clock().date(), run)
        self._budget.record(entry)
        self._add_unwritten([entry])
        return call

    async def flush(self) -> None:
        """Add unwritten entries to the store, also if the caller is cancelled.

        Raises StoreUnavailable; the entries then stay for the next flush.
        """
        await asyncio.shield(self._flushes.start(self._flush()))

    async def _flush(self) -> None:
        sharing = self._budget.sharing
        if sharing is not None and (self._budget.limits or sharing.is_storing):
            await sharing.flush(self._clock().date())
            return
        async with self._store_lock:
            if not (entries := self._take_unwritten()):
                return
            with ExitStack() as on_failure:
                on_failure.callback(self._add_unwritten, entries)
                await self._store.add(entries)
                on_failure.pop_all()
        self._note_stored(entries)

    def _take_unwritten(self) -> list[CostEntry]:
        entries, self._unwritten = list(self._unwritten.values()), {}
        return entries

    def _note_stored(self, entries: Sequence[CostEntry]) -> None:
        if entries:
            self._add_recent_cost(sum(entry.cost for entry in entries))

    def recent_costs(self) -> Mapping[datetime, float]:
        """Return what was spent since the start or yesterday, in dollars by the time at which it was stored.

        Amounts stored within ten minutes are one; the first time is that from which the amounts are complete.
        """
        return dict(self._recent_costs)

    def _add_recent_cost(self, cost: float) -> None:
        now = self._clock()
        last = next(reversed(self._recent_costs))
        if len(self._recent_costs) > 1 and now - last < RECENT_COST_STEP:
            self._recent_costs[last] += cost
        else:
            self._recent_costs[now] = self._recent_costs.get(now, 0.0) + cost
        while len(self._recent_costs) > MAX_RECENT_COSTS:
            del self._recent_costs[next(iter(self._recent_costs))]

    def _add_unwritten(self, entries: Iterable[CostEntry]) -> None:
        for entry in entries:
            total = self._unwritten.get(entry.key)
            self._unwritten[entry.key] = entry if total is None else total.plus(entry)

    async def _run(self) -> None:
        async for _ in every(self._interval, until=self._closing):
            await run_isolated(self._flush_and_reload(), label=FLUSH_LABEL, timeout=FLUSH_TIMEOUT)

    async def _flush_and_reload(self) -> None:
        with suppress(StoreUnavailable):  # other writers report the outage
            await self.flush()
            if self._is_shared:
                await self.reload()

    async def reload(self) -> None:
        """Load the limits and, if there is one, today's costs, of earlier runs and other processes too."""
        if self._load_limits is not None:
            await self._load_limits()
        if not self._budget.limits:
            return
        today = self._clock().date()
        async with self._store_lock:
            entries = await self._store.costs_between(today, today)
            erased = await self._store.erased_usage(today)  # last: who is erased meanwhile counts twice, not never
        self._budget.reload([*entries, *self._unwritten.values()], erased)


def _to_cost_entry(call: ModelCall, day: date, run: Run | None) -> CostEntry:
    """Return the entry of one call, for the room and the person of its run, if any."""
    room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
    model = call.model[:MAX_MODEL_NAME_LENGTH]
    if not call.is_counted:
        return CostEntry(day, model, room_id, person_id, calls=1, failed_calls=1, purpose=call.purpose)
    return CostEntry(
        day,
        model,
        room_id,
        person_id,
        calls=1,
        failed_calls=int(call.has_failed),
        tokens_in=call.tokens_in,
        tokens_cached=call.tokens_cached,
        tokens_out=call.tokens_out,
        cost=call.cost or 0.0,
        unpriced_calls=int(call.cost is None),
        estimated_calls=int(call.is_estimate),
        purpose=call.purpose,
    )


# True while a handler runs, which may call another model.
inside_model_call: ContextVar[bool] = ContextVar("inside_model_call", default=False)


class ReservationLedger:
    """Reserves budget for calls, so that concurrent calls see what the others are about to cost.

    A model that is known only after its first answer is assumed to have the highest price until then. Where a provider
    counts more tokens of a prompt than were estimated, later estimates are higher by as much.
    """

    def __init__(self, budget: Budget, prices: PriceList, record: Record) -> None:
        self._budget = budget
        self._prices = prices
        self._record = record
        self._models: dict[tuple[str, str, str], str] = {}
        self._excess: dict[tuple[str, str, str], float] = {}

    async def reserve(self, handler: ModelHandler, pending: PendingCall[Any]) -> tuple[Record, ModelRequest]:
        """Reserve the most that a call may use; return a function that records the call and releases the reservation,
        and the request, with a lower limit of its answer where little is left.

        Waits until it fits beside running calls, except inside another model call. Raises BudgetSpent if a limit is
        reached, or too little is left for the call.
        """
        request = pending.request
        if not self._budget.limits:
            return self._record, request
        run, source = current_run.get(), (handler.name, pending.kind.value, pending.model)
        room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
        model = self._models.get(source) or (pending.model if self._prices.find(pending.model) else None)
        estimate, excess = estimate_usage(pending.kind, request), self._excess.get(source, 1.0)
        estimate = replace(estimate, tokens_in=ceil(estimate.tokens_in * excess))
        least = most = self._price(estimate, model)
        max_tokens = request.max_tokens if isinstance(request, TextRequest) else None
        if isinstance(request, TextRequest) and max_tokens is not None and pending.min_tokens is not None:
            least = self._price(replace(estimate, tokens_out=pending.min_tokens), model)
        reservation = await self._budget.reserve(
            least, most, room_id, person_id, wait=not inside_model_call.get(), is_price_known=model is not None
        )
        if isinstance(request, TextRequest) and max_tokens is not None and reservation.share < 1:
            fewest = pending.min_tokens or max_tokens
            request = replace(request, max_tokens=fewest + int(reservation.share * (max_tokens - fewest)))
        token = inside_model_call.set(True)

        def record_and_release(call: ModelCall) -> None:
            try:
                if not call.error:
                    self._models[source] = call.model
                if not call.is_estimate and call.tokens_in > estimate.tokens_in:
                    self._excess[source] = excess * call.tokens_in / max(estimate.tokens_in, 1)
                self._record(call)
            finally:
                self._budget.release(reservation)
                with suppress(ValueError):  # a call stopped by force ends in another context
                    inside_model_call.reset(token)

        return record_and_release, request

    def _price(self, call: ModelCall, model: str | None) -> CostUsage:
        if model is None:
            cost = self._prices.max_cost_of(call)
        else:
            known = replace(call, model=model)
            cost = self._prices.cost_of(known, assume_unknown=self._budget.has_money_limit) or 0.0
        return CostUsage(cost, call.tokens_in + call.tokens_out)
