"""What is fetched from a history by a process that does not hold the room."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta

from bot import Outcome, Settings, derived_id
from bot.platform import Arrival
from bot.settings import Layer
from bot.store import Store
from bot.testing import ScriptedModel, Stage, answer, make_arrival, on_stage
from plugins.sql import plugin

ADA = derived_id("agent", "Ada")


def stored(url: str) -> AbstractAsyncContextManager[Store]:
    assert plugin.store is not None
    return plugin.store.open(ADA, Settings([Layer(".env", {"POSTGRES_URL": url})]))


def old(stage: Stage, text: str) -> Arrival:
    said = make_arrival(text, at=stage.agent.clock() - timedelta(hours=1))
    return replace(said, is_backfill=True)


async def test_b10_in_anothers_room_old_messages_are_closed_and_stay_so(postgres_url: str) -> None:
    async with (
        stored(postgres_url) as first,
        stored(postgres_url) as second,
        on_stage(model=ScriptedModel(answer("Hello.")), store=first) as holder,
        on_stage(store=second) as other,
    ):
        await holder.say("Hello")
        inbox = other.resident.inbox
        alone = await inbox.put(old(other, "one"))
        both = await inbox.put_all([old(other, "two"), old(other, "three")])
        outcomes = [(await inbox.settled(one.id)).outcome for one in (alone, *both)]
        assert outcomes == [Outcome.EXPIRED] * 3
        assert await second.ledger.receipts(is_open=True) == []
        assert other.texts == []
