"""The main flow: one outcome, one run and at most one apology per message, whatever fails."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.events import Event, MessageReceived, RunEnded, RunStarted, RunStatus, RunTimedOut
from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Outcome, Receipt
from bot.errors import ModelRefused
from bot.models.types import Purpose, TextRequest
from bot.pipeline import process_message as process_module
from bot.pipeline.commit import MAX_RETRIES
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.components import evaluator
from bot.plugin_system.plugin import Plugin
from bot.settings import CoreSettings
from bot.store import InMemoryStore
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.turn import Turn
from tests.clocks import ManualClock

RESPOND = "<response><action>RESPOND</action></response>"


class PipelineHarness:
    """A message pipeline of the test's own, the events it emitted, and the receipts it settled."""

    def __init__(self, harness: AgentHarness, **settings: str) -> None:
        self.agent = harness.agent
        self.processor = MessagePipeline(
            harness.agent, harness.agent_runtime.registry, CoreSettings.model_validate(settings)
        )
        self.settled: list[Receipt] = []
        self._fresh: dict[UUID, StoredEvent] = {}
        self.events: list[Event] = []
        harness.agent.events.subscribe(Event, self._hear)

    async def _hear(self, event: Event) -> None:
        self.events.append(event)

    async def receive(self, text: str | Content = "hi", **details: Any) -> Receipt:
        arrival = make_message(text, sent_at=self.agent.clock(), **details)
        [received] = await self.agent.store.ledger.receive([arrival], self.agent.clock())
        self._fresh[received.receipt.id] = received
        return received.receipt

    async def process(self, receipt: Receipt, *, again: bool = False) -> Receipt:
        """Process a message as it was received, or as one that an earlier process left open."""
        fresh = self._fresh.pop(receipt.id, None)
        received = StoredEvent(receipt) if again or fresh is None else fresh
        await self.processor.process_message(received, self._settle)
        return replace(await self.kept(receipt), is_evaluated=True)

    def _settle(self, receipt: Receipt) -> None:
        """Note the outcome, apart from whether it was learnt from: that comes later, if there is time."""
        self.settled.append(replace(receipt, is_evaluated=True))

    async def kept(self, receipt: Receipt) -> Receipt:
        kept = await self.agent.store.ledger.receipt(receipt.id)
        assert kept is not None
        return kept

    async def emitted(self, *kinds: type[Event]) -> list[Any]:
        await self.agent.events.wait_idle()
        return [event for event in self.events if isinstance(event, kinds)]


class Deadline:
    """RESPONSE_TIMEOUT under control of the test: processing times out when `expire` is called."""

    def __init__(self) -> None:
        self._limits: list[asyncio.Timeout] = []

    def begin(self, seconds: float) -> asyncio.Timeout:
        self._limits.append(asyncio.timeout(None))
        return self._limits[-1]

    def expire(self, number: int = 0) -> None:
        self._limits[number].reschedule(asyncio.get_running_loop().time())


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Deadline:
    found = Deadline()
    clockwork = SimpleNamespace(timeout=found.begin, CancelledError=asyncio.CancelledError)
    monkeypatch.setattr("bot.runs.asyncio", clockwork)
    return found


def refuse(request: TextRequest) -> str:
    raise ModelRefused("the key is wrong")


async def test_a_message_is_claimed_answered_closed_and_reported_once(agent_harness: AgentHarness) -> None:
    pipeline = PipelineHarness(agent_harness)
    receipt = await pipeline.process(await pipeline.receive())
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.attempts == 1
    assert receipt.claimed_at is not None
    assert receipt.closed_at is not None
    assert pipeline.settled == [receipt]
    started, received, ended = await pipeline.emitted(RunStarted, MessageReceived, RunEnded)
    assert started.run_id == ended.run_id == receipt.turn_id
    assert received.message.id == started.message_id == receipt.memory_id
    assert (ended.status, ended.outcome, ended.error) == (RunStatus.COMPLETED, Outcome.ANSWERED, "")


