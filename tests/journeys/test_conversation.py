"""Conversations from event to reply; only the model and the platform are replaced."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import pytest

from bot import (
    ActionResult,
    Agent,
    ChannelType,
    Character,
    Content,
    Effect,
    Outcome,
    Plugin,
    ProviderResult,
    Receipt,
    Role,
    Service,
    Turn,
    action,
    evaluator,
    on,
    provider,
)
from bot.domain.events import ActionCompleted, MessageReceived, RunEnded, RunStarted, RunStatus
from bot.domain.ledger import DeliveryState, StepState
from bot.events import Event
from bot.inbound import processing
from bot.models import ModelUnavailable, Purpose, TextRequest
from bot.pipeline import turn_order
from bot.prompts import parse_history
from bot.prompts.reply_parser.reader import read_reply
from bot.store import InMemoryStore, StoreUnavailable, TurnCommit
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from tests.clocks import ManualClock

GROUP = ChannelType.GROUP
RESPOND = "<response><reasoning>it is for me</reasoning><action>RESPOND</action></response>"
IGNORE = "<response><reasoning>not for me</reasoning><action>IGNORE</action></response>"


class EventRecorder:
    """Records the events that the agent emits."""

    def __init__(self, harness: AgentHarness) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Condition()
        harness.agent.events.subscribe(Event, self._hear)

    async def _hear(self, event: Event) -> None:
        async with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind: type[Event], count: int) -> list[Any]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)


class Held:
    """A model that answers when released; `asked` has its requests in order."""

    def __init__(self, write: Callable[[TextRequest], str] = lambda request: model_answer("Hello.")) -> None:
        self.asked: asyncio.Queue[TextRequest] = asyncio.Queue()
        self.release = asyncio.Event()
        self._write = write
        self.model = ScriptedModel(self._script)

    async def _script(self, request: TextRequest) -> str:
        self.asked.put_nowait(request)
        await self.release.wait()
        return self._write(request)

    async def until_asked(self, *texts: str) -> TextRequest:
        while True:
            request = await self.asked.get()
            if all(text in request.prompt for text in texts):
                return request


async def settled(harness: AgentHarness, *receipts: Receipt) -> list[Receipt]:
    return [await harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts]


def open_messages(request: TextRequest) -> list[str]:
    """List what a prompt names as not answered yet."""
    _, _, rest = request.prompt.partition("Nobody has answered these yet")
    return [line.text for line in parse_history(rest)]


# One room, several messages


async def test_five_simultaneous_messages_get_a_single_reply_to_all() -> None:
    held = Held()
    async with running_agent(model=held.model) as harness:
        recorder = EventRecorder(harness)
        texts = [f"message {number}" for number in range(1, 6)]
        receipts = await asyncio.gather(*(harness.submit(text) for text in texts))
        request = await held.until_asked(*texts, "Nobody has answered these yet")
        held.release.set()
        *earlier, last = await settled(harness, *receipts)
        assert await harness.adapter.wait_until_sent(1) == ["Hello."]
        runs = await recorder.until(RunEnded, 5)
        await harness.agent_runtime.inbox.drain(5.0)
    assert open_messages(request) == texts
    assert [receipt.outcome for receipt in earlier] == [Outcome.SUPERSEDED] * 4
    assert {receipt.superseded_by for receipt in earlier} == {last.memory_id}
    assert last.outcome is Outcome.ANSWERED
    assert harness.texts == ["Hello."]
    messages = {receipt.memory_id for receipt in receipts}
    assert {run.message_id for run in recorder.of(RunStarted)} == messages
    assert len(recorder.of(RunStarted)) == len(recorder.of(RunEnded)) == 5
    assert {run.message_id: run.status for run in runs} == {
        **{receipt.memory_id: RunStatus.SUPERSEDED for receipt in earlier},
        last.memory_id: RunStatus.COMPLETED,
    }


@pytest.mark.long
async def test_model_calls_of_superseded_turns_are_cancelled_and_recorded() -> None:
    held = Held()
    async with running_agent(model=held.model) as harness:
        receipts = []
        for number in range(3):
            receipts.append(await harness.submit(f"message {number}"))
            await held.until_asked(f"message {number}")
        held.release.set()
        first, second, third = await settled(harness, *receipts)
    assert [[call.error for call in receipt.model_calls] for receipt in (first, second)] == [["cancelled"]] * 2
    assert [call.error for call in third.model_calls] == [""]
    assert harness.texts == ["Hello."]


async def test_the_reply_answers_the_newest_message() -> None:
    held = Held()
    async with running_agent(model=held.model) as harness:
        await harness.submit("one", message_id="m1")
        await held.until_asked("one")
        receipt = await harness.submit("two", message_id="m2")
        held.release.set()
        await settled(harness, receipt)
        await harness.adapter.wait_until_sent(1)
    assert harness.adapter.sent[0].reply_to == "m2"


async def test_an_ignored_newer_message_does_not_prevent_an_older_answer() -> None:
    held = Held(lambda request: IGNORE if request.purpose is Purpose.SHOULD_RESPOND else model_answer("Hello."))

    async def decide_at_once(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return IGNORE
        return await held._script(request)

    model = ScriptedModel(decide_at_once)
    async with running_agent(model=model) as harness:
        first = await harness.submit("Ada, how are you?", kind=GROUP)
        await held.until_asked("how are you?")
        second = await harness.send("talking to Bob", author="Carol", kind=GROUP)
        held.release.set()
        [first] = await settled(harness, first)
        await harness.adapter.wait_until_sent(1)
    assert second.outcome is Outcome.IGNORED
    assert second.rule == "shouldRespond: IGNORE"
    assert first.outcome is Outcome.ANSWERED
    assert harness.texts == ["Hello."]


async def test_in_a_queue_an_outage_of_the_store_does_not_reorder_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(turn_order, "RECHECK_SECONDS", 0.01)
    to_whom = re.compile(r"The next message is .+'s, to (\w+)")
    store, held = InMemoryStore(), Held(lambda request: model_answer(f"To {to_whom.findall(request.prompt)[-1]}."))
    commit, outages = store.ledger.commit, [StoreUnavailable("the server restarts", cause="db_unreachable")]

    async def commit_later(turn_commit: TurnCommit) -> Any:
        if outages:
            raise outages.pop()
        return await commit(turn_commit)

    monkeypatch.setattr(store.ledger, "commit", commit_later)
    async with running_agent(model=held.model, store=store, settings={"LATEST_RESPONSE": "queue"}) as harness:
        await harness.submit("one", author="Alice")
        await held.until_asked("one")
        for text, author in (("two", "Bob"), ("three", "Carol")):
            await harness.submit(text, author=author)
        held.release.set()
        assert await harness.adapter.wait_until_sent(3) == ["To Alice.", "To Bob.", "To Carol."]


@pytest.mark.parametrize("fails", ["save_step", "commit"])
async def test_a_receipt_has_the_model_calls_of_turns_that_an_outage_of_the_store_interrupted(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "POLL_SECONDS", 0.01)
    store, outages = InMemoryStore(), [StoreUnavailable("the server restarts", cause="db_unreachable")] * 2
    write = getattr(store.ledger, fails)

    async def write_later(*arguments: Any) -> Any:
        if outages:
            raise outages.pop()
        return await write(*arguments)

    monkeypatch.setattr(store.ledger, fails, write_later)
    async with running_agent(store=store) as harness:
        receipt = await harness.send("Hello")
        assert receipt.outcome is Outcome.ANSWERED
        assert len(receipt.model_calls) == len(harness.model.requests)
        assert harness.texts == ["Hello."]


async def test_by_author_each_person_gets_a_separate_answer() -> None:
    held = Held(lambda request: model_answer(f"To {'Bob' if 'to Bob.' in request.prompt else 'Alice'}."))
    async with running_agent(model=held.model, settings={"LATEST_RESPONSE": "author"}) as harness:
        alice = await harness.submit("one", author="Alice")
        await held.until_asked("one")
        first = await harness.submit("two", author="Bob")
        second = await harness.submit("three", author="Bob")
        held.release.set()
        outcomes = [receipt.outcome for receipt in await settled(harness, alice, first, second)]
        texts = await harness.adapter.wait_until_sent(2)
    assert outcomes == [Outcome.ANSWERED, Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert texts == ["To Alice.", "To Bob."]


async def test_in_a_queue_every_message_is_answered_in_order() -> None:
    held = Held(lambda request: model_answer(f"Re {parse_history(request.prompt)[-1].text}"))
    async with running_agent(model=held.model, settings={"LATEST_RESPONSE": "queue"}) as harness:
        receipts = [await harness.submit(str(number)) for number in range(4)]
        held.release.set()
        outcomes = {receipt.outcome for receipt in await settled(harness, *receipts)}
        await harness.adapter.wait_until_sent(4)
    assert outcomes == {Outcome.ANSWERED}
    assert [delivery.seq for delivery in harness.adapter.sent] == [1, 2, 3, 4]


@pytest.mark.long
async def test_after_several_supersessions_newer_messages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_order, "BURST_SECONDS", -1.0)  # no two messages are one burst
    held = Held()
    async with running_agent(model=held.model) as harness:
        receipts = []
        for number in range(1, 4):
            receipts.append(await harness.submit(f"message {number}"))
            await held.until_asked(f"message {number}")
        receipts += [await harness.submit("message 4"), await harness.submit("message 5")]
        held.release.set()
        outcomes = await settled(harness, *receipts)
        texts = await harness.adapter.wait_until_sent(2)
    assert [outcome.outcome for outcome in outcomes] == [
        Outcome.SUPERSEDED,
        Outcome.SUPERSEDED,
        Outcome.ANSWERED,
        Outcome.SUPERSEDED,
        Outcome.ANSWERED,
    ]
    assert [outcome.supersede_count for outcome in outcomes] == [2, 1, 0, 1, 0]
    assert [outcome.superseded_by for outcome in outcomes[:2]] == [outcomes[2].memory_id] * 2
    assert len(texts) == 2
    last = held.model.requests_for(Purpose.REPLY)[-1]
    assert open_messages(last) == ["message 4", "message 5"]


@pytest.mark.long
async def test_a_hundred_rooms_do_not_wait_for_each_other() -> None:
    everybody = asyncio.Barrier(100)

    async def script(request: TextRequest) -> str:
        await everybody.wait()
        return model_answer("Hello.")

    async with running_agent(model=ScriptedModel(script)) as harness:
        receipts = await asyncio.gather(
            *(harness.submit("hi", room=f"room {number}", author=f"author {number}") for number in range(100))
        )
        outcomes = {receipt.outcome for receipt in await settled(harness, *receipts)}
        await harness.adapter.wait_until_sent(100)
    assert outcomes == {Outcome.ANSWERED}
    assert len({delivery.room_id for delivery in harness.adapter.sent}) == 100


async def test_the_same_event_twice_gets_a_single_reply() -> None:
    async with running_agent() as harness:
        recorder = EventRecorder(harness)
        arrival = make_message("hi", sent_at=harness.agent.clock(), message_id="m1")
        first = await harness.agent_runtime.inbox.submit(arrival)
        again = await harness.agent_runtime.inbox.submit(arrival)
        [receipt] = await settled(harness, first)
        later = await harness.agent_runtime.inbox.submit(arrival)
        renumbered = await harness.agent_runtime.inbox.submit(
            replace(arrival, key=replace(arrival.key, event_id="another"))
        )
        await harness.adapter.wait_until_sent(1)
        await recorder.until(RunEnded, 1)
    assert {first.id, again.id, later.id, renumbered.id} == {receipt.id}
    assert harness.texts == ["Hello."]
    assert len(recorder.of(RunStarted)) == 1


# What the model says


@pytest.mark.parametrize("name", ["IGNORE", "NONE", "ignore", "STOP", "STOP_TALKING", "NO_RESPONSE"])
async def test_all_names_of_silence_send_nothing(name: str) -> None:
    async with running_agent(model=ScriptedModel(model_answer("Not to be said.", actions=[name]))) as harness:
        receipt = await harness.send("hi")
    assert receipt.outcome is Outcome.IGNORED
    assert receipt.reason == "a thought"
    assert harness.texts == []
    assert len(harness.model.requests) == 1


async def test_an_answer_without_tags_is_the_reply_without_a_second_call() -> None:
    async with running_agent(model=ScriptedModel("Just so.")) as harness:
        receipt = await harness.send("hi")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["Just so."]
    assert len(harness.model.requests) == 1


async def test_a_direct_answer_needs_a_single_call_of_the_large_model() -> None:
    async with running_agent() as harness:
        receipt = await harness.send("hi")
    assert [(call.type, call.purpose) for call in receipt.model_calls] == [("TEXT_LARGE", "reply")]


async def test_an_unknown_action_is_noted_and_the_text_is_sent() -> None:
    async with running_agent(model=ScriptedModel(model_answer("Up we go.", actions=["FLY_TO_MOON"]))) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["Up we go."]
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.notes == ("action 'FLY_TO_MOON' is not known; it was not run",)


async def test_the_model_is_notified_of_an_unknown_action_without_text() -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer("I cannot fly.")
        return model_answer(actions=["FLY_TO_MOON"])

    async with running_agent(model=ScriptedModel(script)) as harness:
        receipt = await harness.send("hi")
    [summary] = harness.model.requests_for(Purpose.SUMMARY)
    assert "- FLY_TO_MOON: failed: there is no action of this name" in summary.prompt
    assert harness.texts == ["I cannot fly."]
    assert receipt.outcome is Outcome.ANSWERED


async def test_part_of_an_action_name_does_not_match(forecasts: Plugin) -> None:
    async with running_agent(
        forecasts, model=ScriptedModel(model_answer("x", actions=["FORE", "FORECASTS"]))
    ) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["x"]
    assert len(receipt.notes) == 2


async def test_an_answer_truncated_in_its_actions_runs_none(forecasts: Plugin) -> None:
    raw = "<response><text>Wait a moment.</text><actions>FORECAST</actions><parameters>{"
    async with running_agent(forecasts, model=ScriptedModel(raw)) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["Wait a moment."]
    assert "the model's answer breaks off" in receipt.notes


@pytest.mark.parametrize(
    "empty", ["", "  \n", "\u200b", "<response></response>", model_answer(""), "<think>I could say", "*No response*"]
)
async def test_after_two_empty_answers_there_is_a_single_apology(empty: str) -> None:
    async with running_agent(model=ScriptedModel(empty)) as harness:
        receipt = await harness.send("hi")
    assert receipt.outcome is Outcome.FAILED
    assert receipt.rule == "NoAnswer"
    assert len(harness.model.requests) == 2
    assert harness.texts == ["Sorry, I can't answer just now. Please try again in a little while."]


async def test_an_empty_answer_is_requested_again() -> None:
    async with running_agent(model=ScriptedModel(["", model_answer("Now.")])) as harness:
        receipt = await harness.send("hi")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["Now."]
    assert "Your last answer has neither a text nor an action" in harness.model.requests[1].prompt


@pytest.mark.parametrize("again", [model_answer("At six."), 'It is six.\n<tool_call>\n{"name": "LOOK"}\n</tool_call>'])
async def test_a_call_of_an_unknown_function_in_the_text_is_never_shown(again: str) -> None:
    first = 'Let me look.\n<tool_call>\n{"name": "LOOK", "arguments": {"for": "the ferry"}}\n</tool_call>'
    async with running_agent(model=ScriptedModel([first, again])) as harness:
        receipt = await harness.send("When does the ferry leave?")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == [read_reply(again).text]
    assert "LOOK, which is not one of the actions" in harness.model.requests[1].prompt
    assert len(harness.model.requests) == 2


async def test_dots_alone_are_sent_only_if_they_are_repeated() -> None:
    async with running_agent(model=ScriptedModel(model_answer("..."))) as harness:
        await harness.send("hi")
    assert harness.texts == ["..."]
    assert len(harness.model.requests) == 2


async def test_markup_in_a_reply_of_a_plugin_is_removed_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    @action("SHOW", "Show it.")
    async def show(turn: Turn) -> None:
        await turn.reply("<think>SECRET</think>Here.")

    script = [model_answer("", actions=["SHOW"]), model_answer("Done.")]
    async with running_agent(Plugin("show", actions=[show]), model=ScriptedModel(script)) as harness:
        await harness.send("show it")
    assert harness.texts[0] == "Here."
    assert "think tags" in caplog.text


async def test_lines_of_others_that_a_model_invents_are_not_sent() -> None:
    answer = model_answer("Ada: At six.\nAlice: Thanks!\nAda: SECRET")
    async with running_agent(model=ScriptedModel(answer)) as harness:
        await harness.send("When does the ferry leave?", author="Alice")
    assert harness.texts == ["At six."]


async def test_a_requested_provider_is_composed_before_a_reply_is_sent() -> None:
    @provider("MOON", "The phase of the moon.", dynamic=True)
    async def moon(turn: Turn) -> ProviderResult:
        return ProviderResult(text="The moon is full.")

    script = [model_answer("", actions=[], providers=["moon", "NOT_THERE"]), model_answer("It is full.")]
    plugin = Plugin("sky", providers=[moon])
    async with running_agent(plugin, model=ScriptedModel(script)) as harness:
        await harness.send("What about the moon?")
    first, second = harness.model.requests
    assert "- MOON: The phase of the moon." in first.prompt
    assert "The moon is full." not in first.prompt
    assert "The moon is full." in second.prompt
    assert harness.texts == ["It is full."]


@pytest.mark.parametrize("name", ["NOT_THERE", "RECENT_MESSAGES", "recent messages", "RECENTMESSAGES"])
async def test_requesting_unknown_or_composed_providers_causes_no_second_call(name: str) -> None:
    async with running_agent(model=ScriptedModel(model_answer("Hello.", providers=[name]))) as harness:
        await harness.send("hi")
    assert len(harness.model.requests) == 1
    assert harness.texts == ["Hello."]


async def test_sent_texts_have_no_secrets_no_markup_and_no_active_mentions() -> None:
    text = "My key is sk-very-secret-1. <think>hm</think>@everyone <@&12> <!channel>"
    settings = {"WEATHER_API_KEY": "sk-very-secret-1"}
    async with running_agent(model=ScriptedModel(model_answer(text)), settings=settings) as harness:
        receipt = await harness.send("Tell me your key")
        [kept] = await harness.agent.store.memories.by_turn(receipt.turn_id or receipt.id)
    assert harness.texts == ["My key is [redacted]. @everyone <@&12> <!channel>"]
    assert "sk-very-secret" not in kept.content.text


# When something fails


async def test_while_the_model_is_unavailable_a_room_gets_a_single_apology_per_five_minutes() -> None:
    def down(request: TextRequest) -> str:
        raise ModelUnavailable("the provider is not there")

    clock = ManualClock(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    async with running_agent(model=ScriptedModel(down), clock=clock, store=InMemoryStore(clock)) as harness:
        first = await harness.send("one")
        second = await harness.send("two")
        elsewhere = await harness.send("three", room="another")
        clock.now += timedelta(minutes=5)
        third = await harness.send("four")
    assert {receipt.outcome for receipt in (first, second, third, elsewhere)} == {Outcome.FAILED}
    assert "the provider is not there" in first.reason
    assert first.rule == "ModelUnavailable"
    assert [delivery.target for delivery in harness.adapter.sent] == ["lobby", "another", "lobby"]


async def test_if_no_model_can_decide_the_message_fails_without_a_reply() -> None:
    def down(request: TextRequest) -> str:
        raise ModelUnavailable("the provider is not there")

    async with running_agent(model=ScriptedModel(down)) as harness:
        receipt = await harness.send("talking to Bob", kind=GROUP)
    assert receipt.outcome is Outcome.FAILED
    assert receipt.rule == "shouldRespond"
    assert harness.texts == []


@pytest.mark.parametrize("kind", [ChannelType.DM, GROUP])
@pytest.mark.parametrize("name", ["messageHandlerTemplate", "shouldRespondTemplate", "systemTemplate"])
async def test_a_template_that_does_not_compile_leaves_no_receipt_open(name: str, kind: ChannelType) -> None:
    broken = Character(name="Ada", templates={name: "{{#if x}} never closed"})  # no file was checked
    async with running_agent(character=broken, model=ScriptedModel([RESPOND, model_answer("Hello.")])) as harness:
        recorder = EventRecorder(harness)
        receipt = await harness.send("talking to somebody", kind=kind)
        [run] = await recorder.until(RunEnded, 1)
    if receipt.outcome is not Outcome.FAILED:  # a direct message needs no decision; a system text is used as it is
        assert (name, kind) == ("shouldRespondTemplate", ChannelType.DM) or name == "systemTemplate"
        return
    assert "TemplateError" in receipt.reason
    assert run.outcome is Outcome.FAILED
    assert run.status is RunStatus.ERROR


async def test_a_turn_that_times_out_fails_with_a_single_notice() -> None:
    held = Held()
    async with running_agent(model=held.model, settings={"RESPONSE_TIMEOUT": "1000"}) as harness:
        recorder = EventRecorder(harness)
        receipt = await harness.send("hi")
        [run] = await recorder.until(RunEnded, 1)
    assert receipt.outcome is Outcome.FAILED
    assert receipt.rule == "RESPONSE_TIMEOUT"
    assert [call.error for call in receipt.model_calls] == ["cancelled"]
    assert run.status is RunStatus.TIMEOUT
    assert len(harness.texts) == 1


class Rubbish:
    """What plugin code may do instead of its work."""

    async def raises(self, turn: Turn) -> ProviderResult:
        raise RuntimeError("broken")

    async def raises_base(self, turn: Turn) -> ProviderResult:
        raise SystemExit(3)

    async def interrupts(self, turn: Turn) -> ProviderResult:
        raise KeyboardInterrupt

    async def cancels(self, turn: Turn) -> ProviderResult:
        raise asyncio.CancelledError

    async def cancels_its_task(self, turn: Turn) -> ProviderResult:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return ProviderResult("never")

    async def hangs(self, turn: Turn) -> ProviderResult:
        await asyncio.Event().wait()
        return ProviderResult("never")

    async def gives_none(self, turn: Turn) -> Any:
        return None

    async def gives_a_text(self, turn: Turn) -> Any:
        return "text"

    async def gives_no_text(self, turn: Turn) -> Any:
        return ProviderResult(text=None)  # type: ignore[arg-type]  # what is tested

    async def gives_no_values(self, turn: Turn) -> Any:
        return ProviderResult(values=None)  # type: ignore[arg-type]  # what is tested


RUBBISH = [name for name in vars(Rubbish) if not name.startswith("_")]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("kind", [ChannelType.DM, GROUP])
@pytest.mark.parametrize("fault", RUBBISH)
async def test_a_broken_provider_affects_only_itself_and_is_noted(fault: str, kind: ChannelType) -> None:
    @provider("FINE", "Works.")
    async def fine(turn: Turn) -> ProviderResult:
        return ProviderResult(text="All is well here.")

    broken = provider("BROKEN", "Does not work.", timeout=0.2)(getattr(Rubbish(), fault))
    plugin = Plugin("rubbish", providers=[fine, broken])
    async with running_agent(
        plugin, model=ScriptedModel([RESPOND, model_answer("Hello.")][kind is not GROUP :])
    ) as harness:
        receipt = await harness.send("hi", kind=kind)
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["Hello."]
    assert "All is well here." in harness.model.requests[-1].prompt
    assert [note for note in receipt.notes if note.startswith("provider BROKEN: ")] == list(receipt.notes)
    assert len(receipt.notes) == 1


async def test_a_failed_provider_of_the_response_decision_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStore()

    async def broken(room_id: UUID, limit: int) -> Any:
        raise RuntimeError("no messages")

    monkeypatch.setattr(store.memories, "conversation", broken)
    async with running_agent(model=ScriptedModel([RESPOND, model_answer("Hello.")]), store=store) as harness:
        receipt = await harness.send("hi", kind=GROUP)
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.notes == ("provider RECENT_MESSAGES: RuntimeError: no messages",)


@pytest.mark.parametrize(
    "fault", [behaviour for behaviour in RUBBISH if behaviour not in ("hangs", "cancels_its_task")]
)
async def test_a_broken_action_affects_only_itself(fault: str) -> None:
    broken = action("BROKEN", "Does not work.")(getattr(Rubbish(), fault))
    asked = [model_answer("All done.", actions=["REPLY", "BROKEN", "FINE"]), model_answer("One thing failed.")]

    @action("FINE", "Works.")
    async def fine(turn: Turn) -> None:
        await turn.reply("Done.")

    plugin = Plugin("rubbish", actions=[broken, fine])
    async with running_agent(plugin, model=ScriptedModel(asked)) as harness:
        receipt = await harness.send("hi")
    has_failed = fault != "gives_none"
    assert harness.texts == ["Done.", *(["One thing failed."] if has_failed else [])]
    assert receipt.outcome is Outcome.ANSWERED
    assert ["BROKEN" in note for note in receipt.notes] == [has_failed]


@pytest.mark.parametrize("fault", [behaviour for behaviour in RUBBISH if behaviour != "hangs"])
async def test_a_broken_evaluator_affects_only_itself(fault: str) -> None:
    looked: list[str] = []

    @evaluator("FINE", "Works.")
    async def fine(turn: Turn) -> None:
        looked.append(turn.message.content.text)

    broken = evaluator("BROKEN", "Does not work.")(getattr(Rubbish(), fault))
    picky = evaluator("PICKY", "Cannot decide.", when=getattr(Rubbish(), fault))(fine.handler)
    async with running_agent(Plugin("rubbish", evaluators=[broken, picky, fine])) as harness:
        recorder = EventRecorder(harness)
        receipt = await harness.send("hi")
        [run] = await recorder.until(RunEnded, 1)
    assert receipt.outcome is Outcome.ANSWERED
    assert run.status is RunStatus.COMPLETED
    assert "hi" in looked


@pytest.mark.parametrize("fault", [behaviour for behaviour in RUBBISH if behaviour != "hangs"])
async def test_a_broken_listener_affects_only_itself(fault: str) -> None:
    handler = getattr(Rubbish(), fault)

    @on(MessageReceived)
    async def broken(agent: Agent, event: MessageReceived) -> None:
        await handler(event)

    async with running_agent(Plugin("rubbish", listeners=[broken])) as harness:
        receipt = await harness.send("hi")
        again = await harness.send("hi again")
    assert receipt.outcome is again.outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    "fault", [behaviour for behaviour in RUBBISH if behaviour not in ("hangs", "cancels_its_task")]
)
async def test_a_broken_check_makes_its_action_unavailable_and_no_other(fault: str) -> None:
    @action("PICKY", "Cannot decide.", when=getattr(Rubbish(), fault))
    async def picky(turn: Turn) -> None:
        raise AssertionError("it ran")

    plugin = Plugin("rubbish", actions=[picky])
    async with running_agent(
        plugin, model=ScriptedModel(model_answer("Hello.", actions=["REPLY", "PICKY"]))
    ) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["Hello."]
    if fault.startswith("gives") and fault != "gives_none":
        return  # a truth of a kind
    assert "- PICKY: " not in harness.model.requests[0].prompt
    assert receipt.outcome is Outcome.ANSWERED
    assert "PICKY" in receipt.notes[0]


async def test_a_condition_with_a_wrong_signature_disables_only_its_action() -> None:
    async def takes_nothing() -> bool:
        return True

    @action("PICKY", "Cannot decide.", when=takes_nothing)  # type: ignore[arg-type]  # what is tested
    async def picky(turn: Turn) -> None:
        raise AssertionError("it ran")

    looked: list[str] = []

    @evaluator("LOOK", "Looks.", when=takes_nothing)  # type: ignore[arg-type]  # what is tested
    async def look(turn: Turn) -> None:
        looked.append("looked")

    async with running_agent(Plugin("odd", actions=[picky], evaluators=[look])) as harness:
        recorder = EventRecorder(harness)
        receipt = await harness.send("hi")
        [run] = await recorder.until(RunEnded, 1)
    assert receipt.outcome is Outcome.ANSWERED
    assert run.status is RunStatus.COMPLETED
    assert not looked


# Actions


class Forecasts(Service):
    """A forecast service of the test's own."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._key = agent.settings.require("WEATHER_API_KEY")

    async def tomorrow(self, city: str, days: int) -> str:
        return f"mild in {city} for {days}"


