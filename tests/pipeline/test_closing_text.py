"""Text that promises an effect waits for it, and a failed action is always followed by a closing text."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot import ActionResult, Effect, Outcome, Plugin, Turn, action
from bot.errors import BudgetSpent, ModelUnavailable
from bot.models import Purpose, TextRequest, TextResult, ToolCall, Usage
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter, ScriptedModel, StreamedText, model_answer, running_agent
from bot.user_texts import user_text

pytestmark = pytest.mark.usefixtures("nothing_held_back")

PROMISE = "Done, your table is booked!"
SUMMARY = "<response><text>I could not book it: no table is free.</text></response>"
CLOSING = "I could not book it: no table is free."


@action("BOOK", "Book a table.")
async def book(turn: Turn) -> ActionResult:
    return ActionResult(False, error="no table is free")


@action("BOOK_WELL", "Book a table.")
async def book_well(turn: Turn) -> ActionResult:
    return ActionResult(text="table 4 at eight")


@action("CONFIRM", "Book a table and say so.")
async def confirm(turn: Turn) -> ActionResult:
    await turn.reply("Table 4 is yours.")
    return ActionResult(text="table 4")


@action("RAISE", "Break.")
async def broken(turn: Turn) -> ActionResult:
    raise LookupError("the book is lost")


@action("LOOK", "Look for a table.", effect=Effect.PURE)
async def look(turn: Turn) -> ActionResult:
    return ActionResult(False, error="no table is free")


@action("MENU", "Read today's menu.", effect=Effect.PURE)
async def menu(turn: Turn) -> ActionResult:
    return ActionResult(text="soup and bread")


@action("SHOW_MENU", "Show today's menu.", effect=Effect.PURE)
async def show_menu(turn: Turn) -> ActionResult:
    await turn.reply("Soup and bread.")
    return ActionResult(text="soup and bread")


@action("OPEN_MENU", "Open the menu.", effect=Effect.PURE)
async def open_menu(turn: Turn) -> None:
    pass


@action("PAY", "Pay.")
async def pay(turn: Turn) -> None:
    pass


@action("REPORT", "Tell how each step went.", effect=Effect.PURE)
async def report(turn: Turn) -> ActionResult:
    steps = ", ".join(f"✓ {result.text}" for result in turn.results.values())
    await turn.reply(f"All steps: {steps}.")
    return ActionResult(text="told how it went")


ACTIONS = [book, book_well, confirm, broken, look, menu, show_menu, open_menu, pay, report]
RESTAURANT = Plugin("restaurant", "Tables.", actions=ACTIONS)


def by_tags(text: str, *names: str) -> TextResult:
    return TextResult(model_answer(text, actions=["REPLY", *names]))


def by_functions(text: str, *names: str) -> TextResult:
    return TextResult(text, tool_calls=tuple(ToolCall(name, {}) for name in names))


WAYS = pytest.mark.parametrize("write", [by_tags, by_functions], ids=["tags", "functions"])


async def answer(
    write: Callable[..., TextResult], *names: str, fail: Exception | None = None, text: str = PROMISE
) -> tuple[list[str], list[Purpose], tuple[Outcome, tuple[str, ...]]]:
    """Answer one message with a text and actions; return what was sent, the requests and the receipt."""

    def script(request: TextRequest) -> TextResult | str:
        if request.purpose is Purpose.SUMMARY and fail is not None:
            raise fail
        return SUMMARY if request.purpose is Purpose.SUMMARY else write(text, *names)

    model = ScriptedModel(script, can_call_tools=write is by_functions)
    async with running_agent(RESTAURANT, model=model) as harness:
        receipt = await harness.send("A table for two, please")
        purposes = [request.purpose for request in harness.model.requests]
        return harness.texts, purposes, (receipt.outcome, receipt.notes)


@WAYS
@pytest.mark.parametrize("names", [("BOOK",), ("RAISE",), ("BOOK_WELL", "BOOK"), ("NO_SUCH_ACTION",)])
async def test_a_promise_is_replaced_by_a_closing_text_when_an_action_fails(write: Any, names: tuple[str, ...]) -> None:
    texts, purposes, (outcome, _) = await answer(write, *names)
    assert texts == [CLOSING]
    assert purposes == [Purpose.REPLY, Purpose.SUMMARY]
    assert outcome is Outcome.ANSWERED


@WAYS
@pytest.mark.parametrize(
    ("name", "text"), [("PAY", PROMISE), ("BOOK_WELL", "Done: you have table 4, at *eight*, by the window.")]
)
async def test_a_text_that_tells_all_results_is_sent_once_without_another_model_call(
    write: Any, name: str, text: str
) -> None:
    texts, purposes, _ = await answer(write, name, name, text=text)
    assert (texts, purposes) == ([text], [Purpose.REPLY])


@WAYS
@pytest.mark.parametrize(
    "names",
    [("BOOK_WELL",), ("PAY", "BOOK_WELL"), ("BOOK_WELL", "MENU"), ("MENU", "BOOK_WELL"), ("BOOK_WELL", "OPEN_MENU")],
)
async def test_a_single_closing_text_reports_what_a_text_before_the_actions_could_not_know(
    write: Any, names: tuple[str, ...]
) -> None:
    texts, purposes, _ = await answer(write, *names)
    assert texts == [CLOSING]
    assert purposes == [Purpose.REPLY, Purpose.SUMMARY]


@WAYS
@pytest.mark.parametrize(
    "names", [("CONFIRM", "BOOK_WELL"), ("CONFIRM", "MENU"), ("MENU", "CONFIRM"), ("SHOW_MENU", "BOOK_WELL")]
)
async def test_a_result_next_to_an_action_that_replied_is_reported_in_a_closing_text(
    write: Any, names: tuple[str, ...]
) -> None:
    texts, purposes, _ = await answer(write, *names)
    assert texts == ["Soup and bread." if "SHOW_MENU" in names else "Table 4 is yours.", CLOSING]
    assert purposes == [Purpose.REPLY, Purpose.SUMMARY]


@WAYS
async def test_what_a_later_action_has_said_of_an_earlier_action_is_not_reported_again(write: Any) -> None:
    texts, purposes, _ = await answer(write, "BOOK_WELL", "REPORT")
    assert texts == ["All steps: ✓ table 4 at eight."]
    assert purposes == [Purpose.REPLY]


async def test_the_request_for_a_closing_text_shows_the_text_before_it_and_marks_what_is_reported() -> None:
    def script(request: TextRequest) -> str:
        names = ["REPLY", "CONFIRM", "MENU"]
        return SUMMARY if request.purpose is Purpose.SUMMARY else model_answer(PROMISE, actions=names)

    async with running_agent(RESTAURANT, model=ScriptedModel(script)) as harness:
        await harness.send("A table and the menu, please")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
    assert "- CONFIRM: ok, told already: table 4\n- MENU: ok: soup and bread" in request.prompt
    assert f"nobody has seen it. Keep what still holds and is not told already:\n{PROMISE}" in request.prompt


@pytest.mark.parametrize("error", [BudgetSpent("BUDGET_USD", "spent"), ModelUnavailable("not there")])
async def test_the_text_before_the_actions_is_sent_where_all_succeeded_and_no_model_can_tell_more(
    error: Exception,
) -> None:
    texts, _, (outcome, _) = await answer(by_tags, "BOOK_WELL", fail=error)
    assert (texts, outcome) == ([PROMISE], Outcome.ANSWERED)


@WAYS
async def test_a_promise_is_not_sent_when_the_actions_replied(write: Any) -> None:
    texts, purposes, (_, notes) = await answer(write, "CONFIRM")
    assert (texts, purposes) == (["Table 4 is yours."], [Purpose.REPLY])
    assert notes == ("the text of the answer was not sent, because the actions replied",)


@WAYS
async def test_a_failure_behind_an_action_that_replied_is_reported(write: Any) -> None:
    texts, purposes, _ = await answer(write, "CONFIRM", "BOOK")
    assert texts == ["Table 4 is yours.", CLOSING]
    assert purposes == [Purpose.REPLY, Purpose.SUMMARY]


async def test_the_summary_sees_what_the_actions_have_said() -> None:
    def script(request: TextRequest) -> str:
        return SUMMARY if request.purpose is Purpose.SUMMARY else model_answer(PROMISE, actions=["CONFIRM", "BOOK"])

    async with running_agent(RESTAURANT, model=ScriptedModel(script)) as harness:
        await harness.send("A table for two, please")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
    assert "(you): Table 4 is yours." in request.prompt
    assert "- BOOK: failed: no table is free" in request.prompt


@WAYS
async def test_text_next_to_actions_without_effect_is_sent_first_and_a_failure_is_reported(write: Any) -> None:
    texts, _, _ = await answer(write, "LOOK", text="I look into the book.")
    assert texts == ["I look into the book.", CLOSING]


@WAYS
@pytest.mark.parametrize(
    ("names", "are_reported"), [(("MENU",), True), (("SHOW_MENU",), False), (("OPEN_MENU",), False)]
)
async def test_what_an_action_without_effect_found_is_reported_after_the_text(
    write: Any, names: tuple[str, ...], are_reported: bool
) -> None:
    texts, purposes, _ = await answer(write, *names, text="Let me look.")
    own_reply = ["Soup and bread."] if names == ("SHOW_MENU",) else []
    assert texts == ["Let me look.", *own_reply, *([CLOSING] if are_reported else [])]
    assert purposes == [Purpose.REPLY, *([Purpose.SUMMARY] if are_reported else [])]


async def test_the_request_for_what_was_found_shows_the_result_and_the_text_before_it() -> None:
    def script(request: TextRequest) -> str:
        return SUMMARY if request.purpose is Purpose.SUMMARY else model_answer("Let me look.", actions=["MENU"])

    async with running_agent(RESTAURANT, model=ScriptedModel(script)) as harness:
        await harness.send("What is for lunch?")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
        assert harness.texts == ["Let me look.", CLOSING]
    assert "(you): Let me look." in request.prompt
    assert "- MENU: ok: soup and bread" in request.prompt


async def test_a_resumed_turn_tells_once_what_was_found() -> None:
    store, asked = InMemoryStore(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        if request.purpose is not Purpose.SUMMARY:
            return model_answer(PROMISE, actions=["REPLY", "BOOK_WELL", "MENU"])
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return SUMMARY

    model = ScriptedModel(script)
    async with running_agent(RESTAURANT, model=model, store=store) as harness:
        receipt = await harness.submit("A table and the menu, please")
        await asked.wait()
        await harness.agent_runtime.inbox.processor.release()
        assert harness.texts == []
    async with running_agent(RESTAURANT, model=model, store=store) as harness:
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts == [CLOSING]


async def test_a_resumed_turn_knows_what_its_actions_have_reported() -> None:
    store, begun = InMemoryStore(), asyncio.Event()

    @action("WAIT", "Wait.", effect=Effect.KEYED)
    async def wait(turn: Turn) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    plugin = Plugin("restaurant", "Tables.", actions=[confirm, wait])
    model = ScriptedModel(model_answer(PROMISE, actions=["CONFIRM", "WAIT"]))
    async with running_agent(plugin, model=model, store=store) as harness:
        receipt = await harness.submit("A table, please")
        await begun.wait()
        await harness.agent_runtime.inbox.processor.release()
    async with running_agent(plugin, model=model, store=store) as harness:
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    assert [request.purpose for request in model.requests] == [Purpose.REPLY]


@pytest.mark.matrix(3)
@WAYS
@pytest.mark.parametrize("error", [BudgetSpent("BUDGET_USD", "spent"), ModelUnavailable("not there")])
@pytest.mark.parametrize(
    ("names", "key"),
    [(("BOOK",), "failed"), (("BOOK_WELL", "BOOK"), "partly_done"), (("CONFIRM", "RAISE"), "partly_done")],
)
async def test_a_fixed_text_tells_a_failure_that_no_model_can_tell(
    write: Any, error: Exception, names: tuple[str, ...], key: str
) -> None:
    texts, _, (outcome, notes) = await answer(write, *names, fail=error)
    assert texts[-1] == user_text(f"actions.{key}")
    assert PROMISE not in texts
    assert outcome is Outcome.ANSWERED
    assert any(note.startswith("no model could tell what became of the actions") for note in notes)


async def test_a_budget_that_the_answer_used_up_leaves_a_fixed_text_without_a_model_call() -> None:
    model = ScriptedModel(TextResult(model_answer(PROMISE, actions=["BOOK"]), "scripted", Usage(30_000, 10)))
    async with running_agent(RESTAURANT, model=model, settings={"BUDGET_TOKENS": "20000"}) as harness:
        await harness.send("A table for two, please")
        assert [request.purpose for request in model.requests] == [Purpose.REPLY]
        assert harness.texts == [user_text("actions.failed")]


async def test_steps_end_with_a_fixed_text_when_no_model_can_tell_their_results() -> None:
    step = "<response><action>BOOK</action><parameters>{}</parameters><isFinish>true</isFinish></response>"

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            raise BudgetSpent("BUDGET_USD", "spent")
        return step

    async with running_agent(RESTAURANT, model=ScriptedModel(script), settings={"USE_MULTI_STEP": "true"}) as harness:
        receipt = await harness.send("A table for two, please")
        assert harness.texts == [user_text("actions.failed")]
        assert receipt.outcome is Outcome.ANSWERED


@pytest.mark.parametrize("head", ["", "<actions></actions>", "<actions>REPLY</actions>"])
async def test_a_draft_does_not_show_a_promise_while_its_action_runs(head: str) -> None:
    """Functions may be called behind the text; a draft of text that claims to call none is withdrawn."""
    seen: list[list[str]] = []
    adapter = RecordingAdapter(can_edit=True, stream_interval=0)
    written = f"<response>{head}<text>{PROMISE}</text></response>"

    @action("BOOK_SLOWLY", "Book a table.")
    async def book_slowly(turn: Turn) -> ActionResult:
        await turn.agent.outbox.drain(5.0)
        seen.append(visible(adapter))
        return ActionResult(False, error="no table is free")

    async def script(request: TextRequest) -> TextResult | str:
        if request.purpose is Purpose.SUMMARY:
            return SUMMARY
        assert request.sink is not None
        await request.sink.write(written)
        if "REPLY" in head:
            await adapter.wait_until_sent(1)
        else:
            await asyncio.sleep(0)
        return TextResult(written, tool_calls=(ToolCall("BOOK_SLOWLY", {}),))

    model = ScriptedModel(script, can_call_tools=True)
    plugin = Plugin("slow", "Tables.", actions=[book_slowly])
    async with running_agent(plugin, model=model, adapter=adapter) as harness:
        await harness.send("A table for two, please")
    assert seen == [[]]
    assert visible(adapter) == [CLOSING]
    if "REPLY" not in head:
        assert PROMISE not in adapter.texts


def visible(adapter: RecordingAdapter) -> list[str]:
    """Return the visible messages of the platform, after their last edits."""
    messages = {f"sent-{number}": memory.content.text for number, memory in enumerate(adapter.sent, start=1)}
    messages |= {delivery.replaces_external_id: delivery.content.text for delivery in adapter.edited}
    return [text for text in messages.values() if text]


async def test_a_model_with_functions_streams_a_text_that_calls_none() -> None:
    gate = asyncio.Event()
    adapter = RecordingAdapter(can_edit=True, stream_interval=0)
    model = ScriptedModel(
        StreamedText("<response><actions>REPLY</actions><text>Once", gate, " upon a time</text></response>"),
        can_call_tools=True,
    )
    async with running_agent(RESTAURANT, model=model, adapter=adapter) as harness:
        receipt = await harness.submit("A story, please")
        assert await adapter.wait_until_sent(1) == ["Once"]
        gate.set()
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
    assert visible(adapter) == ["Once upon a time"]


async def test_a_resumed_turn_sends_its_promise_once_after_the_actions_that_remain() -> None:
    store, begun, runs = InMemoryStore(), asyncio.Event(), list[str]()

    @action("FIRST", "Do the first.", effect=Effect.UNSAFE)
    async def first(turn: Turn) -> ActionResult:
        runs.append("first")
        return ActionResult(data={"one": 1})

    @action("SECOND", "Do the second.", effect=Effect.KEYED)
    async def second(turn: Turn) -> ActionResult:
        runs.append("second")
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return ActionResult(data={"two": 2})

    plugin = Plugin("two", "Two actions.", actions=[first, second])
    model = ScriptedModel(model_answer(PROMISE, actions=["FIRST", "SECOND"]))
    async with running_agent(plugin, model=model, store=store) as harness:
        receipt = await harness.submit("Both, please")
        await begun.wait()
        await harness.agent_runtime.inbox.processor.release()
        assert harness.texts == []
    async with running_agent(plugin, model=model, store=store) as harness:
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts == [PROMISE]
    assert runs == ["first", "second", "second"]
    assert [request.purpose for request in model.requests] == [Purpose.REPLY]
