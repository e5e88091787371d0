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
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    StreamedText,
    make_message,
    model_answer,
    running_agent,
)
from plugins.sql.sqlite.storage import OpenFiles

pytestmark = pytest.mark.usefixtures("nothing_held_back")

AGENT = derived_id("agent", "Ada")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
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


OnStage = Callable[..., AbstractAsyncContextManager[AgentHarness]]


@pytest.fixture
def staged(store: Store, clock: Clock) -> OnStage:
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
    """What listeners are told."""

    def __init__(self, stage: AgentHarness) -> None:
        self._stage = stage
        self.events: list[Event] = []
        stage.agent.events.subscribe(Event, self._hear)

    async def _hear(self, event: Event) -> None:
        self.events.append(event)

    async def of(self, *kinds: type[Event]) -> list[Event]:
        await self._stage.agent.events.wait_idle()
        return [event for event in self.events if isinstance(event, kinds)]


def changes(stage: AgentHarness) -> EditReporter:
    return stage.agent_runtime.handle.edits


def said(stage: AgentHarness, text: str, message_id: str = "1", **details: object) -> InboundMessage:
    return make_message(text, sent_at=stage.agent.clock(), message_id=message_id, **details)  # type: ignore[arg-type]


def edit_of(arrival: InboundMessage, text: str, revision: int = 1) -> InboundMessage:
    key = replace(arrival.key, event_id=f"{arrival.key.event_id}-{revision}", revision=revision)
    message = replace(arrival.message, id=new_id(), content=Content(text=text, source="test"))
    return replace(arrival, key=key, message=message)


async def put(stage: AgentHarness, arrival: InboundMessage) -> Receipt:
    return await stage.agent_runtime.inbox.submit(arrival)


async def told(stage: AgentHarness, arrival: InboundMessage) -> Receipt:
    """Hand a message in, and wait until it has its outcome and what it was answered has left."""
    return await ended(stage, await put(stage, arrival))


async def ended(stage: AgentHarness, receipt: Receipt) -> Receipt:
    settled = await stage.agent_runtime.inbox.wait_outcome(receipt.id)
    await stage.agent.outbox.drain(5.0)
    return settled


async def quiet(stage: AgentHarness) -> None:
    """Wait until everything is done that this process has begun."""
    await stage.agent_runtime.inbox.drain(5.0)
    await stage.agent.outbox.drain(5.0)


async def kept(stage: AgentHarness, receipt: Receipt) -> Receipt:
    found = await stage.agent.store.ledger.receipt(receipt.id)
    assert found is not None
    return found


async def texts_in(stage: AgentHarness, room: object, kind: MemoryKind = MemoryKind.MESSAGE) -> list[str]:
    return [one.content.text for one in await stage.agent.store.memories.recent(room, kind=kind)]  # type: ignore[arg-type]


def open_messages(request: TextRequest) -> list[str]:
    """List what a prompt names as not answered yet."""
    _, _, rest = request.prompt.partition("Nobody has answered these yet")
    return [line.text for line in parse_history(rest)]


# Said twice


@pytest.mark.failure("B-01")
async def test_two_simultaneous_deliveries_of_an_event_are_one_turn(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "Hello")
        again = replace(arrival, message=replace(arrival.message, id=new_id()))
        first, second = await asyncio.gather(put(stage, arrival), put(stage, again))
        await ended(stage, first)
        assert first.id == second.id
        assert (stage.texts, len(stage.model.requests)) == (["Hello."], 1)


@pytest.mark.failure("B-02")
async def test_an_event_redelivered_after_29_days_is_recognized(staged: OnStage, clock: Clock) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "Hello")
        first = await told(stage, arrival)
        clock.now += timedelta(days=29)
        again = await put(stage, arrival)
        await quiet(stage)
        assert (again.id, again.outcome) == (first.id, Outcome.ANSWERED)
        assert stage.texts == ["Hello."]