async def has_key(turn: Turn) -> bool:
    return "WEATHER_API_KEY" in turn.agent.settings


@action("FORECAST", "Tell tomorrow's weather for a city.", similes=["WEATHER"], when=has_key)
async def forecast(
    turn: Turn, city: Annotated[str, "The city's name"], days: Annotated[int, "How many"] = 1
) -> ActionResult:
    """The weather plugin of the design, with a number more."""
    sky = await turn.agent.services[Forecasts].tomorrow(city, days)
    await turn.reply(f"Tomorrow: {sky}.")
    return ActionResult(text=sky, values={"sky": sky}, data={"city": city, "days": days}, authors=())


@pytest.fixture
def forecasts() -> Plugin:
    return Plugin("weather", actions=[forecast], services=[Forecasts])


KEY = {"WEATHER_API_KEY": "a-weather-key"}


async def test_an_action_with_parameters_runs_end_to_end(forecasts: Plugin) -> None:
    asked = model_answer("", actions=["weather"], parameters={"weather": '{"city": "Oslo", "days": 3}'})
    async with running_agent(forecasts, model=ScriptedModel(asked), settings=KEY) as harness:
        recorder = EventRecorder(harness)
        receipt = await harness.send("Will it rain in Oslo?")
        [completed] = await recorder.until(ActionCompleted, 1)
    [request] = harness.model.requests
    assert (
        "- FORECAST: Tell tomorrow's weather for a city. Parameters: city (string, The city's name); "
        "days (integer, optional, How many)." in request.prompt
    )
    assert harness.texts == ["Tomorrow: mild in Oslo for 3."]
    assert completed.result == ActionResult(
        True, "mild in Oslo for 3", {"sky": "mild in Oslo for 3"}, {"city": "Oslo", "days": 3}, "", "FORECAST"
    )
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.notes == ()


