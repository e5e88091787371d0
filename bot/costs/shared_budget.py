"""`SharedBudget`: what one process holds of the limits that all processes of an agent share."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import count
from math import inf
from uuid import UUID

from bot.concurrency.tasks import TaskSet
from bot.domain.costs import CostEntry, CostHold, CostUsage, HeldCosts, Limit, LimitScope
from bot.errors import StoreUnavailable
from bot.store.ledger import SharedLimits

LimitKey = tuple[LimitScope, UUID | None]
CALLS_AHEAD, SHARE_AHEAD = 15, 1 / 32  # of later calls, and of what is left, at most this part
RETURN_SECONDS, RETURN_SCARCE_SECONDS, RETRY_SECONDS = 1.0, 0.02, 0.03
MAX_ABSENCE_SECONDS = 5.0
ROUNDING, MOST_LEFT = 1e-8, 1e12  # of dollars, and of dollars or tokens


@dataclass(slots=True)
class _LimitState:
    """What is held of one limit, what running calls have reserved of it, and what was spent and is not stored."""

    held: CostUsage = field(default_factory=CostUsage)
    running: CostUsage = field(default_factory=CostUsage)
    unstored: CostUsage = field(default_factory=CostUsage)
    left: CostUsage = field(default_factory=CostUsage)

    def has_room_for(self, usage: CostUsage) -> bool:
        """Return whether what is held is enough for one more call."""
        used = self.used()
        is_money_enough = used.cost + usage.cost <= self.held.cost + ROUNDING
        return is_money_enough and used.tokens + usage.tokens <= self.held.tokens

    def used(self) -> CostUsage:
        """Return what must be held."""
        return CostUsage(self.running.cost + self.unstored.cost, self.running.tokens + self.unstored.tokens)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Costs that are being stored: under the same number when an attempt is repeated."""

    number: int
    entries: list[CostEntry]
    usage: dict[LimitKey, CostUsage]


