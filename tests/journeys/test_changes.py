"""Repeated, late and changed platform events: FAILURES group B, in memory and on SQLite."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bot import Content, Entity, Memory, MemoryKind, Outcome, RecallScope, Receipt, derived_id, new_id
from bot.events import (
    ChannelCleared,
    Event,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    ReactionReceived,
    RoomMigrated,
    WorldLeft,
)
from bot.inbound.edits import EditReporter
from bot.models import TextRequest
from bot.pipeline import process_message
from bot.pipeline.process_message import EditPacer
from bot.platform import Delivery, DeliveryState, InboundMessage, InboxClosed, Reaction
from bot.prompts import parse_history
from bot.store import InMemoryStore, Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    StreamedText,
    make_message,
    model_answer,
    running_agent,
)
from tests.clocks import ManualClock

pytestmark = pytest.mark.usefixtures("nothing_held_back")

AGENT = derived_id("agent", "Ada")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield InMemoryStore(clock)
        return
    async with OpenFiles().open_store(tmp_path / "greenroom.db", AGENT, clock=clock) as opened:
        yield opened


class Watch:
    """A monotonic clock that advances when a task sleeps or, if held, when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_held = False
        self._moved = asyncio.Condition()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if not self.is_held:
            self.now += seconds
            return
        end = self.now + seconds
        async with self._moved:
            await self._moved.wait_for(lambda: self.now >= end)

    async def advance(self, seconds: float) -> None:
        async with self._moved:
            self.now += seconds
            self._moved.notify_all()


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Disable the delay between edits."""
    watch = Watch()
    monkeypatch.setattr(process_message, "EditPacer", partial(EditPacer, clock=watch, sleep=watch.sleep))
    return watch


OpenHarness = Callable[..., AbstractAsyncContextManager[AgentHarness]]


@pytest.fixture
def open_harness(store: Store, clock: ManualClock) -> OpenHarness:
    return partial(running_agent, store=store, clock=clock)


class Held:
    """A model that answers when released; `asked` has its requests in order."""

    def __init__(self, text: str = "Hello.") -> None:
        self.asked: asyncio.Queue[TextRequest] = asyncio.Queue()
        self.release = asyncio.Event()
        self._text = text
        self.model = ScriptedModel(self._write, can_embed=True)

    async def _write(self, request: TextRequest) -> str:
        self.asked.put_nowait(request)
        await self.release.wait()
        return model_answer(self._text)

    async def until_asked(self, *texts: str) -> TextRequest:
        while True:
            request = await self.asked.get()
            if all(text in request.prompt for text in texts):
                return request


class Slow(RecordingAdapter):
    """A platform that takes its time for each part."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: asyncio.Queue[Delivery] = asyncio.Queue()
        self.release = asyncio.Event()

    async def deliver(self, delivery: Delivery) -> str:
        self.begun.put_nowait(delivery)
        await self.release.wait()
        return await super().deliver(delivery)


class Heard:
    """What listeners receive."""

    def __init__(self, harness: AgentHarness) -> None:
        self._harness = harness
        self.events: list[Event] = []
        harness.agent.events.subscribe(Event, self._hear)

    async def _hear(self, event: Event) -> None:
        self.events.append(event)

    async def of(self, *kinds: type[Event]) -> list[Event]:
        await self._harness.agent.events.wait_idle()
        return [event for event in self.events if isinstance(event, kinds)]


def changes(harness: AgentHarness) -> EditReporter:
    return harness.agent_runtime.handle.edits


def message_of(harness: AgentHarness, text: str, message_id: str = "1", **details: object) -> InboundMessage:
    return make_message(text, sent_at=harness.agent.clock(), message_id=message_id, **details)  # type: ignore[arg-type]


def edit_of(arrival: InboundMessage, text: str, revision: int = 1) -> InboundMessage:
    key = replace(arrival.key, event_id=f"{arrival.key.event_id}-{revision}", revision=revision)
    message = replace(arrival.message, id=new_id(), content=Content(text=text, source="test"))
    return replace(arrival, key=key, message=message)