async def test_an_action_that_is_not_available_is_neither_shown_nor_run(forecasts: Plugin) -> None:
    asked = model_answer("No idea.", actions=["REPLY", "FORECAST"], parameters={"FORECAST": '{"city": "Oslo"}'})
    async with running_agent(Plugin("weather", actions=[forecast]), model=ScriptedModel(asked)) as harness:
        receipt = await harness.send("Will it rain?")
    assert "FORECAST" not in harness.model.requests[0].prompt
    assert harness.texts == ["No idea."]
    assert receipt.notes == ("FORECAST is not available here",)


async def test_an_action_is_refused_without_the_required_role() -> None:
    @action("BAN", "Ban somebody.", role=Role.ADMIN)
    async def ban(turn: Turn) -> None:
        await turn.reply("Banned.")

    very_well = model_answer("Very well.", actions=["REPLY", "BAN"])
    model = ScriptedModel([very_well, model_answer("I may not."), very_well])
    async with running_agent(Plugin("order", actions=[ban]), model=model) as harness:
        member = await harness.send("ban Bob", author="Mallory", room="a")
        admin = await harness.send("ban Bob", author="Root", room="b", role=Role.ADMIN)
    assert harness.texts == ["I may not.", "Banned."]
    assert member.notes == ("BAN needs the role ADMIN",)
    assert admin.notes == ("the text of the answer was not sent, because the actions replied",)
    assert ["- BAN: Ban somebody." in request.prompt for request in model.requests] == [False, False, True]


