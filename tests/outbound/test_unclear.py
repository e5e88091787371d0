"""Parts of unknown outcome: how long they are tried, and what passes them."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.events import MessageHeld, MessageSent
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.errors import DeliveryHeld, DeliveryUnknown, NotSent
from bot.event_bus import EventBus
from bot.outbound.outbox import Outbox, OutgoingReply
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter
from bot.user_texts import user_text

AGENT, WORLD = derived_id("agent"), derived_id("world")
UNCLEAR = DeliveryUnknown("502")
LATE = user_text("notices.late")


class Timeline:
    """A clock that sleepers advance: the shortest sleep ends first."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.pauses: list[float] = []
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        entry = (self._clock() + timedelta(seconds=seconds), asyncio.get_running_loop().create_future())
        self._sleepers.append(entry)
        try:
            await entry[1]
        finally:
            self._sleepers.remove(entry)

    async def run(self, seconds: float) -> None:
        """Advance the clock, one sleeper after the other."""
        end = self._clock() + timedelta(seconds=seconds)
        while True:
            for _ in range(30):
                await asyncio.sleep(0)
            due = min((entry for entry in self._sleepers if not entry[1].done()), default=None, key=lambda e: e[0])
            if due is None or due[0] > end:
                break
            self._clock.now = max(self._clock.now, due[0])
            due[1].set_result(None)
        self._clock.now = end


class Unsure(RecordingAdapter):
    """A platform that repeats an unclear part, unless it fails in one of the ways of `repeats`."""

    def __init__(self, *, repeats: Iterable[Exception] = (), faults: Iterable[Exception] = (), **details: Any) -> None:
        super().__init__(faults=faults, **details)
        self._repeats = iter(repeats)
        self.is_down = False

    async def reconcile(self, delivery: Delivery) -> str:
        if (fault := next(self._repeats, None)) is not None:
            raise fault
        return await self.deliver(delivery)


class Linking(Unsure):
    """A platform on which each part refers to the one before it."""

    links_parts = True


@pytest.fixture
def timeline(clock: Any) -> Timeline:
    return Timeline(clock)


@pytest.fixture
def outbox(store: InMemoryStore, events: EventBus, clock: Any, timeline: Timeline) -> Outbox:
    return Outbox(store.ledger, events, AGENT, clock=clock, sleep=timeline.sleep)


def reply(text: str, at: datetime) -> OutgoingReply:
    turn = new_id()
    room = Room(derived_id("room"), WORLD, ChannelType.GROUP, "test", "lobby", "account", "lobby")
    memory = Memory(new_id(), MemoryKind.MESSAGE, AGENT, room.id, WORLD, Content(text=text), at, turn_id=turn)
    return OutgoingReply(memory, room)


async def states(store: InMemoryStore) -> list[DeliveryState]:
    return [part.state for part in await store.ledger.deliveries()]


async def test_after_four_failures_the_reply_arrives_within_half_a_minute(
    outbox: Outbox, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 3)
    outbox.connect(adapter)
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(30)
    assert adapter.texts == ["Hello."]


async def test_the_pause_grows_to_a_minute_with_jitter(outbox: Outbox, timeline: Timeline, clock: Any) -> None:
    outbox.connect(Unsure(faults=[UNCLEAR], repeats=repeat(UNCLEAR)))
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(600)
    full = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(most / 2 <= pause <= most for pause, most in zip(timeline.pauses, full, strict=False))
    assert max(timeline.pauses) <= 60
    assert timeline.pauses[:8] != full


async def test_a_part_stays_open_for_15_minutes_and_is_held_then(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.connect(Unsure(faults=[UNCLEAR], repeats=repeat(UNCLEAR)))
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(899)
    assert await states(store) == [DeliveryState.ATTEMPTING]
    await timeline.run(62)
    assert await states(store) == [DeliveryState.UNKNOWN]
    [part] = await store.ledger.deliveries()
    assert "502" in part.cause


async def test_a_part_that_waited_long_before_is_tried_as_long(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 10)
    await outbox.commit([reply("Hello.", clock())])
    clock.advance(minutes=14, seconds=59)
    outbox.connect(adapter)
    await timeline.run(899)
    assert adapter.texts == ["Hello."]


async def test_a_wait_that_the_platform_names_does_not_count(
    outbox: Outbox, timeline: Timeline, clock: Any, store: InMemoryStore
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[DeliveryUnknown("limited", retry_after=3600), UNCLEAR])
    outbox.connect(adapter)
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(3500)
    assert await states(store) == [DeliveryState.ATTEMPTING]
    await timeline.run(200)
    assert adapter.texts == ["Hello."]


async def test_an_unclear_part_delays_others_for_a_minute_and_follows_marked_as_late(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any, events: EventBus
) -> None:
    sent: list[Any] = []

    async def listen(event: MessageSent) -> None:
        sent.append(event.message_id)

    events.subscribe(MessageSent, listen)
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 8)
    outbox.connect(adapter)
    first, second, third = (reply(text, clock()) for text in ("first", "second", "third"))
    await outbox.commit([first, second])
    await timeline.run(59)
    assert adapter.texts == []
    await timeline.run(1)
    assert adapter.texts == ["second"]
    await outbox.commit([third])
    await timeline.run(1)
    assert adapter.texts == ["second", "third"]
    await timeline.run(300)
    assert adapter.texts == ["second", "third", f"{LATE}first"]
    await events.wait_idle()
    assert sent == [second.memory.id, third.memory.id, first.memory.id]
    assert outbox._queue._queues == {}
    assert [part.content.text for part in await store.ledger.deliveries()] == ["first", "second", "third"]