async def put(harness: AgentHarness, arrival: InboundMessage) -> Receipt:
    return await harness.agent_runtime.inbox.submit(arrival)


async def submit_and_wait(harness: AgentHarness, arrival: InboundMessage) -> Receipt:
    """Submit a message, and wait for its outcome and until its answer is sent."""
    return await ended(harness, await put(harness, arrival))


async def ended(harness: AgentHarness, receipt: Receipt) -> Receipt:
    settled = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return settled


async def quiet(harness: AgentHarness) -> None:
    """Wait until everything is done that this process has begun."""
    await harness.agent_runtime.inbox.drain(5.0)
    await harness.agent.outbox.drain(5.0)


async def kept(harness: AgentHarness, receipt: Receipt) -> Receipt:
    found = await harness.agent.store.ledger.receipt(receipt.id)
    assert found is not None
    return found


async def texts_in(harness: AgentHarness, room: object, kind: MemoryKind = MemoryKind.MESSAGE) -> list[str]:
    return [memory.content.text for memory in await harness.agent.store.memories.recent(room, kind=kind)]  # type: ignore[arg-type]


def open_messages(request: TextRequest) -> list[str]:
    """List what a prompt names as not answered yet."""
    _, _, rest = request.prompt.partition("Nobody has answered these yet")
    return [line.text for line in parse_history(rest)]


# Sent twice


@pytest.mark.failure("B-01")
async def test_two_simultaneous_deliveries_of_an_event_are_a_single_turn(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "Hello")
        again = replace(arrival, message=replace(arrival.message, id=new_id()))
        first, second = await asyncio.gather(put(harness, arrival), put(harness, again))
        await ended(harness, first)
        assert first.id == second.id
        assert (harness.texts, len(harness.model.requests)) == (["Hello."], 1)


@pytest.mark.failure("B-02")
async def test_an_event_redelivered_after_29_days_is_recognized(open_harness: OpenHarness, clock: ManualClock) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "Hello")
        first = await submit_and_wait(harness, arrival)
        clock.now += timedelta(days=29)
        again = await put(harness, arrival)
        await quiet(harness)
        assert (again.id, again.outcome) == (first.id, Outcome.ANSWERED)
        assert harness.texts == ["Hello."]


@pytest.mark.failure("B-03")
async def test_a_message_with_a_new_transport_id_is_recognized(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "Hello")
        first = await submit_and_wait(harness, arrival)
        renumbered = replace(arrival, key=replace(arrival.key, event_id="update-2"))
        assert (await put(harness, renumbered)).id == first.id
        await quiet(harness)
        assert harness.texts == ["Hello."]


# In another order


