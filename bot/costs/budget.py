"""Daily limits of model costs, and reservations against them."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from uuid import UUID

from pydantic import Field, field_validator

from bot.concurrency.bounded import BoundedDict
from bot.concurrency.clock import Clock, system_clock
from bot.costs.prices import parse_price
from bot.costs.shared_budget import LimitKey, SharedBudget
from bot.domain.costs import CostEntry, CostUsage, ErasedUsage, Limit, LimitScope
from bot.errors import BudgetSpent
from bot.settings import CommaList, SettingsModel

logger = logging.getLogger(__name__)
ROUNDING = 1e-8  # dollars
MAX_DAYS = 3  # of which the usage is known: a clock that was wrong may come back to an earlier day


class BudgetSettings(SettingsModel):
    """Model prices and budgets; a character file cannot set these."""

    CHARACTER_SETTINGS = frozenset()

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

    @field_validator("model_prices")
    @classmethod
    def _check_prices(cls, prices: tuple[str, ...]) -> tuple[str, ...]:
        for price in prices:
            parse_price(price)
        return prices

    @property
    def has_money_budget(self) -> bool:
        """Whether any limit is in dollars, and so needs prices."""
        return bool(self.budget_usd or self.budget_usd_per_room or self.budget_usd_per_person)


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
    logged_limits: set[tuple[str, UUID | None]] = field(default_factory=set)

    def of(self, key: LimitKey) -> CostUsage:
        """Return the usage of a scope; that of a person includes what they had used when their data was erased."""
        if key not in self.usage:
            scope, owner = key
            is_known = self.erased is not None and scope is LimitScope.PERSON
            self.usage[key] = self.erased.of(owner) if self.erased and is_known else CostUsage()
        return self.usage[key]


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The most that a running call may use, and the scopes it counts in.

    `share` is the part of what it asked for above its least, 0 to 1.
    """

    usage: CostUsage
    scopes: Mapping[LimitScope, UUID | None]
    limit_keys: tuple[LimitKey, ...] = ()
    share: float = 1.0


