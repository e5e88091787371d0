"""Replay: a turn is run again from what was recorded of it, on every store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from benchmarks.conversation import RecordedMessage, load_recording
from bot.domain.character import Effect
from bot.domain.content import Attachment, Content, MediaKind, MentionContext
from bot.domain.environment import ChannelType
from bot.domain.filters import FilterDecision, FilterInput
from bot.domain.ledger import ActionResult, Outcome, ProviderResult, Receipt, Rule
from bot.errors import ModelUnavailable
from bot.models.types import ModelType, ModerationRequest, ModerationResult, Purpose, TextRequest, TextResult, ToolCall
from bot.operate.results import ReplayBody, ReplayState
from bot.plugin_system.components import action, filter, model, provider
from bot.plugin_system.plugin import Plugin
from bot.receipts import REPLAY_KEY, TRACE_KEY, RecordedText, ReplayRecord
from bot.runtime.character_reload import AgentConfig
from bot.runtime.replay import replay_turn
from bot.store.protocols import Store
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.testing.scripted_model import StreamedText
from bot.turn import Agent, Turn, TurnEnded

MAX_BYTES = 5 * 1024  # of a record, on average


@action("FORECAST", "Tell the weather.", effect=Effect.PURE)
async def forecast(turn: Turn, city: str) -> ActionResult:
    await turn.reply(f"One moment, I look at {city}.")
    return ActionResult(text=f"mild in {city}, read {len(turn.state.results)} times", values={"city": city}, authors=())


@model(ModelType.TRANSCRIPTION)
async def transcribe(agent: Agent, request: Any) -> TextResult:
    return TextResult("Ada, what do you think?", "ears")


@model(ModelType.IMAGE_DESCRIPTION)
async def describe(agent: Agent, request: Any) -> TextResult:
    return TextResult("<title>A quay</title><description>A quay at night.</description>", "eyes")


PLUGIN = Plugin("parts", "An action and two readers.", actions=[forecast], models=[transcribe, describe])
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


class FileAdapter(RecordingAdapter):
    """An adapter whose platform stores the files of messages."""

    async def download(self, url: str) -> bytes | None:
        return PNG if url.endswith("png") else b"OggS" + bytes(400)


def write_text(request: TextRequest) -> str | StreamedText | TextResult:
    """Answer each purpose so that all of the pipeline is used: an action, a broken answer, providers, two steps."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>they ask all</reasoning><action>RESPOND</action></response>"
    if request.purpose is Purpose.STEP:
        name = "FORECAST" if "mild in" not in request.prompt else ""
        return model_answer(actions=[name] if name else [], parameters={"city": "Rome"} if name else None)
    if request.purpose is Purpose.SUMMARY:
        return model_answer("It is mild in Rome.")
    said = [line for line in request.prompt.splitlines() if line.startswith("[")][-1:]
    newest = said[0] if said else request.prompt
    if "weather" in newest and request.tools:
        return TextResult("I look.", tool_calls=(ToolCall("FORECAST", {"city": "Rome"}),))
    if "weather" in newest:
        return model_answer("I look.", actions=["REPLY", "FORECAST"], parameters={"city": "Rome"})
    if "unclear" in newest and "Your last answer" not in request.prompt:
        return "<response><actions>REPLY</actions><text></text></response>"
    return StreamedText(
        "<response><actions>REPLY</actions>", "<text>Hello, ", "it is good to see you.", "</text></response>"
    )


def config_of(harness: AgentHarness) -> AgentConfig:
    """Return what the agent was built from."""
    definition = harness.agent.read_definition()
    plugins = tuple(harness.agent_runtime.registry.plugins)
    return AgentConfig(definition.character, plugins, definition.settings, clock=harness.agent.clock)


