"""Public module: what operators do with a bot, running or stopped, and what they ask; its results are those of HTTP."""

from bot.operate.operations import (
    DELIVERY_STATES,
    DecisionResult,
    DeliveryBody,
    ForgottenResponse,
    Operations,
    PartCounts,
    PartDecision,
    PartState,
    UndeliveredPartBody,
)
from bot.operate.receipts import ReceiptBody
from bot.operate.results import Result

__all__ = [
    "DELIVERY_STATES",
    "DecisionResult",
    "DeliveryBody",
    "ForgottenResponse",
    "Operations",
    "PartCounts",
    "PartDecision",
    "PartState",
    "ReceiptBody",
    "Result",
    "UndeliveredPartBody",
]
