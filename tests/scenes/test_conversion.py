"""Scenes of stored messages: a new one passes, expects the turn that was asked for, and fails if that changes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bot import ActionResult, Effect, Plugin, Turn, action
from bot.domain.character import Authority
from bot.domain.environment import ChannelType
from bot.domain.ids import new_id
from bot.domain.ledger import Outcome
from bot.errors import ModelUnavailable
from bot.models.types import Purpose, TextRequest
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.scenes.conversion import FoundScene, SceneSource, read_source, write_scene
from bot.scenes.runner import SceneOptions, SceneReport, run_scene
from bot.store import InMemoryStore
from bot.testing import ManualClock, RecordingAdapter, ScriptedModel, make_message, model_answer
from bot.testing.scripted_model import StreamedText
from tests.scenes.conftest import load_ada

FILE = Path("ada.json")
Write = Callable[[TextRequest], str | StreamedText]


def decide(request: TextRequest) -> str:
    """Answer what is a question, and leave the rest alone."""
    last = [line for line in request.prompt.splitlines() if line.startswith("[")][-1]
    return f"<response><reasoning>so</reasoning><action>{'RESPOND' if '?' in last else 'IGNORE'}</action></response>"


def alike(request: TextRequest) -> str:
    return decide(request) if request.purpose is Purpose.SHOULD_RESPOND else model_answer("It is only a clock.")


def distinct(request: TextRequest) -> str:
    text = f"I have heard {request.prompt.count('[')} things."
    return decide(request) if request.purpose is Purpose.SHOULD_RESPOND else model_answer(text)


def streamed(request: TextRequest) -> str | StreamedText:
    whole = distinct(request)
    return whole if request.purpose is Purpose.SHOULD_RESPOND else StreamedText(whole[:60], whole[60:])


QUESTIONS = [("Kim", f"does anybody know number {number}?") for number in range(8)]
CALLS = [("Kim" if number % 2 else "Lou", f"Ada, what is {number}?") for number in range(8)]
TALK = [("Kim", "Ada, hello"), ("Lou", "I went home"), ("Kim", "me too"), ("Lou", "who has the key?"), ("Kim", "I do")]


@dataclass(frozen=True)
class TalkOf:
    """What people and bots write in a room, and the model and the settings that answer it."""

    lines: Sequence[tuple[str, str]]
    write: Write = distinct
    bots: frozenset[str] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)
    seconds: float = 30.0
    kind: ChannelType = ChannelType.GROUP


ROOMS = {
    "similar answers": TalkOf(QUESTIONS, alike),
    "similar answers to calls": TalkOf(CALLS, alike),
    "bots": TalkOf(
        [("Rob", f"Ada, tick {number}") for number in range(8)] + [("Kim", "Ada?"), ("Rob", "Ada, tock")],
        bots=frozenset({"Rob"}),
        settings={"RESPOND_TO_BOTS": "true"},
    ),
    "distinct answers": TalkOf(CALLS),
    "streamed answers": TalkOf(CALLS, streamed, settings={"STREAMING": "true"}),
    "a talk of people": TalkOf(TALK * 2),
    "long pauses": TalkOf(TALK * 2, seconds=1_000.0),
    "private": TalkOf([("Kim", text) for _, text in TALK], alike, kind=ChannelType.DM),
    "reserved": TalkOf(TALK * 2, settings={"RESPONSIVENESS": "reserved"}),
}


async def record(talk: TalkOf, *plugins: Plugin) -> tuple[AgentConfig, InMemoryStore, list[str]]:
    """Run Ada in a talk; return her configuration, her store, and the ids of the receipts."""
    clock = ManualClock()
    store = InMemoryStore(clock.now)
    config = load_ada(ScriptedModel(talk.write), {"BURST_PAUSE": "0", **talk.settings})(FILE)
    config = replace(config, store=store, clock=clock.now, is_idle=True, plugins=(*config.plugins, *plugins))
    receipt_ids = []
    async with Runtime([config]) as runtime:
        await runtime.connect(RecordingAdapter(stream_interval=0.0 if "STREAMING" in talk.settings else None))
        runtime.agents[0].pipeline.counters.attention.waits_for_bots = False
        handle = runtime.handles[0]
        for number, (author, text) in enumerate(talk.lines):
            clock.advance(talk.seconds)
            inbound = make_message(
                text, sent_at=clock.now(), author=author, kind=talk.kind, room="lobby", message_id=f"n{number}"
            )
            inbound = replace(inbound, author=replace(inbound.author, is_bot=author in talk.bots))
            receipt = await handle.submit(inbound)
            await handle.wait_outcome(receipt.id)
            receipt_ids.append(str(receipt.id))
    return config, store, receipt_ids


async def make(config: AgentConfig, store: InMemoryStore, **source: object) -> FoundScene:
    return await read_source(store, SceneSource(config, FILE, load_ada(), **source))  # type: ignore[arg-type]


async def run(
    folder: Path, found: FoundScene, load: Callable[[Path], AgentConfig], *, is_strict: bool = False
) -> SceneReport:
    path = folder / f"{new_id()}.yaml"
    write_scene(path, found, FILE, ())
    return await run_scene(path, load, SceneOptions(is_strict=is_strict))


def changed(**fields: object) -> Callable[[Path], AgentConfig]:
    """Return a function that loads Ada with other fields."""
    config = load_ada()(FILE)
    character = type(config.character).model_validate({**config.character.model_dump(exclude_unset=True), **fields})
    return lambda path: replace(config, character=character)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", ROOMS)
async def test_the_scene_of_each_turn_passes_and_expects_that_turn_alone(name: str, tmp_path: Path) -> None:
    config, store, receipt_ids = await record(ROOMS[name])
    for receipt_id in receipt_ids:
        found = await make(config, store, receipt=receipt_id)
        said = [step for step in found.document["steps"] if "say" in step]
        assert (found.notes, len(said)) == ([], 1)
        report = await run(tmp_path, found, load_ada(), is_strict=True)
        assert (report.outcome, report.failures) == ("passed", [])


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", ROOMS)
async def test_the_scene_of_a_room_passes_and_expects_its_last_messages(name: str, tmp_path: Path) -> None:
    config, store, _ = await record(ROOMS[name])
    found = await make(config, store, room="lobby", last=6)
    assert found.notes == []
    assert [step for step in found.document["steps"] if "expect" in step]
    assert (await run(tmp_path, found, load_ada(), is_strict=True)).failures == []


@pytest.mark.long
async def test_a_changed_character_or_answer_fails_with_a_readable_difference(tmp_path: Path) -> None:
    config, store, receipt_ids = await record(ROOMS["distinct answers"])
    found = await make(config, store, receipt=receipt_ids[-1])

    async def problems(load: Callable[[Path], AgentConfig], answer: str = "") -> list[str]:
        [recorded] = found.recording.answers
        answers = (recorded.model_copy(update={"answer": answer or recorded.answer}),)
        other = replace(found, recording=found.recording.model_copy(update={"answers": answers}))
        return [failure.message for failure in (await run(tmp_path, other, load, is_strict=True)).failures]

    assert await problems(load_ada()) == []
    assert await problems(load_ada(), model_answer("Bye.")) == [
        "equals: 'I have heard 16 things.' does not hold for 'Bye.'"
    ]
    stale = "the answer to call 1 for reply in step 15 is stale: the wording of the prompt has changed: "
    assert await problems(changed(bio=["She hates clocks."])) == [f"{stale}line 1 of bio"]
    first, *_ = await problems(changed(name="Bea"))
    assert first.startswith("there is no recorded answer to call 1 for should_respond in step 15; the nearest is that")


@pytest.mark.long
async def test_a_turn_that_cannot_be_reproduced_is_history_and_the_scene_says_why(tmp_path: Path) -> None:
    config, store, receipt_ids = await record(TalkOf(CALLS[:5], seconds=1.0, settings={"MESSAGES_PER_ROOM": "1"}))
    found = await make(config, store, room="lobby", last=len(CALLS))
    why = "is history in this scene, and not expected: it was ignored by the rule MESSAGES_PER_ROOM; in the scene, "
    assert [note.partition(f" {why}there is no recorded answer")[0] for note in found.notes] == [
        "m5 (Alice: Ada, what is 2?)",
        "m7 (Ben: Ada, what is 3?)",
        "m8 (Alice: Ada, what is 4?)",
    ]
    assert (await run(tmp_path, found, load_ada(), is_strict=True)).failures == []
    alone = await make(config, store, receipt=receipt_ids[2])
    assert not any("say" in step for step in alone.document["steps"])


@pytest.mark.long
async def test_failed_turns_and_turns_with_an_action_that_reaches_others_are_history(tmp_path: Path) -> None:
    @action("PAY", "Pay somebody.", effect=Effect.UNSAFE, authority=Authority.named("whom"))
    async def pay(turn: Turn, whom: str) -> ActionResult:
        return ActionResult(text="paid", authors=())

    def write(request: TextRequest) -> str:
        if "broken" in request.prompt:
            raise ModelUnavailable("it is down")
        if "Lou" in request.prompt.rpartition("[")[2]:
            return model_answer("Paid.", actions=["PAY"], parameters={"whom": "Lou"})
        return model_answer("Good day.")

    lines = [("Kim", "Ada, pay Lou"), ("Kim", "Ada, hello"), ("Kim", "Ada, it is broken")]
    config, store, _ = await record(TalkOf(lines, write), Plugin("money", "Pays.", actions=[pay]))
    found = await make(config, store, room="lobby", last=10)
    assert [note.partition(" and not expected: ")[2] for note in found.notes] == [
        "it ran the action PAY, which a scene would run again",
        "it failed (ModelUnavailable): it is down",
    ]
    assert [step["say"] for step in found.document["steps"] if "say" in step] == ["Ada, hello"]
    assert (await run(tmp_path, found, load_ada())).failures == []


async def test_a_message_that_was_answered_with_the_next_message_is_history_of_its_turn(tmp_path: Path) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def write(request: TextRequest) -> str:
        asked.set()
        await may_answer.wait()
        return model_answer("To both of you.")

    store = InMemoryStore()
    config = replace(load_ada(ScriptedModel(write), {"BURST_PAUSE": "0"})(FILE), store=store, is_idle=True)
    async with Runtime([config]) as runtime:
        await runtime.connect(RecordingAdapter())
        handle, kind = runtime.handles[0], ChannelType.GROUP
        first = await handle.submit(make_message("Ada, one", sent_at=config.clock(), author="Kim", kind=kind))
        await asked.wait()
        second = await handle.submit(make_message("Ada, two", sent_at=config.clock(), author="Kim", kind=kind))
        may_answer.set()
        assert (await handle.wait_outcome(second.id)).outcome is Outcome.ANSWERED
        assert (await handle.wait_outcome(first.id)).outcome is Outcome.SUPERSEDED
    found = await make(config, store, receipt=str(first.id))
    assert [("say" in step, step.get("say") or step["history"]) for step in found.document["steps"]] == [
        (False, "Ada, one"),
        (True, "Ada, two"),
    ]
    assert (await run(tmp_path, found, load_ada())).failures == []