@asynccontextmanager
async def recording(
    store: Store,
    *plugins: Plugin,
    script: Any = write_text,
    settings: dict[str, str] | None = None,
    adapter: RecordingAdapter | None = None,
    **options: Any,
) -> AsyncIterator[tuple[AgentHarness, "asyncio.Queue[Turn]"]]:
    """Run an agent on a store; the queue receives each turn once it has ended and its record is to be stored."""
    ended = asyncio.Queue[Turn]()

    async def note(event: TurnEnded) -> None:
        ended.put_nowait(event.turn)

    scripted = ScriptedModel(script, **options)
    async with running_agent(
        PLUGIN, *plugins, model=scripted, store=store, settings=settings or {}, adapter=adapter or FileAdapter()
    ) as harness:
        harness.agent.events.subscribe(TurnEnded, note)
        yield harness, ended


async def replay(harness: AgentHarness, receipt: Receipt, **changes: Any) -> ReplayBody:
    """Replay a message that has ended."""
    assert receipt.turn_id is not None
    await harness.agent_runtime.handle.conversations.trace(receipt.turn_id)  # stores what the last moments noted
    return await replay_turn(harness.agent.store, receipt, replace(config_of(harness), **changes))


def list_messages() -> Sequence[tuple[str | Content, dict[str, Any]]]:
    group = {"kind": ChannelType.GROUP, "room": "square"}
    voice = Attachment("v", MediaKind.AUDIO, "https://files.test/v.ogg", "audio/ogg")
    picture = Attachment("p", MediaKind.IMAGE, "https://files.test/p.png", "image/png")
    return (
        ("Hello there", {}),
        ("How is the weather in Rome?", {}),
        ("this is unclear", {}),
        ("Ada, are you here?", group),
        ("what does everybody think of it?", {**group, "author": "Kim"}),
        (Content("Look at this", attachments=(picture,), source="test"), {}),
        (Content("", attachments=(voice,), source="test"), {**group, "author": "Kim"}),
    )


@pytest.mark.matrix(4)
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"STREAMING": "false"}, {}),
        ({"STREAMING": "true"}, {}),
        ({"USE_MULTI_STEP": "true"}, {}),
        ({}, {"can_write_json": True}),
        ({"MODEL_ANSWER_FORM": "text"}, {}),
        ({"VOICE_REPLIES": "always", "APPROVAL": "off"}, {"can_call_tools": True}),
    ],
    ids=["whole", "streamed", "multi-step", "json", "plain text", "tools"],
)
async def test_a_replay_is_equal_byte_for_byte(store: Store, settings: dict[str, str], options: dict[str, Any]) -> None:
    sizes, steps = [], set[str]()
    async with recording(store, settings=settings, **options) as (harness, ended):
        for content, details in list_messages():
            receipt = await harness.send(content, **details)
            turn = await ended.get()
            assert receipt.outcome in (Outcome.ANSWERED, Outcome.FAILED)
            body = await replay(harness, receipt)
            assert (body.state, body.reason, body.differences) == (ReplayState.EQUAL, "", ())
            assert "outcome" in body.steps
            steps.update(body.steps)
            sizes.append(len((await store.ledger.steps(turn.id))[TRACE_KEY].result[REPLAY_KEY]))
    assert sum(sizes) / len(sizes) < MAX_BYTES
    assert ("action 1" in steps) is (settings.get("MODEL_ANSWER_FORM") != "text")  # which has no actions
    assert "prompt 1 (should_respond)" in steps


@pytest.mark.long
async def test_marks_are_replayed_as_they_were_and_not_as_they_are(store: Store) -> None:
    async with recording(store) as (harness, ended):
        author = make_message("Hello there", sent_at=harness.agent.clock()).author
        unmarked = await harness.send("Hello there")
        await ended.get()
        await harness.agent_runtime.handle.operations.mark_minor(author, is_minor=True, source="the test")
        marked = await harness.send("Hello again")
        await ended.get()
        assert "A minor takes part" in harness.model.requests[-1].system
        for receipt in (unmarked, marked):
            assert (await replay(harness, receipt)).state is ReplayState.EQUAL