async def test_a_failure_without_an_apology_says_so_in_its_receipt() -> None:
    async with running_agent(model=ScriptedModel(refuse)) as harness:
        first, second = [await harness.send(text) for text in ("Hello", "Are you there?")]
    assert [first.outcome, second.outcome] == [Outcome.FAILED, Outcome.FAILED]
    assert len(harness.texts) == 1, "one apology in five minutes"
    note = "no apology was sent: the room got one within the last five minutes"
    assert [note in receipt.notes for receipt in (first, second)] == [False, True]


async def test_a_deleted_message_is_cancelled_without_a_run(agent_harness: AgentHarness) -> None:
    pipeline = PipelineHarness(agent_harness)
    receipt = await pipeline.receive()
    await agent_harness.agent.store.memories.remove([receipt.memory_id])
    receipt = await pipeline.process(receipt, again=True)
    assert receipt.outcome is Outcome.CANCELLED
    assert pipeline.settled == [receipt]
    assert await pipeline.emitted(RunStarted, RunEnded) == []


async def test_a_message_of_the_agent_itself_is_only_stored() -> None:
    looked: list[Turn] = []

    @evaluator("LOOK", "Looks.", always_run=True)
    async def look(turn: Turn) -> None:
        looked.append(turn)

    async with running_agent(Plugin("look", evaluators=[look]), model=ScriptedModel(can_embed=True)) as harness:
        pipeline = PipelineHarness(harness)
        arrival = make_message("my own words", sent_at=harness.agent.clock())
        own = replace(arrival.author, id=harness.agent.id)
        arrival = replace(arrival, author=own, message=replace(arrival.message, entity_id=own.id))
        receipt = (await harness.agent.store.ledger.receive([arrival], harness.agent.clock()))[0].receipt
        async with pipeline.processor.evaluated:
            receipt = await pipeline.process(receipt)
        assert await harness.agent.store.ledger.unevaluated_receipts() == []
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "own message")
    assert looked == []


async def test_a_message_closed_but_not_evaluated_before_a_restart_is_evaluated_once() -> None:
    looked: list[str] = []

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        looked.append(" ".join(memory.content.text for memory in (turn.message, *turn.replies)))

    async with running_agent(Plugin("look", evaluators=[look])) as harness:
        pipeline = PipelineHarness(harness)
        receipt = await pipeline.process(await pipeline.receive("hello"))
        async with pipeline.processor.evaluated:
            await pipeline.process(replace(receipt, is_evaluated=False), again=True)
        assert await harness.agent.store.ledger.unevaluated_receipts() == []
    assert looked == ["hello Hello.", "hello Hello."]


async def test_unfinished_evaluations_are_done_in_sequence() -> None:
    running, most = 0, 0

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    async with running_agent(Plugin("look", evaluators=[look])) as harness:
        pipeline = PipelineHarness(harness)
        receipts = [await pipeline.process(await pipeline.receive(f"hello {number}")) for number in range(3)]
        most = 0
        open_again = [replace(receipt, is_evaluated=False) for receipt in receipts]
        await asyncio.gather(*(pipeline.process(receipt, again=True) for receipt in open_again))
    assert most == 1


async def test_an_evaluation_that_is_stopped_is_done_again_however_often_that_was() -> None:
    begun, may_end = asyncio.Queue[None](), asyncio.Event()

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        begun.put_nowait(None)
        await may_end.wait()

    async with running_agent(Plugin("look", evaluators=[look])) as harness:
        pipeline = PipelineHarness(harness)
        receipt = await pipeline.receive("hello")
        for _ in range(MAX_RETRIES + 2):
            task = asyncio.ensure_future(pipeline.process(receipt, again=receipt.outcome.is_final))
            await begun.get()
            task.cancel()
            await asyncio.wait([task])
            receipt = await pipeline.kept(receipt)
        may_end.set()
        await pipeline.process(receipt, again=True)
        assert begun.qsize() == 1


async def test_each_attempt_is_counted_and_uses_the_same_turn_id(agent_harness: AgentHarness) -> None:
    pipeline = PipelineHarness(agent_harness)
    receipt = await pipeline.receive()
    turn_id = make_message("x", sent_at=agent_harness.agent.clock()).message.id
    receipt = await pipeline.process(replace(receipt, attempts=2, turn_id=turn_id), again=True)
    assert (receipt.attempts, receipt.turn_id) == (3, turn_id)


