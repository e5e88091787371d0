"""Receipts as text."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from bot.cli.commands.why import explain_receipt
from bot.domain.ledger import EventKey, ModelCall, Outcome, Receipt

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = EventKey("console", "a", "e", UUID(int=1), "m")


def test_a_receipt_shows_reason_rule_calls_tokens_and_time() -> None:
    receipt = Receipt(
        UUID(int=2),
        KEY,
        UUID(int=1),
        UUID(int=3),
        UUID(int=4),
        NOON,
        outcome=Outcome.ANSWERED,
        reason="every message in a room of type DM is answered",
        rule="room type DM",
        closed_at=NOON + timedelta(milliseconds=812),
        model_calls=(
            ModelCall("TEXT_LARGE", "reply", "gpt-4o", 1200, 34, 1024, seconds=0.8, cost=0.00206),
            ModelCall("TEXT_SMALL", "repair", "tiny", 9, 0, is_estimate=True, error="no answer", cost=0.0),
            ModelCall("TEXT_LARGE", "reply", "own", 9, 3, is_estimate=True, error="cancelled"),
        ),
        notes=("provider TIME: late",),
    )
    assert list(explain_receipt(receipt)) == [
        "answered: every message in a room of type DM is answered",
        "decided by: room type DM",
        "called gpt-4o for reply: 1200 tokens in (1024 of them cached), 34 out, $0.00206, 800 ms",
        "called tiny for repair: about 9 tokens in, 0 out, not counted, 0 ms, failed: no answer",
        "called own for reply: about 9 tokens in, 3 out, price unknown, 0 ms, cancelled",
        "total: $0.00206, and what 1 of them cost",
        "took 812 ms",
        "provider TIME: late",
    ]


def test_an_open_receipt_shows_the_known_fields() -> None:
    receipt = Receipt(UUID(int=2), KEY, UUID(int=1), UUID(int=3), UUID(int=4), NOON)
    assert list(explain_receipt(receipt)) == ["received", "no model was called"]
