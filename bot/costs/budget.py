"""Daily limits of model costs, and reservations against them.

`CostLimits`: the daily limits in effect, from the operator's variables and from values set while the bot runs.

`SharedBudget`: what one process holds of the limits that all processes of an agent share.

Model prices: a dated price list, and the operator's overrides.

Cost accounting: price, count and store each call; reserve before a call.
"""

import asyncio
import logging
import math
import re
import time
import tomllib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.resources import files
from itertools import count, product
from math import ceil, inf
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, Field, field_validator

from bot.concurrency.clock import Clock, ShutdownDeadline, every, system_clock
from bot.concurrency.tasks import BoundedDict, TaskSet, run_isolated
from bot.domain.ledger import (
    CostEntry,
    CostHold,
    CostKey,
    CostUsage,
    Degradation,
    DegradeStep,
    ErasedUsage,
    HeldCosts,
    Limit,
    LimitScope,
    ModelCall,
)
from bot.errors import BudgetSpent, SettingError, StoreUnavailable
from bot.models.handler import AUDIO_TOKENS, ModelHandler, PendingCall, Record, estimate_usage
from bot.models.types import ModelRequest, ModelType, TextRequest
from bot.runs import Run, current_run
from bot.settings import OFF, CommaList, SettingsModel
from bot.store.ledger import SharedLimits
from bot.store.protocols import CostStore, LogKind, Store

LimitKey = tuple[LimitScope, UUID | None]
DegradeSteps = tuple[tuple[float, DegradeStep], ...]  # each with the share of a limit from which it is in effect
CALLS_AHEAD, SHARE_AHEAD = 15, 1 / 32  # of later calls, and of what is left, at most this part
RETURN_SECONDS, RETURN_SCARCE_SECONDS, RETRY_SECONDS = 1.0, 0.02, 0.03
MAX_ABSENCE_SECONDS = 5.0
MOST_LEFT = 1e12  # dollars or tokens


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
    returned after a second, or at once when little is left. Costs are stored in the transaction that asks:
    `take_costs` hands over those that are not stored yet, `on_stored` is called once they are.
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
        self.take_costs: Callable[[], list[CostEntry]] = list
        self.on_stored: Callable[[Sequence[CostEntry]], object] = len

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
        if self._batch is None:
            unstored = {key: replace(state.unstored) for key, state in self._states.items() if state.unstored.is_some}
            self._batch = _Batch(next(self._numbers), self.take_costs(), unstored)
        batch = self._batch
        asked = list(dict.fromkeys((*keys, *self._states)))
        holds = [self._build_hold(key, batch, limits, usage if key in keys else None) for key in asked]
        answers = await self._limits.hold_costs(day, holds, batch.entries, batch.number)
        self._batch = None
        self.on_stored(batch.entries)
        for key, stored in batch.usage.items():
            self._states[key].unstored.add(stored, -1)
        for key, hold, answer in zip(asked, holds, answers or (), strict=answers is not None):
            self._note_answer(key, hold, answer)
        return answers is not None

    def take_news(self) -> dict[LimitKey, CostUsage]:
        """Return what the last question showed to be spent of its limits, costs that are not stored included."""
        news, self._news = self._news, {}
        return news

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


MILLION, SECONDS_PER_MINUTE = 1_000_000, 60
DOLLAR_DECIMALS = 9
VENDOR_PREFIX = re.compile(r"^(openai|anthropic|google|mistralai|deepseek|x-ai)/")
DIMENSION_SUFFIX = re.compile(r"-\d+$")
DATE_SUFFIX = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
PER_CALL_SUFFIX, PER_MINUTE_SUFFIX = "/call", "/minute"
FREE_MODELS = "local/*=0"  # they run on this computer
FORMAT_HELP = (
    "write it as name=in/out or name=in/cached/out, in dollars for a million tokens, "
    "as name=0.04/call for one call, as name=0.006/minute for a minute of a recording, or name=0"
)


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens; `tokens_cached` applies to the cached ones of `tokens_in`.

    `per_call` is charged per call in addition.
    """

    tokens_in: float
    tokens_cached: float
    tokens_out: float
    per_call: float = 0.0

    def cost_of(self, call: ModelCall) -> float:
        """Return the cost of a call."""
        cached = min(call.tokens_cached, call.tokens_in)
        input_cost = (call.tokens_in - cached) * self.tokens_in + cached * self.tokens_cached
        return round(self.per_call + (input_cost + call.tokens_out * self.tokens_out) / MILLION, DOLLAR_DECIMALS)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by model: the operator's patterns (`llama*`) first, then the built-in list.

    `by_type` are assumed prices by model type of images and audio, for models without a price.
    """

    overrides: tuple[tuple[str, Price], ...]
    by_name: Mapping[str, Price]
    as_of: date
    by_type: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """Return the price of a model; None if it is unknown. Without a name it is known if all have the same."""
        name = model.strip().lower()
        if not name:
            return self.overrides[0][1] if self.overrides and self.overrides[0][0] == "*" else None
        for pattern, price in self.overrides:
            if fnmatchcase(name, pattern):
                return price
        # Vendor and date do not change the price.
        return self.by_name.get(DATE_SUFFIX.sub("", VENDOR_PREFIX.sub("", name).replace(".", "-")))

    def cost_of(self, call: ModelCall, *, assume_unknown: bool = False) -> float | None:
        """Return the cost of a call in US dollars; None if the price of its model is unknown.

        With `assume_unknown`, as a money limit needs it, image and audio models without a price get an assumed
        one.
        """
        price = self.find(call.model)
        if price is None and call.type == ModelType.TEXT_EMBEDDING:
            price = self.find(DIMENSION_SUFFIX.sub("", call.model))
        if price is None and assume_unknown:
            price = self.by_type.get(call.type)
        return None if price is None else price.cost_of(call)

    def max_cost_of(self, call: ModelCall) -> float:
        """Return the highest possible cost of a call, while its model is unknown."""
        prices = (*(price for _, price in self.overrides), *self.by_name.values(), *self.by_type.values())
        return max((price.cost_of(call) for price in prices), default=0.0)