def stop_at(monkeypatch: pytest.MonkeyPatch, name: str) -> asyncio.Event:
    """Make one stage hang; the event is set when it is reached."""
    reached = asyncio.Event()

    async def hang(*args: object, **kwargs: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(process_module, name, hang)
    return reached


STAGES = ("should_respond", "read_attachments", "list_usable_actions", "respond")


@pytest.mark.parametrize("name", STAGES)
async def test_a_timeout_in_any_stage_fails_with_a_single_notice(
    agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch, deadline: Deadline, name: str
) -> None:
    reached = stop_at(monkeypatch, name)
    pipeline = PipelineHarness(agent_harness)
    task = asyncio.ensure_future(pipeline.process(await pipeline.receive()))
    await reached.wait()
    deadline.expire()
    receipt = await task
    assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, "RESPONSE_TIMEOUT")
    assert pipeline.settled == [receipt]
    timed_out, ended = await pipeline.emitted(RunTimedOut, RunEnded)
    assert (ended.status, ended.outcome) == (RunStatus.TIMEOUT, Outcome.FAILED)
    assert ended.run_id == timed_out.run_id
    assert len(await agent_harness.adapter.wait_until_sent(1)) == 1
    assert not pipeline.processor.turn_queue._rooms


async def test_an_evaluator_timeout_does_not_change_the_outcome(deadline: Deadline) -> None:
    @evaluator("SLOW", "Never ends.")
    async def slow(turn: Turn) -> None:
        deadline.expire()
        await asyncio.Event().wait()

    async with running_agent(Plugin("slow", evaluators=[slow])) as harness:
        pipeline = PipelineHarness(harness)
        receipt = await pipeline.process(await pipeline.receive())
        [ended] = await pipeline.emitted(RunEnded)
        await harness.adapter.wait_until_sent(1)
    assert receipt.outcome is Outcome.ANSWERED
    assert (ended.status, ended.outcome) == (RunStatus.TIMEOUT, Outcome.ANSWERED)
    assert pipeline.settled == [receipt]
    assert harness.texts == ["Hello."]


@pytest.mark.parametrize("name", STAGES)
async def test_a_turn_stopped_in_any_stage_remains_open_and_frees_its_room(
    agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    reached = stop_at(monkeypatch, name)
    pipeline = PipelineHarness(agent_harness)
    receipt = await pipeline.receive()
    task = asyncio.ensure_future(pipeline.process(receipt))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await pipeline.kept(receipt)).outcome is Outcome.RECEIVED
    [ended] = await pipeline.emitted(RunEnded)
    assert ended.status is RunStatus.CANCELLED
    assert pipeline.settled == []
    assert not pipeline.processor.turn_queue._rooms
    monkeypatch.undo()
    assert (await pipeline.process(await pipeline.kept(receipt))).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("name", [*STAGES, "run_actions"])
async def test_an_unexpected_error_in_any_stage_fails_with_its_reason(
    agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("our own fault")

    monkeypatch.setattr(process_module, name, fail)
    pipeline = PipelineHarness(agent_harness)
    receipt = await pipeline.process(await pipeline.receive())
    assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, "internal error")
    assert receipt.reason == "RuntimeError: our own fault"
    [ended] = await pipeline.emitted(RunEnded)
    assert (ended.status, ended.outcome) == (RunStatus.ERROR, Outcome.FAILED)
    assert pipeline.settled == [receipt]