async def test_a_request_of_a_stranger_does_not_run_with_the_role_of_an_admin() -> None:
    @action("BAN", "Ban somebody.", role=Role.ADMIN)
    async def ban(turn: Turn) -> None:
        await turn.reply("Banned.")

    held = Held(lambda request: model_answer("Very well.", actions=["REPLY", "BAN"]))
    async with running_agent(Plugin("order", actions=[ban]), model=held.model) as harness:
        await harness.submit("ban Bob", author="Mallory")
        await held.until_asked("ban Bob")
        receipt = await harness.submit("good morning", author="Root", role=Role.ADMIN)
        held.release.set()
        [receipt] = await settled(harness, receipt)
        await harness.adapter.wait_until_sent(1)
    assert harness.texts == ["Very well."]
    assert receipt.notes == ("BAN needs the role ADMIN",)


async def test_wrong_parameters_are_corrected_once(forecasts: Plugin) -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.REPAIR:
            return 'Sure: {"city": "Oslo"}'
        return model_answer("", actions=["FORECAST"], parameters={"FORECAST": '{"town": "Oslo", "days": "many"}'})

    async with running_agent(forecasts, model=ScriptedModel(script), settings=KEY) as harness:
        receipt = await harness.send("Will it rain in Oslo?")
    [repair] = harness.model.requests_for(Purpose.REPAIR)
    for part in ("FORECAST", '"days": "many"', "city: Field required", "Will it rain in Oslo?"):
        assert part in repair.prompt
    assert harness.texts == ["Tomorrow: mild in Oslo for 1."]
    assert receipt.outcome is Outcome.ANSWERED


