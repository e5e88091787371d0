"""`ReceiptBody`: the receipt of a message with its costs."""

from datetime import datetime
from typing import Self
from uuid import UUID

from bot.domain.ledger import Outcome, Receipt
from bot.operate.results import Result
from bot.receipts import describe_receipt


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