class Slow(InMemoryStore):
    """A store whose first write of a kind hangs, before or after its effect, until released."""

    def __init__(self, kind: str = "commit", *, is_done: bool) -> None:
        super().__init__()
        self.reached, self.release = asyncio.Event(), asyncio.Event()
        self._is_done = is_done
        self._write = getattr(self.ledger, kind)
        setattr(self.ledger, kind, self._hang)

    async def _hang(self, *given: Any) -> Any:
        if self.reached.is_set():
            return await self._write(*given)
        self.reached.set()
        placed = await self._write(*given) if self._is_done else None
        await self.release.wait()
        return placed if self._is_done else await self._write(*given)


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_turn_stopped_during_a_store_write_is_either_open_or_closed(is_done: bool) -> None:
    store = Slow(is_done=is_done)
    async with running_agent(store=store) as harness:
        pipeline = PipelineHarness(harness)
        receipt = await pipeline.receive()
        task = asyncio.ensure_future(pipeline.process(receipt))
        await store.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.release.set()
        await harness.agent.outbox.drain(5.0)
        kept = await pipeline.kept(receipt)
        assert bool(await store.ledger.deliveries()) is (kept.outcome is Outcome.ANSWERED)
        if kept.outcome is not Outcome.ANSWERED:
            assert kept.outcome is Outcome.CLAIMED
            kept = await pipeline.process(kept)
        assert kept.outcome is Outcome.ANSWERED
    assert [delivery.content.text for delivery in await store.ledger.deliveries()] == ["Hello."]


async def test_after_a_timeout_during_a_store_write_the_stored_outcome_counts(deadline: Deadline) -> None:
    store = Slow(is_done=True)
    async with running_agent(store=store) as harness:
        pipeline = PipelineHarness(harness)
        task = asyncio.ensure_future(pipeline.process(await pipeline.receive()))
        await store.reached.wait()
        deadline.expire()
        receipt = await task
        store.release.set()
        texts = [delivery.content.text for delivery in await store.ledger.deliveries()]
    assert receipt.outcome is Outcome.ANSWERED
    assert pipeline.settled == [receipt]
    assert texts == ["Hello."]


async def until_waiting_for_the_room(pipeline: PipelineHarness, holder: asyncio.Task[Receipt]) -> None:
    """Run until a turn waits for the holder, or the holder was superseded."""
    [lane] = pipeline.processor.turn_queue._rooms.values()
    for _ in range(1000):
        if lane.waiting or holder.done():
            return
        await asyncio.sleep(0)


@pytest.mark.long
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_message_that_arrives_while_an_answer_is_journalled_waits_and_all_are_evaluated(is_done: bool) -> None:
    """Once an answer is journalled, no other turn may close its messages."""
    may_answer, asked = asyncio.Event(), asyncio.Queue[str]()
    store = Slow("save_step", is_done=is_done)

    async def script(request: TextRequest) -> str:
        asked.put_nowait(request.prompt)
        await may_answer.wait()
        return model_answer("Hello.")

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        await store.reached.wait()

    async with running_agent(Plugin("look", evaluators=[look]), model=ScriptedModel(script), store=store) as harness:
        pipeline = PipelineHarness(harness)
        receipts = [await pipeline.receive(text) for text in ("one", "two", "three")]
        older = asyncio.ensure_future(pipeline.process(receipts[0]))
        await asked.get()
        newer = asyncio.ensure_future(pipeline.process(receipts[1]))
        await asked.get()
        may_answer.set()
        await store.reached.wait()
        await older
        newest = asyncio.ensure_future(pipeline.process(receipts[2]))
        await until_waiting_for_the_room(pipeline, newer)
        store.release.set()
        async with pipeline.processor.evaluated:
            await asyncio.gather(newer, newest)
        outcomes = [(await pipeline.kept(receipt)).outcome for receipt in receipts]
        assert await store.ledger.unevaluated_receipts() == []
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED, Outcome.ANSWERED]


async def test_a_timeout_of_a_superseded_turn_does_not_close_messages_of_the_newer_turn(deadline: Deadline) -> None:
    """The older turn's evaluator outlives its time while the newer turn still writes."""
    may_answer, asked = asyncio.Event(), asyncio.Queue[str]()

    async def script(request: TextRequest) -> str:
        asked.put_nowait(request.prompt)
        await may_answer.wait()
        return model_answer("Hello.")

    @evaluator("SLOW", "Ends late.")
    async def slow(turn: Turn) -> None:
        if turn.superseded_by is not None:
            deadline.expire()
            await asyncio.Event().wait()

    async with running_agent(Plugin("slow", evaluators=[slow]), model=ScriptedModel(script)) as harness:
        pipeline = PipelineHarness(harness)
        first, second = await pipeline.receive("one"), await pipeline.receive("two")
        older = asyncio.ensure_future(pipeline.process(first))
        await asked.get()
        newer = asyncio.ensure_future(pipeline.process(second))
        await asked.get()
        assert (await older).outcome is Outcome.CLAIMED
        may_answer.set()
        await newer
        outcomes = [(await pipeline.kept(receipt)).outcome for receipt in (first, second)]
        await harness.adapter.wait_until_sent(1)
        ended = {event.message_id: (event.status, event.outcome) for event in await pipeline.emitted(RunEnded)}
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert harness.texts == ["Hello."]
    assert ended == {
        first.memory_id: (RunStatus.TIMEOUT, Outcome.SUPERSEDED),
        second.memory_id: (RunStatus.COMPLETED, Outcome.ANSWERED),
    }


