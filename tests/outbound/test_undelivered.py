"""Undelivered parts and the decisions of an operator, with and without a running bot."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.events import MessageSent
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.errors import NotSent, Undeliverable
from bot.event_bus import EventBus
from bot.outbound.outbox import Outbox, OutgoingReply, UndeliveredParts, describe_cause, list_behind
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter

AGENT, WORLD = derived_id("agent"), derived_id("world")


class Held(RecordingAdapter):
    """A platform on which a delivery ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived, self.go = asyncio.Event(), asyncio.Event()

    async def deliver(self, delivery: Delivery) -> str:
        self.arrived.set()
        await self.go.wait()
        return await super().deliver(delivery)


@pytest.fixture
def outbox(store: InMemoryStore, events: EventBus, clock: Any) -> Outbox:
    return Outbox(store.ledger, events, AGENT, clock=clock)


@pytest.fixture
def unsent(store: InMemoryStore, outbox: Outbox) -> UndeliveredParts:
    return UndeliveredParts(store.ledger, outbox)


async def say(outbox: Outbox, text: str, clock: Any) -> None:
    turn = new_id()
    room = Room(derived_id("room"), WORLD, ChannelType.GROUP, "test", "lobby", "account", "lobby")
    memory = Memory(new_id(), MemoryKind.MESSAGE, AGENT, room.id, WORLD, Content(text=text), clock(), turn_id=turn)
    await outbox.commit([OutgoingReply(memory, room)])


async def state_of(store: InMemoryStore, part: Delivery) -> tuple[DeliveryState, str]:
    found = await store.ledger.delivery(part.id)
    assert found is not None
    return found.state, found.cause


async def test_a_failed_part_is_resent_once_even_if_requested_repeatedly(
    outbox: Outbox, unsent: UndeliveredParts, store: InMemoryStore, clock: Any
) -> None:
    adapter = RecordingAdapter(faults=[Undeliverable("blocked")])
    outbox.connect(adapter)
    await say(outbox, "Hello.", clock)
    await outbox.drain(5)
    [part] = await unsent.parts()
    assert (part.state, part.cause) == (DeliveryState.FAILED, "blocked")

    decided = await asyncio.gather(*(unsent.retry(part.id) for _ in range(3)))
    assert all(receipt is not None and receipt.is_done for receipt in decided)
    await outbox.drain(5)
    assert adapter.texts == ["Hello."]
    assert await unsent.parts() == []


async def test_a_message_counts_as_sent_when_its_last_part_has_been_resent(
    outbox: Outbox, unsent: UndeliveredParts, events: EventBus, clock: Any
) -> None:
    ids: list[UUID] = []

    async def listen(event: MessageSent) -> None:
        ids.append(event.message_id)

    events.subscribe(MessageSent, listen)
    adapter = RecordingAdapter(faults=[Undeliverable("blocked"), Undeliverable("blocked")], max_length=3)
    async with events:
        outbox.connect(adapter)
        await say(outbox, "onetwo", clock)
        await outbox.drain(5)
        first, second = await unsent.parts()
        await unsent.retry(first.id)
        await outbox.drain(5)
        assert ids == []
        await unsent.retry(second.id)
        await outbox.drain(5)
    assert ids == [second.memory_id]


async def test_a_part_waiting_for_its_platform_can_be_dropped_and_the_next_is_sent(
    outbox: Outbox, unsent: UndeliveredParts, store: InMemoryStore, clock: Any
) -> None:
    await say(outbox, "First.", clock)
    await say(outbox, "Second.", clock)
    first, _ = await unsent.parts()
    decided = await unsent.drop(first.id)
    assert decided is not None
    assert decided.is_done
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    await outbox.drain(5)
    assert adapter.texts == ["Second."]
    assert await state_of(store, first) == (DeliveryState.FAILED, DROPPED_CAUSE)


