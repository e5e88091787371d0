"""What model calls have come to: one line a day, room, person and model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar
from uuid import UUID

K = TypeVar("K")
Key = tuple[date, UUID | None, UUID | None, str]


@dataclass(frozen=True, slots=True)
class Spending:
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
    unpriced: int = 0
    estimated: int = 0
    failed: int = 0

    @property
    def key(self) -> Key:
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
            "failed_calls": self.failed,
            "unpriced_calls": self.unpriced,
            "estimated_calls": self.estimated,
            "tokens_in": self.tokens_in,
            "tokens_cached": self.tokens_cached,
            "tokens_out": self.tokens_out,
        }

    def plus(self, other: "Spending") -> "Spending":
        """Add another one's figures to these."""
        return Spending(
            self.day,
            self.model,
            self.room_id,
            self.person_id,
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
            failed=self.failed + other.failed,
        )


def summed(spendings: Iterable[Spending], key: Callable[[Spending], K]) -> dict[K, Spending]:
    """Add up what has the same key; of a sum, only the key and the figures mean anything."""
    sums: dict[K, Spending] = {}
    for one in spendings:
        known = sums.get(key(one))
        sums[key(one)] = one if known is None else known.plus(one)
    return sums