@pytest.mark.failure("B-03")
async def test_a_message_with_a_new_transport_id_is_recognized(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "Hello")
        first = await told(stage, arrival)
        renumbered = replace(arrival, key=replace(arrival.key, event_id="update-2"))
        assert (await put(stage, renumbered)).id == first.id
        await quiet(stage)
        assert stage.texts == ["Hello."]


# In another order


@pytest.mark.failure("B-04")
async def test_messages_received_in_reverse_are_answered_in_platform_order(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        second = await put(stage, said(stage, "and then?", "102"))
        await held.until_asked("and then?")
        first = await put(stage, said(stage, "once upon a time", "101"))
        request = await held.until_asked("once upon a time", "and then?")
        held.release.set()
        first, second = await ended(stage, first), await ended(stage, second)
        assert open_messages(request) == ["once upon a time", "and then?"]
        assert (first.outcome, first.superseded_by) == (Outcome.SUPERSEDED, second.memory_id)
        assert second.outcome is Outcome.ANSWERED
        assert stage.texts == ["Hello."]


@pytest.mark.failure("B-04")
async def test_shuffled_messages_of_a_queue_are_answered_one_by_one_in_order(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model, settings={"LATEST_RESPONSE": "queue"}) as stage:
        numbers = [100, 107, 103, 109, 101, 105, 102, 108, 104, 106]
        receipts = [await put(stage, said(stage, f"number {one}", str(one))) for one in numbers]
        await held.until_asked("number 100")
        for _ in range(10):
            await asyncio.sleep(0)
        held.release.set()
        for receipt in receipts:
            await ended(stage, receipt)
        sent = [delivery.reply_to for delivery in stage.adapter.sent]
        assert sent == [str(number) for number in range(100, 110)]


@pytest.mark.failure("B-04")
async def test_an_older_message_that_arrives_after_the_answer_is_answered_too(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        await told(stage, said(stage, "second", "102"))
        late = await told(stage, said(stage, "first", "101"))
        assert late.outcome is Outcome.ANSWERED
        assert len(stage.texts) == 2


# Edited


@pytest.mark.failure("B-05")
async def test_a_message_edited_before_its_answer_is_answered_by_its_new_text(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        heard = Heard(stage)
        arrival = said(stage, "what is the captial?")
        first = await put(stage, arrival)
        await held.until_asked("captial")
        edit = await changes(stage).submit_edit(edit_of(arrival, "what is the capital?"))
        request = await held.until_asked("capital?")
        held.release.set()
        first, edit = await ended(stage, first), await ended(stage, edit)
        await quiet(stage)
        assert "captial" not in request.prompt
        assert (first.outcome, first.superseded_by) == (Outcome.SUPERSEDED, edit.memory_id)
        assert (edit.outcome, edit.memory_id) == (Outcome.ANSWERED, first.memory_id)
        assert stage.texts == ["Hello."]
        message = (await stage.agent.store.memories.memories([edit.memory_id]))[edit.memory_id]
        assert [one["text"] for one in message.metadata["revisions"]] == ["what is the captial?"]
        [edited] = await heard.of(MessageEdited)
        assert isinstance(edited, MessageEdited)
        assert edited.previous.content.text == "what is the captial?"
        assert edited.message.content.text == "what is the capital?"
        assert len(await heard.of(MessageReceived)) == 1


@pytest.mark.failure("B-05")
async def test_other_messages_of_the_turn_of_an_edited_message_are_still_answered(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        first = said(stage, "teh first", "1")
        receipt = await put(stage, first)
        other = await put(stage, said(stage, "the other", "2"))
        await held.until_asked("teh first", "the other")
        edit = await changes(stage).submit_edit(edit_of(first, "the first"))
        request = await held.until_asked("the first", "the other", "Nobody has answered these yet")
        held.release.set()
        ends = [(await ended(stage, one)).outcome for one in (receipt, edit, other)]
        assert open_messages(request) == ["the first", "the other"]
        assert ends == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
        assert stage.texts == ["Hello."]


@pytest.mark.failure("B-05")
async def test_an_edit_that_overtakes_its_message_cancels_the_older_turn(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "Helo")
        first, edit = await asyncio.gather(put(stage, arrival), changes(stage).submit_edit(edit_of(arrival, "Hello")))
        ends = {(await ended(stage, one)).outcome for one in (first, edit)}
        await quiet(stage)
        assert Outcome.ANSWERED in ends
        assert stage.texts == ["Hello."]


@pytest.mark.failure("B-06")
async def test_an_edit_after_the_answer_is_stored_and_not_answered(staged: OnStage) -> None:
    async with staged(model=ScriptedModel(can_embed=True)) as stage:
        arrival = said(stage, "Helo")
        await told(stage, arrival)
        edit = await ended(stage, await changes(stage).submit_edit(edit_of(arrival, "Hello, all of you")))
        await quiet(stage)
        assert (edit.outcome, edit.rule) == (Outcome.IGNORED, "ON_EDIT")
        assert (len(stage.model.requests), stage.texts) == (1, ["Hello."])
        assert (await texts_in(stage, arrival.room.id))[0] == "Hello, all of you"
        message = (await stage.agent.store.memories.memories([edit.memory_id]))[edit.memory_id]
        assert message.embedding is not None
        assert message.embedding[0] == len("Hello, all of you")


@pytest.mark.failure("B-06")
async def test_with_rerun_the_old_reply_is_edited_into_the_new_one(staged: OnStage) -> None:
    model, adapter = (
        ScriptedModel([model_answer("Of Frence."), model_answer("Paris.")]),
        RecordingAdapter(can_edit=True),
    )
    async with staged(model=model, adapter=adapter, settings={"ON_EDIT": "rerun"}) as stage:
        arrival = said(stage, "the capital of Frence?")
        await told(stage, arrival)
        edit = await ended(stage, await changes(stage).submit_edit(edit_of(arrival, "the capital of France?")))
        again = await ended(stage, await changes(stage).submit_edit(edit_of(arrival, "and of France?", 2)))
        assert edit.outcome is again.outcome is Outcome.ANSWERED
        assert [(one.replaces_external_id, one.content.text) for one in adapter.edited] == [
            ("sent-1", "Paris."),
            ("sent-1", "Paris."),
        ]
        assert adapter.texts == ["Of Frence."]
        assert sorted(await texts_in(stage, arrival.room.id)) == ["Paris.", "and of France?"]


@pytest.mark.failure("B-06")
async def test_with_rerun_a_shorter_reply_deletes_remaining_parts_of_the_old_one(staged: OnStage) -> None:
    model = ScriptedModel([model_answer("one two"), model_answer("3")])
    adapter = RecordingAdapter(can_edit=True, max_length=4)
    async with staged(model=model, adapter=adapter, settings={"ON_EDIT": "rerun"}) as stage:
        arrival = said(stage, "count")
        await told(stage, arrival)
        await ended(stage, await changes(stage).submit_edit(edit_of(arrival, "go on")))
        assert [(one.replaces_external_id, one.content.text) for one in adapter.edited] == [
            ("sent-1", "3"),
            ("sent-2", ""),
        ]
        assert adapter.texts == ["one ", "two"]


@pytest.mark.failure("B-06")
async def test_with_rerun_nothing_is_sent_if_the_platform_cannot_edit(staged: OnStage) -> None:
    async with staged(model=ScriptedModel(), settings={"ON_EDIT": "rerun"}) as stage:
        arrival = said(stage, "Hi")
        await told(stage, arrival)
        edit = await ended(stage, await changes(stage).submit_edit(edit_of(arrival, "Hi there")))
        assert (edit.outcome, edit.rule) == (Outcome.IGNORED, "ON_EDIT")
        assert (len(stage.model.requests), stage.texts) == (1, ["Hello."])


@pytest.mark.failure("B-06")
async def test_an_edit_of_an_old_unknown_message_is_not_answered(staged: OnStage, clock: Clock) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "Hi")
        clock.now += timedelta(hours=1)
        edit = await changes(stage).submit_edit(edit_of(arrival, "Hi there"))
        await quiet(stage)
        assert edit.outcome is (await kept(stage, edit)).outcome is Outcome.EXPIRED
        assert (stage.texts, await texts_in(stage, arrival.room.id)) == ([], ["Hi there"])


@pytest.mark.failure("B-07", "O-06")
async def test_200_edits_a_minute_are_one_turn_every_five_seconds(staged: OnStage, watch: Watch) -> None:
    held = Held()
    watch.is_held = True
    async with staged(model=held.model) as stage:
        arrival = said(stage, "version 0")
        await put(stage, arrival)
        await held.until_asked("version 0")
        for number in range(1, 201):
            await watch.advance(0.3)
            edit = await changes(stage).submit_edit(edit_of(arrival, f"version {number}", number))
        assert len(stage.model.requests) <= 60 / 5 + 1
        await watch.advance(5)
        await held.until_asked("version 200")
        held.release.set()
        assert (await ended(stage, edit)).outcome is Outcome.ANSWERED
        assert stage.texts == ["Hello."]
        assert len(await stage.agent.store.ledger.receipts(is_open=True)) == 0


# Taken back


@pytest.mark.failure("B-08")
async def test_a_message_deleted_before_its_answer_is_not_answered(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        heard = Heard(stage)
        receipt = await put(stage, said(stage, "never mind"))
        await held.until_asked("never mind")
        waiting = asyncio.create_task(stage.agent_runtime.inbox.wait_outcome(receipt.id))
        await asyncio.sleep(0)
        assert await changes(stage).delete_messages(receipt.room_id, ["1"]) == 1
        held.release.set()
        settled = await waiting
        await quiet(stage)
        assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "its message was removed")
        assert replace(await kept(stage, receipt), model_calls=()) == settled
        assert stage.texts == await texts_in(stage, receipt.room_id) == []
        [deleted] = await heard.of(MessageDeleted)
        assert deleted == MessageDeleted(stage.agent.id, receipt.memory_id, receipt.room_id)


@pytest.mark.failure("B-08")
@pytest.mark.parametrize("change", ["delete", "edit"])
async def test_a_call_cancelled_by_a_change_is_in_the_receipt_and_charged(staged: OnStage, change: str) -> None:
    streamed = asyncio.Event()

    async def write(request: TextRequest) -> str:
        assert request.sink is not None
        await request.sink.write("<response><actions>REPLY</actions><text>Once upon a time")
        streamed.set()
        await asyncio.Event().wait()
        return ""

    settings = {"MODEL_PRICES": "scripted=1/1", "BUDGET_USD": "0.000001"}
    adapter = RecordingAdapter(can_edit=True, stream_interval=3600)
    async with staged(model=ScriptedModel(write), adapter=adapter, settings=settings) as stage:
        arrival = said(stage, "a story")
        receipt = await put(stage, arrival)
        await streamed.wait()
        if change == "delete":
            await changes(stage).delete_messages(receipt.room_id, ["1"])
        else:
            await changes(stage).submit_edit(edit_of(arrival, "no story"))
        await ended(stage, receipt)
        await quiet(stage)
        [call] = (await kept(stage, receipt)).model_calls
        assert (call.model, call.error, call.is_estimate, call.tokens_out) == ("scripted", "cancelled", True, 25)
        assert call.cost == pytest.approx((call.tokens_in + 25) / 1e6)
        assert stage.agent.budget.find_reached_limit(None, None) is not None


@pytest.mark.failure("B-08")
async def test_a_call_that_ends_after_its_message_was_deleted_is_in_the_receipt(staged: OnStage) -> None:
    shown, released = asyncio.Event(), asyncio.Event()

    class Reader(RecordingAdapter):
        async def preview(self, delivery: Delivery) -> None:
            shown.set()

    adapter = Reader(can_edit=True, stream_interval=0)
    model = ScriptedModel(
        [StreamedText("<response><actions>REPLY</actions><text>Once upon a", released, " time</text></response>")]
    )
    async with staged(model=model, adapter=adapter, settings={"MODEL_PRICES": "scripted=1/1"}) as stage:
        receipt = await put(stage, said(stage, "a story"))
        await shown.wait()
        await changes(stage).delete_messages(receipt.room_id, ["1"])
        released.set()
        await ended(stage, receipt)
        await quiet(stage)
        [call] = (await kept(stage, receipt)).model_calls
        assert (call.model, call.error) == ("scripted", "")
        assert call.cost


@pytest.mark.failure("B-08")
@pytest.mark.parametrize("removed", ["1", "2"])
async def test_other_messages_of_the_turn_of_a_deleted_message_are_answered(staged: OnStage, removed: str) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        receipts = [await put(stage, said(stage, f"question {one}", one)) for one in ("1", "2")]
        await held.until_asked("question 1", "question 2")
        await changes(stage).delete_messages(receipts[0].room_id, [removed])
        held.release.set()
        ends = [(await ended(stage, one)).outcome for one in receipts]
        await quiet(stage)
        assert sorted(ends) == [Outcome.ANSWERED, Outcome.CANCELLED]
        assert f"question {removed}" not in stage.model.requests[-1].prompt
        assert stage.texts == ["Hello."]


@pytest.mark.failure("B-08")
async def test_a_part_being_sent_arrives_and_a_waiting_part_is_cancelled(staged: OnStage) -> None:
    adapter = Slow()
    async with staged(model=ScriptedModel(), adapter=adapter) as stage:
        first = await put(stage, said(stage, "one", "1"))
        away = await adapter.begun.get()
        second = await stage.agent_runtime.inbox.wait_outcome((await put(stage, said(stage, "two", "2"))).id)
        await changes(stage).delete_messages(first.room_id, ["1", "2"])
        adapter.release.set()
        await quiet(stage)
        assert second.outcome is Outcome.ANSWERED
        states = {one.id: one.state for one in await stage.agent.store.ledger.deliveries()}
        assert states.pop(away.id) is DeliveryState.SENT
        assert list(states.values()) == [DeliveryState.CANCELLED]
        assert len(adapter.sent) == 1


@pytest.mark.failure("B-09")
async def test_deleting_a_message_deletes_its_embedding_and_facts_that_only_it_supports(staged: OnStage) -> None:
    async with staged(model=ScriptedModel(can_embed=True)) as stage:
        memories = stage.agent.store.memories
        mine, other = said(stage, "I live in Graz", "1"), said(stage, "I like tea", "2")
        for arrival in (mine, other):
            receipt = await told(stage, arrival)
            fact = replace(arrival.message, id=new_id(), kind=MemoryKind.FACT, source_id=receipt.memory_id)
            await memories.add([fact])
        await changes(stage).delete_messages(mine.room.id, ["1"])
        await quiet(stage)
        assert await texts_in(stage, mine.room.id, MemoryKind.FACT) == ["I like tea"]
        reach = RecallScope(mine.room.id, mine.world.id)
        found = await memories.recall((14.0, 1.0), "scripted-2", reach, MemoryKind.MESSAGE)
        assert sorted(one.memory.content.text for one in found) == ["Hello.", "Hello.", "I like tea"]
        assert "I live in Graz" not in await texts_in(stage, mine.room.id)


@pytest.mark.failure("B-11")
async def test_many_messages_are_deleted_together(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        receipts = [await put(stage, said(stage, f"spam {one}", str(one))) for one in range(5)]
        await held.until_asked("spam 4")
        assert await changes(stage).delete_messages(receipts[0].room_id, [str(one) for one in range(5)]) == 5
        held.release.set()
        assert {(await ended(stage, one)).outcome for one in receipts} == {Outcome.CANCELLED}
        await quiet(stage)
        assert stage.texts == await texts_in(stage, receipts[0].room_id) == []


@pytest.mark.failure("B-11")
async def test_a_cleared_room_is_empty_and_its_waiting_deliveries_are_cancelled(staged: OnStage) -> None:
    adapter = Slow()
    async with staged(model=ScriptedModel(), adapter=adapter) as stage:
        heard = Heard(stage)
        first = await put(stage, said(stage, "one", "1"))
        await adapter.begun.get()
        await stage.agent_runtime.inbox.wait_outcome((await put(stage, said(stage, "two", "2"))).id)
        assert await changes(stage).clear_room(first.room_id) == 4
        adapter.release.set()
        await quiet(stage)
        assert await texts_in(stage, first.room_id) == []
        everything = await stage.agent.store.ledger.deliveries()
        [pending] = [one for one in everything if one.state is DeliveryState.CANCELLED]
        assert pending.cause == "its room was cleared"
        assert len(adapter.sent) == 1
        assert await heard.of(ChannelCleared) == [ChannelCleared(stage.agent.id, first.room_id, "lobby", 4)]


@pytest.mark.failure("B-11")
async def test_nothing_is_answered_in_a_world_the_agent_left(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        heard = Heard(stage)
        arrivals = [said(stage, f"in {room}", room, room=room) for room in ("attic", "cellar")]
        receipts = [await put(stage, arrival) for arrival in arrivals]
        await held.until_asked("in cellar")
        await changes(stage).leave_world(arrivals[0].world.id)
        held.release.set()
        ends = [await ended(stage, one) for one in receipts]
        await quiet(stage)
        assert {(one.outcome, one.reason) for one in ends} == {
            (Outcome.CANCELLED, "the agent is no longer in this world")
        }
        assert stage.texts == []
        assert await texts_in(stage, arrivals[0].room.id) == ["in attic"]
        assert len(await heard.of(WorldLeft)) == 1


# Our own words, signs, names and places


@pytest.mark.failure("B-12")
async def test_a_message_of_the_agent_is_recognized_by_author_id_and_not_by_name(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        await told(stage, said(stage, "Hello?", "1"))
        webhook = Entity(stage.agent.id, "test", "hook-7", ("Front desk",), is_bot=True)
        echo = said(stage, "Hello.", "2")
        echo = replace(echo, author=webhook, message=replace(echo.message, entity_id=webhook.id))
        receipt = await told(stage, echo)
        namesake = await told(stage, said(stage, "I am Ada too", "3", author="Ada"))
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "own message")
        assert namesake.outcome is Outcome.ANSWERED
        await quiet(stage)
        said_there = sorted(await texts_in(stage, echo.room.id))
        assert said_there == ["Hello.", "Hello.", "Hello?", "I am Ada too"]


@pytest.mark.failure("B-12")
async def test_a_message_sent_by_other_means_from_the_account_of_the_bot_is_stored(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        own = said(stage, "Written by hand")
        author = replace(own.author, id=stage.agent.id)
        receipt = await told(stage, replace(own, author=author, message=replace(own.message, entity_id=author.id)))
        await quiet(stage)
        assert receipt.outcome is Outcome.IGNORED
        assert await texts_in(stage, own.room.id) == ["Written by hand"]


def sign(arrival: InboundMessage, message_id: str) -> Reaction:
    return Reaction(arrival.world, arrival.room, arrival.author, message_id, "👍", arrival.message.created_at)


@pytest.mark.failure("B-13")
async def test_a_reaction_is_stored_once_even_for_an_unknown_message(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        heard = Heard(stage)
        arrival = said(stage, "Hello")
        receipt = await told(stage, arrival)
        signs = [sign(arrival, one) for one in ("1", "1", "sent-1", "404", "404")]
        kept_now = await asyncio.gather(*(changes(stage).add_reaction(one) for one in signs))
        assert sorted(kept_now) == [False, False, True, True, True]
        events = await heard.of(ReactionReceived)
        about = {one.reaction.external_id: one.reaction.source_id for one in events}  # type: ignore[attr-defined]
        [reply] = [one for one in await recent(stage, arrival) if one.entity_id == stage.agent.id]
        assert about == {"1": receipt.memory_id, "sent-1": reply.id, "404": None}
        assert len(stage.texts) == 1


async def recent(stage: AgentHarness, arrival: InboundMessage) -> list[Memory]:
    return await stage.agent.store.memories.recent(arrival.room.id)


@pytest.mark.failure("B-14")
async def test_a_renamed_user_stays_the_same_person(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        arrival = said(stage, "I am Alice", "1")
        await told(stage, arrival)
        renamed = replace(arrival.author, names=("Alice Liddell",))
        await told(stage, replace(said(stage, "and I have a new name", "2"), author=renamed))
        await quiet(stage)
        [person] = (await stage.agent.store.entities.entities([arrival.author.id])).values()
        assert person.names == ("Alice Liddell", "Alice")
        said_before = [one for one in parse_history(stage.model.requests[-1].prompt) if one.text == "I am Alice"]
        assert [one.name for one in said_before] == ["Alice Liddell"]


@pytest.mark.failure("B-14")
async def test_a_migrated_room_has_its_history_and_open_questions(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        heard = Heard(stage)
        old, new = said(stage, "in the old group", "1"), said(stage, "in the new one", "1", room="supergroup")
        new = replace(new, key=replace(new.key, event_id="update-9"))
        receipt = await put(stage, old)
        await held.until_asked("in the old group")
        await changes(stage).migrate_room(old.room.id, new.world, new.room)
        held.release.set()
        assert (await ended(stage, receipt)).outcome is Outcome.ANSWERED
        after = await told(stage, new)
        await quiet(stage)
        assert after.outcome is Outcome.ANSWERED
        assert {delivery.target for delivery in stage.adapter.sent} == {"supergroup"}
        assert len(await texts_in(stage, new.room.id)) == 4
        assert "in the old group" in stage.model.requests[-1].prompt
        assert await heard.of(RoomMigrated) == [RoomMigrated(stage.agent.id, old.room.id, new.room)]


@pytest.mark.failure("B-14")
async def test_the_receipt_of_a_migrated_message_has_the_calls_of_both_turns(staged: OnStage) -> None:
    held = Held()
    async with staged(model=held.model) as stage:
        old, new = said(stage, "in the old group", "1"), said(stage, "", "9", room="supergroup")
        receipt = await put(stage, old)
        await held.until_asked("in the old group")
        await changes(stage).migrate_room(old.room.id, new.world, new.room)
        held.release.set()
        await ended(stage, receipt)
        await quiet(stage)
        assert sorted(call.error for call in (await kept(stage, receipt)).model_calls) == ["", "cancelled"]


@pytest.mark.failure("B-14")
async def test_waiting_deliveries_are_sent_to_the_migrated_room(staged: OnStage) -> None:
    adapter = Slow()
    async with staged(model=ScriptedModel(), adapter=adapter) as stage:
        old, new = said(stage, "one", "1"), said(stage, "", "9", room="supergroup")
        await put(stage, old)
        await adapter.begun.get()
        await stage.agent_runtime.inbox.wait_outcome((await put(stage, said(stage, "two", "2"))).id)
        await changes(stage).migrate_room(old.room.id, new.world, new.room)
        adapter.release.set()
        await quiet(stage)
        assert [delivery.target for delivery in adapter.sent] == ["lobby", "supergroup"]


# The door


async def test_a_change_received_during_shutdown_is_not_acknowledged(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        stage.agent_runtime.inbox.close()
        with pytest.raises(InboxClosed):
            await changes(stage).delete_messages(new_id(), ["1"])


async def test_a_change_is_completed_even_if_its_submitter_is_cancelled(staged: OnStage) -> None:
    async with staged(model=ScriptedModel()) as stage:
        receipt = await told(stage, said(stage, "Hello"))
        task = asyncio.create_task(changes(stage).delete_messages(receipt.room_id, ["1"]))
        await asyncio.sleep(0)
        task.cancel()
        await quiet(stage)
        assert await texts_in(stage, receipt.room_id) == ["Hello."]