def load_prices(overrides: Sequence[str] = ()) -> PriceList:
    """Return the built-in price list with the operator's overrides: see `parse_price`."""
    content = _load_bundled_prices()
    by_name = {name: _build_price(numbers) for name, numbers in content["prices"].items()}
    by_type: dict[str, Price] = {}
    for name, unit in (("calls", PER_CALL_SUFFIX), ("minutes", PER_MINUTE_SUFFIX)):
        by_name |= {model: _build_price([dollars], unit) for model, dollars in content[name].items()}
        by_type |= {kind: _build_price([dollars], unit) for kind, dollars in content[f"unknown_{name}"].items()}
    return PriceList(tuple(map(parse_price, (*overrides, FREE_MODELS))), by_name, content["as_of"], by_type)


@cache
def _load_bundled_prices() -> Mapping[str, Any]:
    return tomllib.loads(files("bot.costs").joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_price(text: str) -> tuple[str, Price]:
    """Parse `pattern=in/cached/out`, `pattern=in/out`, `pattern=each/call`, `pattern=each/minute` or `pattern=0`.

    Raises ValueError for anything else.
    """
    pattern, _, amounts = text.rpartition("=")
    unit = next((unit for unit in (PER_CALL_SUFFIX, PER_MINUTE_SUFFIX) if amounts.endswith(unit)), "")
    try:
        numbers = [float(amount) for amount in amounts.removesuffix(unit).split("/")]
    except ValueError:
        numbers = []
    is_form = len(numbers) in ((1,) if unit else (2, 3)) or numbers == [0]
    if not pattern.strip() or not is_form or not all(0 <= amount < MILLION for amount in numbers):
        raise ValueError(f"{text!r} is no price: {FORMAT_HELP}")
    return pattern.strip().lower(), _build_price(numbers, unit)


def _build_price(numbers: Sequence[float], unit: str = "") -> Price:
    """Return the price per million tokens in, cached and out, in and out, or all of them; or that of one unit."""
    first, last = numbers[0], numbers[-1]
    if unit == PER_CALL_SUFFIX:
        return Price(0, 0, 0, per_call=first)
    if unit == PER_MINUTE_SUFFIX:
        per_token = first * MILLION / (SECONDS_PER_MINUTE * AUDIO_TOKENS)
        return Price(per_token, per_token, 0)
    return Price(first, numbers[1] if len(numbers) == 3 else first, last)


logger = logging.getLogger(__name__)
ROUNDING = 1e-8  # dollars
MAX_DAYS = 3  # of which the usage is known: a clock that was wrong may come back to an earlier day


def parse_degrade(value: str) -> DegradeSteps:
    """Return the steps of a value of DEGRADE, none for `off`.

    Raises ValueError for another form, and for steps or shares that do not ascend.
    """
    if value.strip() == OFF:
        return ()
    order = list(DegradeStep)
    steps: list[tuple[float, DegradeStep]] = []
    for entry in value.split(","):
        number, _, name = (part.strip() for part in entry.partition(":"))
        if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= 100 or name not in order:
            raise ValueError(
                f"{entry.strip()!r} is no step: write it as in 80:history, with a part of a limit in percent (1 to "
                f"100) and one of {', '.join(order)}; off is for no steps"
            )
        step = DegradeStep(name)
        if steps and (int(number) / 100 <= steps[-1][0] or order.index(step) <= order.index(steps[-1][1])):
            raise ValueError(
                f"{entry.strip()!r} must have a higher number and a later step than the one before it, in the order "
                f"{', '.join(order)}"
            )
        steps.append((int(number) / 100, step))
    return tuple(steps)


def _check_degrade(value: str) -> str:
    parse_degrade(value)
    return value


class BudgetSettings(SettingsModel):
    """Model prices and budgets; of these, a character file can only set how its answers degrade."""

    CHARACTER_SETTINGS = frozenset({"DEGRADE"})

    model_prices: CommaList = Field(
        (),
        description="Prices that override the built-in list, in US dollars per million tokens: "
        "`name=in/out` or `name=in/cached/out`, `name=0.04/call` per call, or `name=0.006/minute` of a recording, "
        "separated by commas; `*` "
        "matches any characters, `llama*=0` means that your own server costs nothing.",
    )
    budget_usd: float = Field(0, ge=0, description="US dollars that may be spent per day; 0 for no limit.")
    budget_usd_per_room: float = Field(0, ge=0, description="The same for each room.")
    budget_usd_per_person: float = Field(0, ge=0, description="The same for each person.")
    budget_tokens: int = Field(0, ge=0, description="Tokens, in and out, per day; 0 for no limit.")
    budget_tokens_per_room: int = Field(0, ge=0, description="The same for each room.")
    budget_tokens_per_person: int = Field(0, ge=0, description="The same for each person.")
    degrade: Annotated[str, AfterValidator(_check_degrade)] = Field(
        "80:history,95:small,100:silent",
        description="How answers degrade when a part of one of these limits is used, in percent: `history` (a shorter "
        "conversation and less memory in prompts), `small` (the small model writes), `offline` (phrases without a "
        "model), `silent`; `off` for none of it until a limit is reached.",
    )

    @field_validator("model_prices")
    @classmethod
    def _check_prices(cls, prices: tuple[str, ...]) -> tuple[str, ...]:
        for price in prices:
            parse_price(price)
        return prices


# The scope of each limit by its setting, and whether it is in dollars.
LIMIT_SCOPES = {
    "BUDGET_USD": (LimitScope.ALL, True),
    "BUDGET_TOKENS": (LimitScope.ALL, False),
    "BUDGET_USD_PER_ROOM": (LimitScope.ROOM, True),
    "BUDGET_TOKENS_PER_ROOM": (LimitScope.ROOM, False),
    "BUDGET_USD_PER_PERSON": (LimitScope.PERSON, True),
    "BUDGET_TOKENS_PER_PERSON": (LimitScope.PERSON, False),
}


def build_limits(settings: BudgetSettings) -> list[Limit]:
    """Return the limits that are set."""
    limits = [Limit(name, *kind, getattr(settings, name.lower())) for name, kind in LIMIT_SCOPES.items()]
    return [limit for limit in limits if limit.maximum]


@dataclass(slots=True)
class DailyUsage:
    """The usage of one day by scope, and the limits that were logged as reached."""

    day: date
    usage: dict[LimitKey, CostUsage] = field(default_factory=dict)
    erased: ErasedUsage | None = None
    logged_limits: set[tuple[str, LimitKey, bool]] = field(default_factory=set)

    def of(self, key: LimitKey) -> CostUsage:
        """Return the usage of a scope; that of a person includes what they had used when their data was erased."""
        if key not in self.usage:
            erased = self.erased if key[0] is LimitScope.PERSON else None
            self.usage[key] = CostUsage() if erased is None else erased.of(key[1])
        return self.usage[key]


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """What a call costs with the shortest useful answer, and the most that it may cost.

    Where the price of its model is not known, the highest price of all is assumed.
    """

    least: CostUsage
    most: CostUsage
    is_price_known: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The most that a running call may use, and the scopes it counts in, all of them and those with a limit.

    `share` is the part of what it asked for above its least, 0 to 1.
    """

    usage: CostUsage
    keys: tuple[LimitKey, ...]
    limit_keys: tuple[LimitKey, ...] = ()
    share: float = 1.0


class Budget:
    """The limits, what was used today, and what running calls have reserved.

    New `limits` count from the next call on; where there were none before, `reload` has to follow. With `sharing`
    they are those of all processes together. `steps` say how answers degrade before a limit is reached.
    """

    def __init__(self, limits: Sequence[Limit] = (), clock: Clock = system_clock) -> None:
        self.limits = tuple(limits)
        self.steps: DegradeSteps = ()
        self._clock = clock
        self._days = BoundedDict[date, DailyUsage](MAX_DAYS)
        self._reservations: list[Reservation] = []
        self._released = asyncio.Event()
        self.sharing: SharedBudget | None = None
        self.has_room_budgets = False  # whether the instructions of some room have limited it

    @property
    def has_money_limit(self) -> bool:
        """Whether any limit is in dollars, and so needs prices."""
        return self.has_room_budgets or any(limit.is_money for limit in self.limits)

    def reload(self, entries: Iterable[CostEntry], erased: ErasedUsage | None = None) -> None:
        """Replace the usage of today by these entries, and by what erased people had used."""
        today = self._current_usage()
        today.usage.clear()
        today.erased = erased if erased is not None and erased.day == today.day else None
        for entry in entries:
            self._add(entry)

    def record(self, entry: CostEntry) -> None:
        """Count an entry; entries of other days are ignored."""
        self._add(entry)
        if self.sharing is not None and self.limits:
            self.sharing.record(CostUsage(entry.cost, entry.tokens), self._scopes(entry.room_id, entry.person_id))

    def _add(self, entry: CostEntry) -> None:
        today = self._current_usage()
        if entry.day == today.day:
            added = CostUsage(entry.cost, entry.tokens)
            for usage in [today.of(key) for key in self._scopes(entry.room_id, entry.person_id)]:
                usage.add(added)

    def spent_in(self, room_id: UUID) -> float:
        """Return what was spent in a room today, in dollars."""
        self.has_room_budgets = True
        return self._current_usage().of((LimitScope.ROOM, room_id)).cost

    def find_reached_limit(self, room_id: UUID | None, person_id: UUID | None) -> Limit | None:
        """Return a limit that is reached for this room or person; log it once a day."""
        today = self._current_usage()
        for limit, key in self._find_limits(self._scopes(room_id, person_id)):
            if limit.amount_of(today.of(key)) >= limit.maximum:
                self._log_limit(limit, key)
                return limit
        return None

    def find_degradation(self, room_id: UUID | None, person_id: UUID | None) -> Degradation | None:
        """Return the step that the limits of a room and a person, and of all, put into effect now; None without one."""
        steps = (step for _, step in self._find_steps(self._scopes(room_id, person_id)))
        return max(steps, key=lambda step: step.share, default=None)

    def find_degradations(self) -> dict[LimitKey, Degradation]:
        """Return the steps that are in effect now: for all, and for rooms and people by their own limits."""
        found: dict[LimitKey, Degradation] = {}
        for key, step in self._find_steps(self._current_usage().usage):
            found[key] = max(found.get(key, step), step, key=lambda step: step.share)
        return found

    def _find_steps(self, keys: Iterable[LimitKey]) -> Iterator[tuple[LimitKey, Degradation]]:
        """Yield the step that each limit of these scopes puts into effect, with its scope."""
        usage = self._current_usage()
        for limit, key in self._find_limits(keys) if self.steps else ():
            share = limit.amount_of(usage.of(key)) / limit.maximum
            if reached := [step for start, step in self.steps if share + ROUNDING >= start]:
                yield key, Degradation(reached[-1], limit.setting, share)

    def find_next_step(
        self, degradation: Degradation | None, setting: str, room_id: UUID | None, person_id: UUID | None
    ) -> Degradation | None:
        """Return the step to answer with after one whose call the limit of a setting did not pay for; None without."""
        order = list(DegradeStep)
        number = -1 if degradation is None else order.index(degradation.step)
        later = [step for _, step in self.steps if order.index(step) > number and step is not DegradeStep.SILENT]
        for limit, key in self._find_limits(self._scopes(room_id, person_id)) if later else ():
            if limit.setting == setting:
                used = limit.amount_of(self._current_usage().of(key))
                return Degradation(later[0], setting, used / limit.maximum, is_unpaid=True)
        return None

    async def reserve(
        self, estimate: Callable[[], CallEstimate], room_id: UUID | None, person_id: UUID | None, *, wait: bool = True
    ) -> Reservation:
        """Reserve what a call may use; with `wait`, once it fits beside the other reservations.

        That is the most of its estimate, or a fair part of what is left beside running calls, but no less than the
        least. The estimate is made anew after each wait, as the other calls show what a model costs. A call that does
        not fit reserves all that is left if its price is not known, or of a limit in tokens if it is the first one.

        Raises BudgetSpent if a limit is reached, or if the call does not fit although there is nothing to wait for.
        """
        cost = estimate()
        while True:
            if (reached := self.find_reached_limit(room_id, person_id)) is not None:
                raise BudgetSpent(reached.setting, f"the budget is used up: {reached.setting}, {reached}")
            keys = tuple(self._scopes(room_id, person_id))
            least, most = cost.least, cost.most
            share, short = self._share(least, most, keys)
            if short is None:
                part = CostUsage(
                    least.cost + share * (most.cost - least.cost),
                    least.tokens + int(share * (most.tokens - least.tokens)),
                )
                limit_keys = tuple(dict.fromkeys(key for _, key in self._find_limits(keys)))
                reservation = Reservation(part, keys, limit_keys, share)
                self._reservations.append(reservation)
                if await self._start_shared(reservation, wait=wait):
                    return reservation
                cost = estimate()
                continue
            limit, key = short
            if wait and self._count(key):
                await self._released.wait()
                cost = estimate()
            elif limit.is_money and not cost.is_price_known:
                all_left = CostUsage(max(0.0, self._left(limit, key) - ROUNDING), most.tokens)
                cost = replace(cost, least=all_left, most=all_left)
            elif not limit.is_money and self._left(limit, key) == limit.maximum:
                all_left = CostUsage(most.cost, int(limit.maximum))
                cost = replace(cost, least=all_left, most=all_left)
            else:
                self._log_limit(limit, key, is_reached=False)
                raise BudgetSpent(
                    limit.setting, f"what is left of the budget does not pay for this: {limit.setting}, {limit}"
                )

    def _share(
        self, least: CostUsage, most: CostUsage, keys: Iterable[LimitKey]
    ) -> tuple[float, tuple[Limit, LimitKey] | None]:
        """Return how much of the difference between `least` and `most` fits, 0 to 1, or the limit that `least`
        exceeds, and its scope.
        """
        share = 1.0
        for limit, key in self._find_limits(keys):
            low, high, left = limit.amount_of(least), limit.amount_of(most), self._left(limit, key)
            if low > left + (ROUNDING if limit.is_money else 0):
                return 0.0, (limit, key)
            fair = left / (1 + self._count(key))
            if high > max(fair, low):
                share = min(share, max(0.0, fair - ROUNDING - low) / (high - low))
        return share, None

    def _find_limits(self, keys: Iterable[LimitKey]) -> Iterator[tuple[Limit, LimitKey]]:
        """Yield the limits of these scopes, each with its scope."""
        return ((limit, key) for key, limit in product(keys, self.limits) if limit.scope is key[0])

    def _count(self, key: LimitKey) -> int:
        return sum(key in other.keys for other in self._reservations)

    async def _start_shared(self, reservation: Reservation, *, wait: bool) -> bool:
        """Reserve among all processes; return False after a pause, with the reservation dropped, if too little is
        left at present. Without `wait` BudgetSpent is raised then.
        """
        if self.sharing is None:
            return True
        with ExitStack() as on_failure:
            on_failure.callback(self._drop, reservation)
            is_started = await self.sharing.start(
                reservation.usage, reservation.limit_keys, self.limits, self._clock().date()
            )
            self._current_usage().usage.update(self.sharing.take_news())
            if is_started:
                on_failure.pop_all()
                return True
            if not wait:
                setting = self.limits[0].setting
                raise BudgetSpent(setting, "what is left of the budget beside running calls does not pay for this")
            await asyncio.sleep(RETRY_SECONDS)
        return False

    def release(self, reservation: Reservation) -> None:
        """Release a reservation: its call was counted or not made."""
        if self.sharing is not None:
            self.sharing.end(reservation.usage, reservation.limit_keys)
        self._drop(reservation)

    def _drop(self, reservation: Reservation) -> None:
        self._reservations.remove(reservation)
        self._released.set()
        self._released = asyncio.Event()

    def _left(self, limit: Limit, key: LimitKey) -> float:
        """Return what is left of a limit beside what was used today and what running calls have reserved."""
        reserved = (limit.amount_of(other.usage) for other in self._reservations if key in other.keys)
        return limit.maximum - limit.amount_of(self._current_usage().of(key)) - sum(reserved)

    def _current_usage(self) -> DailyUsage:
        day = self._clock().date()
        if day not in self._days:
            self._days[day] = DailyUsage(day)
        return self._days[day]

    def _scopes(self, room_id: UUID | None, person_id: UUID | None) -> Iterator[LimitKey]:
        yield LimitScope.ALL, None
        if room_id is not None:
            yield LimitScope.ROOM, room_id
        if person_id is not None:
            yield LimitScope.PERSON, person_id

    def _log_limit(self, limit: Limit, key: LimitKey, *, is_reached: bool = True) -> None:
        logged = self._current_usage().logged_limits
        if (limit.setting, key, is_reached) in logged:
            return
        logged.add((limit.setting, key, is_reached))
        owner = f" ({key[1]})" if key[1] else ""
        if is_reached:
            logger.warning("%s is spent, %s%s: no more answers until midnight UTC", limit.setting, limit, owner)
        else:
            logger.warning("%s, %s%s: what is left does not pay for every call now", limit.setting, limit, owner)


STORED_LIMITS_KEY = "costs:limits"
MAX_LIMIT = 1e12


@dataclass(frozen=True, slots=True)
class LimitState:
    """A daily limit: the value in effect and that of its variable, each 0 for no limit.

    With `is_stored` the value was set while the bot ran; it counts instead of the variable until it is removed.
    """

    setting: str
    scope: LimitScope
    is_money: bool
    value: float
    variable: float
    is_stored: bool

    def amount_of(self, entry: CostEntry) -> float:
        """Return what some costs use of the limit, in its unit."""
        return entry.cost if self.is_money else entry.tokens


class CostLimits:
    """Applies the limits of one agent to its budget.

    A stored value wins over the variable of the same name, also after a restart; each process that shares the
    store takes it up when it loads the others' costs.
    """

    def __init__(self, settings: BudgetSettings, store: Store, budget: Budget) -> None:
        self._settings = settings
        self._store = store
        self._budget = budget
        self._stored: dict[str, float] = {}
        # Called after a change: loads the limits and the costs that count against them.
        self.reload: Callable[[], Awaitable[None]] = self.load
        self._change_lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the stored values, and apply them from now on."""
        self._stored = await self._read_stored()
        values = {name.lower(): value for name, value in self._stored.items()}
        self._budget.limits = tuple(build_limits(self._settings.model_copy(update=values)))

    async def _read_stored(self) -> dict[str, float]:
        stored = await self._store.cache.get(STORED_LIMITS_KEY)
        return {name: value for name, value in (stored or {}).items() if name in LIMIT_SCOPES}

    def degradations(self) -> dict[LimitKey, Degradation]:
        """Return the steps of DEGRADE that are in effect now: for all, and for rooms and people by their own limits."""
        return self._budget.find_degradations()

    def states(self) -> list[LimitState]:
        """Return all limits that can be set."""
        states = []
        for name, (scope, is_money) in LIMIT_SCOPES.items():
            variable = float(getattr(self._settings, name.lower()))
            value = self._stored.get(name, variable)
            states.append(LimitState(name, scope, is_money, value, variable, name in self._stored))
        return states

    async def change(self, values: Mapping[str, float | None], *, source: str) -> None:
        """Store new values, 0 for no limit and None for that of the variable, and apply them.

        `source` is named in the log. Raises SettingError for an unknown name or an impossible value; then nothing
        changes.
        """
        for name, value in values.items():
            _check_limit(name, value)
        async with self._change_lock:
            before = {state.setting: state.value for state in self.states()}
            stored = {**await self._read_stored(), **values}
            stored_values = {name: value for name, value in stored.items() if value is not None}
            if stored_values:
                await self._store.cache.set(STORED_LIMITS_KEY, stored_values)
            else:
                await self._store.cache.delete(STORED_LIMITS_KEY)
            await self.reload()
            after = {state.setting: state.value for state in self.states()}
        changed = {name: value for name, value in after.items() if value != before[name]}
        logger.info("limits changed by %s: %s", source, changed or "none")
        body = {"action": "UPDATE_LIMITS", "allowed": True, "old": before, "new": changed, "event": source}
        await self._store.logs.log(LogKind.AUTHORIZATION, body)


def _check_limit(name: str, value: float | None) -> None:
    if name not in LIMIT_SCOPES:
        raise SettingError(f"there is no limit {name!r}: the limits are {', '.join(LIMIT_SCOPES)}")
    if value is None:
        return
    if not math.isfinite(value) or not 0 <= value <= MAX_LIMIT:
        raise SettingError(f"{name}: a number of 0 or more, 0 for no limit")
    if not LIMIT_SCOPES[name][1] and value != int(value):
        raise SettingError(f"{name}: a whole number of tokens")


FLUSH_INTERVAL_SECONDS = 10.0
NOTE_SECONDS = 0.1  # from the begin of a call until its estimate is stored: a shorter one needs none
FLUSH_TIMEOUT = 5.0
RECENT_COST_STEP, MAX_RECENT_COSTS = timedelta(minutes=10), 150  # a day and an hour of them
FLUSH_LABEL = "storing costs"
MAX_MODEL_NAME_LENGTH = 200


@dataclass(eq=False, repr=False)
class CostMeter:
    """Adds costs to the budget at once, and to the store every ten seconds and at the end.

    So messages wait for no extra statement. A call that lasts longer than a moment is in the store by the most that it
    may use, an estimate, until its real figures replace that: a process that is killed leaves the estimate. Where
    processes share limits, the costs of the others are loaded too, and the `limits` that they have stored.
    """

    _store: CostStore
    _prices: PriceList
    _budget: Budget
    _: KW_ONLY
    clock: Clock = system_clock
    shutdown_deadline: ShutdownDeadline = field(default_factory=ShutdownDeadline)
    interval: float = FLUSH_INTERVAL_SECONDS
    limits: CostLimits | None = None

    def __post_init__(self) -> None:
        self._unwritten: dict[CostKey, CostEntry] = {}
        self._store_lock = asyncio.Lock()  # while entries are stored, they are neither here nor there
        self._recent_costs: dict[datetime, float] = {self.clock(): 0.0}
        self._is_loaded = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushes = TaskSet(FLUSH_LABEL, logs_failures=False)
        self._numbers = count(1)
        self._begun: dict[int, Callable[[], CostEntry]] = {}  # running calls by their numbers, with their estimates
        self._noted: dict[int, CostEntry] = {}  # those that were handed to the store
        self._note_timer: asyncio.TimerHandle | None = None
        if self.limits is not None:
            self.limits.reload = self.reload
        if self._budget.sharing is not None:
            self._budget.sharing.take_costs = self._take_unwritten
            self._budget.sharing.on_stored = self._note_stored

    async def __aenter__(self) -> Self:
        await self.reload()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._budget.sharing is not None:
            await self._budget.sharing.close()
        if self._note_timer is not None:
            self._note_timer.cancel()
        self._closing.set()  # not cancelled: entries being written would be counted twice
        await self._flushes.wait(self.shutdown_deadline.remaining(FLUSH_TIMEOUT))
        if self._task is not None:
            await run_isolated(self._task, label=FLUSH_LABEL, timeout=self.shutdown_deadline.remaining(FLUSH_TIMEOUT))

    def record(self, call: ModelCall, run: Run | None) -> ModelCall:
        """Return a call with its cost, and count it for its room and person; a call that is not counted is free."""
        cost: float | None = 0.0
        if call.is_counted:
            cost = self._prices.cost_of(call, assume_unknown=self._budget.has_money_limit)
            cost = call.cost if cost is None else cost
        call = replace(call, cost=cost)
        self.add([build_cost_entry(call, self.clock().date(), run)])
        return call

    def add(self, entries: Sequence[CostEntry]) -> None:
        """Count costs that are known already, such as those of another process."""
        for entry in entries:
            self._budget.record(entry)
        self._add_unwritten(entries)

    def begin(self, estimate: Callable[[], ModelCall], run: Run | None) -> Callable[[], None]:
        """Count a call by the most that it may use, from a moment later until it has ended; return what ends that.

        Its own figures are recorded beside that. The estimate is made only if the call lasts so long. Where processes
        share limits they hold that in the store themselves.
        """
        if self._budget.sharing is not None:
            return lambda: None
        number, day = next(self._numbers), self.clock().date()

        def build() -> CostEntry:
            call = estimate()
            cost = self._prices.cost_of(call, assume_unknown=self._budget.has_money_limit)
            return build_cost_entry(replace(call, cost=cost), day, run)

        self._begun[number] = build
        if self._note_timer is None:
            self._note_timer = asyncio.get_running_loop().call_later(NOTE_SECONDS, self._note_begun)

        def end() -> None:
            self._begun.pop(number, None)
            if not self._begun and self._note_timer is not None:
                self._note_timer.cancel()
                self._note_timer = None
            if (noted := self._noted.pop(number, None)) is not None:
                self._add_unwritten([noted.negated()])

        return end

    def _note_begun(self) -> None:
        """Store the estimates of the calls that are still running."""
        self._note_timer = None
        self._flushes.start(self._flush())  # if it fails, the next one stores them

    async def flush(self) -> None:
        """Add unwritten entries to the store, also if the caller is cancelled.

        Raises StoreUnavailable; the entries then stay for the next flush.
        """
        await asyncio.shield(self._flushes.start(self._flush()))

    async def _flush(self) -> None:
        sharing = self._budget.sharing
        if sharing is not None and (self._budget.limits or sharing.is_storing):
            await sharing.flush(self.clock().date())
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
        begun, self._begun = {number: build() for number, build in self._begun.items()}, {}
        self._add_unwritten(begun.values())
        self._noted |= begun
        entries, self._unwritten = list(self._unwritten.values()), {}
        return entries

    def _note_stored(self, entries: Sequence[CostEntry]) -> None:
        if not entries:
            return
        now, cost = self.clock(), sum(entry.cost for entry in entries)
        last = next(reversed(self._recent_costs))
        if len(self._recent_costs) > 1 and now - last < RECENT_COST_STEP:
            now = last
        self._recent_costs[now] = self._recent_costs.get(now, 0.0) + cost
        while len(self._recent_costs) > MAX_RECENT_COSTS:
            del self._recent_costs[next(iter(self._recent_costs))]

    def recent_costs(self) -> Mapping[datetime, float]:
        """Return what was spent since the start or yesterday, in dollars by the time at which it was stored.

        Amounts stored within ten minutes are one; the first time is that from which the amounts are complete.
        """
        return dict(self._recent_costs)

    def _add_unwritten(self, entries: Iterable[CostEntry]) -> None:
        for entry in entries:
            _add_entry(self._unwritten, entry)

    async def _run(self) -> None:
        async for _ in every(self.interval, until=self._closing):
            await run_isolated(self._flush_and_reload(), label=FLUSH_LABEL, timeout=FLUSH_TIMEOUT)

    async def _flush_and_reload(self) -> None:
        with suppress(StoreUnavailable):  # other writers report the outage
            await self.flush()
            if self._budget.sharing is not None:
                await self.reload()

    async def reload(self) -> None:
        """Load the limits and today's costs, of earlier runs and other processes too; later only if one is limited."""
        if self.limits is not None:
            await self.limits.load()
        if self._is_loaded and not (self._budget.limits or self._budget.has_room_budgets):
            return
        today = self.clock().date()
        async with self._store_lock:
            entries = await self._store.costs_between(today, today)
            erased = await self._store.erased_usage(today)  # last: who is erased meanwhile counts twice, not never
        noted = (entry.negated() for entry in self._noted.values())  # these are reserved
        self._budget.reload([*entries, *self._unwritten.values(), *noted], erased)
        self._is_loaded = True


def add_call(entries: dict[CostKey, CostEntry], call: ModelCall, purpose: str) -> CostEntry:
    """Add what a call has cost today to entries, under one purpose; return its own entry."""
    entry = replace(build_cost_entry(call, system_clock().date()), purpose=purpose)
    _add_entry(entries, entry)
    return entry


def _add_entry(entries: dict[CostKey, CostEntry], entry: CostEntry) -> None:
    total = entries.get(entry.key)
    entries[entry.key] = entry if total is None else total.plus(entry)


def build_cost_entry(call: ModelCall, day: date, run: Run | None = None) -> CostEntry:
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


Begin = Callable[[Callable[[], ModelCall], Run | None], Callable[[], None]]
CallSource = tuple[str, str, str]  # the handler, the model type, and the model where it is known


@dataclass(eq=False, repr=False)
class ReservationLedger:
    """Reserves budget for calls, so that concurrent calls see what the others are about to cost.

    `record` counts a call. `begin` is given a function that estimates the most that a call may use; what it returns is
    called once the call is recorded.

    A model that is known only after its first answer is assumed to have the highest price until then. Where a provider
    counts more tokens of a prompt than were estimated, later estimates are higher by as much.
    """

    _budget: Budget
    _prices: PriceList
    _record: Record
    _begin: Begin = lambda estimate, run: lambda: None
    _models: dict[CallSource, str] = field(default_factory=dict)
    _excess: dict[CallSource, float] = field(default_factory=dict)

    async def reserve(self, handler: ModelHandler, pending: PendingCall[Any]) -> tuple[Record, ModelRequest]:
        """Reserve the most that a call may use; return a function that records the call and releases the reservation,
        and the request, with a lower limit of its answer where little is left.

        Waits until it fits beside running calls, except inside another model call. Raises BudgetSpent if a limit is
        reached, or too little is left for the call.
        """
        if pending.kind is ModelType.TEXT_OFFLINE:  # it costs nothing
            return self._record, pending.request
        source: CallSource = (handler.name, pending.kind.value, pending.model)
        request, run, usage, ended = pending.request, current_run.get(), None, ExitStack()
        if self._budget.limits:
            usage, is_inside = estimate_usage(pending.kind, request), inside_model_call.get()
            room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
            estimate = partial(self._estimate, source, usage, pending.min_tokens)
            reservation = await self._budget.reserve(estimate, room_id, person_id, wait=not is_inside)
            ended.callback(self._budget.release, reservation)
            inside_model_call.set(True)
            ended.callback(inside_model_call.set, is_inside)
            if isinstance(request, TextRequest) and request.max_tokens is not None and reservation.share < 1:
                fewest = pending.min_tokens or request.max_tokens
                request = replace(request, max_tokens=fewest + int(reservation.share * (request.max_tokens - fewest)))
        model = self._models.get(source) or pending.model or handler.name
        ended.callback(self._begin(lambda: replace(estimate_usage(pending.kind, request), model=model), run))

        def record(call: ModelCall) -> None:
            with ended:
                if not call.error:
                    self._models[source] = call.model
                if usage is not None and not call.is_estimate:
                    excess = call.tokens_in / max(usage.tokens_in, 1)
                    self._excess[source] = max(excess, self._excess.get(source, 1.0))
                self._record(call)

        return record, request

    def _estimate(self, source: CallSource, usage: ModelCall, min_tokens: int | None) -> CallEstimate:
        model = self._models.get(source) or (source[2] if self._prices.find(source[2]) else None)
        call = replace(usage, tokens_in=ceil(usage.tokens_in * self._excess.get(source, 1.0)))
        least = most = self._price(call, model)
        if min_tokens is not None:
            least = self._price(replace(call, tokens_out=min_tokens), model)
        return CallEstimate(least, most, is_price_known=model is not None)

    def _price(self, call: ModelCall, model: str | None) -> CostUsage:
        if model is None:
            cost = self._prices.max_cost_of(call)
        else:
            known = replace(call, model=model)
            cost = self._prices.cost_of(known, assume_unknown=self._budget.has_money_limit) or 0.0
        return CostUsage(cost, call.tokens_in + call.tokens_out)