async def test_a_turn_that_a_restart_interrupted_is_replayed_from_its_journal(store: Store) -> None:
    begun = asyncio.Event()

    @action("SECOND", "Do the second.", effect=Effect.KEYED)
    async def second(turn: Turn) -> ActionResult:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return ActionResult(text="done twice", authors=())

    plugin = Plugin("two", "A second action.", actions=[second])
    script = [
        model_answer("Both.", actions=["REPLY", "FORECAST", "SECOND"], parameters={"FORECAST": {"city": "Rome"}}),
        model_answer("It is mild, and done twice."),
    ]
    async with recording(store, plugin, script=script) as (harness, _):
        receipt = await harness.submit("Both, please: FORECAST Rome and SECOND")
        await begun.wait()
        await harness.agent_runtime.inbox.processor.release()
    async with recording(store, plugin, script=script[1:]) as (harness, ended):
        receipt = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await ended.get()
        body = await replay(harness, receipt)
        assert (receipt.rule, body.state, body.differences) == (Rule.RESTART, ReplayState.EQUAL, ())
        assert {"action 1", "action 2", "reply 1"} <= set(body.steps)


@pytest.mark.long
async def test_messages_with_the_same_answer_are_replayed_in_its_turn(store: Store) -> None:
    waits, release = asyncio.Event(), asyncio.Event()

    async def write(request: TextRequest) -> str:
        if not waits.is_set():
            waits.set()
            await release.wait()
        return model_answer("To both of you.")

    async with recording(store, script=write) as (harness, ended):
        first = await harness.submit("One")
        await waits.wait()
        second = await harness.send("Two")
        first = await harness.agent_runtime.inbox.wait_outcome(first.id)
        while (await ended.get()).inputs[-1].receipt.id != second.id:
            pass
        assert (await replay(harness, second)).state is ReplayState.EQUAL
        superseded = await replay(harness, first)
        assert superseded.state is ReplayState.NOT_REPLAYED
        assert str(second.memory_id) in superseded.reason


async def test_the_first_difference_names_the_step_the_line_and_both_texts(store: Store) -> None:
    async with recording(store) as (harness, ended):
        receipt = await harness.send("How is the weather in Rome?")
        await ended.get()
        await harness.agent_runtime.handle.conversations.trace(receipt.turn_id or receipt.id)
        step = (await store.ledger.steps(receipt.turn_id or receipt.id))[TRACE_KEY]
        record = ReplayRecord.decode(step.result[REPLAY_KEY])
        texts = (RecordedText(item.text.replace("Rome", "Oslo"), item.values) for item in record.texts)
        broken = replace(record, texts=tuple(texts))
        await store.ledger.save_step(replace(step, result={**step.result, REPLAY_KEY: broken.encode()}))
        body = await replay(harness, receipt)
        [difference] = body.differences
        assert (body.state, difference.step) == (ReplayState.DIFFERENT, "prompt 1 (reply)")
        assert difference.recorded.endswith("How is the weather in Rome?")
        assert difference.replayed.endswith("How is the weather in Oslo?")
        assert difference.line > 1
        assert f"+{difference.replayed}" in difference.diff


async def test_another_character_shows_what_changes(store: Store) -> None:
    async with recording(store) as (harness, ended):
        receipt = await harness.send("Hello there")
        await ended.get()
        other = config_of(harness)
        other = replace(other, character=other.character.model_copy(update={"bio": ("She is a pirate.",)}))
        await harness.agent_runtime.handle.conversations.trace(receipt.turn_id or receipt.id)
        body = await replay_turn(store, receipt, config_of(harness), other)
        [difference] = body.differences
        assert difference.step == "prompt 1 (reply)"
        assert any(line.startswith("+") and "pirate" in line for line in difference.diff)


