"""The store in memory: what is there for whom, and for how long."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, func, inspect, select, table

from bot import Character, Settings, system_clock
from bot.domain.content import Content
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt, Step, StepState
from bot.runtime.character_reload import AgentConfig
from bot.store import InMemoryStore
from bot.store.sql.core.schema import metadata
from bot.store.sql.sqlite import memory
from bot.store.sql.stores import retention
from bot.testing import make_message, running_agent

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def count_rows(connection: Connection) -> dict[str, int]:
    names = [name for name in inspect(connection).get_table_names() if name in metadata.tables]
    counts = {name: connection.scalar(select(func.count()).select_from(table(name))) for name in names}
    return {name: count for name, count in counts.items() if count}


async def receive(store: InMemoryStore, number: int) -> Receipt:
    message = make_message("Hello", sent_at=NOW, message_id=f"message {number}")
    [stored] = await store.ledger.receive([message], NOW)
    return stored.receipt


def build_delivery(number: int, state: DeliveryState) -> Delivery:
    ids = {"turn_id": new_id(), "room_id": new_id(), "memory_id": new_id()}
    details = {"platform": "test", "account": "account", "target": "lobby", "part": 0, "state": state}
    return Delivery(f"part {number}", **ids, **details, content=Content(text="Hi."), created_at=NOW)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(10_000):
        if await holds():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come to that")


@pytest.mark.long
async def test_a_store_that_takes_over_the_database_of_another_finds_nothing_in_it() -> None:
    gc.collect()  # the stores of other tests
    store = InMemoryStore()
    async with running_agent(store=store) as harness:
        await harness.send("Hello")
        await store.cache.set("key", "value")
        await store.memories.set_embedding((await receive(store, 1)).memory_id, [0.6, 0.8], "model")
    assert {"memories", "receipts", "deliveries", "embeddings", "cache"} < (await store.tables.read(count_rows)).keys()
    driver = store.database._driver
    del store, harness
    gc.collect()
    successors = [InMemoryStore() for _ in range(memory.SPARE_DATABASES)]
    [successor] = [item for item in successors if item.database._driver is driver]
    assert await successor.tables.read(count_rows) == {"agents": 1}
    assert (await successor.ledger.receive([make_message("Hello", sent_at=NOW)], NOW))[0].is_new


async def test_two_stores_have_nothing_in_common() -> None:
    first, second = InMemoryStore(), InMemoryStore()
    receipt = await receive(first, 1)
    assert await second.ledger.receipt(receipt.id) is None


async def test_agents_that_share_a_store_open_it_together_and_its_content_stays() -> None:
    store, receipts = InMemoryStore(), list[Receipt]()
    async with store as first, store as second:
        receipts.append(await receive(first, 1))
        assert await second.ledger.receipts() == receipts
    async with store:
        assert await store.ledger.receipts() == receipts


async def test_finished_rows_are_bounded_while_an_agent_has_the_store_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_DELAY_SECONDS", 0)
    monkeypatch.setattr(memory, "RETENTION", replace(memory.RETENTION, receipt_rows=3))
    store = InMemoryStore(lambda: system_clock() + timedelta(hours=2))
    receipts = [await receive(store, number) for number in range(10)]
    await store.ledger.save_receipts([replace(receipt, outcome=Outcome.ANSWERED) for receipt in receipts[1:]])
    await store.ledger.save_step(Step(new_id(), "model:1", "model", StepState.DONE))
    for number, state in enumerate((DeliveryState.SENT, DeliveryState.PENDING, DeliveryState.UNKNOWN)):
        await store.ledger.save_delivery(build_delivery(number, state))

    async def is_bounded() -> bool:
        counts = await store.tables.read(count_rows)
        return (counts["receipts"], counts["deliveries"], counts.get("steps")) == (4, 2, None)

    config = AgentConfig(Character(name="Ada"), (), Settings([]), store)
    async with config.open_store({}):
        await until(is_bounded)
    assert [receipt.id for receipt in await store.ledger.receipts()] == [
        receipt.id for receipt in (*receipts[:-4:-1], receipts[0])
    ]
    assert [delivery.state for delivery in await store.ledger.deliveries()] == [
        DeliveryState.PENDING,
        DeliveryState.UNKNOWN,
    ]
