"""The content stage: filters see messages before the gate and replies before the commit; what they decide holds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import (
    Agent,
    Content,
    Effect,
    FilterDecision,
    FilterInput,
    MemoryKind,
    Outcome,
    Plugin,
    PluginError,
    RecallScope,
    Receipt,
    Room,
    Rule,
    Turn,
    World,
    action,
    filter,
)
from bot.care.recognition import find_distress
from bot.domain.content import Attachment, MediaKind, MentionContext, Quotation
from bot.domain.filters import STOPPED_TEXT
from bot.domain.ids import derived_id
from bot.domain.ledger import DeliveryKind
from bot.errors import ConfigError
from bot.events import TextFiltered
from bot.pipeline.filters import hold_with_inputs, load_words, parse_words
from bot.pipeline.respond import stream_draft
from bot.plugin_system.components import Filter
from bot.prompts.reply_parser.reader import NO_CONTEXT
from bot.store import InMemoryStore
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    check_plugin_contract,
    make_turn,
    model_answer,
    running_agent,
)

Decide = Callable[[str], FilterDecision | None]
SECRET_WORD = "xyzzy"


def build_filter(direction: Any, decide: Decide, **options: Any) -> Filter:
    @filter(direction, "CHECK", "Checks a text.", **options)
    async def check(agent: Agent, given: FilterInput) -> FilterDecision | None:
        return decide(given.text)

    return check


def plugin_of(direction: Any, decide: Decide, **options: Any) -> Plugin:
    return Plugin("checks", "Checks.", filters=[build_filter(direction, decide, **options)])


def stop(text: str) -> FilterDecision | None:
    return FilterDecision.stop("it is about magic") if SECRET_WORD in text else None


def hold(text: str) -> FilterDecision | None:
    return FilterDecision.hold("a person looks at it") if SECRET_WORD in text else None


def mask(text: str) -> FilterDecision:
    return FilterDecision.replace(text.replace(SECRET_WORD, "magic"), "a word was replaced")


async def read_stored(harness: AgentHarness, receipt: Receipt) -> Content:
    found = await harness.agent.store.memories.memories([receipt.memory_id])
    return found[receipt.memory_id].content


async def test_a_stopped_message_is_ignored_and_no_model_nor_log_sees_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_agent(plugin_of("in", stop)) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}")
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.FILTERED)
        assert receipt.reason == "filter CHECK stopped the text: it is about magic"
        assert receipt.is_evaluated
        assert harness.texts == []
        assert (await read_stored(harness, receipt)).text == STOPPED_TEXT
        await harness.send("hello")
        assert not any(SECRET_WORD in request.prompt for request in harness.model.requests)
        scope = RecallScope(receipt.room_id, receipt.room_id)
        assert await harness.agent.store.memories.search(SECRET_WORD, scope, MemoryKind.MESSAGE) == []
    assert SECRET_WORD not in caplog.text


async def test_the_character_reads_the_text_that_replaces_a_message() -> None:
    async with running_agent(plugin_of("in", mask)) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}")
        assert receipt.outcome is Outcome.ANSWERED
        assert receipt.notes == ("filter CHECK replaced the text: a word was replaced",)
        assert "say magic" in harness.model.requests[-1].prompt
        assert SECRET_WORD not in harness.model.requests[-1].prompt
        assert (await read_stored(harness, receipt)).text == "say magic"


async def test_an_edit_is_checked_again() -> None:
    async with running_agent(plugin_of("in", mask)) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}", message_id="1")
        memory = (await harness.agent.store.memories.memories([receipt.memory_id]))[receipt.memory_id]
        edited = replace(memory, content=replace(memory.content, text=f"no, {SECRET_WORD}"))
        await harness.agent.store.memories.add([edited])
        turn = Turn.for_preview(harness.agent, "x")
        turn.inputs[-1].message = edited
        await harness.agent.filters.check_message(turn)
        assert turn.message.content.text == "no, magic"


@pytest.mark.parametrize(
    ("decide", "text", "problem"), [(stop, "", "a filter stopped what it contains"), (mask, "say magic", "")]
)
async def test_what_was_read_of_an_attachment_is_checked_before_the_character_reads_it(
    decide: Decide, text: str, problem: str
) -> None:
    async with running_agent(plugin_of("in", decide)) as harness:
        turn = make_turn(harness.agent, "listen")
        read = Attachment("1", MediaKind.AUDIO, "https://files.example/1.ogg", text=f"say {SECRET_WORD}")
        turn.inputs[-1].message = replace(turn.message, content=replace(turn.message.content, attachments=(read,)))
        checked = await harness.agent.filters.check_attachment(turn, read)
        assert (checked.text, checked.problem) == (text, problem)
        assert turn.inputs[-1].original_text == f"listen\nsay {SECRET_WORD}"
        assert [note for note in turn.notes if "(in an attachment)" in note]


async def test_what_a_message_quotes_is_checked_too() -> None:
    author_id = derived_id("somebody")
    content = Content("what is this?", quotation=Quotation(f"it is {SECRET_WORD}", "Kim", author_id))
    async with running_agent(plugin_of("in", stop)) as harness:
        receipt = await harness.send(content)
        assert receipt.outcome is Outcome.ANSWERED
        stored = await read_stored(harness, receipt)
        assert (stored.text, stored.quotation and stored.quotation.text) == ("what is this?", STOPPED_TEXT)
        assert SECRET_WORD not in harness.model.requests[-1].prompt


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_held_text_gives_the_turn_a_reason_to_wait_for_a_person(direction: str) -> None:
    reasons: list[str] = []

    @action("LOOK", "Looks.", effect=Effect.PURE)
    async def look(turn: Turn) -> None:
        await turn.reply(f"I see {SECRET_WORD}")
        reasons.append(turn.hold_reason)

    plugin = replace(plugin_of(direction, hold), actions=[look])
    answer = model_answer("", actions=["LOOK"])
    async with running_agent(plugin, model=ScriptedModel([answer])) as harness:
        receipt = await harness.send(f"look for {SECRET_WORD}")
        assert reasons == ["filter CHECK held the text: a person looks at it"]
        assert reasons[0] in receipt.notes


async def test_what_was_decided_of_a_message_is_stored_and_holds_after_a_restart() -> None:
    asked: list[str] = []

    def decide(text: str) -> FilterDecision | None:
        asked.append(text)
        return hold(text)

    store = InMemoryStore()
    async with running_agent(plugin_of("in", decide), store=store) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}")
    async with running_agent(plugin_of("in", decide), store=store) as harness:
        earlier = (await store.memories.memories([receipt.memory_id]))[receipt.memory_id]
        resumed = make_turn(harness.agent, "x")
        resumed.inputs[-1].message = earlier
        assert await harness.agent.filters.check_message(resumed) == ""
        assert resumed.hold_reason == "filter CHECK held the text: a person looks at it"
        newer = make_turn(harness.agent, "hello")  # it has taken over the message whose answer waits
        newer.inputs.insert(0, resumed.inputs[-1])
        hold_with_inputs(newer)
        assert newer.hold_reason == resumed.hold_reason
    assert asked == [f"say {SECRET_WORD}"]


async def test_a_stopped_reply_is_not_sent_and_the_receipt_says_which_filter_and_why() -> None:
    model = ScriptedModel(model_answer(f"It is {SECRET_WORD}."))
    async with running_agent(plugin_of("out", stop), model=model) as harness:
        receipt = await harness.send("what is it?")
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.FILTERED)
        assert receipt.reason == "filter CHECK stopped the text: it is about magic"
        assert harness.texts == []
        assert receipt.turn_id is not None
        assert await harness.agent.store.memories.by_turn(receipt.turn_id) == []


async def test_a_replaced_reply_is_sent_as_the_filter_left_it() -> None:
    model = ScriptedModel(model_answer(f"It is {SECRET_WORD}."))
    async with running_agent(plugin_of("out", mask), model=model) as harness:
        receipt = await harness.send("what is it?")
        assert harness.texts == ["It is magic."]
        assert receipt.notes == ("filter CHECK replaced the text: a word was replaced",)


async def test_the_result_of_an_action_that_is_shown_is_checked() -> None:
    @action("LOOK", "Looks.")
    async def look(turn: Turn) -> None:
        await turn.reply(f"I see {SECRET_WORD}")

    plugin = replace(plugin_of("out", stop), actions=[look])
    model = ScriptedModel([model_answer("", actions=["LOOK"]), model_answer("Nothing to see.")])
    async with running_agent(plugin, model=model) as harness:
        receipt = await harness.send("look")
        assert harness.texts == ["Nothing to see."]
        assert "filter CHECK stopped the text: it is about magic" in receipt.notes


@pytest.mark.parametrize(("decide", "waiting"), [(stop, []), (hold, [f"Remember {SECRET_WORD}"])])
async def test_a_reminder_and_a_post_that_are_stopped_are_not_sent_and_held_ones_wait(
    decide: Decide, waiting: list[str]
) -> None:
    async with running_agent(plugin_of("out", decide)) as harness:
        await harness.send("hello")
        [room] = await harness.agent.store.worlds.rooms()
        assert await harness.agent.say(room, f"Remember {SECRET_WORD}", key="1") is None
        assert await harness.agent.say(room, "Remember the milk", key="2") is not None
        await harness.agent.outbox.drain(5.0)
        assert harness.texts[1:] == ["Remember the milk"]
        assert [proposal.content.text for proposal in await harness.agent.proposals.waiting()] == waiting


async def test_distress_is_recognised_in_the_original_text_before_any_filter() -> None:
    def stop_all(text: str) -> FilterDecision:
        return FilterDecision.stop("nothing is read")

    assert find_distress("I want to die") is not None
    async with running_agent(plugin_of("in", stop_all)) as harness:
        content = Content("I want to die", mention=MentionContext(is_mention=True))
        receipt = await harness.send(content)
        assert receipt.rule == Rule.FILTERED
        assert [part.kind for part in harness.adapter.sent] == [DeliveryKind.REFERRAL]


@pytest.mark.parametrize(
    ("direction", "reason", "is_streamed"), [("out", "", False), ("in", "", True), ("in", "it waits", False)]
)
async def test_nothing_is_streamed_where_replies_are_checked_or_wait(
    direction: str, reason: str, *, is_streamed: bool
) -> None:
    adapter = RecordingAdapter(can_edit=True, stream_interval=1.0)
    async with running_agent(plugin_of(direction, stop), adapter=adapter) as harness:
        turn = make_turn(harness.agent, "hello")
        turn.hold_reason = reason
        with stream_draft(turn, lambda: NO_CONTEXT) as sink:
            assert (sink is not None) is is_streamed


async def test_a_filter_whose_condition_does_not_hold_is_not_asked() -> None:
    def is_used(agent: Agent, room: Room, world: World) -> bool:
        return room.name == "elsewhere"

    async with running_agent(plugin_of("in", stop, when=is_used)) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}")
        assert receipt.outcome is Outcome.ANSWERED


async def hang(agent: Agent, given: FilterInput) -> None:
    await asyncio.Event().wait()


async def fail(agent: Agent, given: FilterInput) -> None:
    raise ValueError(given.text)


async def return_text(agent: Agent, given: FilterInput) -> Any:
    return given.text


@pytest.mark.parametrize(
    ("handler", "cause"),
    [
        (hang, "no answer within 0.05 s"),
        (fail, "ValueError"),
        (return_text, "it returned str instead of a FilterDecision"),
    ],
)
@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_filter_that_fails_or_hangs_counts_as_declared_and_is_noted_once(
    handler: Callable[..., Awaitable[Any]], cause: str, on_failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken = filter("in", "BROKEN", "Breaks.", on_failure=on_failure, timeout=0.05)(handler)
    async with running_agent(Plugin("broken", "Breaks.", filters=[broken])) as harness:
        receipt = await harness.send(f"say {SECRET_WORD}")
        is_open = on_failure == "open"
        assert receipt.outcome is (Outcome.ANSWERED if is_open else Outcome.IGNORED)
        assert receipt.notes == (f"filter BROKEN failed ({cause}), which counts as {on_failure}",)
        assert harness.texts == (["Hello."] if is_open else [])
    assert SECRET_WORD not in "".join(
        record.getMessage() for record in caplog.records if "BROKEN" in record.getMessage()
    )


async def test_each_decision_is_reported_by_filter() -> None:
    events: list[TextFiltered] = []
    model = ScriptedModel(model_answer(f"It is {SECRET_WORD}."))
    async with running_agent(plugin_of("out", stop), model=model) as harness:
        harness.agent.events.subscribe(TextFiltered, events.append, at_once=True)
        await harness.send("what is it?")
    assert [(event.filter, event.direction, event.outcome) for event in events] == [("CHECK", "out", "stopped")]


async def test_filters_are_asked_in_order_and_see_what_is_left() -> None:
    seen: list[str] = []

    @filter("out")
    def second(agent: Agent, given: FilterInput) -> None:
        """Looks at the text."""
        seen.append(given.text)

    plugin = Plugin("checks", "Checks.", filters=[build_filter("out", mask), second])
    async with running_agent(plugin, model=ScriptedModel(model_answer(SECRET_WORD))) as harness:
        await harness.send("what is it?")
        assert [spec.name for spec in harness.agent.catalog.filters] == ["CHECK", "SECOND"]
    assert seen == ["magic"]
    assert (second.spec.name, second.spec.description) == ("SECOND", "Looks at the text.")


def test_a_filter_is_refused_with_an_unknown_direction_failure_or_timeout() -> None:
    for options in ({"on_failure": "maybe"}, {"timeout": 0}, {"timeout": 11}, {"name": "no name"}):
        with pytest.raises(PluginError):
            filter("in", **options)(hang)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(PluginError, match='use "in" or "out"'):
        filter("sideways")(hang)  # type: ignore[arg-type]  # that is the point


@pytest.mark.long
async def test_a_filter_without_a_description_breaks_the_plugin_contract() -> None:
    results = await check_plugin_contract(Plugin("checks", "Checks.", filters=[filter("in", "CHECK")(hang)]))
    assert "CHECK has no description" in [problem for result in results for problem in result.problems]


WORDS = {"FILTER_WORDS": "badword, two words, 禁止"}


@pytest.mark.parametrize(
    "text",
    [
        "a BADWORD here",
        "b\u0430dw\u043erd",
        "b\u200badword",
        "two  words",
        "Two, words!",
        "ｂａｄｗｏｒｄ",
        "这是禁止的",
        "bádword",
    ],
)
async def test_a_listed_word_is_found_however_it_is_written(text: str) -> None:
    async with running_agent(settings=WORDS) as harness:
        receipt = await harness.send(text)
        assert receipt.reason == "filter WORDS stopped the text: it has a word of FILTER_WORDS"


@pytest.mark.parametrize("text", ["badwords", "notbadword", "two other words", "words two"])
async def test_a_listed_word_is_not_found_inside_another(text: str) -> None:
    async with running_agent(settings=WORDS) as harness:
        assert (await harness.send(text)).outcome is Outcome.ANSWERED


async def test_listed_words_are_masked_where_that_is_set() -> None:
    settings = {**WORDS, "FILTER_WORDS_ACTION": "replace"}
    async with running_agent(settings=settings, model=ScriptedModel(model_answer("No badword."))) as harness:
        receipt = await harness.send("a badword and two words.")
        assert (await read_stored(harness, receipt)).text == "a *** and ***."
        assert harness.texts == ["No ***."]


async def test_a_list_of_words_without_spaces_alone_is_used() -> None:
    async with running_agent(settings={"FILTER_WORDS": "禁止"}) as harness:
        assert (await harness.send("这是禁止的")).rule == Rule.FILTERED


async def test_words_are_read_from_a_file_and_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# insults\nbadword\n\ntwo words\n", encoding="utf-8")
    assert load_words(f"file:{path}") == parse_words("badword, two words")
    with pytest.raises(ConfigError, match=r"FILTER_WORDS: .*missing\.txt cannot be read"):
        load_words(f"file:{tmp_path / 'missing.txt'}")


async def test_a_room_has_words_of_its_own() -> None:
    async with running_agent() as harness:
        await harness.send("hello")
        [room] = await harness.agent.store.worlds.rooms()
        await harness.agent.store.worlds.set_setting(room.world_id, f"FILTER_WORDS:{room.id}", "badword")
        assert (await harness.send("badword")).rule == Rule.FILTERED
        assert (await harness.send("hello")).outcome is Outcome.ANSWERED
        assert await harness.agent.say(room, "badword") is None


async def test_a_reply_with_a_link_to_another_host_is_stopped_where_that_is_set() -> None:
    settings = {"FILTER_LINKS": "stop", "LINK_HOSTS": "example.org"}
    answers = [model_answer("See https://docs.example.org/a"), model_answer("See https://other.example/a")]
    async with running_agent(settings=settings, model=ScriptedModel(answers)) as harness:
        assert (await harness.send("where?")).outcome is Outcome.ANSWERED
        receipt = await harness.send("where else?")
        assert receipt.reason == "filter LINKS stopped the text: a link leads to a host that is not in LINK_HOSTS"


async def test_long_messages_and_replies_are_cut_at_a_sentence() -> None:
    settings = {"FILTER_MAX_LENGTH": "30", "FILTER_MAX_MESSAGE_LENGTH": "5"}
    model = ScriptedModel(model_answer("This is the first. This is the second one."))
    async with running_agent(settings=settings, model=model) as harness:
        receipt = await harness.send("hello there")
        assert harness.texts == ["This is the first."]
        assert (await read_stored(harness, receipt)).text == "hello…"