@pytest.mark.long
async def test_what_was_erased_is_not_replayed(store: Store) -> None:
    async with recording(store) as (harness, ended):
        receipt = await harness.send("Hello there")
        await ended.get()
        assert (await replay(harness, receipt)).state is ReplayState.EQUAL
        await harness.agent_runtime.handle.operations.forget_person(receipt.author_id, source="the test")
        receipt = await store.ledger.receipt(receipt.id) or receipt
        assert (await replay(harness, receipt)).state is ReplayState.NOT_REPLAYED


async def test_what_has_expired_or_ran_with_another_version_is_not_replayed(store: Store) -> None:
    async with recording(store) as (harness, ended):
        receipt = await harness.send("Hello there")
        await ended.get()
        later = await replay(harness, receipt, clock=lambda: harness.agent.clock() + timedelta(days=8))
        assert later.reason == "it expired: replay records are kept for 7 days (REPLAY_KEEP)"
        changed = await replay(harness, receipt, file_version="abc")
        assert "another version ran it: its character was" in changed.reason


async def test_with_replay_keep_0_nothing_is_stored_for_it(store: Store) -> None:
    async with recording(store, settings={"REPLAY_KEEP": "0"}) as (harness, ended):
        receipt = await harness.send("Hello there")
        await ended.get()
        assert (await replay(harness, receipt)).state is ReplayState.NOT_REPLAYED
        assert REPLAY_KEY not in (await store.ledger.steps(receipt.turn_id or receipt.id))[TRACE_KEY].result


async def test_a_replay_sends_nothing_and_stores_nothing(store: Store) -> None:
    async with recording(store) as (harness, ended):
        receipt = await harness.send("How is the weather in Rome?")
        await ended.get()
        before = (list(harness.texts), len(harness.model.requests), await store.memories.recent(receipt.room_id, 50))
        assert (await replay(harness, receipt)).state is ReplayState.EQUAL
        assert before == (harness.texts, len(harness.model.requests), await store.memories.recent(receipt.room_id, 50))


async def test_what_a_plugin_gives_that_is_no_json_costs_the_record_and_not_the_answer(store: Store) -> None:
    class Unreadable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @provider("ODD", "Gives an object.")
    async def odd(turn: Turn) -> ProviderResult:
        return ProviderResult("odd", values={"odd": Unreadable()}, authors=())

    async with recording(store, Plugin("odd", "Odd.", providers=[odd])) as (harness, ended):
        receipt = await harness.send("Hello there")
        await ended.get()
        assert receipt.outcome is Outcome.ANSWERED
        assert (await replay(harness, receipt)).state is ReplayState.NOT_REPLAYED


@model(ModelType.MODERATION)
async def moderate(agent: Agent, request: ModerationRequest) -> ModerationResult:
    if "fails" in request.text:
        raise ModelUnavailable("it is down")
    return ModerationResult({"hate": 0.9}, frozenset({"hate"} if "good to see" in request.text else ()))


@filter("out", "LOUD", "Speaks loudly.")
async def loud(agent: Agent, given: FilterInput) -> FilterDecision:
    """Return the text in capitals; another text each time, as a service may."""
    return FilterDecision.replace(f"{given.text.upper()} {next(NUMBERS)}", "it was too quiet")


