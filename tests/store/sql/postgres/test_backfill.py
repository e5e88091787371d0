"""Backfill by a process that does not own the room."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta

import pytest

from bot import Outcome, Settings, derived_id
from bot.platform import InboundMessage
from bot.settings import Layer
from bot.store import Store
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from plugins.sql import plugin

ADA = derived_id("agent", "Ada")


def stored(url: str) -> AbstractAsyncContextManager[Store]:
    assert plugin.store is not None
    return plugin.store.open(ADA, Settings([Layer(".env", {"POSTGRES_URL": url})]))


def old(harness: AgentHarness, text: str) -> InboundMessage:
    arrival = make_message(text, sent_at=harness.agent.clock() - timedelta(hours=1))
    return replace(arrival, is_backfill=True)


@pytest.mark.long
@pytest.mark.failure("B-10")
async def test_old_messages_in_the_room_of_another_process_are_kept_closed(postgres_url: str) -> None:
    async with (
        stored(postgres_url) as first,
        stored(postgres_url) as second,
        running_agent(model=ScriptedModel(model_answer("Hello.")), store=first) as holder,
        running_agent(store=second) as other,
    ):
        await holder.send("Hello")
        inbox = other.agent_runtime.inbox
        alone = await inbox.submit(old(other, "one"))
        both = await inbox.submit_all([old(other, "two"), old(other, "three")])
        outcomes = [(await inbox.wait_outcome(receipt.id)).outcome for receipt in (alone, *both)]
        assert outcomes == [Outcome.EXPIRED] * 3
        assert await second.ledger.receipts(is_open=True) == []
        assert other.texts == []
