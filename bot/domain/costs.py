"""Costs of model calls: one entry per day, room, person, model and purpose."""

import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from math import inf
from secrets import token_bytes
from typing import Any, TypeVar
from uuid import UUID

K = TypeVar("K")
CostKey = tuple[date, UUID | None, UUID | None, str, str]


class CostDimension(StrEnum):
    """What costs can be summed by; the values are names of fields of `CostEntry`."""

    DAY = "day"
    ROOM = "room_id"
    PERSON = "person_id"
    MODEL = "model"
    PURPOSE = "purpose"


@dataclass(frozen=True, slots=True)
class CostEntry:
    """The model calls of one day (in UTC) for one person in one room, by one model, for one purpose.

    Room and person are None for calls that belong to no message, such as tasks and posts. `cost` is in US
    dollars and covers all calls but the `unpriced_calls`. The tokens of `estimated_calls` were not counted by
    the provider. `failed_calls` cost nothing unless a part of the answer came. The purpose is empty for what was
    stored before purposes were.
    """

    day: date
    model: str
    room_id: UUID | None = None
    person_id: UUID | None = None
    calls: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0
    estimated_calls: int = 0
    failed_calls: int = 0
    purpose: str = ""

    @property
    def key(self) -> CostKey:
        """The fields that identify the entry: day, room, person, model, purpose."""
        return (self.day, self.room_id, self.person_id, self.model, self.purpose)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.tokens_in + self.tokens_out

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON: dollars with nine decimals, and counts."""
        return {
            "usd": round(self.cost, 9),
            "calls": self.calls,
            "failed_calls": self.failed_calls,
            "unpriced_calls": self.unpriced_calls,
            "estimated_calls": self.estimated_calls,
            "tokens_in": self.tokens_in,
            "tokens_cached": self.tokens_cached,
            "tokens_out": self.tokens_out,
        }

    def plus(self, other: "CostEntry") -> "CostEntry":
        """Return an entry with the figures of both; the key is this entry's."""
        return CostEntry(
            self.day,
            self.model,
            self.room_id,
            self.person_id,
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            failed_calls=self.failed_calls + other.failed_calls,
            purpose=self.purpose,
        )


@dataclass(slots=True)
class CostUsage:
    """An amount of dollars and tokens."""

    cost: float = 0.0
    tokens: int = 0

    @property
    def is_some(self) -> bool:
        """Whether it is more than nothing; less than a billionth of a dollar is nothing."""
        return self.tokens > 0 or self.cost > 1e-9

    def add(self, other: "CostUsage", times: int = 1) -> None:
        """Add another amount this many times."""
        self.cost += other.cost * times
        self.tokens += other.tokens * times


@dataclass(frozen=True, slots=True)
class ErasedUsage:
    """What people had used of the limits of a day (in UTC) before their data was erased, so that it still counts.

    Each is known by a hash of their id with a random key, which is kept until the day is over.
    """

    day: date
    key: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    usage: Mapping[str, CostUsage] = field(default_factory=dict)

    @property
    def expires_at(self) -> datetime:
        """The end of the day, when all of it is deleted."""
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)

    def of(self, person_id: UUID | None) -> CostUsage:
        """Return what a person had used; nothing for None."""
        usage = self.usage.get(self._hash(person_id)) if person_id is not None and self.usage else None
        return CostUsage() if usage is None else replace(usage)

    def plus(self, person_id: UUID, usage: CostUsage) -> "ErasedUsage":
        """Return it with what a person has used since the last erasure."""
        total = self.of(person_id)
        total.add(usage)
        return replace(self, usage={**self.usage, self._hash(person_id): total})

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for `from_json`."""
        usage = {name: [amount.cost, amount.tokens] for name, amount in self.usage.items()}
        return {"day": self.day.isoformat(), "key": self.key.hex(), "usage": usage}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None, day: date) -> "ErasedUsage":
        """Return what was stored for a day; with a new key and no usage where nothing was."""
        if stored is None or stored["day"] != day.isoformat():
            return cls(day)
        usage = {name: CostUsage(*amounts) for name, amounts in stored["usage"].items()}
        return cls(day, bytes.fromhex(stored["key"]), usage)

    def _hash(self, person_id: UUID) -> str:
        return hmac.digest(self.key, person_id.bytes, "sha256").hex()


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

    def amount_of(self, usage: CostUsage) -> float:
        """Return the part of a usage that counts against this limit."""
        return usage.cost if self.is_money else usage.tokens

    def __str__(self) -> str:
        amount = f"${self.maximum:g}" if self.is_money else f"{self.maximum:,.0f} tokens"
        return f"{amount} a day {self.scope}"


@dataclass(frozen=True, slots=True)
class CostHold:
    """What one process wants to hold of a day's limits, beside what is spent and what other processes hold.

    The limits are those of a scope, with the id of its room or person. `running` is reserved for calls that run,
    `wanted` for one more call, and `ahead` is asked for so that later calls need not ask.
    """

    scope: LimitScope
    key: UUID | None
    running: CostUsage
    wanted: CostUsage | None = None
    ahead: CostUsage = field(default_factory=CostUsage)
    max_cost: float = inf
    max_tokens: float = inf


@dataclass(frozen=True, slots=True)
class HeldCosts:
    """What is spent of the limits of a `CostHold`, what other processes hold, and what this one holds now."""

    spent: CostUsage
    others: CostUsage
    held: CostUsage


def sum_costs(entries: Iterable[CostEntry], key: Callable[[CostEntry], K]) -> dict[K, CostEntry]:
    """Sum the entries that have the same key; in a sum only that key and the figures have a meaning."""
    totals: dict[K, CostEntry] = {}
    for entry in entries:
        total = totals.get(key(entry))
        totals[key(entry)] = entry if total is None else total.plus(entry)
    return totals