NUMBERS = count()


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"FILTER_MODERATION": "on", "FILTER_MODERATION_ACTION": "stop"}, Rule.FILTERED),
        pytest.param({"FILTER_MODERATION": "on", "FILTER_MODERATION_ACTION": "hold"}, "", marks=pytest.mark.long),
        ({"FILTER_WORDS": "marmalade", "FILTER_WORDS_ACTION": "replace"}, ""),
    ],
    ids=["stopped", "held", "masked"],
)
async def test_a_filtered_turn_is_replayed_with_what_its_filters_decided(
    store: Store, settings: dict[str, str], rule: str
) -> None:
    plugin = Plugin("filters", "Two filters.", models=[moderate], filters=[loud])
    async with recording(store, plugin, settings=settings) as (harness, ended):
        for text in ("Hello there, marmalade", "it fails", "this is unclear"):
            receipt = await harness.send(text)
            await ended.get()
            body = await replay(harness, receipt)
            assert (body.state, body.reason, body.differences) == (ReplayState.EQUAL, "", ())
            if rule:
                assert receipt.rule == rule
            step = (await store.ledger.steps(receipt.turn_id or receipt.id))[TRACE_KEY]
            record = ReplayRecord.decode(step.result[REPLAY_KEY])
            assert "FILTER_WORDS" not in settings or "marmalade" not in repr(record)


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("words", "ends"),
    [("Hello there", "a person"), ("How is the weather in Rome?", "a person"), ("Hello there", "the time limit")],
)
async def test_a_turn_that_was_ended_from_outside_is_replayed_up_to_there(store: Store, words: str, ends: str) -> None:
    waits = asyncio.Event()

    async def write(request: TextRequest) -> str | StreamedText | TextResult:
        if request.purpose is Purpose.STEP and "mild in" not in request.prompt:
            return write_text(request)
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    settings = {"RESPONSE_TIMEOUT": "1000"} if ends == "the time limit" else {}
    settings |= {"USE_MULTI_STEP": "true"} if "weather" in words else {}
    async with recording(store, script=write, settings=settings) as (harness, ended):
        receipt = await harness.submit(words)
        await waits.wait()
        if ends == "a person":
            harness.agent_runtime.pipeline.active_turns.stop(receipt.id)
        receipt = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await ended.get()
        assert receipt.rule == (Rule.STOPPED if ends == "a person" else Rule.RESPONSE_TIMEOUT)
        body = await replay(harness, receipt)
        assert (body.state, body.reason, body.differences) == (ReplayState.EQUAL, "", ())
        assert ("action 1" in body.steps) is ("weather" in words)
        assert body.steps[-1] == "outcome"
        assert f"prompt {'2 (step)' if 'weather' in words else '1 (reply)'}" in body.steps


