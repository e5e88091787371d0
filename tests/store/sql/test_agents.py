"""A whole conversation on SQLite, and what a restart resumes."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bot import Outcome, Settings, derived_id, new_id, system_clock
from bot.domain.ledger import DeliveryState
from bot.models import TextRequest
from bot.settings import Layer
from bot.store import Storage
from bot.store.sql.stores.store import SqlStore
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from plugins.sql import plugin

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]


class Elsewhere(RecordingAdapter):
    """Another platform, so that deliveries to the test's own platform are not sent."""

    platform = "elsewhere"


async def test_a_conversation_is_stored(open_store: OpenStore) -> None:
    model = ScriptedModel([model_answer("Hello Alice."), model_answer("I remember.")], can_embed=True)
    async with open_store() as store, running_agent(model=model, store=store) as harness:
        receipt = await harness.send("Hello Ada")
        await harness.send("Do you remember?")

        assert harness.texts == ["Hello Alice.", "I remember."]
        assert receipt.outcome is Outcome.ANSWERED
        assert receipt.turn_id is not None
        assert set(await store.ledger.steps(receipt.turn_id))
        memories = [memory.content.text for memory in await store.memories.recent(receipt.room_id)]
        assert memories == ["Hello Ada", "Hello Alice.", "Do you remember?", "I remember."]
        assert "Hello Alice." in model.requests[-1].prompt

    model = ScriptedModel(model_answer("Still here."))
    async with open_store() as store, running_agent(model=model, store=store) as harness:
        await harness.send("And now?")

        assert harness.texts == ["Still here."]
        assert "I remember." in model.requests[-1].prompt
        assert {delivery.state for delivery in await store.ledger.deliveries()} == {DeliveryState.SENT}


async def test_an_open_receipt_is_answered_after_a_restart(open_store: OpenStore) -> None:
    async with open_store() as store:
        now = system_clock()
        receipt = (await store.ledger.receive([make_message("Anybody there?", sent_at=now)], now))[0].receipt

    async with open_store() as store, running_agent(store=store) as harness:
        settled = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert settled.outcome is Outcome.ANSWERED
        assert await harness.adapter.wait_until_sent(1) == ["Hello."]


async def test_an_unsent_delivery_is_sent_after_a_restart(open_store: OpenStore) -> None:
    async with open_store() as store, running_agent(store=store, adapter=Elsewhere()) as harness:
        receipt = await harness.submit("Hello")
        assert (await harness.agent_runtime.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED

    async with open_store() as store:
        [left] = await store.ledger.deliveries(is_open=True)
        assert left.content.text == "Hello."

    async with open_store() as store, running_agent(store=store) as harness:
        assert await harness.adapter.wait_until_sent(1) == ["Hello."]
        await harness.agent.outbox.drain(5.0)
        assert [part.id for part in harness.adapter.sent] == [left.id]
        assert await store.ledger.deliveries(is_open=True) == []
        assert harness.model.requests == []


async def test_a_redelivered_message_is_answered_once(open_store: OpenStore) -> None:
    async with open_store() as store, running_agent(store=store) as harness:
        first = await harness.send("Hello", message_id="m1")

    async with open_store() as store, running_agent(store=store) as harness:
        again = await harness.send("Hello", message_id="m1")

        assert again.id == first.id
        assert harness.texts == []


async def test_a_stored_model_answer_is_not_requested_again(open_store: OpenStore) -> None:
    """The process dies between the model's answer and the commit."""
    arrival = make_message("Hello", sent_at=system_clock())
    async with open_store() as store, running_agent(store=store) as harness:
        receipt = await harness.agent_runtime.inbox.submit(arrival)
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        asked = len(harness.model.requests)
        assert asked
        database = store.ledger._database
        await database.write(
            lambda db: db.exec_driver_sql("UPDATE receipts SET outcome = 'claimed', is_open = 1").rowcount
        )
        await database.write(lambda db: db.exec_driver_sql("DELETE FROM deliveries").rowcount)

    async with open_store() as store, running_agent(store=store) as harness:
        settled = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert settled.outcome is Outcome.ANSWERED
        assert await harness.adapter.wait_until_sent(1) == ["Hello."]
        assert [request for request in harness.model.requests if isinstance(request, TextRequest)] == []


async def test_the_plugin_provides_the_store(tmp_path: Path) -> None:
    storage = plugin.store
    assert isinstance(storage, Storage)
    settings = Settings([Layer("the test", {"BOT_DATA_DIR": str(tmp_path / "kept")})])
    agent_id, other = derived_id("agent", "one"), new_id()
    async with storage.open(agent_id, settings) as first, storage.open(other, settings) as second:
        await first.cache.set("key", 1)
        assert await second.cache.get("key") is None

    async with storage.open(agent_id, settings) as first:
        assert await first.cache.get("key") == 1
    assert {file.name for file in _files(tmp_path / "kept")} == {"greenroom.db", "greenroom.db.lock"}


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())
