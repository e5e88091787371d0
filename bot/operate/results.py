"""`Result`: base of what operators get: the HTTP API responds with it, and commands print it.

Reports of referrals, replays of turns, and receipts.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime
from enum import StrEnum
from functools import cache
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from bot.care.recognition import DistressCategory
from bot.domain.environment import Room
from bot.domain.ledger import CareCount, Outcome, Receipt
from bot.receipts import describe_receipt

NameRoom = Callable[[Room], str]


@cache
def _required_names(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if field.is_required())


class Result(BaseModel):
    """What an operation returns; its fields are those of the HTTP API."""

    model_config = ConfigDict(frozen=True, defer_build=True, from_attributes=True)

    @classmethod
    def build(cls, source: object, **fields: object) -> Self:
        """Return the model with these fields; the other required ones are attributes of the source."""
        missing = {name: getattr(source, name) for name in _required_names(cls) if name not in fields}
        return cls.model_validate(missing | fields)


def name_room(room: Room) -> str:
    """Return the name of a room, or the platform's id of it."""
    return room.name or room.external_id


REPORT_DAYS = 30


class CareCountBody(Result):
    """How many referrals there were on a day (UTC) for one category."""

    day: date
    category: DistressCategory
    count: int


class CareReport(Result):
    """The referrals of some days (UTC), both ends included: in total, by category, and by day and category."""

    since: date
    until: date
    total: int
    categories: dict[DistressCategory, int]
    days: list[CareCountBody]


def build_care_report(counts: Iterable[CareCount], since: date, until: date) -> CareReport:
    """Return the report of these counts, which may be of several agents."""
    sums = Counter[tuple[date, str]]()
    for item in counts:
        sums[item.day, item.category] += item.count
    days = [
        CareCountBody(day=day, category=DistressCategory(name), count=sums[day, name]) for day, name in sorted(sums)
    ]
    categories = {
        category: sum(item.count for item in days if item.category is category) for category in DistressCategory
    }
    return CareReport(since=since, until=until, total=sum(sums.values()), categories=categories, days=days)


class Difference(Result):
    """Where a turn that was run again differs: the step, the line of it, counted from 1, and both lines.

    `diff` has all lines that differ, as a unified diff.
    """

    step: str
    line: int
    recorded: str
    replayed: str
    diff: list[str]


class ReplayState(StrEnum):
    """How a replay ended."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_REPLAYED = "not replayed"


class ReplayBody(Result):
    """A turn that was run again: the steps that were compared, and all that differs; or the reason why it was not."""

    receipt_id: UUID
    state: ReplayState
    reason: str = ""
    steps: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


class CallBody(Result):
    """One call to a model; `cost` is in US dollars, null if the model's price is unknown."""

    type: str
    purpose: str
    model: str
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    is_estimate: bool
    cost: float | None
    seconds: float
    error: str


class ReceiptBody(Result):
    """The receipt of an inbound message: outcome, reason, times and costs.

    `headline` tells the outcome in one sentence; `seconds` is the total duration; `cost` is the sum of the calls with a
    known price, null without any.
    """

    id: UUID
    agent_id: UUID
    message_id: UUID
    room_id: UUID
    author_id: UUID
    platform: str
    headline: str
    outcome: Outcome
    reason: str
    rule: str
    superseded_by: UUID | None
    received_at: datetime
    claimed_at: datetime | None
    closed_at: datetime | None
    seconds: float | None
    attempts: int
    carried: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    model_calls: list[CallBody]
    notes: list[str]

    @classmethod
    def of(cls, receipt: Receipt, agent_id: UUID, agent_name: str, **fields: object) -> Self:
        """Return a receipt with its costs; `agent_name` is what the headline calls the agent."""
        calls = receipt.model_calls
        return cls.build(
            receipt,
            agent_id=agent_id,
            headline=describe_receipt(receipt, agent_name),
            message_id=receipt.memory_id,
            platform=receipt.key.platform,
            carried=receipt.supersede_count,
            tokens_in=sum(call.tokens_in for call in calls if call.is_counted),
            tokens_out=sum(call.tokens_out for call in calls if call.is_counted),
            **fields,
        )