class Journey:
    """A day of one bot: a recorded conversation, the messages of `list_messages`, and a restart amid an action."""

    def __init__(self, store: Store, number: int, settings: dict[str, str], options: dict[str, Any]) -> None:
        self._store, self._number, self._settings, self._options = store, number, settings, options
        self._line: RecordedMessage | None = None
        self._begun = asyncio.Event()
        self.states, self.steps = Counter[str](), Counter[str]()
        self.failures: list[ReplayBody] = []

        @action("SECOND", "Do the second.", effect=Effect.KEYED)
        async def second(turn: Turn) -> ActionResult:
            if not self._begun.is_set():
                self._begun.set()
                await asyncio.Event().wait()  # the process ends here
            return ActionResult(text="done twice", authors=())

        self._plugin = Plugin("two", "A second action.", actions=[second])

    async def run(self) -> None:
        """Run the bot up to an action that it does not end, start it again, and replay each turn that asked a model."""
        lines = load_recording()
        middle = len(lines) // 2
        async with self._running() as (harness, ended):
            for content, details in list_messages():
                await self._send(harness, ended, content, **details)
            await self._talk(harness, ended, lines[:middle])
            interrupted = await harness.submit("Both, please: FORECAST Rome and SECOND", room=f"hall {self._number}")
            await self._begun.wait()
            await harness.agent_runtime.inbox.processor.release()
        async with self._running() as (harness, ended):
            receipt = await harness.agent_runtime.inbox.wait_outcome(interrupted.id)
            assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, Rule.RESTART)
            await self._replay(harness, ended, receipt)
            await self._talk(harness, ended, lines[middle:])

    def _running(self) -> AbstractAsyncContextManager[tuple[AgentHarness, "asyncio.Queue[Turn]"]]:
        adapter = FileAdapter(can_edit=True, stream_interval=0.0 if self._settings["STREAMING"] == "true" else None)
        return recording(
            self._store, self._plugin, script=self._write, settings=self._settings, adapter=adapter, **self._options
        )

    def _write(self, request: TextRequest) -> str | StreamedText | TextResult:
        if self._line is not None and request.purpose in (Purpose.SHOULD_RESPOND, Purpose.REPLY):
            is_decision = request.purpose is Purpose.SHOULD_RESPOND
            answer = model_answer(self._line.reply or "Yes.")
            decision = f"<response><action>{self._line.decision}</action></response>"
            return decision if is_decision else StreamedText(answer[:70], answer[70:])
        if "Both, please" not in request.prompt or request.purpose is Purpose.SUMMARY:
            return write_text(request)
        if request.purpose is not Purpose.STEP:
            return model_answer("Both.", actions=["FORECAST", "SECOND"], parameters={"FORECAST": {"city": "Rome"}})
        if "mild in" not in request.prompt:
            return model_answer(actions=["FORECAST"], parameters={"city": "Rome"})
        return model_answer(actions=[] if "done twice" in request.prompt else ["SECOND"])

    async def _talk(
        self, harness: AgentHarness, ended: "asyncio.Queue[Turn]", lines: Sequence[RecordedMessage]
    ) -> None:
        for self._line in lines:
            mention = MentionContext(is_reply=self._line.is_reply)
            content = Content(self._line.text, source="test", mention=mention)
            room = f"greenroom {self._number}"
            await self._send(harness, ended, content, author=self._line.author, room=room, kind=ChannelType.GROUP)
        self._line = None

    async def _send(
        self, harness: AgentHarness, ended: "asyncio.Queue[Turn]", content: str | Content, **details: Any
    ) -> None:
        details["room"] = details.get("room", f"porch {self._number}")
        await self._replay(harness, ended, await harness.send(content, **details))

    async def _replay(self, harness: AgentHarness, ended: "asyncio.Queue[Turn]", receipt: Receipt) -> None:
        turn = await ended.get()
        if not turn.trace.answers:
            return  # no model was asked
        body = await replay(harness, receipt)
        self.states[body.state] += 1
        self.steps.update(step.partition(" ")[0] for step in body.steps)
        if body.state is not ReplayState.EQUAL:
            self.failures.append(body)


VARIANTS: Sequence[tuple[dict[str, str], dict[str, Any]]] = (
    ({}, {}),
    ({"USE_MULTI_STEP": "true"}, {}),
    ({"VOICE_REPLIES": "always", "APPROVAL": "off"}, {"can_call_tools": True}),
    ({}, {"can_write_json": True}),
)


async def replay_journeys(store: Store, wanted: int, *, is_streamed: bool) -> Counter[str]:
    """Replay at least as many turns as `wanted`; print and return how many of each step were compared."""
    states, steps = Counter[str](), Counter[str]()
    number = 0
    while states.total() < wanted:
        settings, options = VARIANTS[number % len(VARIANTS)]
        settings = {"STREAMING": str(is_streamed).lower(), "BURST_PAUSE": "0", **settings}
        journey = Journey(store, number, settings, options)
        await journey.run()
        assert journey.failures == []
        states += journey.states
        steps += journey.steps
        number += 1
    compared = ", ".join(f"{count} {name}" for name, count in steps.items())
    print(f"{states.total()} turns replayed equal, {number} restarts; {compared}")  # noqa: T201  # the counts are the result
    return steps


@pytest.mark.long
async def test_the_turns_of_a_journey_are_replayed_equal(store: Store) -> None:
    steps = await replay_journeys(store, 1, is_streamed=True)
    assert steps["action"] > 1


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_a_thousand_turns_are_replayed_equal(store: Store, is_streamed: bool) -> None:
    steps = await replay_journeys(store, 1_000, is_streamed=is_streamed)
    assert min(steps[name] for name in ("decision", "prompt", "action", "reply", "outcome")) > 50
