"""What may be spent on models in a day, and what has been: at a limit nothing more is paid for."""

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
from bot.domain.costs import Spending
from bot.errors import BudgetSpent
from bot.settings import SettingsModel, Words

logger = logging.getLogger(__name__)


class MoneySettings(SettingsModel):
    """What models cost and what may be spent; a character's file cannot set these."""

    model_prices: Words = Field(
        (),
        description="Prices over the list that comes along, in US dollars for a million tokens: "
        "`name=in/out` or `name=in/cached/out`, or `name=0.04/call` for one call, parted by commas; `*` "
        "stands for any letters, `llama*=0` says that a server of your own costs nothing.",
    )
    budget_usd: float = Field(0, ge=0, description="US dollars that may be spent in a day; 0 for no limit.")
    budget_usd_per_room: float = Field(0, ge=0, description="The same for each room.")
    budget_usd_per_person: float = Field(0, ge=0, description="The same for each person.")
    budget_tokens: int = Field(0, ge=0, description="Tokens, in and out, in a day; 0 for no limit.")
    budget_tokens_per_room: int = Field(0, ge=0, description="The same for each room.")
    budget_tokens_per_person: int = Field(0, ge=0, description="The same for each person.")

    @field_validator("model_prices")
    @classmethod
    def _well_formed(cls, prices: tuple[str, ...]) -> tuple[str, ...]:
        for one in prices:
            parse_price(one)
        return prices

    @property
    def has_money_budget(self) -> bool:
        """Whether any limit is in dollars, and so needs prices."""
        return bool(self.budget_usd or self.budget_usd_per_room or self.budget_usd_per_person)


class Whose(StrEnum):
    """Who a limit is for."""

    ALL = "in all"
    ROOM = "for this room"
    PERSON = "for this person"


@dataclass(frozen=True, slots=True)
class Limit:
    """What may be spent in a day (in UTC), in dollars or in tokens, and the setting that says so."""

    setting: str
    whose: Whose
    is_money: bool
    most: float

    def of(self, spent: "Spent") -> float:
        """Give what counts here of what was spent."""
        return spent.cost if self.is_money else spent.tokens

    def __str__(self) -> str:
        most = f"${self.most:g}" if self.is_money else f"{self.most:,.0f} tokens"
        return f"{most} a day {self.whose}"


def limits_of(settings: MoneySettings) -> list[Limit]:
    """List the limits that are set."""
    limits = [
        Limit("BUDGET_USD", Whose.ALL, True, settings.budget_usd),
        Limit("BUDGET_TOKENS", Whose.ALL, False, settings.budget_tokens),
        Limit("BUDGET_USD_PER_ROOM", Whose.ROOM, True, settings.budget_usd_per_room),
        Limit("BUDGET_TOKENS_PER_ROOM", Whose.ROOM, False, settings.budget_tokens_per_room),
        Limit("BUDGET_USD_PER_PERSON", Whose.PERSON, True, settings.budget_usd_per_person),
        Limit("BUDGET_TOKENS_PER_PERSON", Whose.PERSON, False, settings.budget_tokens_per_person),
    ]
    return [limit for limit in limits if limit.most]


@dataclass(slots=True)
class Spent:
    """What has been spent today, or is about to be, in dollars and in tokens."""

    cost: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class Today:
    """What has been spent in a day: by whom, and of which limit the operator has been told."""

    day: date
    spent: defaultdict[tuple[Whose, UUID | None], Spent] = field(default_factory=lambda: defaultdict(Spent))
    told: set[tuple[str, UUID | None]] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is held back for a call that is under way, and of whose limits."""

    amount: Spent
    keys: Mapping[Whose, UUID | None]


class Budget:
    """The limits of one agent, how much of them is used up today, and what is held back of them."""

    def __init__(self, limits: Sequence[Limit] = (), clock: Clock = system_clock) -> None:
        self.limits = tuple(limits)
        self._clock = clock
        self._today = Today(clock().date())
        self._held: list[Held] = []
        self._given_back = asyncio.Event()

    def begin_from(self, spendings: Iterable[Spending]) -> None:
        """Take over what is known of today, in place of what was known before."""
        self._now().spent.clear()
        for one in spendings:
            self.spend(one)

    def spend(self, one: Spending) -> None:
        """Count what was spent; what is of another day counts no more."""
        today = self._now()
        if not self.limits or one.day != today.day:
            return
        for whose, key in self._keys(one.room_id, one.person_id):
            spent = today.spent[whose, key]
            spent.cost += one.cost
            spent.tokens += one.tokens

    def reached(self, room_id: UUID | None, person_id: UUID | None) -> Limit | None:
        """Find the limit that forbids to spend more here for this person; the log is told once a day."""
        today, keys = self._now(), dict(self._keys(room_id, person_id))
        for limit in self.limits:
            if limit.whose not in keys:
                continue
            key = keys[limit.whose]
            if limit.of(today.spent[limit.whose, key]) >= limit.most:
                self._tell(today, limit, key)
                return limit
        return None

    async def hold(
        self, amount: Spent, room_id: UUID | None, person_id: UUID | None, *, waits: bool = True
    ) -> Held:
        """Hold back what a call may take; where it `waits`, when that fits in beside what the others may.

        What fits in nowhere goes alone: the last call of a day may pass a limit by a part of itself. Raises
        BudgetSpent where a limit is reached.
        """
        held = Held(amount, dict(self._keys(room_id, person_id)))
        while True:
            if (limit := self.reached(room_id, person_id)) is not None:
                raise BudgetSpent(limit.setting, f"what may be spent is spent: {limit.setting}, {limit}")
            if not waits or self._fits(held):
                self._held.append(held)
                return held
            await self._given_back.wait()

    def give_back(self, held: Held) -> None:
        """Hold it back no longer: what the call took has been counted, or it was not made."""
        self._held.remove(held)
        self._given_back.set()
        self._given_back = asyncio.Event()

    def _fits(self, held: Held) -> bool:
        today = self._now()
        for limit in self.limits:
            if limit.whose not in held.keys:
                continue
            key = held.keys[limit.whose]
            beside = [one for one in self._held if (limit.whose, key) in one.keys.items()]
            taken = limit.of(today.spent[limit.whose, key]) + sum(limit.of(one.amount) for one in beside)
            if beside and taken + limit.of(held.amount) > limit.most:
                return False
        return True

    def _now(self) -> Today:
        day = self._clock().date()
        if day != self._today.day:
            self._today = Today(day)
        return self._today

    def _keys(self, room_id: UUID | None, person_id: UUID | None) -> Iterable[tuple[Whose, UUID | None]]:
        yield Whose.ALL, None
        if room_id is not None:
            yield Whose.ROOM, room_id
        if person_id is not None:
            yield Whose.PERSON, person_id

    def _tell(self, today: Today, limit: Limit, key: UUID | None) -> None:
        if (limit.setting, key) not in today.told:
            today.told.add((limit.setting, key))
            who = f" ({key})" if key else ""
            logger.warning(
                "%s is spent, %s%s: nothing more is answered until midnight UTC", limit.setting, limit, who
            )
