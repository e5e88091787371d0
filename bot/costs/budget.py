"""Daily limits of model costs, and reservations against them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from uuid import UUID

from pydantic import Field, field_validator

from bot.concurrency.clock import Clock, system_clock
from bot.costs.prices import parse_price
from bot.domain.costs import CostEntry
from bot.errors import BudgetSpent
from bot.settings import CommaList, SettingsModel

logger = logging.getLogger(__name__)


class BudgetSettings(SettingsModel):
    """Model prices and budgets; a character file cannot set these."""

    CHARACTER_SETTINGS = frozenset()

    model_prices: CommaList = Field(
        (),
        description="Prices that override the built-in list, in US dollars per million tokens: "
        "`name=in/out` or `name=in/cached/out`, or `name=0.04/call` per call, separated by commas; `*` "
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


class LimitScope(StrEnum):
    """Who shares a limit."""

    ALL = "in all"
    ROOM = "for this room"
    PERSON = "for this person"


@dataclass(frozen=True, slots=True)
class Limit:
    """A daily limit (days in UTC) in dollars or tokens, and the setting that defines it."""

    setting: str
    scope: LimitScope
    is_money: bool
    maximum: float

    def amount_of(self, usage: "Usage") -> float:
        """Return the part of a usage that counts against this limit."""
        return usage.cost if self.is_money else usage.tokens

    def __str__(self) -> str:
        amount = f"${self.maximum:g}" if self.is_money else f"{self.maximum:,.0f} tokens"
        return f"{amount} a day {self.scope}"


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
class Usage:
    """An amount of dollars and tokens."""

    cost: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class DailyUsage:
    """The usage of one day by scope, and the limits that were logged as reached."""

    day: date
    usage: defaultdict[tuple[LimitScope, UUID | None], Usage] = field(default_factory=lambda: defaultdict(Usage))
    logged_limits: set[tuple[str, UUID | None]] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The estimated usage of a running call, and the scopes it counts in."""

    usage: Usage
    scopes: Mapping[LimitScope, UUID | None]


class Budget:
    """The limits, what was used today, and what running calls have reserved.

    New `limits` count from the next call on; where there were none before, `reload` has to follow.
    """

    def __init__(self, limits: Sequence[Limit] = (), clock: Clock = system_clock) -> None:
        self.limits = tuple(limits)
        self._clock = clock
        self._daily_usage = DailyUsage(clock().date())
        self._reservations: list[Reservation] = []
        self._released = asyncio.Event()

    @property
    def has_money_limit(self) -> bool:
        """Whether any limit is in dollars, and so needs prices."""
        return any(limit.is_money for limit in self.limits)

    def reload(self, entries: Iterable[CostEntry]) -> None:
        """Replace the usage of today by these entries."""
        self._current_usage().usage.clear()
        for entry in entries:
            self.record(entry)

    def record(self, entry: CostEntry) -> None:
        """Count an entry; entries of other days are ignored."""
        today = self._current_usage()
        if not self.limits or entry.day != today.day:
            return
        for scope, key in self._scopes(entry.room_id, entry.person_id):
            usage = today.usage[scope, key]
            usage.cost += entry.cost
            usage.tokens += entry.tokens

    def find_reached_limit(self, room_id: UUID | None, person_id: UUID | None) -> Limit | None:
        """Return a limit that is reached for this room or person; log it once a day."""
        today, scopes = self._current_usage(), dict(self._scopes(room_id, person_id))
        for limit in self.limits:
            if limit.scope not in scopes:
                continue
            key = scopes[limit.scope]
            if limit.amount_of(today.usage[limit.scope, key]) >= limit.maximum:
                self._log_limit(today, limit, key)
                return limit
        return None

    async def reserve(
        self, usage: Usage, room_id: UUID | None, person_id: UUID | None, *, wait: bool = True
    ) -> Reservation:
        """Reserve the estimated usage of a call; with `wait`, once it fits beside the other reservations.

        A call that does not fit alone runs alone: the last call of a day may exceed a limit. Raises
        BudgetSpent if a limit is reached.
        """
        reservation = Reservation(usage, dict(self._scopes(room_id, person_id)))
        while True:
            if (limit := self.find_reached_limit(room_id, person_id)) is not None:
                raise BudgetSpent(limit.setting, f"the budget is used up: {limit.setting}, {limit}")
            if not wait or self._fits(reservation):
                self._reservations.append(reservation)
                return reservation
            await self._released.wait()

    def release(self, reservation: Reservation) -> None:
        """Release a reservation: its call was counted or not made."""
        self._reservations.remove(reservation)
        self._released.set()
        self._released = asyncio.Event()

    def _fits(self, reservation: Reservation) -> bool:
        today = self._current_usage()
        for limit in self.limits:
            if limit.scope not in reservation.scopes:
                continue
            key = reservation.scopes[limit.scope]
            concurrent = [other for other in self._reservations if (limit.scope, key) in other.scopes.items()]
            used = limit.amount_of(today.usage[limit.scope, key]) + sum(
                limit.amount_of(other.usage) for other in concurrent
            )
            if concurrent and used + limit.amount_of(reservation.usage) > limit.maximum:
                return False
        return True

    def _current_usage(self) -> DailyUsage:
        day = self._clock().date()
        if day != self._daily_usage.day:
            self._daily_usage = DailyUsage(day)
        return self._daily_usage

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