async def test_an_action_whose_repaired_parameters_are_wrong_does_not_run_and_the_model_is_notified(
    forecasts: Plugin,
) -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.REPAIR:
            return "{}"
        if request.purpose is Purpose.SUMMARY:
            return model_answer("Which city do you mean?")
        return model_answer("It will be mild!", actions=["FORECAST"])

    async with running_agent(forecasts, model=ScriptedModel(script), settings=KEY) as harness:
        receipt = await harness.send("Will it rain?")
    assert len(harness.model.requests_for(Purpose.REPAIR)) == 1
    [summary] = harness.model.requests_for(Purpose.SUMMARY)
    assert "- FORECAST: failed: its parameters do not fit: city: Field required" in summary.prompt
    assert harness.texts == ["Which city do you mean?"]
    assert receipt.outcome is Outcome.ANSWERED
    steps = await harness.agent.store.ledger.steps(receipt.turn_id or receipt.id)
    assert not [key for key in steps if key.startswith("action:")]


def chain(critical: bool) -> tuple[Plugin, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    @action("FIRST", "First.")
    async def first(turn: Turn) -> ActionResult:
        return ActionResult(text="one", values={"found": 1}, data={"key": "value"})

    @action("SECOND", "Second.", critical=critical)
    async def second(turn: Turn) -> ActionResult:
        before = turn.get_previous_result("FIRST")
        assert before is not None
        seen.append({"data": before.data, "values": turn.state.values["found"]})
        return ActionResult(False, error="no luck")

    @action("THIRD", "Third.")
    async def third(turn: Turn) -> None:
        plan = turn.state.data["actionPlan"]
        seen.append(
            {
                "results": list(turn.results),
                "plan": [(step.action, step.status.value, step.error) for step in plan.steps],
                "at": (plan.current_step, plan.total_steps, plan.thought),
                "actionResults": [result.action for result in turn.state.data["actionResults"]],
                "workingMemory": [result["actionName"] for result in turn.state.data["workingMemory"]],
                "prompt": turn.state.values["actionResults"],
            }
        )
        await turn.reply("Done.")

    return Plugin("chain", actions=[first, second, third]), seen


ALL = model_answer("", actions=["FIRST", "SECOND", "THIRD"])


async def test_a_failed_action_does_not_end_the_chain_and_later_actions_see_its_result() -> None:
    plugin, seen = chain(critical=False)
    async with running_agent(plugin, model=ScriptedModel([ALL, model_answer("It went so.")])) as harness:
        receipt = await harness.send("hi")
    assert harness.texts == ["Done.", "It went so."]
    assert receipt.notes == ("SECOND failed: no luck",)
    assert seen == [
        {"data": {"key": "value"}, "values": 1},
        {
            "results": ["FIRST", "SECOND"],
            "plan": [("FIRST", "completed", ""), ("SECOND", "failed", "no luck"), ("THIRD", "pending", "")],
            "at": (2, 3, "a thought"),
            "actionResults": ["FIRST", "SECOND"],
            "workingMemory": ["FIRST", "SECOND"],
            "prompt": "- FIRST: ok: one\n- SECOND: failed: no luck",
        },
    ]


async def test_a_failed_critical_action_ends_the_chain_and_is_reported() -> None:
    plugin, seen = chain(critical=True)

    def script(request: TextRequest) -> str:
        return model_answer("It did not work.") if request.purpose is Purpose.SUMMARY else ALL

    async with running_agent(plugin, model=ScriptedModel(script)) as harness:
        receipt = await harness.send("hi")
    assert len(seen) == 1
    assert harness.texts == ["It did not work."]
    assert "SECOND failed and is critical; what came after it was not run" in receipt.notes


async def test_a_committed_turn_finishes_despite_newer_messages() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @action("WORK", "Takes its time.")
    async def work(turn: Turn) -> None:
        started.set()
        await may_end.wait()
        await turn.reply("Worked.")

    def script(request: TextRequest) -> str:
        return model_answer("Hello.") if "to Bob." in request.prompt else model_answer("", actions=["WORK"])

    async with running_agent(Plugin("work", actions=[work]), model=ScriptedModel(script)) as harness:
        first = await harness.submit("work, please", author="Alice")
        await started.wait()
        second = await harness.submit("hi", author="Bob")
        may_end.set()
        outcomes = [receipt.outcome for receipt in await settled(harness, first, second)]
        texts = await harness.adapter.wait_until_sent(2)
    assert outcomes == [Outcome.ANSWERED, Outcome.ANSWERED]
    assert texts == ["Worked.", "Hello."]


async def test_several_replies_of_a_turn_are_all_sent() -> None:
    @action("SHOUT", "Says three things.")
    async def shout(turn: Turn) -> None:
        await asyncio.gather(*(turn.reply(text) for text in ("a", "b", "c")))

    store = slow(InMemoryStore())
    model = ScriptedModel(model_answer("", actions=["SHOUT"]))
    async with running_agent(Plugin("loud", actions=[shout]), model=model, store=store) as harness:
        await harness.send("hi")
        await harness.adapter.wait_until_sent(3)
    assert sorted(harness.texts) == ["a", "b", "c"]


def slow(store: InMemoryStore) -> InMemoryStore:
    """Delay every commit briefly, as a database does."""
    commit = store.ledger.commit

    async def later(commitment: Any) -> Any:
        await asyncio.sleep(0)
        return await commit(commitment)

    store.ledger.commit = later  # type: ignore[method-assign]  # a store that takes its time
    return store


# Several rounds


async def test_each_step_sees_the_results_of_earlier_steps(forecasts: Plugin) -> None:
    def step(city: str, *, finish: bool = False) -> str:
        return (
            f"<response><thought>t</thought><action>FORECAST</action>"
            f'<parameters>{{"city": "{city}"}}</parameters>'
            f"<providers></providers><isFinish>{str(finish).lower()}</isFinish></response>"
        )

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return "<response><thought>t</thought><text>Both are mild.</text></response>"
        return step("Oslo") if "Steps so far (0" in request.prompt else step("Rome", finish=True)

    settings = {**KEY, "USE_MULTI_STEP": "true"}
    async with running_agent(forecasts, model=ScriptedModel(script), settings=settings) as harness:
        receipt = await harness.send("Oslo or Rome?")
    first, second = harness.model.requests_for(Purpose.STEP)
    assert "Steps so far (0 of at most 6):\nnone" in first.prompt
    assert "Steps so far (1 of at most 6):\n- FORECAST: ok: mild in Oslo for 1" in second.prompt
    assert harness.texts == ["Tomorrow: mild in Oslo for 1.", "Tomorrow: mild in Rome for 1.", "Both are mild."]
    assert receipt.outcome is Outcome.ANSWERED


# Restart


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop without waiting for what is under way."""
    monkeypatch.setattr("bot.runtime.runtime.TURNS_TIMEOUT", 0.0)
    monkeypatch.setattr("bot.runtime.runtime.SENDS_TIMEOUT", 0.0)


class Payments:
    """An action that hangs the first time, and how often it was begun."""

    def __init__(self, effect: Effect, *, says: str = "") -> None:
        self.begun = 0
        self.hangs = True
        self.started = asyncio.Event()
        self.says = says

        @action("PAY", "Pay.", effect=effect)
        async def pay(turn: Turn) -> ActionResult:
            self.begun += 1
            if self.says:
                await turn.reply(self.says)
            self.started.set()
            if self.hangs:
                await asyncio.Event().wait()
            await turn.reply("Paid.")
            return ActionResult(text="paid")

        @action("LOOK_UP", "Look it up.", effect=Effect.UNSAFE)
        async def look_up(turn: Turn) -> ActionResult:
            await turn.reply("I have looked it up.")
            return ActionResult(text="42", data={"at": datetime(2026, 1, 1, tzinfo=UTC), "self": self})

        @action("TELL", "Tell.", effect=Effect.PURE)
        async def tell(turn: Turn) -> None:
            before = turn.get_previous_result("LOOK_UP")
            await turn.reply(f"It is {before.text if before else 'nothing'}.")

        self.plugin = Plugin("payments", actions=[pay, look_up, tell])


async def stopped_while_paying(payments: Payments, store: InMemoryStore, actions: list[str]) -> Receipt:
    model = ScriptedModel(model_answer("At once." if "REPLY" in actions else "", actions=actions))
    async with running_agent(payments.plugin, model=model, store=store) as harness:
        receipt = await harness.submit("pay")
        await payments.started.wait()
        assert len(model.requests) == 1
    left = await store.ledger.receipt(receipt.id)
    assert left is not None
    assert left.outcome is Outcome.RECEIVED  # a stopped process leaves nothing under way
    payments.hangs = False
    return left


@pytest.mark.usefixtures("at_once")
async def test_after_a_restart_the_journalled_answer_is_used_and_an_unsafe_action_is_not_repeated() -> None:
    store, payments = InMemoryStore(), Payments(Effect.UNSAFE)
    receipt = await stopped_while_paying(payments, store, ["PAY"])
    model = ScriptedModel(model_answer("I do not know whether it went through."))
    async with running_agent(payments.plugin, model=model, store=store) as harness:
        [receipt] = await settled(harness, receipt)
        texts = await harness.adapter.wait_until_sent(1)
    assert [request.purpose for request in model.requests] == [Purpose.SUMMARY]
    assert "PAY: failed: outcome unknown" in model.requests[0].prompt
    assert texts == ["I do not know whether it went through."]
    assert payments.begun == 1
    assert receipt.attempts == 1  # a request to stop is none
    assert "PAY was under way when the process died; it was not repeated" in receipt.notes
    steps = await store.ledger.steps(receipt.turn_id or receipt.id)
    assert steps["action:0:PAY"].state is StepState.UNKNOWN


@pytest.mark.usefixtures("at_once")
async def test_the_user_is_notified_of_an_unknown_outcome_instead_of_a_promise() -> None:
    store, payments = InMemoryStore(), Payments(Effect.UNSAFE)
    receipt = await stopped_while_paying(payments, store, ["REPLY", "PAY"])
    model = ScriptedModel(model_answer("I do not know whether it went through."))
    adapter = RecordingAdapter()
    async with running_agent(payments.plugin, model=model, store=store, adapter=adapter) as harness:
        await settled(harness, receipt)
        await adapter.wait_until_sent(1)
    deliveries = await store.ledger.deliveries(turn_id=receipt.turn_id)
    assert [delivery.content.text for delivery in deliveries] == ["I do not know whether it went through."]
    assert payments.begun == 1


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT, Effect.KEYED])
async def test_after_a_restart_an_idempotent_action_runs_again(effect: Effect) -> None:
    store, payments = InMemoryStore(), Payments(effect)
    receipt = await stopped_while_paying(payments, store, ["REPLY", "PAY"])
    async with running_agent(payments.plugin, model=ScriptedModel(""), store=store) as harness:
        [receipt] = await settled(harness, receipt)
        await harness.adapter.wait_until_sent(1)
        assert harness.model.requests == []
    deliveries = await store.ledger.deliveries(turn_id=receipt.turn_id)
    first_texts = ["At once."] if effect is Effect.PURE else []
    assert [delivery.content.text for delivery in deliveries] == [*first_texts, "Paid."]
    assert payments.begun == 2
    assert receipt.outcome is Outcome.ANSWERED


@pytest.mark.usefixtures("at_once")
async def test_replies_of_a_repeated_action_are_not_sent_twice() -> None:
    store, payments = InMemoryStore(), Payments(Effect.PURE, says="Paying now.")
    receipt = await stopped_while_paying(payments, store, ["PAY"])
    async with running_agent(payments.plugin, model=ScriptedModel(""), store=store) as harness:
        [receipt] = await settled(harness, receipt)
    deliveries = await store.ledger.deliveries(turn_id=receipt.turn_id)
    assert [delivery.content.text for delivery in deliveries] == ["Paying now.", "Paid."]


@pytest.mark.usefixtures("at_once")
async def test_after_a_restart_a_chain_continues_and_sends_the_remaining_replies() -> None:
    store, payments = InMemoryStore(), Payments(Effect.PURE)
    receipt = await stopped_while_paying(payments, store, ["LOOK_UP", "PAY", "TELL"])
    async with running_agent(payments.plugin, model=ScriptedModel(""), store=store) as harness:
        [receipt] = await settled(harness, receipt)
    deliveries = await store.ledger.deliveries(turn_id=receipt.turn_id)
    assert [delivery.content.text for delivery in deliveries] == ["I have looked it up.", "Paid.", "It is 42."]
    steps = await store.ledger.steps(receipt.turn_id or receipt.id)
    assert steps["action:0:LOOK_UP"].result["data"]["at"] == "2026-01-01 00:00:00+00:00"


@pytest.mark.usefixtures("at_once")
async def test_a_waiting_message_does_not_supersede_a_resumed_turn() -> None:
    store, payments = InMemoryStore(), Payments(Effect.UNSAFE)
    model = ScriptedModel(model_answer("", actions=["PAY"]))
    async with running_agent(payments.plugin, model=model, store=store) as harness:
        first = await harness.submit("pay")
        await payments.started.wait()
        second = await harness.submit("and good morning", author="Bob")
    payments.hangs = False

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer("I do not know whether it went through.")
        return model_answer("Good morning.")

    async with running_agent(payments.plugin, model=ScriptedModel(script), store=store) as harness:
        outcomes = [receipt.outcome for receipt in await settled(harness, first, second)]
        texts = await harness.adapter.wait_until_sent(2)
    assert payments.begun == 1
    assert outcomes == [Outcome.ANSWERED, Outcome.ANSWERED]
    assert texts == ["I do not know whether it went through.", "Good morning."]


@pytest.mark.usefixtures("at_once")
async def test_a_resumed_answer_is_not_taken_for_an_answer_to_another_message() -> None:
    store, payments = InMemoryStore(), Payments(Effect.PURE)
    decided = asyncio.Event()

    async def first_process(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND and "what about me" in request.prompt:
            decided.set()
            await asyncio.Event().wait()
        return model_answer("", actions=["PAY"])

    async with running_agent(payments.plugin, model=ScriptedModel(first_process), store=store) as harness:
        first = await harness.submit("Ada, pay", kind=GROUP)
        await payments.started.wait()
        second = await harness.submit("what about me", author="Bob", kind=GROUP)
        await decided.wait()
    payments.hangs = False

    def second_process(request: TextRequest) -> str:
        return RESPOND if request.purpose is Purpose.SHOULD_RESPOND else model_answer("You too.")

    async with running_agent(payments.plugin, model=ScriptedModel(second_process), store=store) as harness:
        outcomes = [receipt.outcome for receipt in await settled(harness, first, second)]
        texts = await harness.adapter.wait_until_sent(2)
    assert outcomes == [Outcome.ANSWERED, Outcome.ANSWERED]
    assert texts == ["Paid.", "You too."]


@pytest.mark.usefixtures("at_once")
async def test_a_resumed_message_is_not_decided_again() -> None:
    store, payments = InMemoryStore(), Payments(Effect.PURE)

    def script(request: TextRequest) -> str:
        return RESPOND if request.purpose is Purpose.SHOULD_RESPOND else model_answer("", actions=["PAY"])

    async with running_agent(payments.plugin, model=ScriptedModel(script), store=store) as harness:
        receipt = await harness.submit("pay", kind=GROUP)
        await payments.started.wait()
    payments.hangs = False
    async with running_agent(payments.plugin, model=ScriptedModel(IGNORE), store=store) as harness:
        [receipt] = await settled(harness, receipt)
        assert await harness.adapter.wait_until_sent(1) == ["Paid."]
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.model.requests == []


@pytest.mark.usefixtures("at_once")
async def test_resumed_steps_are_not_chosen_or_run_again() -> None:
    store, payments = InMemoryStore(), Payments(Effect.UNSAFE)
    step = "<response><action>{}</action><parameters>{{}}</parameters><isFinish>false</isFinish></response>"

    def first_process(request: TextRequest) -> str:
        return step.format("LOOK_UP" if "Steps so far (0" in request.prompt else "PAY")

    settings = {"USE_MULTI_STEP": "true"}
    model = ScriptedModel(first_process)
    async with running_agent(payments.plugin, model=model, store=store, settings=settings) as harness:
        receipt = await harness.submit("pay")
        await payments.started.wait()
    payments.hangs = False

    def second_process(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer("I do not know whether it went through.")
        return step.format("PAY" if "Steps so far (0" in request.prompt else "")

    model = ScriptedModel(second_process)
    async with running_agent(payments.plugin, model=model, store=store, settings=settings) as harness:
        [receipt] = await settled(harness, receipt)
    assert [request.purpose for request in model.requests] == [Purpose.STEP, Purpose.SUMMARY]
    assert payments.begun == 1
    deliveries = await store.ledger.deliveries(turn_id=receipt.turn_id)
    assert [delivery.content.text for delivery in deliveries] == [
        "I have looked it up.",
        "I do not know whether it went through.",
    ]


@pytest.mark.usefixtures("at_once")
async def test_unanswered_messages_are_answered_together_after_a_restart() -> None:
    store, held = InMemoryStore(), Held()
    async with running_agent(model=held.model, store=store) as harness:
        receipts = [await harness.submit(f"message {number}") for number in range(3)]
        await held.until_asked("message 2")
    async with running_agent(store=store) as harness:
        outcomes = [receipt.outcome for receipt in await settled(harness, *receipts)]
        await harness.adapter.wait_until_sent(1)
    assert outcomes == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert harness.texts == ["Hello."]


@pytest.mark.usefixtures("at_once")
async def test_a_stored_unsent_reply_is_sent_once_after_a_restart() -> None:
    class Stuck(RecordingAdapter):
        async def deliver(self, delivery: Any) -> str:
            await asyncio.Event().wait()
            return ""

    store = InMemoryStore()
    async with running_agent(store=store, adapter=Stuck(), model=ScriptedModel(["One.", "Two."])) as harness:
        first = await harness.submit("hi")
        await settled(harness, first)
        second = await harness.submit("again")
        await settled(harness, second)
    pending = await store.ledger.deliveries(is_open=True)
    assert [delivery.content.text for delivery in pending] == ["One.", "Two."]

    class Asked(RecordingAdapter):
        async def reconcile(self, delivery: Any) -> str:
            return await self.deliver(delivery)

    async with running_agent(store=store, adapter=Asked()) as harness:
        assert await harness.adapter.wait_until_sent(2) == ["One.", "Two."]
        assert harness.model.requests == []
    assert {delivery.state for delivery in await store.ledger.deliveries()} == {DeliveryState.SENT}


# What others see


async def test_evaluators_run_for_every_message_superseded_ones_included() -> None:
    looked: list[tuple[str, bool]] = []

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        looked.append((turn.message.content.text, turn.superseded_by is not None))

    held = Held()
    async with running_agent(Plugin("look", evaluators=[look]), model=held.model) as harness:
        recorder = EventRecorder(harness)
        await harness.submit("one")
        await held.until_asked("one")
        await harness.submit("two")
        held.release.set()
        await recorder.until(RunEnded, 2)
    assert sorted(looked) == [("one", True), ("two", False)]


async def test_an_evaluator_does_not_delay_the_next_message() -> None:
    may_end = asyncio.Event()

    @evaluator("SLOW", "Slow.")
    async def look(turn: Turn) -> None:
        await may_end.wait()

    async with running_agent(Plugin("slow", evaluators=[look])) as harness:
        first = await harness.send("one")
        second = await harness.send("two")
        may_end.set()
    assert first.outcome is second.outcome is Outcome.ANSWERED
    assert len(harness.texts) == 2


async def test_unanswered_messages_are_evaluated_by_evaluators_that_always_run() -> None:
    looked: list[str] = []

    @evaluator("ALWAYS", "Always.", always_run=True)
    async def always(turn: Turn) -> None:
        looked.append("always")

    @evaluator("ELSE", "Else.")
    async def otherwise(turn: Turn) -> None:
        looked.append("else")

    plugin = Plugin("look", evaluators=[always, otherwise])
    async with running_agent(plugin, model=ScriptedModel(IGNORE)) as harness:
        recorder = EventRecorder(harness)
        await harness.send("talking to Bob", kind=GROUP)
        [run] = await recorder.until(RunEnded, 1)
    assert looked == ["always"]
    assert run.status is RunStatus.IGNORED


async def test_invalid_embeddings_affect_only_the_embeddings() -> None:
    looked: list[str] = []

    @evaluator("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        looked.append("looked")

    class Odd(ScriptedModel):
        async def _embed(self, agent: Agent, request: Any) -> Any:
            given = await super()._embed(agent, request)
            return replace(given, vectors=given.vectors[:0])

    async with running_agent(Plugin("look", evaluators=[look]), model=Odd(can_embed=True)) as harness:
        recorder = EventRecorder(harness)
        await harness.send("hi")
        [run] = await recorder.until(RunEnded, 1)
    assert run.status is RunStatus.COMPLETED
    assert looked == ["looked"]


@pytest.mark.long
async def test_no_room_lock_and_no_task_remains() -> None:
    before = asyncio.all_tasks()
    held = Held()
    async with running_agent(model=held.model) as harness:
        receipts = [await harness.submit(str(number), room=f"{number % 3}") for number in range(30)]
        held.release.set()
        await settled(harness, *receipts)
        await harness.agent_runtime.inbox.drain(5.0)
    assert asyncio.all_tasks() == before


async def test_a_message_of_another_bot_is_not_answered() -> None:
    async with running_agent() as harness:
        receipt = await harness.send(Content(text="Ada!", source="test"), is_bot=True)
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "RESPOND_TO_BOTS")


@pytest.mark.failure("J-13")
@pytest.mark.parametrize("hours", [0, -1, -48, 1])
async def test_a_message_follows_the_reply_that_it_answers_whatever_its_time_is(hours: int) -> None:
    """A platform's times are whole seconds, and clocks jump: what arrives later comes later in the prompt."""
    model = ScriptedModel([model_answer("A riddle: what burns?"), model_answer("Right.")])
    async with running_agent(model=model) as harness:
        for text in ("Ask me a question", "The lamp"):
            sent_at = harness.agent.clock().replace(microsecond=0) + timedelta(hours=hours)
            receipt = await harness.agent_runtime.inbox.submit(make_message(text, sent_at=sent_at))
            await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        shown = [line.text for line in parse_history(model.requests_for(Purpose.REPLY)[-1].prompt)]

    assert shown == ["Ask me a question", "A riddle: what burns?", "The lamp"]


async def test_a_message_that_ended_the_process_three_times_gets_a_single_apology() -> None:
    store, model = InMemoryStore(), ScriptedModel()
    now = datetime.now(UTC)
    receipt = (await store.ledger.receive([make_message("Hello", sent_at=now)], now))[0].receipt
    await store.ledger.save_receipts([replace(receipt, outcome=Outcome.CLAIMED, attempts=3, crash_count=2)])

    async with running_agent(store=store, model=model) as harness:
        await harness.agent_runtime.inbox.processor.resume_all()
        settled = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        texts = await harness.adapter.wait_until_sent(1)

    assert (settled.outcome, settled.rule) == (Outcome.FAILED, "restart")
    assert len(texts) == 1
    assert "sorry" in texts[0].lower()
    assert model.requests == []