class Budget:
    """The limits, what was used today, and what running calls have reserved.

    New `limits` count from the next call on; where there were none before, `reload` has to follow. With `sharing`
    they are those of all processes together.
    """

    def __init__(self, limits: Sequence[Limit] = (), clock: Clock = system_clock) -> None:
        self.limits = tuple(limits)
        self._clock = clock
        self._days = BoundedDict[date, DailyUsage](MAX_DAYS)
        self._reservations: list[Reservation] = []
        self._released = asyncio.Event()
        self.sharing: SharedBudget | None = None

    @property
    def has_money_limit(self) -> bool:
        """Whether any limit is in dollars, and so needs prices."""
        return any(limit.is_money for limit in self.limits)

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
        if self.limits and entry.day == today.day:
            usage = CostUsage(entry.cost, entry.tokens)
            for scope, key in self._scopes(entry.room_id, entry.person_id):
                today.of((scope, key)).add(usage)

    def find_reached_limit(self, room_id: UUID | None, person_id: UUID | None) -> Limit | None:
        """Return a limit that is reached for this room or person; log it once a day."""
        today, scopes = self._current_usage(), dict(self._scopes(room_id, person_id))
        for limit in self.limits:
            if limit.scope not in scopes:
                continue
            key = scopes[limit.scope]
            if limit.amount_of(today.of((limit.scope, key))) >= limit.maximum:
                self._log_limit(today, limit, key)
                return limit
        return None

    async def reserve(
        self,
        least: CostUsage,
        most: CostUsage,
        room_id: UUID | None,
        person_id: UUID | None,
        *,
        wait: bool = True,
        is_price_known: bool = True,
    ) -> Reservation:
        """Reserve what a call may use; with `wait`, once it fits beside the other reservations.

        That is `most`, or a fair part of what is left beside running calls, but no less than `least`. A call that does
        not fit reserves all that is left if its price is not known, or of a limit in tokens if it is the first one.

        Raises BudgetSpent if a limit is reached, or if the call does not fit although there is nothing to wait for.
        """
        scopes = dict(self._scopes(room_id, person_id))
        limits = [limit for limit in self.limits if limit.scope in scopes]
        keys = tuple((scope, key) for scope, key in scopes.items() if any(limit.scope is scope for limit in limits))
        while True:
            if (limit := self.find_reached_limit(room_id, person_id)) is not None:
                raise BudgetSpent(limit.setting, f"the budget is used up: {limit.setting}, {limit}")
            share, short = self._share(least, most, scopes)
            if short is None:
                part = CostUsage(
                    least.cost + share * (most.cost - least.cost),
                    least.tokens + int(share * (most.tokens - least.tokens)),
                )
                reservation = Reservation(part, scopes, keys, share)
                self._reservations.append(reservation)
                if await self._start_shared(reservation, wait=wait):
                    return reservation
            elif wait and self._count(short.scope, scopes[short.scope]):
                await self._released.wait()
            elif short.is_money and not is_price_known:
                least = most = CostUsage(max(0.0, self._left(short, scopes) - ROUNDING), most.tokens)
            elif not short.is_money and self._left(short, scopes) == short.maximum:
                least = most = CostUsage(most.cost, int(short.maximum))
            else:
                self._log_limit(self._current_usage(), short, scopes[short.scope])
                raise BudgetSpent(
                    short.setting, f"what is left of the budget does not pay for this: {short.setting}, {short}"
                )

    def _share(
        self, least: CostUsage, most: CostUsage, scopes: Mapping[LimitScope, UUID | None]
    ) -> tuple[float, Limit | None]:
        """Return how much of the difference between `least` and `most` fits, 0 to 1, or the limit that `least`
        exceeds.
        """
        share = 1.0
        for limit in self.limits:
            if limit.scope not in scopes:
                continue
            low, high = limit.amount_of(least), limit.amount_of(most)
            left = self._left(limit, scopes)
            if low > left:
                return 0.0, limit
            fair = left / (1 + self._count(limit.scope, scopes[limit.scope]))
            if high > max(fair, low):
                share = min(share, max(0.0, fair - ROUNDING - low) / (high - low))
        return share, None

    def _count(self, scope: LimitScope, key: UUID | None) -> int:
        return sum((scope, key) in other.scopes.items() for other in self._reservations)

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
            for key, spent in self.sharing.take_news().items():
                self._current_usage().usage[key] = spent
            if is_started:
                on_failure.pop_all()
                return True
            if not wait:
                setting = self.limits[0].setting
                raise BudgetSpent(setting, "what is left of the budget beside running calls does not pay for this")
            await self.sharing.pause()
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

    def _left(self, limit: Limit, scopes: Mapping[LimitScope, UUID | None]) -> float:
        """Return what is left of a limit beside what was used today and what running calls have reserved."""
        scope, key = limit.scope, scopes[limit.scope]
        reserved = (other.usage for other in self._reservations if (scope, key) in other.scopes.items())
        used = self._current_usage().of((scope, key))
        return limit.maximum - limit.amount_of(used) - sum(map(limit.amount_of, reserved))

    def _current_usage(self) -> DailyUsage:
        day = self._clock().date()
        if day not in self._days:
            self._days[day] = DailyUsage(day)
        return self._days[day]

    def _scopes(self, room_id: UUID | None, person_id: UUID | None) -> Iterable[tuple[LimitScope, UUID | None]]:
        yield LimitScope.ALL, None
        if room_id is not None:
            yield LimitScope.ROOM, room_id
        if person_id is not None:
            yield LimitScope.PERSON, person_id

    def _log_limit(self, today: DailyUsage, limit: Limit, key: UUID | None) -> None:
        if (limit.setting, key) not in today.logged_limits:
            today.logged_limits.add((limit.setting, key))
            owner = f" ({key})" if key else ""
            logger.warning("%s is spent, %s%s: no more answers until midnight UTC", limit.setting, limit, owner)
