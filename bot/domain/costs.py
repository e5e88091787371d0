"""Costs of model calls: one entry per day, room, person, model and purpose."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
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
    the provider. `failed_calls` cost nothing. The purpose is empty for what was stored before purposes were.
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


def sum_costs(entries: Iterable[CostEntry], key: Callable[[CostEntry], K]) -> dict[K, CostEntry]:
    """Sum the entries that have the same key; in a sum only that key and the figures have a meaning."""
    totals: dict[K, CostEntry] = {}
    for entry in entries:
        total = totals.get(key(entry))
        totals[key(entry)] = entry if total is None else total.plus(entry)
    return totals
