"""What a receipt's rule says about its reason."""

from datetime import UTC, datetime

import pytest

from bot.domain.ids import derived_id
from bot.domain.ledger import EventKey, Receipt

ROOM = derived_id("room")
KEY = EventKey("test", "account", "event", ROOM, "message")
RECEIPT = Receipt(derived_id("receipt"), KEY, ROOM, derived_id("Ann"), derived_id("memory"), datetime.now(UTC))


def with_rule(rule: str) -> Receipt:
    return Receipt(RECEIPT.id, KEY, ROOM, RECEIPT.author_id, RECEIPT.memory_id, RECEIPT.received_at, rule=rule)


@pytest.mark.parametrize("rule", ["shouldRespond", "shouldRespond: STOP", "shouldRespond: unreadable", "IGNORE"])
def test_a_model_wrote_the_reason_of_its_decisions(rule: str) -> None:
    assert with_rule(rule).is_reason_generated


@pytest.mark.parametrize("rule", ["", "MUTED", "room type DM", "SHOULD_RESPOND_BYPASS_TYPES", "IGNORED_USERS"])
def test_other_reasons_are_not_generated(rule: str) -> None:
    assert not with_rule(rule).is_reason_generated