async def test_a_part_that_nothing_has_passed_is_not_marked(outbox: Outbox, timeline: Timeline, clock: Any) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 8)
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock())])
    await timeline.run(600)
    await outbox.commit([reply("second", clock())])
    await timeline.run(1)
    assert adapter.texts == ["first", "second"]


async def test_a_part_that_becomes_clear_lets_the_next_go_at_once(
    outbox: Outbox, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR])
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(1)
    assert adapter.texts == ["first", "second"]


async def test_a_part_that_was_passed_before_a_restart_is_marked(
    outbox: Outbox, store: InMemoryStore, events: EventBus, timeline: Timeline, clock: Any
) -> None:
    outbox.connect(Unsure(faults=[UNCLEAR], repeats=repeat(UNCLEAR)))
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(100)
    assert await outbox.close(0) == 1
    assert await states(store) == [DeliveryState.ATTEMPTING, DeliveryState.SENT]
    again, adapter = Outbox(store.ledger, events, AGENT, clock=clock, sleep=timeline.sleep), Unsure()
    again.connect(adapter)
    assert await again.resume() == 1
    await timeline.run(1)
    assert adapter.texts == [f"{LATE}first"]


async def test_a_part_without_room_for_the_mark_is_sent_without_it(
    outbox: Outbox, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 8, max_length=6)
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(400)
    assert adapter.texts == ["second", "first"]


@pytest.mark.parametrize(("adapter_class", "expected"), [(Unsure, ["bb", "cc", "aa"]), (Linking, ["aa", "bb", "cc"])])
async def test_parts_of_a_message_pass_each_other_unless_the_platform_links_them(
    outbox: Outbox, timeline: Timeline, clock: Any, adapter_class: type[Unsure], expected: list[str]
) -> None:
    adapter = adapter_class(faults=[UNCLEAR], repeats=[UNCLEAR] * 8, max_length=2)
    outbox.connect(adapter)
    await outbox.commit([reply("aabbcc", clock())])
    await timeline.run(400)
    assert adapter.texts == expected


async def test_two_edits_of_the_same_message_keep_their_order(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(can_edit=True)
    outbox.connect(adapter)
    reply_part = reply("One", clock())
    await outbox.commit([reply_part])
    await timeline.run(1)
    adapter.fail_with(*[UNCLEAR] * 9)
    for number, text in enumerate(("Two", "Three"), 1):
        memory = replace(reply_part.memory, id=new_id(), turn_id=new_id(), content=Content(text=text))
        await outbox.commit([replace(reply_part, memory=memory, reply_index=number, replaces=reply_part.memory)])
    await timeline.run(400)
    assert [part.content.text for part in adapter.edited] == ["Two", "Three"]


async def test_an_unclear_part_can_be_dropped_between_two_attempts(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=repeat(UNCLEAR))
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(10)
    first, _ = await store.ledger.deliveries()
    assert await outbox.cancel_delivery(first)
    await timeline.run(1)
    assert adapter.texts == ["second"]
    assert outbox._queue._queues == {}


async def test_disconnecting_stops_the_attempts_and_connecting_resumes_them(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 2)
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(1)
    outbox.disconnect(adapter)
    await timeline.run(600)
    assert adapter.texts == []
    outbox.connect(adapter)
    await timeline.run(10)
    assert adapter.texts == ["first", "second"]


async def test_a_platform_that_is_back_before_its_sender_has_stopped_is_sent_what_waits(
    outbox: Outbox, timeline: Timeline, clock: Any
) -> None:
    class Closing(Unsure):
        async def deliver(self, delivery: Delivery) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                await timeline.sleep(2)
            return ""

    lost, again = Closing(), Unsure()
    outbox.connect(lost)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(1)
    outbox.disconnect(lost)
    await timeline.run(1)
    outbox.connect(again)
    await timeline.run(10)
    assert again.texts == ["first", "second"]


async def test_a_part_found_missing_is_sent_at_once(outbox: Outbox, timeline: Timeline, clock: Any) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[NotSent("not there")])
    outbox.connect(adapter)
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(1)
    assert adapter.texts == ["Hello."]


async def test_a_held_part_does_not_delay_others(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[DeliveryHeld("no way to ask")])
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(1)
    assert adapter.texts == ["second"]
    assert await states(store) == [DeliveryState.UNKNOWN, DeliveryState.SENT]