async def test_a_timeout_while_being_superseded_leaves_the_message_to_the_newer_turn(deadline: Deadline) -> None:
    asked = asyncio.Queue[str]()
    may_answer = asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.put_nowait(request.prompt)
        try:
            await may_answer.wait()
        except asyncio.CancelledError:
            deadline.expire()
            await asyncio.sleep(0)
            raise
        return model_answer("Hello.")

    async with running_agent(model=ScriptedModel(script)) as harness:
        pipeline = PipelineHarness(harness)
        first, second = await pipeline.receive("one"), await pipeline.receive("two")
        older = asyncio.ensure_future(pipeline.process(first))
        await asked.get()
        newer = asyncio.ensure_future(pipeline.process(second))
        assert (await older).outcome is Outcome.CLAIMED
        may_answer.set()
        await newer
        outcomes = [(await pipeline.kept(receipt)).outcome for receipt in (first, second)]
        await harness.adapter.wait_until_sent(1)
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert harness.texts == ["Hello."]
    assert len(pipeline.settled) == 2


class SlowTyping(RecordingAdapter):
    """A platform whose typing indicator ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()
        self.ending = asyncio.Event()

    async def set_typing(self, room: Room, active: bool) -> None:
        await super().set_typing(room, active)
        if not active:
            self.ending.set()
            await self.may_end.wait()


async def test_a_typing_indicator_that_ends_late_affects_no_turn() -> None:
    held, adapter = asyncio.Event(), SlowTyping()
    asked = asyncio.Queue[str]()

    async def script(request: TextRequest) -> str:
        asked.put_nowait(request.prompt)
        await held.wait()
        return model_answer("Hello.")

    async with running_agent(model=ScriptedModel(script), adapter=adapter) as harness:
        pipeline = PipelineHarness(harness)
        first, second = await pipeline.receive("one"), await pipeline.receive("two")
        older = asyncio.ensure_future(pipeline.process(first))
        await asked.get()
        newer = asyncio.ensure_future(pipeline.process(second))
        await asked.get()
        held.set()
        await adapter.wait_until_sent(1)
        await adapter.ending.wait()
        adapter.may_end.set()
        await asyncio.gather(older, newer)
        outcomes = [(await pipeline.kept(receipt)).outcome for receipt in (first, second)]
        ended = {event.message_id: event.status for event in await pipeline.emitted(RunEnded)}
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert ended == {first.memory_id: RunStatus.SUPERSEDED, second.memory_id: RunStatus.COMPLETED}
    assert [len(receipt.model_calls) for receipt in pipeline.settled] == [1, 1]
    assert not pipeline.processor.turn_queue._rooms


async def test_a_model_that_suppresses_cancellation_causes_no_second_answer() -> None:
    asked = asyncio.Queue[str]()

    async def stubborn(request: TextRequest) -> str:
        asked.put_nowait(request.prompt)
        if "two" in request.prompt:
            return model_answer("To both.")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return model_answer("To one.")
        return ""

    async with running_agent(model=ScriptedModel(stubborn)) as harness:
        pipeline = PipelineHarness(harness)
        first = await pipeline.receive("one")
        older = asyncio.ensure_future(pipeline.process(first))
        await asked.get()
        second = await pipeline.receive("two")
        await asyncio.gather(older, asyncio.ensure_future(pipeline.process(second)))
        outcomes = [(await pipeline.kept(receipt)).outcome for receipt in (first, second)]
        await harness.adapter.wait_until_sent(1)
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert harness.texts == ["To both."]


async def test_a_slow_decision_for_an_older_message_still_results_in_a_single_reply_to_both() -> None:
    deciding, writing = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND and not deciding.is_set():
            deciding.set()
            await writing.wait()
        if request.purpose is Purpose.REPLY and not writing.is_set():
            writing.set()
            await asyncio.Event().wait()
        return RESPOND if request.purpose is Purpose.SHOULD_RESPOND else model_answer("To both.")

    async with running_agent(model=ScriptedModel(script)) as harness:
        pipeline = PipelineHarness(harness)
        first = await pipeline.receive("one", kind=ChannelType.GROUP)
        older = asyncio.ensure_future(pipeline.process(first))
        await deciding.wait()
        second = await pipeline.receive("Ada, two", kind=ChannelType.GROUP)
        await asyncio.gather(older, pipeline.process(second))
        first_receipt, two = [await pipeline.kept(receipt) for receipt in (first, second)]
        await harness.adapter.wait_until_sent(1)
        ended = await pipeline.emitted(RunEnded)
    assert (first_receipt.outcome, first_receipt.superseded_by) == (Outcome.SUPERSEDED, second.memory_id)
    assert two.outcome is Outcome.ANSWERED
    assert harness.texts == ["To both."]
    assert sorted(event.message_id for event in ended) == sorted([first.memory_id, second.memory_id])


async def test_two_agents_in_the_same_process_are_independent() -> None:
    async with running_agent() as first, running_agent() as other:
        receipts = await asyncio.gather(first.send("hi"), other.send("hi"))
    assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 2
    assert first.texts == other.texts == ["Hello."]


# F: what a model answers


@pytest.mark.failure("F-20")
@pytest.mark.parametrize("details", [{}, {"is_bot": True}], ids=["chatter", "a bot"])
async def test_an_unrequested_text_is_not_repeated_a_fourth_time(details: dict[str, Any]) -> None:
    clock = ManualClock()

    def write(request: TextRequest) -> str:
        return RESPOND if request.purpose is Purpose.SHOULD_RESPOND else model_answer("Quite  SO.")

    settings = {"RESPOND_TO_BOTS": "true"}
    async with running_agent(model=ScriptedModel(write), settings=settings, clock=clock) as harness:
        receipts = [await harness.send(f"and {n}", kind=ChannelType.GROUP, **details) for n in range(5)]
        assert harness.texts == ["Quite  SO."] * 3
        assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 3 + [Outcome.IGNORED] * 2
        assert receipts[-1].rule == "repetition"
        assert "fourth time" in receipts[-1].reason
        clock.advance(minutes=11)
        assert (await harness.send("Again?", kind=ChannelType.GROUP)).outcome is Outcome.ANSWERED


@pytest.mark.failure("F-20")
@pytest.mark.parametrize(("text", "kind"), [("Ada, are you there?", ChannelType.GROUP), ("And?", ChannelType.DM)])
async def test_a_direct_question_is_answered_even_with_a_repeated_text(text: str, kind: ChannelType) -> None:
    async with running_agent(model=ScriptedModel(model_answer("Yes."))) as harness:
        for _ in range(5):
            assert (await harness.send(text, kind=kind)).outcome is Outcome.ANSWERED
        assert harness.texts == ["Yes."] * 5


@pytest.mark.failure("F-15")
async def test_the_head_of_a_line_is_removed_from_an_answer() -> None:
    model = ScriptedModel(model_answer("[12:04] Ada (you): Hello."))
    async with running_agent(model=model) as harness:
        receipt = await harness.send("Hi")
        assert harness.texts == ["Hello."]
    assert receipt.notes == ()


@pytest.mark.failure("G-02", "G-04")
async def test_sanitizing_a_message_is_noted_in_its_receipt(agent_harness: AgentHarness) -> None:
    receipt = await agent_harness.send("H\0i" + "\u202e" * 8)
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.notes == ("its text held what is no character; that was taken out", "80% of its text cannot be seen")
