"""Keeping a batch of which the store refuses one message."""

import pytest

from bot.domain.inbound import Cursor
from bot.errors import IntakeClosed
from bot.inbound.inbox import put_surely
from bot.testing import make_arrival, on_stage
from tests.fussy import REFUSED, fussy_store

CURSOR = Cursor("there", "account", "offset", "7")


async def test_a_message_that_the_store_refuses_costs_no_other_and_the_stream_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_stage(store=fussy_store()) as stage:
        now, inbox = stage.agent.clock(), stage.resident.inbox
        batch = [make_arrival(text, at=now) for text in ("One.", REFUSED, "Three.")]
        await put_surely(inbox, batch, CURSOR)
        kept = await stage.agent.store.ledger.receipts(limit=10)
        assert {one.key for one in kept} == {batch[0].key, batch[2].key}
        assert await inbox.cursor("there", "account", "offset") == "7"
    assert f"message {batch[1].key.message_id} of" in caplog.text


async def test_what_comes_while_the_bot_stops_is_not_lost_but_comes_again() -> None:
    async with on_stage() as stage:
        arrival = make_arrival("One.", at=stage.agent.clock())
    with pytest.raises(IntakeClosed):
        await put_surely(stage.resident.inbox, [arrival], CURSOR)
