"""All stored data is there after reopening, separate for each agent."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot import (
    Component,
    Content,
    Memory,
    MemoryKind,
    Outcome,
    ParticipantState,
    Relationship,
    Task,
    derived_id,
    new_id,
)
from bot.domain.ledger import DeliveryState, Step, StepState
from bot.store import StoredEvent
from bot.store.ledger import TurnCommit
from bot.store.protocols import RecallScope
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message
from tests.store.deliveries import build_delivery

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
TURN = new_id()


async def test_every_store_has_its_data_after_reopening(open_store: OpenStore) -> None:
    arrival = make_message(Content(text="Grüße 👋 \ud83d", source="test"), sent_at=NOW)
    room, world, author = arrival.room, arrival.world, arrival.author
    fact = Memory(
        new_id(),
        MemoryKind.FACT,
        author.id,
        room.id,
        world.id,
        Content(text="likes tea"),
        NOW,
        embedding=(0.5, 0.25),
        embedding_model="model-2",
    )
    reply = Memory(new_id(), MemoryKind.MESSAGE, new_id(), room.id, world.id, Content(text="Hi"), NOW, turn_id=TURN)
    part = build_delivery(TURN, room.id, reply.content, memory_id=reply.id)
    step = Step(TURN, "answer:1", "answer", StepState.DONE, result={"text": "Hi"}, recorded_at=NOW)
    component = Component(new_id(), author.id, "profile", {"likes": ["tea"]}, created_at=NOW)
    relationship = Relationship(author.id, new_id(), ("friend",), 3)
    task = Task(new_id(), "POST", NOW, room_id=room.id, metadata={"updateInterval": 1000})
    async with open_store() as store:
        receipt = (await store.ledger.receive([arrival], NOW))[0].receipt
        answered = replace(receipt, outcome=Outcome.ANSWERED, turn_id=TURN, closed_at=NOW, notes=("a note",))
        [placed] = await store.ledger.commit(TurnCommit((reply,), (part,), (answered,)))
        await store.ledger.save_step(step)
        await store.memories.add([fact])
        await store.entities.save_component(component)
        await store.entities.save_relationship(relationship)
        await store.tasks.save_task(task)
        await store.worlds.set_participant_state(room.id, ParticipantState.FOLLOWED)
        await store.cache.set("key", [1, "a"])
        await store.logs.log("kind", {"n": 1}, room_id=room.id)

    async with open_store() as store:
        assert await store.worlds.room(room.id) == room
        assert await store.worlds.rooms(world.id) == [room]
        assert await store.entities.participants(room.id) == [author]
        assert await store.ledger.receipt(receipt.id) == answered
        assert await store.ledger.inbound_message(receipt) == arrival
        assert await store.ledger.receive([arrival], NOW) == [StoredEvent(answered)]
        assert await store.ledger.steps(TURN) == {step.key: step}
        assert await store.ledger.deliveries(is_open=True) == [placed]
        assert await store.memories.memories([fact.id]) == {fact.id: fact}
        assert await store.memories.recent(room.id) == [arrival.message, reply]
        found = await store.memories.recall((0.5, 0.25), "model-2", RecallScope(room.id, world.id), MemoryKind.FACT)
        assert [match.memory for match in found] == [fact]
        assert await store.entities.components(author.id) == [component]
        assert await store.entities.relationships(author.id) == [relationship]
        assert await store.tasks.tasks() == [task]
        assert await store.worlds.participant_state(room.id) is ParticipantState.FOLLOWED
        assert await store.cache.get("key") == [1, "a"]
        assert [entry["body"] for entry in await store.logs.logs()] == [{"n": 1}]


async def test_agents_in_the_same_file_are_separate(open_store: OpenStore) -> None:
    arrival = make_message("Hello", sent_at=NOW)
    async with open_store("Ada") as store:
        receipt = (await store.ledger.receive([arrival], NOW))[0].receipt
        await store.cache.set("key", 1)
        await store.tasks.save_task(Task(derived_id("task"), "POST", NOW))

    async with open_store("Bea") as store:
        assert await store.ledger.receipt(receipt.id) is None
        assert await store.memories.memories([arrival.message.id]) == {}
        assert await store.worlds.rooms() == []
        assert await store.cache.get("key") is None
        assert await store.tasks.claim_tasks({"POST": timedelta(minutes=1)}, NOW) == []
        [received] = await store.ledger.receive([arrival], NOW)
        assert received.is_new
        assert await store.memories.remove([arrival.message.id]) == 1

    async with open_store("Ada") as store:
        assert await store.ledger.receipts() == [receipt]
        assert await store.memories.recent(arrival.room.id) == [arrival.message]


async def test_a_replayed_turn_keeps_order_and_state_of_its_deliveries(open_store: OpenStore) -> None:
    arrival = make_message("Hello", sent_at=NOW)
    parts = tuple(build_delivery(TURN, arrival.room.id, str(number), part=number) for number in range(3))
    async with open_store() as store:
        first, *_ = await store.ledger.commit(TurnCommit(deliveries=parts[:2]))
        await store.ledger.save_delivery(replace(first, state=DeliveryState.SENT, external_id="x"))

    async with open_store() as store:
        placed = await store.ledger.commit(TurnCommit(deliveries=parts))
        assert [delivery.seq for delivery in placed] == [1, 2, 3]
        assert placed[0].state is DeliveryState.SENT
        assert await store.ledger.deliveries(is_open=True) == placed[1:]
