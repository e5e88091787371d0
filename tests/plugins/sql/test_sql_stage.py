"""A whole conversation on SQLite, and what a restart takes up again."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bot import Outcome, Settings, derived_id, new_id, system_clock
from bot.domain.ledger import DeliveryState
from bot.models import TextRequest
from bot.settings import Layer
from bot.store import Storage
from bot.testing import RecordingAdapter, ScriptedModel, answer, make_arrival, on_stage
from plugins.sql import plugin
from plugins.sql.stores.store import SqlStore

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]


class Elsewhere(RecordingAdapter):
    """Another platform: nothing of what is said to the test's own leaves."""

    platform = "elsewhere"


async def test_a_conversation_is_kept(open_store: OpenStore) -> None:
    model = ScriptedModel([answer("Hello Alice."), answer("I remember.")], embeds=True)
    async with open_store() as store, on_stage(model=model, store=store) as stage:
        receipt = await stage.say("Hello Ada")
        await stage.say("Do you remember?")

        assert stage.texts == ["Hello Alice.", "I remember."]
        assert receipt.outcome is Outcome.ANSWERED
        assert receipt.turn_id is not None
        assert set(await store.ledger.steps(receipt.turn_id))
        said = [one.content.text for one in await store.memories.recent(receipt.room_id)]
        assert said == ["Hello Ada", "Hello Alice.", "Do you remember?", "I remember."]
        assert "Hello Alice." in model.requests[-1].prompt

    model = ScriptedModel(answer("Still here."))
    async with open_store() as store, on_stage(model=model, store=store) as stage:
        await stage.say("And now?")

        assert stage.texts == ["Still here."]
        assert "I remember." in model.requests[-1].prompt
        assert {one.state for one in await store.ledger.deliveries()} == {DeliveryState.SENT}


async def test_an_open_receipt_is_answered_after_a_restart(open_store: OpenStore) -> None:
    async with open_store() as store:
        now = system_clock()
        receipt = (await store.ledger.receive([make_arrival("Anybody there?", at=now)], now))[0].receipt

    async with open_store() as store, on_stage(store=store) as stage:
        settled = await stage.resident.inbox.settled(receipt.id)
        assert settled.outcome is Outcome.ANSWERED
        assert await stage.adapter.until_sent(1) == ["Hello."]


async def test_a_part_that_was_not_sent_leaves_after_a_restart(open_store: OpenStore) -> None:
    async with open_store() as store, on_stage(store=store, adapter=Elsewhere()) as stage:
        receipt = await stage.put("Hello")
        assert (await stage.resident.inbox.settled(receipt.id)).outcome is Outcome.ANSWERED

    async with open_store() as store:
        [left] = await store.ledger.deliveries(is_open=True)
        assert left.content.text == "Hello."

    async with open_store() as store, on_stage(store=store) as stage:
        assert await stage.adapter.until_sent(1) == ["Hello."]
        await stage.agent.outbox.drain(5.0)
        assert [one.id for one in stage.adapter.sent] == [left.id]
        assert await store.ledger.deliveries(is_open=True) == []
        assert stage.model.requests == []


async def test_a_redelivered_message_is_answered_once(open_store: OpenStore) -> None:
    async with open_store() as store, on_stage(store=store) as stage:
        first = await stage.say("Hello", message_id="m1")

    async with open_store() as store, on_stage(store=store) as stage:
        again = await stage.say("Hello", message_id="m1")

        assert again.id == first.id
        assert stage.texts == []


async def test_an_answer_that_was_paid_for_is_not_asked_for_again(open_store: OpenStore) -> None:
    """Where the process dies between the model's answer and the commit."""
    arrival = make_arrival("Hello", at=system_clock())
    async with open_store() as store, on_stage(store=store) as stage:
        receipt = await stage.resident.inbox.put(arrival)
        await stage.resident.inbox.settled(receipt.id)
        asked = len(stage.model.requests)
        assert asked
        database = store.ledger._database
        await database.write(
            lambda db: db.exec_driver_sql("UPDATE receipts SET outcome = 'claimed', is_open = 1").rowcount
        )
        await database.write(lambda db: db.exec_driver_sql("DELETE FROM deliveries").rowcount)

    async with open_store() as store, on_stage(store=store) as stage:
        settled = await stage.resident.inbox.settled(receipt.id)
        assert settled.outcome is Outcome.ANSWERED
        assert await stage.adapter.until_sent(1) == ["Hello."]
        assert [one for one in stage.model.requests if isinstance(one, TextRequest)] == []


async def test_the_plugin_brings_the_store(tmp_path: Path) -> None:
    storage = plugin.store
    assert isinstance(storage, Storage)
    settings = Settings([Layer("the test", {"BOT_DATA_DIR": str(tmp_path / "kept")})])
    one, other = derived_id("agent", "one"), new_id()
    async with storage.open(one, settings) as first, storage.open(other, settings) as second:
        await first.cache.set("key", 1)
        assert await second.cache.get("key") is None

    async with storage.open(one, settings) as first:
        assert await first.cache.get("key") == 1
    assert {file.name for file in _files(tmp_path / "kept")} == {"greenroom.db", "greenroom.db.lock"}


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())
