"""Storing a batch of which the store rejects one message."""

import pytest

from bot.domain.inbound import StreamCursor
from bot.errors import InboxClosed
from bot.testing import make_message, running_agent
from tests.fussy import REFUSED, fussy_store

CURSOR = StreamCursor("there", "account", "offset", "7")


async def test_a_message_rejected_by_the_store_does_not_stop_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async with running_agent(store=fussy_store()) as harness:
        now, inbox = harness.agent.clock(), harness.agent_runtime.inbox
        batch = [make_message(text, sent_at=now) for text in ("One.", REFUSED, "Three.")]
        await inbox.submit_tolerant(batch, CURSOR)
        kept = await harness.agent.store.ledger.receipts(limit=10)
        assert {receipt.key for receipt in kept} == {batch[0].key, batch[2].key}
        assert await inbox.cursor("there", "account", "offset") == "7"
    assert f"message {batch[1].key.message_id} could not be read" in caplog.text
    [recorded] = await harness.agent.store.ledger.unreadable_events()
    assert REFUSED in recorded.raw


async def test_a_message_that_arrives_during_shutdown_is_redelivered() -> None:
    async with running_agent() as harness:
        arrival = make_message("One.", sent_at=harness.agent.clock())
    with pytest.raises(InboxClosed):
        await harness.agent_runtime.inbox.submit_tolerant([arrival], CURSOR)
