"""Expired rows are deleted in small steps; needed and open rows stay."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from bot import Content, MemoryKind, Outcome, Receipt, SettingError, Settings, derived_id, system_clock
from bot.domain.ids import delivery_id
from bot.platform import DeliveryState
from bot.settings import Layer
from bot.store import LogKind, Step, StepState
from bot.store.ledger import TurnCommit
from bot.store.sql.core import upgrade
from bot.store.sql.core.base import AgentRow, RetentionPolicy, SqlSettings
from bot.store.sql.core.mapping import (
    EPOCH,
    NIL,
    ContentJson,
    EnumText,
    Flag,
    Id,
    IdList,
    Json,
    ModelCallsJson,
    OptionalId,
    PlainText,
    RolesJson,
    StrictJson,
    Time,
    first_id,
)
from bot.store.sql.core.schema import (
    agents,
    cache,
    deliveries,
    entities,
    logs,
    metadata,
    receipts,
    rooms,
    steps,
    worlds,
)
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.retention import ROWS_PER_STEP, Retention
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOW = system_clock()
BLANK = {
    ContentJson: Content(),
    Flag: False,
    Id: NIL,
    IdList: (),
    Json: (),
    ModelCallsJson: (),
    OptionalId: None,
    PlainText: "",
    RolesJson: {},
    StrictJson: None,
    Time: EPOCH,
}
FEW = RetentionPolicy(receipt_rows=0)


def blank(type_: Any) -> Any:
    """Return a value for a column in which nothing matters."""
    return next(iter(type_.enum)) if isinstance(type_, EnumText) else BLANK.get(type(type_), 0)


async def answered(store: Any, text: str, state: DeliveryState = DeliveryState.SENT) -> Receipt:
    """Store an answered message with a step and a sent delivery."""
    arrival = make_message(text, sent_at=NOW, message_id=text)
    [received] = await store.ledger.receive([arrival], NOW)
    turn = received.receipt.turn_id
    part = build_delivery(turn, arrival.room.id, created_at=NOW)
    await store.ledger.save_step(Step(turn, "answer:1", "model", StepState.DONE, recorded_at=NOW))
    closed = replace(received.receipt, outcome=Outcome.ANSWERED, closed_at=NOW)
    [placed] = await store.ledger.commit(TurnCommit((), (part,), (closed,)))
    await store.ledger.save_delivery(replace(placed, state=state))
    return closed


def later(**age: float) -> Callable[[], datetime]:
    return lambda: NOW + timedelta(**age)


def retention(store: Any, keeping: RetentionPolicy = FEW, rest: Any = None, **age: float) -> Retention:
    ledger = store.ledger

    async def at_once(seconds: float) -> None:
        assert seconds > 0

    return Retention(ledger._database, ledger._agent_row, keeping, clock=later(**age), sleep=rest or at_once)


async def test_recent_rows_are_kept(store: Any) -> None:
    await answered(store, "Hello")

    assert await retention(store, days=6.9).run_once() == 0


@pytest.mark.failure("B-02")
async def test_a_redelivered_event_is_recognised_for_thirty_days(store: Any) -> None:
    first = await answered(store, "Hello")
    await retention(store, days=29.9).run_once()
    [again] = await store.ledger.receive([make_message("Hello", sent_at=NOW, message_id="Hello")], NOW)
    assert (again.is_new, again.receipt.id) == (False, first.id)

    await retention(store, days=30.1).run_once()
    assert await store.ledger.receipts() == []


@pytest.mark.failure("B-02")
async def test_a_redelivered_event_among_the_newest_million_is_recognised(store: Any) -> None:
    receipts = [await answered(store, f"message {number}") for number in range(5)]
    await retention(store, RetentionPolicy(receipt_rows=3), days=400).run_once()
    assert [receipt.id for receipt in await store.ledger.receipts()] == [receipt.id for receipt in receipts[:1:-1]]

    await answered(store, "another one")
    await retention(store, RetentionPolicy(), days=400).run_once()
    assert len(await store.ledger.receipts()) == 4


async def test_steps_are_deleted_after_a_week_and_deliveries_after_thirty_days(store: Any) -> None:
    receipt = await answered(store, "Hello")
    await retention(store, days=7.1).run_once()
    assert await store.ledger.steps(receipt.turn_id) == {}
    assert len(await store.ledger.deliveries()) == 1

    await retention(store, days=30.1).run_once()
    assert await store.ledger.deliveries() == []


async def test_open_and_held_rows_are_never_deleted(store: Any) -> None:
    [waiting] = await store.ledger.receive([make_message("Anybody?", sent_at=NOW)], NOW)
    turn = waiting.receipt.turn_id
    await store.ledger.save_step(Step(turn, "answer:1", "model", StepState.DONE, recorded_at=NOW))
    held = await answered(store, "held", DeliveryState.UNKNOWN)
    await answered(store, "unsent", DeliveryState.PENDING)
    await retention(store, days=400).run_once()

    assert [receipt.id for receipt in await store.ledger.receipts()] == [waiting.receipt.id]
    assert list(await store.ledger.steps(turn)) == ["answer:1"]
    states = [delivery.state for delivery in await store.ledger.deliveries()]
    assert states == [DeliveryState.UNKNOWN, DeliveryState.PENDING]
    assert await store.ledger.delivery(delivery_id(held.turn_id, 0, 0)) is not None


async def test_memories_are_never_deleted(store: Any) -> None:
    receipt = await answered(store, "Remember me")
    await retention(store, days=4000).run_once()

    [memory] = await store.memories.recent(receipt.room_id)
    assert memory.content.text == "Remember me"


@pytest.mark.failure("L-20")
async def test_decisions_are_kept_for_more_than_a_year(store: Any) -> None:
    await store.logs.log(LogKind.AUTHORIZATION, {"action": "UPDATE_ROLE"})
    await retention(store, days=399).run_once()
    assert len(await store.logs.logs()) == 1
    await retention(store, days=401).run_once()
    assert await store.logs.logs() == []


async def test_expired_logs_and_values_are_deleted(store: Any) -> None:
    await store.logs.log("run", {"a": 1})
    await store.cache.set("over", 1, expires_at=NOW + timedelta(days=1))
    await store.cache.set("for good", 1)
    assert await retention(store, days=29).run_once() == 1
    assert len(await store.logs.logs()) == 1
    assert await retention(store, days=31).run_once() == 1
    assert await store.logs.logs() == []
    assert await store.cache.get("for good") == 1


async def test_rows_of_other_agents_are_not_deleted(path: Path) -> None:
    files = OpenFiles()
    async with files.open_store(path, derived_id("Ada")) as store, files.open_store(path, derived_id("Bob")) as other:
        await answered(store, "Hello")
        await retention(other, days=400).run_once()

        assert len(await store.ledger.receipts()) == 1


async def test_new_deliveries_follow_those_that_remain(store: Any) -> None:
    await answered(store, "one")
    await answered(store, "two", DeliveryState.UNKNOWN)
    await retention(store, days=400).run_once()
    await answered(store, "three")

    assert [delivery.seq for delivery in await store.ledger.deliveries()] == [2, 3]


async def test_many_rows_are_deleted_in_small_steps_with_rests(open_store: Any) -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    async with open_store() as store:
        for number in range(2 * ROWS_PER_STEP + 1):
            await store.logs.log("run", {"number": number})
        assert await retention(store, rest=rest, days=40).run_once() == 2 * ROWS_PER_STEP + 1

    assert len(rests) == 2
    assert all(seconds > 0 for seconds in rests)


async def test_retention_runs_while_the_store_is_open(open_store: Any) -> None:
    swept = asyncio.Event()
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) > 1:
            swept.set()
            await asyncio.get_running_loop().create_future()

    async with open_store() as store:
        await answered(store, "Hello")
        async with retention(store, rest=rest, days=40):
            await swept.wait()
        assert await store.ledger.receipts() == []
    assert rests == [60.0, 3600.0]


def test_an_operator_sets_the_number_of_days() -> None:
    settings = Settings([Layer("the test", {"SQL_RECEIPT_DAYS": "90", "SQL_LOG_DAYS": "7"})])
    keeping = settings.load(SqlSettings).retention

    days = timedelta(90)
    assert keeping == RetentionPolicy(days, deliveries=days, action_results=days, logs=timedelta(7))
    with pytest.raises(SettingError, match="SQL_RECEIPT_DAYS"):
        Settings([Layer("the test", {"SQL_RECEIPT_DAYS": "7"})]).load(SqlSettings)


def filled(connection: Connection) -> None:
    """Write one old row of each table with only the necessary columns."""
    turn = first_id(NOW)
    odd = {
        rooms: {"id": turn, "world_id": turn},
        worlds: {"id": turn},
        entities: {"id": turn},
        receipts: {"room_id": turn, "author_id": turn, "received_at": NOW},
        deliveries: {"state": "sent", "created_at": NOW},
        steps: {"turn_id": turn},
        logs: {"at": NOW},
        cache: {"expires_at": NOW},
    }
    connection.execute(insert(agents).values(id=1, key=NIL))
    for table in metadata.sorted_tables:
        if table in odd:
            necessary = (column for column in table.c if not column.nullable and column.server_default is None)
            needed = {column.name: blank(column.type) for column in necessary}
            connection.execute(insert(table).values(needed | {"agent_id": 1} | odd[table]))


async def test_retention_is_the_same_on_both_databases(bare: Any) -> None:
    class Plain:
        """Runs work on the only connection."""

        async def write(self, work: Any) -> Any:
            done = await bare.run(work)
            await bare.run(lambda db: db.commit())
            return done

        search = write

    await bare.run(upgrade.upgrade_schemas, bare.place)
    await Plain().write(filled)
    owner = AgentRow(derived_id("Ada"), 1)
    assert await Retention(Plain(), owner, FEW, clock=later(days=-1)).run_once() == 0
    assert await Retention(Plain(), owner, FEW, clock=later(days=31)).run_once() == 5
    assert [len(await bare.sql(f"SELECT * FROM {table}")) for table in (receipts, rooms)] == [0, 1]


async def test_results_of_actions_are_deleted_and_messages_are_kept(store: Any) -> None:
    message = make_message("Order it", sent_at=NOW).message
    result = replace(message, id=derived_id("result"), kind=MemoryKind.ACTION_RESULT)
    await store.ledger.receive([make_message("Hello", sent_at=NOW)], NOW)
    await store.memories.add([message, result])
    assert len((await store.memories.conversation(message.room_id)).results) == 1

    assert await retention(store, days=29).run_once() == 0
    assert await retention(store, RetentionPolicy(), days=31).run_once() == 1
    found = await store.memories.conversation(message.room_id)
    assert list(found.results) == []
    assert len(found.messages) == 2


async def test_messages_are_deleted_after_the_days_of_their_room_or_world_or_all(store: Any) -> None:
    receipt = await answered(store, "Hello")
    room = await store.worlds.room(receipt.room_id)
    world = await store.worlds.world(room.world_id)

    async def texts_after(days: float, **policy: Any) -> list[str]:
        keeping = RetentionPolicy(deliveries=timedelta(days=400), **policy)
        await retention(store, keeping, days=days).run_once()
        return [memory.content.text for memory in await store.memories.recent(receipt.room_id)]

    week, month = timedelta(days=7), timedelta(days=30)
    assert await texts_after(8, places={f"test:{room.external_id}": month}) == ["Hello"]
    assert await texts_after(8, messages=month) == ["Hello"]
    assert await texts_after(40, messages=month, places={str(world.id): None}) == ["Hello"]
    assert await texts_after(8, places={room.external_id: month, world.external_id: week}) == ["Hello"]
    assert len(await store.ledger.deliveries()) == 1
    assert await texts_after(8, messages=month, places={world.external_id: week}) == []
    assert await store.ledger.deliveries() == []
    assert await store.memories.memories([receipt.memory_id]) == {}


@pytest.mark.long
async def test_messages_of_many_rooms_expire_in_small_steps_and_facts_are_kept(store: Any) -> None:
    for number in range(ROWS_PER_STEP + 2):
        message = make_message(f"{number}", sent_at=NOW, room=f"room-{number}", message_id=f"{number}")
        [stored] = await store.ledger.receive([message], NOW)
        await store.ledger.save_receipts([replace(stored.receipt, outcome=Outcome.IGNORED, closed_at=NOW)])
    fact = replace(message.message, id=derived_id("fact"), kind=MemoryKind.FACT, source_id=message.message.id)
    await store.memories.add([fact])
    await retention(store, RetentionPolicy(messages=timedelta(days=1)), days=2).run_once()
    assert await store.memories.count(MemoryKind.MESSAGE) == 0
    assert await store.memories.count(MemoryKind.FACT) == 1


async def test_a_message_that_is_worked_on_does_not_expire(store: Any) -> None:
    [waiting] = await store.ledger.receive([make_message("Anybody?", sent_at=NOW)], NOW)
    await retention(store, RetentionPolicy(messages=timedelta(days=1)), days=400).run_once()
    assert await store.memories.memories([waiting.receipt.memory_id])


def test_days_by_place_are_read_from_the_settings_and_mistakes_are_named() -> None:
    def load(value: str) -> RetentionPolicy:
        return Settings([Layer("environment", {"SQL_MESSAGE_DAYS_BY_PLACE": value})]).load(SqlSettings).retention

    assert load("discord:12=30, -100=0").places == {"discord:12": timedelta(days=30), "-100": None}
    with pytest.raises(SettingError, match="'discord:12' must look like"):
        load("discord:12")