@pytest.mark.failure("B-04")
async def test_messages_received_in_reverse_are_answered_in_platform_order(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        second = await put(harness, message_of(harness, "and then?", "102"))
        await held.until_asked("and then?")
        first = await put(harness, message_of(harness, "once upon a time", "101"))
        request = await held.until_asked("once upon a time", "and then?")
        held.release.set()
        first, second = await ended(harness, first), await ended(harness, second)
        assert open_messages(request) == ["once upon a time", "and then?"]
        assert (first.outcome, first.superseded_by) == (Outcome.SUPERSEDED, second.memory_id)
        assert second.outcome is Outcome.ANSWERED
        assert harness.texts == ["Hello."]


@pytest.mark.failure("B-04")
async def test_shuffled_messages_of_a_queue_are_answered_singly_in_order(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model, settings={"LATEST_RESPONSE": "queue"}) as harness:
        numbers = [100, 107, 103, 109, 101, 105, 102, 108, 104, 106]
        receipts = [await put(harness, message_of(harness, f"number {number}", str(number))) for number in numbers]
        await held.until_asked("number 100")
        for _ in range(10):
            await asyncio.sleep(0)
        held.release.set()
        for receipt in receipts:
            await ended(harness, receipt)
        sent = [delivery.reply_to for delivery in harness.adapter.sent]
        assert sent == [str(number) for number in range(100, 110)]


@pytest.mark.failure("B-04")
async def test_an_older_message_that_arrives_after_the_answer_is_answered_too(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        await submit_and_wait(harness, message_of(harness, "second", "102"))
        late = await submit_and_wait(harness, message_of(harness, "first", "101"))
        assert late.outcome is Outcome.ANSWERED
        assert len(harness.texts) == 2


# Edited


@pytest.mark.failure("B-05")
async def test_a_message_edited_before_its_answer_is_answered_by_its_new_text(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        heard = Heard(harness)
        arrival = message_of(harness, "what is the captial?")
        first = await put(harness, arrival)
        await held.until_asked("captial")
        edit = await changes(harness).submit_edit(edit_of(arrival, "what is the capital?"))
        request = await held.until_asked("capital?")
        held.release.set()
        first, edit = await ended(harness, first), await ended(harness, edit)
        await quiet(harness)
        assert "captial" not in request.prompt
        assert (first.outcome, first.superseded_by) == (Outcome.SUPERSEDED, edit.memory_id)
        assert (edit.outcome, edit.memory_id) == (Outcome.ANSWERED, first.memory_id)
        assert harness.texts == ["Hello."]
        message = (await harness.agent.store.memories.memories([edit.memory_id]))[edit.memory_id]
        assert [revision["text"] for revision in message.metadata["revisions"]] == ["what is the captial?"]
        [edited] = await heard.of(MessageEdited)
        assert isinstance(edited, MessageEdited)
        assert edited.previous.content.text == "what is the captial?"
        assert edited.message.content.text == "what is the capital?"
        assert len(await heard.of(MessageReceived)) == 1


@pytest.mark.failure("B-05")
async def test_other_messages_of_the_turn_of_an_edited_message_are_still_answered(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        first = message_of(harness, "teh first", "1")
        receipt = await put(harness, first)
        other = await put(harness, message_of(harness, "the other", "2"))
        await held.until_asked("teh first", "the other")
        edit = await changes(harness).submit_edit(edit_of(first, "the first"))
        request = await held.until_asked("the first", "the other", "Nobody has answered these yet")
        held.release.set()
        ends = [(await ended(harness, receipt_in_turn)).outcome for receipt_in_turn in (receipt, edit, other)]
        assert open_messages(request) == ["the first", "the other"]
        assert ends == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
        assert harness.texts == ["Hello."]


@pytest.mark.failure("B-05")
async def test_an_edit_that_overtakes_its_message_cancels_the_older_turn(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "Helo")
        first, edit = await asyncio.gather(
            put(harness, arrival), changes(harness).submit_edit(edit_of(arrival, "Hello"))
        )
        ends = {(await ended(harness, receipt)).outcome for receipt in (first, edit)}
        await quiet(harness)
        assert Outcome.ANSWERED in ends
        assert harness.texts == ["Hello."]


@pytest.mark.failure("B-06")
async def test_an_edit_after_the_answer_is_stored_and_not_answered(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel(can_embed=True)) as harness:
        arrival = message_of(harness, "Helo")
        await submit_and_wait(harness, arrival)
        edit = await ended(harness, await changes(harness).submit_edit(edit_of(arrival, "Hello, all of you")))
        await quiet(harness)
        assert (edit.outcome, edit.rule) == (Outcome.IGNORED, "ON_EDIT")
        assert (len(harness.model.requests), harness.texts) == (1, ["Hello."])
        assert (await texts_in(harness, arrival.room.id))[0] == "Hello, all of you"
        message = (await harness.agent.store.memories.memories([edit.memory_id]))[edit.memory_id]
        assert message.embedding is not None
        assert message.embedding[0] == len("Hello, all of you")


@pytest.mark.failure("B-06")
async def test_with_rerun_the_old_reply_is_edited_into_the_new_reply(open_harness: OpenHarness) -> None:
    model, adapter = (
        ScriptedModel([model_answer("Of Frence."), model_answer("Paris.")]),
        RecordingAdapter(can_edit=True),
    )
    async with open_harness(model=model, adapter=adapter, settings={"ON_EDIT": "rerun"}) as harness:
        arrival = message_of(harness, "the capital of Frence?")
        await submit_and_wait(harness, arrival)
        edit = await ended(harness, await changes(harness).submit_edit(edit_of(arrival, "the capital of France?")))
        again = await ended(harness, await changes(harness).submit_edit(edit_of(arrival, "and of France?", 2)))
        assert edit.outcome is again.outcome is Outcome.ANSWERED
        assert [(delivery.replaces_external_id, delivery.content.text) for delivery in adapter.edited] == [
            ("sent-1", "Paris."),
            ("sent-1", "Paris."),
        ]
        assert adapter.texts == ["Of Frence."]
        assert sorted(await texts_in(harness, arrival.room.id)) == ["Paris.", "and of France?"]


@pytest.mark.failure("B-06")
async def test_with_rerun_a_shorter_reply_deletes_remaining_parts_of_the_old_reply(open_harness: OpenHarness) -> None:
    model = ScriptedModel([model_answer("one two"), model_answer("3")])
    adapter = RecordingAdapter(can_edit=True, max_length=4)
    async with open_harness(model=model, adapter=adapter, settings={"ON_EDIT": "rerun"}) as harness:
        arrival = message_of(harness, "count")
        await submit_and_wait(harness, arrival)
        await ended(harness, await changes(harness).submit_edit(edit_of(arrival, "go on")))
        assert [(delivery.replaces_external_id, delivery.content.text) for delivery in adapter.edited] == [
            ("sent-1", "3"),
            ("sent-2", ""),
        ]
        assert adapter.texts == ["one ", "two"]


@pytest.mark.long
@pytest.mark.failure("B-06")
async def test_with_rerun_nothing_is_sent_if_the_platform_cannot_edit(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel(), settings={"ON_EDIT": "rerun"}) as harness:
        arrival = message_of(harness, "Hi")
        await submit_and_wait(harness, arrival)
        edit = await ended(harness, await changes(harness).submit_edit(edit_of(arrival, "Hi there")))
        assert (edit.outcome, edit.rule) == (Outcome.IGNORED, "ON_EDIT")
        assert (len(harness.model.requests), harness.texts) == (1, ["Hello."])


@pytest.mark.failure("B-06")
async def test_an_edit_of_an_old_unknown_message_is_not_answered(open_harness: OpenHarness, clock: ManualClock) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "Hi")
        clock.now += timedelta(hours=1)
        edit = await changes(harness).submit_edit(edit_of(arrival, "Hi there"))
        await quiet(harness)
        assert edit.outcome is (await kept(harness, edit)).outcome is Outcome.EXPIRED
        assert (harness.texts, await texts_in(harness, arrival.room.id)) == ([], ["Hi there"])


@pytest.mark.long
@pytest.mark.failure("B-07", "O-06")
async def test_200_edits_a_minute_start_a_turn_every_five_seconds(open_harness: OpenHarness, watch: Watch) -> None:
    held = Held()
    watch.is_held = True
    async with open_harness(model=held.model) as harness:
        arrival = message_of(harness, "version 0")
        await put(harness, arrival)
        await held.until_asked("version 0")
        for number in range(1, 201):
            await watch.advance(0.3)
            edit = await changes(harness).submit_edit(edit_of(arrival, f"version {number}", number))
        assert len(harness.model.requests) <= 60 / 5 + 1
        await watch.advance(5)
        await held.until_asked("version 200")
        held.release.set()
        assert (await ended(harness, edit)).outcome is Outcome.ANSWERED
        assert harness.texts == ["Hello."]
        assert len(await harness.agent.store.ledger.receipts(is_open=True)) == 0


# Taken back


@pytest.mark.failure("B-08")
async def test_a_message_deleted_before_its_answer_is_not_answered(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        heard = Heard(harness)
        receipt = await put(harness, message_of(harness, "never mind"))
        await held.until_asked("never mind")
        waiting = asyncio.create_task(harness.agent_runtime.inbox.wait_outcome(receipt.id))
        await asyncio.sleep(0)
        assert await changes(harness).delete_messages(receipt.room_id, ["1"]) == 1
        held.release.set()
        settled = await waiting
        await quiet(harness)
        assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "its message was removed")
        assert replace(await kept(harness, receipt), model_calls=()) == settled
        assert harness.texts == await texts_in(harness, receipt.room_id) == []
        [deleted] = await heard.of(MessageDeleted)
        assert deleted == MessageDeleted(harness.agent.id, receipt.memory_id, receipt.room_id)


@pytest.mark.failure("B-08")
@pytest.mark.parametrize("change", ["delete", "edit"])
async def test_a_call_cancelled_by_a_change_is_in_the_receipt_and_charged(
    open_harness: OpenHarness, change: str
) -> None:
    streamed = asyncio.Event()

    async def write(request: TextRequest) -> str:
        assert request.sink is not None
        await request.sink.write("<response><actions>REPLY</actions><text>Once upon a time")
        streamed.set()
        await asyncio.Event().wait()
        return ""

    settings = {"MODEL_PRICES": "scripted=1/1", "BUDGET_USD": "0.000001"}
    adapter = RecordingAdapter(can_edit=True, stream_interval=3600)
    async with open_harness(model=ScriptedModel(write), adapter=adapter, settings=settings) as harness:
        arrival = message_of(harness, "a story")
        receipt = await put(harness, arrival)
        await streamed.wait()
        if change == "delete":
            await changes(harness).delete_messages(receipt.room_id, ["1"])
        else:
            await changes(harness).submit_edit(edit_of(arrival, "no story"))
        await ended(harness, receipt)
        await quiet(harness)
        [call] = (await kept(harness, receipt)).model_calls
        assert (call.model, call.error, call.is_estimate, call.tokens_out) == ("scripted", "cancelled", True, 25)
        assert call.cost == pytest.approx((call.tokens_in + 25) / 1e6)
        assert harness.agent.budget.find_reached_limit(None, None) is not None


@pytest.mark.failure("B-08")
async def test_a_call_that_ends_after_its_message_was_deleted_is_in_the_receipt(open_harness: OpenHarness) -> None:
    shown, released = asyncio.Event(), asyncio.Event()

    class Reader(RecordingAdapter):
        async def preview(self, delivery: Delivery) -> None:
            shown.set()

    adapter = Reader(can_edit=True, stream_interval=0)
    model = ScriptedModel(
        [StreamedText("<response><actions>REPLY</actions><text>Once upon a", released, " time</text></response>")]
    )
    async with open_harness(model=model, adapter=adapter, settings={"MODEL_PRICES": "scripted=1/1"}) as harness:
        receipt = await put(harness, message_of(harness, "a story"))
        await shown.wait()
        await changes(harness).delete_messages(receipt.room_id, ["1"])
        released.set()
        await ended(harness, receipt)
        await quiet(harness)
        [call] = (await kept(harness, receipt)).model_calls
        assert (call.model, call.error) == ("scripted", "")
        assert call.cost


@pytest.mark.failure("B-08")
@pytest.mark.parametrize("removed", ["1", "2"])
async def test_other_messages_of_the_turn_of_a_deleted_message_are_answered(
    open_harness: OpenHarness, removed: str
) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        receipts = [
            await put(harness, message_of(harness, f"question {message_id}", message_id)) for message_id in ("1", "2")
        ]
        await held.until_asked("question 1", "question 2")
        await changes(harness).delete_messages(receipts[0].room_id, [removed])
        held.release.set()
        ends = [(await ended(harness, message_id)).outcome for message_id in receipts]
        await quiet(harness)
        assert sorted(ends) == [Outcome.ANSWERED, Outcome.CANCELLED]
        assert f"question {removed}" not in harness.model.requests[-1].prompt
        assert harness.texts == ["Hello."]


@pytest.mark.failure("B-08")
async def test_a_part_being_sent_arrives_and_a_waiting_part_is_cancelled(open_harness: OpenHarness) -> None:
    adapter = Slow()
    async with open_harness(model=ScriptedModel(), adapter=adapter) as harness:
        first = await put(harness, message_of(harness, "one", "1"))
        away = await adapter.begun.get()
        second = await harness.agent_runtime.inbox.wait_outcome(
            (await put(harness, message_of(harness, "two", "2"))).id
        )
        await changes(harness).delete_messages(first.room_id, ["1", "2"])
        adapter.release.set()
        await quiet(harness)
        assert second.outcome is Outcome.ANSWERED
        states = {delivery.id: delivery.state for delivery in await harness.agent.store.ledger.deliveries()}
        assert states.pop(away.id) is DeliveryState.SENT
        assert list(states.values()) == [DeliveryState.CANCELLED]
        assert len(adapter.sent) == 1


@pytest.mark.failure("B-09")
async def test_deleting_a_message_deletes_its_embedding_and_facts_that_only_it_supports(
    open_harness: OpenHarness,
) -> None:
    async with open_harness(model=ScriptedModel(can_embed=True)) as harness:
        memories = harness.agent.store.memories
        mine, other = message_of(harness, "I live in Graz", "1"), message_of(harness, "I like tea", "2")
        for arrival in (mine, other):
            receipt = await submit_and_wait(harness, arrival)
            fact = replace(arrival.message, id=new_id(), kind=MemoryKind.FACT, source_id=receipt.memory_id)
            await memories.add([fact])
        await changes(harness).delete_messages(mine.room.id, ["1"])
        await quiet(harness)
        assert await texts_in(harness, mine.room.id, MemoryKind.FACT) == ["I like tea"]
        reach = RecallScope(mine.room.id, mine.world.id)
        found = await memories.recall((14.0, 1.0), "scripted-2", reach, MemoryKind.MESSAGE)
        assert sorted(item.memory.content.text for item in found) == ["Hello.", "Hello.", "I like tea"]
        assert "I live in Graz" not in await texts_in(harness, mine.room.id)


@pytest.mark.failure("B-11")
async def test_many_messages_are_deleted_together(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        receipts = [await put(harness, message_of(harness, f"spam {number}", str(number))) for number in range(5)]
        await held.until_asked("spam 4")
        assert await changes(harness).delete_messages(receipts[0].room_id, [str(number) for number in range(5)]) == 5
        held.release.set()
        assert {(await ended(harness, number)).outcome for number in receipts} == {Outcome.CANCELLED}
        await quiet(harness)
        assert harness.texts == await texts_in(harness, receipts[0].room_id) == []


@pytest.mark.failure("B-11")
async def test_a_cleared_room_is_empty_and_its_waiting_deliveries_are_cancelled(open_harness: OpenHarness) -> None:
    adapter = Slow()
    async with open_harness(model=ScriptedModel(), adapter=adapter) as harness:
        heard = Heard(harness)
        first = await put(harness, message_of(harness, "one", "1"))
        await adapter.begun.get()
        await harness.agent_runtime.inbox.wait_outcome((await put(harness, message_of(harness, "two", "2"))).id)
        assert await changes(harness).clear_room(first.room_id) == 4
        adapter.release.set()
        await quiet(harness)
        assert await texts_in(harness, first.room_id) == []
        everything = await harness.agent.store.ledger.deliveries()
        [pending] = [delivery for delivery in everything if delivery.state is DeliveryState.CANCELLED]
        assert pending.cause == "its room was cleared"
        assert len(adapter.sent) == 1
        assert await heard.of(ChannelCleared) == [ChannelCleared(harness.agent.id, first.room_id, "lobby", 4)]


@pytest.mark.failure("B-11")
async def test_nothing_is_answered_in_a_world_the_agent_left(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        heard = Heard(harness)
        arrivals = [message_of(harness, f"in {room}", room, room=room) for room in ("attic", "cellar")]
        receipts = [await put(harness, arrival) for arrival in arrivals]
        await held.until_asked("in cellar")
        await changes(harness).leave_world(arrivals[0].world.id)
        held.release.set()
        ends = [await ended(harness, receipt) for receipt in receipts]
        await quiet(harness)
        assert {(receipt.outcome, receipt.reason) for receipt in ends} == {
            (Outcome.CANCELLED, "the agent is no longer in this world")
        }
        assert harness.texts == []
        assert await texts_in(harness, arrivals[0].room.id) == ["in attic"]
        assert len(await heard.of(WorldLeft)) == 1


# Our own words, signs, names and places


@pytest.mark.failure("B-12")
async def test_a_message_of_the_agent_is_recognized_by_author_id_and_not_by_name(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        await submit_and_wait(harness, message_of(harness, "Hello?", "1"))
        webhook = Entity(harness.agent.id, "test", "hook-7", ("Front desk",), is_bot=True)
        echo = message_of(harness, "Hello.", "2")
        echo = replace(echo, author=webhook, message=replace(echo.message, entity_id=webhook.id))
        receipt = await submit_and_wait(harness, echo)
        namesake = await submit_and_wait(harness, message_of(harness, "I am Ada too", "3", author="Ada"))
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "own message")
        assert namesake.outcome is Outcome.ANSWERED
        await quiet(harness)
        texts_there = sorted(await texts_in(harness, echo.room.id))
        assert texts_there == ["Hello.", "Hello.", "Hello?", "I am Ada too"]


@pytest.mark.failure("B-12")
async def test_a_message_sent_by_other_means_from_the_account_of_the_bot_is_stored(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        own = message_of(harness, "Written by hand")
        author = replace(own.author, id=harness.agent.id)
        receipt = await submit_and_wait(
            harness, replace(own, author=author, message=replace(own.message, entity_id=author.id))
        )
        await quiet(harness)
        assert receipt.outcome is Outcome.IGNORED
        assert await texts_in(harness, own.room.id) == ["Written by hand"]


def sign(arrival: InboundMessage, message_id: str) -> Reaction:
    return Reaction(arrival.world, arrival.room, arrival.author, message_id, "👍", arrival.message.created_at)


@pytest.mark.failure("B-13")
async def test_a_reaction_is_stored_once_even_for_an_unknown_message(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        heard = Heard(harness)
        arrival = message_of(harness, "Hello")
        receipt = await submit_and_wait(harness, arrival)
        signs = [sign(arrival, reaction) for reaction in ("1", "1", "sent-1", "404", "404")]
        kept_now = await asyncio.gather(*(changes(harness).add_reaction(reaction) for reaction in signs))
        assert sorted(kept_now) == [False, False, True, True, True]
        events = await heard.of(ReactionReceived)
        about = {reaction.reaction.external_id: reaction.reaction.source_id for reaction in events}  # type: ignore[attr-defined]
        [reply] = [reaction for reaction in await recent(harness, arrival) if reaction.entity_id == harness.agent.id]
        assert about == {"1": receipt.memory_id, "sent-1": reply.id, "404": None}
        assert len(harness.texts) == 1


async def recent(harness: AgentHarness, arrival: InboundMessage) -> list[Memory]:
    return await harness.agent.store.memories.recent(arrival.room.id)


@pytest.mark.failure("B-14")
async def test_a_renamed_user_stays_the_same_person(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        arrival = message_of(harness, "I am Alice", "1")
        await submit_and_wait(harness, arrival)
        renamed = replace(arrival.author, names=("Alice Liddell",))
        await submit_and_wait(harness, replace(message_of(harness, "and I have a new name", "2"), author=renamed))
        await quiet(harness)
        [person] = (await harness.agent.store.entities.entities([arrival.author.id])).values()
        assert person.names == ("Alice Liddell", "Alice")
        authors_before = [
            entity for entity in parse_history(harness.model.requests[-1].prompt) if entity.text == "I am Alice"
        ]
        assert [entity.name for entity in authors_before] == ["Alice Liddell"]


@pytest.mark.failure("B-14")
async def test_a_migrated_room_has_its_history_and_open_questions(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        heard = Heard(harness)
        old, new = (
            message_of(harness, "in the old group", "1"),
            message_of(harness, "in the new one", "1", room="supergroup"),
        )
        new = replace(new, key=replace(new.key, event_id="update-9"))
        receipt = await put(harness, old)
        await held.until_asked("in the old group")
        await changes(harness).migrate_room(old.room.id, new.world, new.room)
        held.release.set()
        assert (await ended(harness, receipt)).outcome is Outcome.ANSWERED
        after = await submit_and_wait(harness, new)
        await quiet(harness)
        assert after.outcome is Outcome.ANSWERED
        assert {delivery.target for delivery in harness.adapter.sent} == {"supergroup"}
        assert len(await texts_in(harness, new.room.id)) == 4
        assert "in the old group" in harness.model.requests[-1].prompt
        assert await heard.of(RoomMigrated) == [RoomMigrated(harness.agent.id, old.room.id, new.room)]


@pytest.mark.failure("B-14")
async def test_the_receipt_of_a_migrated_message_has_the_calls_of_both_turns(open_harness: OpenHarness) -> None:
    held = Held()
    async with open_harness(model=held.model) as harness:
        old, new = message_of(harness, "in the old group", "1"), message_of(harness, "", "9", room="supergroup")
        receipt = await put(harness, old)
        await held.until_asked("in the old group")
        await changes(harness).migrate_room(old.room.id, new.world, new.room)
        held.release.set()
        await ended(harness, receipt)
        await quiet(harness)
        assert sorted(call.error for call in (await kept(harness, receipt)).model_calls) == ["", "cancelled"]


@pytest.mark.failure("B-14")
async def test_waiting_deliveries_are_sent_to_the_migrated_room(open_harness: OpenHarness) -> None:
    adapter = Slow()
    async with open_harness(model=ScriptedModel(), adapter=adapter) as harness:
        old, new = message_of(harness, "one", "1"), message_of(harness, "", "9", room="supergroup")
        await put(harness, old)
        await adapter.begun.get()
        await harness.agent_runtime.inbox.wait_outcome((await put(harness, message_of(harness, "two", "2"))).id)
        await changes(harness).migrate_room(old.room.id, new.world, new.room)
        adapter.release.set()
        await quiet(harness)
        assert [delivery.target for delivery in adapter.sent] == ["lobby", "supergroup"]


# The handle


async def test_a_change_received_during_shutdown_is_not_acknowledged(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        harness.agent_runtime.inbox.close()
        with pytest.raises(InboxClosed):
            await changes(harness).delete_messages(new_id(), ["1"])


async def test_a_change_is_completed_even_if_its_submitter_is_cancelled(open_harness: OpenHarness) -> None:
    async with open_harness(model=ScriptedModel()) as harness:
        receipt = await submit_and_wait(harness, message_of(harness, "Hello"))
        task = asyncio.create_task(changes(harness).delete_messages(receipt.room_id, ["1"]))
        await asyncio.sleep(0)
        task.cancel()
        await quiet(harness)
        assert await texts_in(harness, receipt.room_id) == ["Hello."]