async def test_a_held_part_is_an_error_in_the_log_and_an_event(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any, events: EventBus, caplog: Any
) -> None:
    held_events: list[MessageHeld] = []

    async def listen(event: MessageHeld) -> None:
        held_events.append(event)

    events.subscribe(MessageHeld, listen)
    outbox.connect(Unsure(faults=[UNCLEAR], repeats=[DeliveryHeld("no way to ask")]))
    reply_part = reply("first", clock())
    await outbox.commit([reply_part])
    await timeline.run(1)
    await events.wait_idle()
    [part] = await store.ledger.deliveries()
    assert held_events == [MessageHeld(AGENT, reply_part.memory.id, part.room_id, part.id, "no way to ask")]
    [error] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"bot outbox send {part.id}" in error.getMessage()
    assert outbox.held_parts.count == 1


@pytest.mark.parametrize(("hours", "is_tried"), [(1, True), (25, False)])
async def test_a_part_that_was_held_is_tried_again_at_the_next_start_within_a_day(
    outbox: Outbox, store: InMemoryStore, events: EventBus, timeline: Timeline, clock: Any, hours: int, is_tried: bool
) -> None:
    outbox.connect(Unsure(faults=[UNCLEAR], repeats=repeat(UNCLEAR)))
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(1000)
    await outbox.close(0)
    assert await states(store) == [DeliveryState.UNKNOWN]
    clock.advance(hours=hours)
    again, adapter = Outbox(store.ledger, events, AGENT, clock=clock, sleep=timeline.sleep), Unsure()
    again.connect(adapter)
    assert await again.resume() == int(is_tried)
    await timeline.run(1)
    assert adapter.texts == ["Hello."] * is_tried
    assert again.held_parts.count == int(not is_tried)


async def test_a_part_without_an_attempt_of_this_database_stays_held(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    await outbox.commit([reply("Hello.", clock())])
    [part] = await store.ledger.deliveries()
    await store.ledger.save_delivery(replace(part, state=DeliveryState.UNKNOWN, attempts=1))
    again = Outbox(store.ledger, EventBus(), AGENT, clock=clock, sleep=timeline.sleep)
    assert await again.resume() == 0
    assert again.held_parts.count == 1


async def test_a_platform_on_which_the_text_must_not_change_gets_no_mark(
    outbox: Outbox, timeline: Timeline, clock: Any
) -> None:
    class Unmarked(Unsure):
        marks_late_parts = False

    adapter = Unmarked(faults=[UNCLEAR], repeats=[UNCLEAR] * 8)
    outbox.connect(adapter)
    await outbox.commit([reply("first", clock()), reply("second", clock())])
    await timeline.run(400)
    assert adapter.texts == ["second", "first"]


async def withdraw(outbox: Outbox, store: InMemoryStore, clock: Any) -> None:
    """Cancel the work of the room, as a deletion does."""
    removed = await store.edits.cancel_open_work([derived_id("room")], clock(), "it was forgotten")
    await outbox.stop_cancelled(removed.deliveries)


async def test_a_part_of_unknown_outcome_is_not_repeated_once_it_was_withdrawn(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any
) -> None:
    adapter = Unsure(faults=[UNCLEAR], repeats=[UNCLEAR] * 5)
    outbox.connect(adapter)
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(2)
    await withdraw(outbox, store, clock)
    await timeline.run(3600)
    assert adapter.texts == []
    assert await states(store) == [DeliveryState.CANCELLED]
    assert not outbox.is_busy(derived_id("room"))


async def test_a_held_part_is_withdrawn_for_good(
    outbox: Outbox, store: InMemoryStore, events: EventBus, timeline: Timeline, clock: Any
) -> None:
    outbox.connect(Unsure(faults=[DeliveryHeld("nothing can be found out")]))
    await outbox.commit([reply("Hello.", clock())])
    await timeline.run(1)
    assert outbox.held_parts.count == 1
    await withdraw(outbox, store, clock)
    assert outbox.held_parts.count == 0
    restarted = Outbox(store.ledger, events, AGENT, clock=clock, sleep=timeline.sleep)
    assert await restarted.resume() == 0


@pytest.mark.parametrize("fault", [UNCLEAR, NotSent("503"), None])
async def test_a_part_that_is_withdrawn_while_it_is_sent_gets_no_further_attempt(
    outbox: Outbox, store: InMemoryStore, timeline: Timeline, clock: Any, fault: Exception | None
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    class Slow(Unsure):
        async def deliver(self, delivery: Delivery) -> str:
            begun.set()
            await release.wait()
            return await super().deliver(delivery)

    adapter = Slow(faults=[] if fault is None else [fault])
    outbox.connect(adapter)
    await outbox.commit([reply("Hello.", clock())])
    await begun.wait()
    await withdraw(outbox, store, clock)
    release.set()
    await timeline.run(3600)
    assert adapter.texts == (["Hello."] if fault is None else [])
    assert await states(store) == [DeliveryState.CANCELLED if fault else DeliveryState.SENT]
    await outbox.commit([reply("And you?", clock())])
    await timeline.run(1)
    assert adapter.texts[-1] == "And you?"