class SharedBudget:
    """Holds parts of the limits in the store, so that all processes together exceed none.

    A call that fits into what is held asks no store. While much is left, some is held ahead; what is not needed is
    returned after a second, or at once when little is left. Costs are stored in the transaction that asks.
    """

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits
        self._states: defaultdict[LimitKey, _LimitState] = defaultdict(_LimitState)
        self._day = date.min
        self._numbers = count(1)
        self._batch: _Batch | None = None
        self._lock = asyncio.Lock()
        self._returns = TaskSet("returning what is held of limits", logs_failures=False)
        self._has_ended = False
        self._is_scarce = False
        self._was_member = False
        self._absent_since: float | None = None
        self._news: dict[LimitKey, CostUsage] = {}
        self._take_costs: Callable[[], list[CostEntry]] = list
        self._on_stored: Callable[[Sequence[CostEntry]], object] = len

    def bind(
        self, take_costs: Callable[[], list[CostEntry]], on_stored: Callable[[Sequence[CostEntry]], object]
    ) -> None:
        """Set the function that hands over the costs that are not stored yet, and what is called once they are."""
        self._take_costs, self._on_stored = take_costs, on_stored

    async def start(self, usage: CostUsage, keys: Sequence[LimitKey], limits: Sequence[Limit], day: date) -> bool:
        """Reserve for a call; return False if the limits leave too little at present.

        Raises StoreUnavailable.
        """
        if self._lock.locked() or not self._has_room(usage, keys, day):
            async with self._lock:
                if not self._has_room(usage, keys, day) and not await self._ask(day, limits, keys, usage):
                    return False
        for key in keys:
            self._states[key].running.add(usage)
        return True

    def end(self, usage: CostUsage, keys: Sequence[LimitKey]) -> None:
        """Release a reservation; what is held beyond need is returned soon."""
        for key in keys:
            self._states[key].running.add(usage, -1)
        self._has_ended = True
        if not self._returns:
            self._returns.start(self._return_later())

    def record(self, usage: CostUsage, keys: Iterable[LimitKey]) -> None:
        """Count what was spent."""
        for key in keys:
            if key in self._states:
                self._states[key].unstored.add(usage)

    async def flush(self, day: date) -> None:
        """Store costs, and return what no call needs. Raises StoreUnavailable; a later call then stores them."""
        async with self._lock:
            is_repeated = self.is_storing
            await self._call(day)
            if is_repeated:  # what was spent since that attempt is not in its batch
                await self._call(day)

    @property
    def is_storing(self) -> bool:
        """Whether costs were handed to the store that it has not confirmed yet."""
        return self._batch is not None

    async def close(self) -> None:
        """Stop what returns holds in the background; a last `flush` follows."""
        await self._returns.cancel()

    async def pause(self) -> None:
        """Wait a moment before another attempt."""
        await asyncio.sleep(RETRY_SECONDS)

    def _has_room(self, usage: CostUsage, keys: Sequence[LimitKey], day: date) -> bool:
        return day == self._day and all(self._states[key].has_room_for(usage) for key in keys)

    async def _return_later(self) -> None:
        while self._has_ended:
            self._has_ended = False
            await asyncio.sleep(RETURN_SCARCE_SECONDS if self._is_scarce else RETURN_SECONDS)
            try:
                await self.flush(self._day)
            except StoreUnavailable:  # the next call or flush returns it
                return

    async def _ask(self, day: date, limits: Sequence[Limit], keys: Sequence[LimitKey], usage: CostUsage) -> bool:
        """Ask the store for room for a call; return whether it may run."""
        if await self._call(day, limits, keys, usage):
            self._absent_since, self._was_member = None, True
            return self._has_room(usage, keys, day)
        if not self._was_member:
            return True  # calls before this process shares the work
        now = time.monotonic()
        self._absent_since = self._absent_since or now
        if now - self._absent_since > MAX_ABSENCE_SECONDS:
            raise StoreUnavailable("this process no longer shares the work", cause="not_a_member")
        return False

    async def _call(
        self, day: date, limits: Sequence[Limit] = (), keys: Sequence[LimitKey] = (), usage: CostUsage | None = None
    ) -> bool:
        """Store costs and what is held; return whether this process is a member."""
        if day != self._day:
            self._day = day
            for state in self._states.values():
                state.held = CostUsage()
        batch = self._batch = self._batch or self._next_batch()
        asked = list(dict.fromkeys((*keys, *self._states)))
        holds = [self._build_hold(key, batch, limits, usage if key in keys else None) for key in asked]
        answers = await self._limits.hold_costs(day, holds, batch.entries, batch.number)
        self._batch = None
        self._on_stored(batch.entries)
        for key, stored in batch.usage.items():
            self._states[key].unstored.add(stored, -1)
        for key, hold, answer in zip(asked, holds, answers or (), strict=answers is not None):
            self._note_answer(key, hold, answer)
        return answers is not None

    def take_news(self) -> dict[LimitKey, CostUsage]:
        """Return what the last question showed to be spent of its limits, costs that are not stored included."""
        news, self._news = self._news, {}
        return news

    def _next_batch(self) -> _Batch:
        usage = {key: replace(state.unstored) for key, state in self._states.items() if state.unstored.is_some}
        return _Batch(next(self._numbers), self._take_costs(), usage)

    def _build_hold(self, key: LimitKey, batch: _Batch, limits: Sequence[Limit], wanted: CostUsage | None) -> CostHold:
        scope, owner = key
        state = self._states[key]
        running = state.used()
        running.add(batch.usage.get(key, CostUsage()), -1)
        if wanted is None:
            return CostHold(scope, owner, running)
        maximum = {limit.is_money: limit.maximum for limit in limits if limit.scope is scope}
        ahead = CostUsage(
            min(CALLS_AHEAD * wanted.cost, state.left.cost * SHARE_AHEAD),
            int(min(CALLS_AHEAD * wanted.tokens, state.left.tokens * SHARE_AHEAD)),
        )
        return CostHold(scope, owner, running, wanted, ahead, maximum.get(True, inf), maximum.get(False, inf))

    def _note_answer(self, key: LimitKey, hold: CostHold, answer: HeldCosts) -> None:
        state = self._states[key]
        state.held = answer.held
        if hold.wanted is not None:
            self._is_scarce = answer.held.tokens <= hold.running.tokens + hold.wanted.tokens
            taken = (answer.spent.cost + answer.others.cost, answer.spent.tokens + answer.others.tokens)
            state.left = CostUsage(
                min(MOST_LEFT, max(0.0, hold.max_cost - taken[0] - answer.held.cost)),
                int(min(MOST_LEFT, max(0, hold.max_tokens - taken[1] - answer.held.tokens))),
            )
            self._news[key] = CostUsage(answer.spent.cost, answer.spent.tokens)
            self._news[key].add(state.unstored)
        elif not state.held.is_some and not state.used().is_some:
            del self._states[key]
