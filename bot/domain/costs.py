"""What model calls have come to: one line a day, room, person and model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar
from uuid import UUID

K = TypeVar("K")
CostKey = tuple[date, UUID | None, UUID | None, str]


@dataclass(frozen=True, slots=True)
class CostEntry:
    """The model calls of one day (in UTC) for one person in one room, by one model.

    Room and person are None for calls that were made for nobody: a task's, a post's. `cost` is in US
    dollars, that of all calls but the `unpriced`; the tokens of the `estimated` were not counted by the
    provider. The `failed` are taken to cost nothing.
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

    @property
    def key(self) -> CostKey:
        """What a line is kept under."""
        return (self.day, self.room_id, self.person_id, self.model)

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.tokens_in + self.tokens_out

    def to_json(self) -> dict[str, Any]:
        """Give the figures as JSON: dollars to nine places, and counts."""
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
        """Add another one's figures to these."""
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
        )


def sum_costs(entries: Iterable[CostEntry], key: Callable[[CostEntry], K]) -> dict[K, CostEntry]:
    """Add up what has the same key; of a sum, only the key and the figures mean anything."""
    totals: dict[K, CostEntry] = {}
    for entry in entries:
        total = totals.get(key(entry))
        totals[key(entry)] = entry if total is None else total.plus(entry)
    return totals
