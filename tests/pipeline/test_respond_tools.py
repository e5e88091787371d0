"""Native tool calls have the same effects and checks as tags."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bot import ActionResult, ParticipantState, Plugin, Role, Turn, action, derived_id
from bot.models import Purpose, TextRequest, TextResult, ToolCall
from bot.pipeline.compose import Composer
from bot.pipeline.respond import respond
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, make_turn, model_answer, running_agent

Calls = tuple[tuple[str, Mapping[str, Any]], ...]
SUMMARY = "<response><text>So it went.</text></response>"


def by_tags(text: str, calls: Calls) -> TextResult:
    names = [*(["REPLY"] if text else []), *(name for name, _ in calls)]
    return TextResult(model_answer(text, actions=names, parameters=dict(calls)))


def by_functions(text: str, calls: Calls) -> TextResult:
    return TextResult(text, tool_calls=tuple(ToolCall(name, arguments) for name, arguments in calls))


def step_by_tags(text: str, calls: Calls) -> TextResult:
    [(name, arguments)] = calls or (("", {}),)
    given = "".join(f"<{key}>{value}</{key}>" for key, value in arguments.items())
    return TextResult(f"<response><action>{name}</action><parameters>{given}</parameters></response>")


def step_by_functions(text: str, calls: Calls) -> TextResult:
    return by_functions("One moment." if calls else "", calls)


@action("NOTE", "Write something down.")
async def note(turn: Turn, text: str, times: int = 1) -> ActionResult:
    await turn.agent.store.cache.set(f"note {text}", times)
    return ActionResult(data={"noted": text}, authors=())


@action("SECRET", "For the owner alone.", role=Role.OWNER)
async def secret(turn: Turn) -> None:
    await turn.agent.store.cache.set("secret", True)


NOTES = Plugin("notes", "Notes.", actions=[note, secret])
Way = tuple[Callable[[str, Calls], TextResult], bool]
ANSWER_WAYS: list[Way] = [(by_tags, False), (by_functions, True)]
STEP_BY_STEP: list[Way] = [(step_by_tags, False), (step_by_functions, True)]


async def play(
    way: Way, text: str, calls: Calls, *, repaired: str = "{}", role: Role = Role.MEMBER
) -> tuple[list[str], list[str], list[TextRequest]]:
    """Answer one message; return the texts, the actions and the requests."""
    write, can_call = way

    def script(request: TextRequest) -> TextResult | str:
        if request.purpose is Purpose.REPAIR:
            return repaired
        return SUMMARY if request.purpose is Purpose.SUMMARY else write(text, calls)

    async with running_agent(NOTES, model=ScriptedModel(script, can_call_tools=can_call)) as harness:
        await harness.send("Note this, please", role=role)
        cache = harness.agent.store.cache
        keys = ("note milk", "note bread", "secret")
        done = [f"{key}: {found}" for key in keys if (found := await cache.get(key)) is not None]
        return harness.texts, done, harness.model.requests


@pytest.mark.matrix(3)
@pytest.mark.parametrize("way", ANSWER_WAYS, ids=["tags", "functions"])
@pytest.mark.parametrize(
    ("text", "calls", "texts", "done"),
    [
        ("Hello.", (), ["Hello."], []),
        ("Noted.", (("NOTE", {"text": "milk"}),), ["Noted."], ["note milk: 1"]),
        ("", (("NOTE", {"text": "milk", "times": 3}),), ["So it went."], ["note milk: 3"]),
        ("", (("note", {"text": "milk"}), ("FLY", {})), ["So it went."], ["note milk: 1"]),
        ("Noted.", (("SECRET", {}),), ["So it went."], []),
        ("", (("IGNORE", {}),), [], []),
        ("Hello.", (("FLY", {}),), ["So it went."], []),
        ("Noted.", (("NOTE", {"txt": "milk"}),), ["Noted."], ["note bread: 1"]),
    ],
)
async def test_an_answer_has_the_same_effects_by_tags_and_by_tool_calls(
    way: Way, text: str, calls: Calls, texts: list[str], done: list[str]
) -> None:
    found, happened, _ = await play(way, text, calls, repaired='{"text": "bread"}')
    assert (found, happened) == (texts, done)


@pytest.mark.parametrize("way", STEP_BY_STEP, ids=["tags", "functions"])
async def test_steps_have_the_same_effects_by_tags_and_by_tool_calls(way: Way) -> None:
    write, can_call = way
    steps: list[Calls] = [(("NOTE", {"text": "milk"}),), (("NOTE", {"text": "bread"}),), ()]

    def script(request: TextRequest) -> TextResult | str:
        return SUMMARY if request.purpose is Purpose.SUMMARY else write("", steps.pop(0))

    model = ScriptedModel(script, can_call_tools=can_call)
    async with running_agent(NOTES, model=model, settings={"USE_MULTI_STEP": "true"}) as harness:
        receipt = await harness.send("Note this, please")
        cache = harness.agent.store.cache
        assert [await cache.get(f"note {note}") for note in ("milk", "bread")] == [1, 1]
        assert harness.texts == ["So it went."]
        purposes = [call.purpose for call in receipt.model_calls]
        assert purposes == [Purpose.STEP, Purpose.STEP, Purpose.STEP, Purpose.SUMMARY]
        assert steps == []


REPEATED = [
    '<actions>NOTE, NOTE</actions><parameters><NOTE>{"text": "milk"}</NOTE><NOTE>{"text": "bread"}</NOTE></parameters>',
    '<actions>NOTE</actions><parameters><NOTE>{"text": "milk"}</NOTE><NOTE>{"text": "bread"}</NOTE></parameters>',
    "<actions>NOTE</actions><parameters><NOTE><text>milk</text></NOTE><NOTE><text>bread</text></NOTE></parameters>",
    '<actions>NOTE</actions><parameters>{"NOTE": [{"text": "milk"}, {"text": "bread"}]}</parameters>',
    '<actions>NOTE</actions><parameters>{"NOTE": {"text": "milk"}, "NOTE": {"text": "bread"}}</parameters>',
    '<actions>NOTE, NOTE</actions><parameters>[{"text": "milk"}, {"text": "bread"}]</parameters>',
]


@pytest.mark.parametrize("fields", REPEATED)
async def test_an_action_with_several_parameters_in_tags_runs_once_for_each(fields: str) -> None:
    raw = f"<response>{fields}<text>Noted.</text></response>"
    texts, done, _ = await play((lambda text, calls: TextResult(raw), False), "", ())
    assert (texts, done) == (["Noted."], ["note milk: 1", "note bread: 1"])


async def test_repeated_actions_keep_their_order_and_equal_ones_run_once() -> None:
    ran: list[str] = []

    @action("DO", "Do.")
    async def do(turn: Turn, what: str = "") -> None:
        ran.append(what)

    @action("OTHER", "Other.")
    async def other(turn: Turn) -> None:
        ran.append("other")

    entries = "".join(f'<DO>{{"what": "{what}"}}</DO>' for what in ("a", "b", "a", "c"))
    raw = (
        f"<response><actions>DO, OTHER, DO, OTHER</actions><parameters>{entries}</parameters><text>x</text></response>"
    )
    async with running_agent(Plugin("p", actions=[do, other]), model=ScriptedModel(raw)) as harness:
        await harness.send("Do it")
    assert ran == ["a", "other", "b", "c"]


async def test_permitted_actions_are_offered_as_tools_if_the_handler_supports_them() -> None:
    _, _, [asked] = await play(ANSWER_WAYS[1], "Hello.", ())
    offered = {tool.name: tool.parameters for tool in asked.tools}
    assert {"NOTE", "SEND_MESSAGE", "IGNORE"} < offered.keys()
    assert not {"REPLY", "NONE", "SECRET"} & offered.keys()
    assert offered["NOTE"]["properties"]["times"]["type"] == "integer"
    assert "The actions are functions" in asked.prompt
    _, _, [asked] = await play(ANSWER_WAYS[1], "Hello.", (), role=Role.OWNER)
    assert "SECRET" in {tool.name for tool in asked.tools}
    _, _, [asked] = await play(ANSWER_WAYS[0], "Hello.", ())
    assert asked.tools == ()
    assert "The actions are functions" not in asked.prompt


async def test_an_answer_without_tool_calls_is_read_by_its_tags() -> None:
    texts, done, _ = await play((by_tags, True), "Noted.", (("NOTE", {"text": "milk"}),))
    assert (texts, done) == (["Noted."], ["note milk: 1"])


async def test_an_action_may_be_called_several_times_but_not_twice_with_the_same_parameters() -> None:
    calls = tuple(("NOTE", {"text": text}) for text in ("milk", "bread", "milk"))
    ran: list[str] = []

    @action("COUNT", "Count.")
    async def count(turn: Turn, what: str) -> None:
        ran.append(what)

    def script(request: TextRequest) -> TextResult:
        given = [ToolCall("COUNT", {"what": what}) for what in ("milk", "bread", "milk")]
        return TextResult("Counted.", tool_calls=tuple(given))

    _, done, _ = await play(ANSWER_WAYS[1], "Noted.", calls)
    assert done == ["note milk: 1", "note bread: 1"]
    model = ScriptedModel(script, can_call_tools=True)
    async with running_agent(Plugin("count", "Counts.", actions=[count]), model=model) as harness:
        await harness.send("Count")
        assert ran == ["milk", "bread"]


async def test_a_silent_tool_call_sends_no_text() -> None:
    texts, _, _ = await play(ANSWER_WAYS[1], "I will stay silent.", (("IGNORE", {}),))
    assert texts == []


async def test_with_tool_calls_only_the_text_tag_is_used() -> None:
    given = TextResult(
        model_answer("Noted.", actions=["REPLY", "NOTE"], parameters={"NOTE": {"text": "bread"}}),
        tool_calls=(ToolCall("NOTE", {"text": "milk"}),),
    )
    texts, done, _ = await play((lambda text, calls: given, True), "", ())
    assert (texts, done) == (["Noted."], ["note milk: 1"])


async def test_tool_calls_are_journalled_and_not_paid_for_again() -> None:
    def script(request: TextRequest) -> TextResult:
        return TextResult("Muted.", tool_calls=(ToolCall("MUTE_ROOM", {}),))

    async with running_agent(model=ScriptedModel(script, can_call_tools=True)) as running:
        receipt = await running.send("mute", role=Role.ADMIN)
        assert receipt.turn_id is not None
        steps = await running.agent.store.ledger.steps(receipt.turn_id)
        assert steps["answer"].result["calls"] == [{"name": "MUTE_ROOM", "arguments": {}}]
        room_id = derived_id("test", "room", "lobby")
        assert await running.agent.store.worlds.participant_state(room_id) is ParticipantState.MUTED
        request_count = len(running.model.requests)
        again = make_turn(running.agent, "mute")
        again.id = receipt.turn_id
        reply = await respond(again, Composer(running.agent_runtime.registry))
        assert reply.calls == (("MUTE_ROOM", {}),)
        assert len(running.model.requests) == request_count


async def test_a_crash_in_the_first_of_two_calls_of_an_action_is_reported_to_the_room() -> None:
    store, begun, ran = InMemoryStore(), asyncio.Event(), list[str]()

    @action("COUNT", "Count.")
    async def count(turn: Turn, what: str) -> None:
        ran.append(what)
        if what == "milk":
            begun.set()
            await asyncio.Event().wait()

    def script(request: TextRequest) -> TextResult:
        if request.purpose is Purpose.SUMMARY:
            return TextResult(SUMMARY)
        return TextResult(
            "Counting.", tool_calls=tuple(ToolCall("COUNT", {"what": what}) for what in ("milk", "bread"))
        )

    plugin = Plugin("count", "Counts.", actions=[count])
    async with running_agent(plugin, model=ScriptedModel(script), store=store) as harness:
        receipt = await harness.submit("Count")
        await begun.wait()
        await harness.agent_runtime.inbox.processor.release()
    async with running_agent(plugin, model=ScriptedModel(script), store=store) as harness:
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert ran == ["milk", "bread"]
        assert [part.content.text for part in harness.adapter.sent][-1:] == ["So it went."]