async def test_a_part_waiting_between_attempts_can_be_dropped_without_blocking_others(
    outbox: Outbox, unsent: UndeliveredParts, store: InMemoryStore, clock: Any
) -> None:
    adapter = RecordingAdapter(faults=[NotSent("slow down", retry_after=600)])
    outbox.connect(adapter)
    await say(outbox, "First.", clock)
    await say(outbox, "Second.", clock)
    first, _ = await unsent.parts()
    for _ in range(20):
        await asyncio.sleep(0)
    state, cause = await state_of(store, first)
    assert state is DeliveryState.PENDING
    assert cause == "slow down"
    decided = await unsent.drop(first.id)
    assert decided is not None
    assert decided.is_done
    assert await adapter.wait_until_sent(1) == ["Second."]
    assert await state_of(store, first) == (DeliveryState.FAILED, DROPPED_CAUSE)
    assert await outbox.drain(5) == 0


async def test_a_part_says_since_when_and_until_when_it_waits_for_the_platforms_limit(
    outbox: Outbox, unsent: UndeliveredParts, store: InMemoryStore, clock: Any
) -> None:
    outbox.connect(RecordingAdapter(faults=[NotSent("slow down", retry_after=600)]))
    await say(outbox, "First.", clock)
    await say(outbox, "Second.", clock)
    for _ in range(20):
        await asyncio.sleep(0)
    first, second = await unsent.parts()
    until = (clock() + timedelta(seconds=600)).strftime("%Y-%m-%d %H:%M:%S")
    behind = list_behind([first, second])
    assert describe_cause(first, behind) == (
        f"slow down; waiting since {clock():%Y-%m-%d %H:%M:%S} UTC, until about {until} UTC"
    )
    assert describe_cause(second, behind) == "behind another part of its room"


async def test_a_part_being_sent_cannot_be_dropped(
    outbox: Outbox, unsent: UndeliveredParts, store: InMemoryStore, clock: Any
) -> None:
    adapter = Held()
    outbox.connect(adapter)
    await say(outbox, "Hello.", clock)
    await adapter.arrived.wait()
    [part] = await unsent.parts()
    refused = await unsent.drop(part.id)
    assert refused is not None
    assert not refused.is_done
    assert "try again in a moment" in refused.note
    adapter.go.set()
    await outbox.drain(5)
    assert (await state_of(store, part))[0] is DeliveryState.SENT


async def test_decisions_about_parts_being_sent_or_already_sent_have_no_effect(
    outbox: Outbox, unsent: UndeliveredParts, clock: Any
) -> None:
    await say(outbox, "Hello.", clock)
    [part] = await unsent.parts()
    decided = await unsent.retry(part.id)
    assert decided is not None
    assert decided.note == "it is on its way already"
    outbox.connect(RecordingAdapter())
    await outbox.drain(5)
    for decision in (await unsent.retry(part.id), await unsent.drop(part.id)):
        assert decision is not None
        assert not decision.is_done
        assert "sent already" in decision.note
    assert await unsent.retry("nothing") is None
    assert await unsent.drop("nothing") is None


async def test_a_part_requeued_while_no_bot_runs_is_sent_at_the_next_start(
    outbox: Outbox, store: InMemoryStore, events: EventBus, clock: Any
) -> None:
    await say(outbox, "Hello.", clock)
    [part] = await store.ledger.undelivered()
    await store.ledger.save_delivery(replace(part, state=DeliveryState.UNKNOWN, cause="timed out"))
    decided = await UndeliveredParts(store.ledger).retry(part.id)
    assert decided is not None
    assert decided.note == "it leaves at the next start"
    later = Outbox(store.ledger, events, AGENT, clock=clock)
    assert await later.resume() == 1
    adapter = RecordingAdapter()
    later.connect(adapter)
    assert await adapter.wait_until_sent(1) == ["Hello."]


async def test_a_draft_can_be_dropped_but_never_resent(
    unsent: UndeliveredParts, store: InMemoryStore, outbox: Outbox, clock: Any
) -> None:
    await say(outbox, "Once upon a", clock)
    [reply] = await unsent.parts()
    part = replace(reply, id="draft", draft_id="draft", state=DeliveryState.UNKNOWN)
    await store.ledger.save_delivery(part)

    refused = await unsent.retry(part.id)
    assert refused is not None
    assert not refused.is_done
    assert (await state_of(store, part))[0] is DeliveryState.UNKNOWN
    dropped = await unsent.drop(part.id)
    assert dropped is not None
    assert dropped.is_done
