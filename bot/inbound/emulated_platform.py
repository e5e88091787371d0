"""`EmulatedPlatform`: a platform that runs on this machine, and what its page is told by `bot run --emulate`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from bot.domain.ledger import Outcome, Receipt


@dataclass(frozen=True, slots=True)
class EmulatedOutcome:
    """What a character made of a message: `room` and `message` are the platform's ids, `headline` is a sentence."""

    room: str
    message: str
    agent: str
    headline: str
    outcome: Outcome
    receipt_id: UUID
    took_ms: int | None
    cost: float | None

    @classmethod
    def build(cls, receipt: Receipt, headline: str, *, room: str, message: str, agent: str) -> "EmulatedOutcome":
        """Return the outcome that a receipt states."""
        costs = [call.cost for call in receipt.model_calls if call.cost is not None]
        took = None if receipt.closed_at is None else receipt.closed_at - receipt.received_at
        took_ms = None if took is None else round(took / timedelta(milliseconds=1))
        cost = float(sum(costs)) if costs else None
        return cls(room, message, agent, headline, receipt.outcome, receipt.id, took_ms, cost)

    def describe(self) -> dict[str, Any]:
        """Return the outcome as the page receives it."""
        return {
            "agent": self.agent,
            "headline": self.headline,
            "outcome": self.outcome,
            "receipt_id": str(self.receipt_id),
            "took_ms": self.took_ms,
            "cost": self.cost,
        }


class EmulatedPage(Protocol):
    """The page of an emulator, as far as the program that runs the characters tells it something."""

    def connect_web(self, url: str) -> None:
        """Set the address of the web adapter, whose receipts the page shows to a browser that is signed in there."""

    def show_outcome(self, outcome: EmulatedOutcome) -> None:
        """Show what a character made of a message, under it."""


@dataclass(frozen=True, slots=True)
class EmulatedPlatform:
    """A platform that is emulated on this machine: its page, and the variables of each character by name.

    They replace the character's own; an empty one only removes its own. `url` is the address of the page, `page` what
    serves it, if that can be told something.
    """

    url: str
    settings: Mapping[str, Mapping[str, str]]
    page: EmulatedPage | None = None


StartEmulator = Callable[[Sequence[str]], AbstractAsyncContextManager[EmulatedPlatform]]
