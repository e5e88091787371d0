"""Threads opened on demand: at whose messages, what is said there, and that each is opened once."""

from dataclasses import replace

import pytest

from bot import Outcome, Receipt, Turn
from bot.domain.environment import ChannelType, Role
from bot.domain.instructions import RoomInstructions, ThreadRule
from bot.models.types import Purpose, TextRequest
from bot.pipeline import process_message
from bot.platform import DeliveryHeld, DeliveryKind, DeliveryState, DeliveryUnknown, NotSent, Undeliverable
from bot.store import InMemoryStore
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    make_message,
    make_turn,
    model_answer,
    running_agent,
)
from tests.commands.asking import give

pytestmark = pytest.mark.usefixtures("nothing_held_back")
GROUP, THREAD = ChannelType.GROUP, ChannelType.THREAD
ASKED = "Ada, let's take the engine to a thread"
OPEN = model_answer("Here we go.", actions=["REPLY", "OPEN_THREAD"], parameters={"OPEN_THREAD": {"name": "The engine"}})


def answer(request: TextRequest) -> str:
    """Answer with a thread, and tell what became of it where that is asked for."""
    return model_answer("It did not work.") if request.purpose is Purpose.SUMMARY else OPEN


@pytest.fixture
def adapter() -> RecordingAdapter:
    return RecordingAdapter(has_threads=True)


def places(adapter: RecordingAdapter) -> list[tuple[str, str]]:
    """Return where what was said."""
    return [(delivery.target, delivery.content.text) for delivery in adapter.sent]


async def ask(
    harness: AgentHarness, text: str = ASKED, *, role: Role = Role.ADMIN, kind: ChannelType = GROUP
) -> Receipt:
    return await harness.send(text, kind=kind, role=role)


async def set_room(harness: AgentHarness, key: str, value: str) -> None:
    arguments = {"action": "set", "key": key, "value": value}
    await give(harness, "room", arguments=arguments, role=Role.ADMIN)


async def openings(harness: AgentHarness, receipt: Receipt) -> list[DeliveryState]:
    """Return the states of the deliveries that open threads."""
    assert receipt.turn_id is not None
    parts = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
    return [part.state for part in parts if part.kind is DeliveryKind.THREAD]


async def test_the_answer_is_said_in_the_thread_that_was_asked_for(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        receipt = await ask(harness)
        [opened] = adapter.opened
        assert (opened.kind, opened.target, opened.content.text) == (DeliveryKind.THREAD, "lobby", "The engine")
        assert opened.reply_to == receipt.key.message_id
        assert places(adapter) == [("lobby/thread-1", "Here we go.")]
        assert adapter.sent[0].reply_to == "", "the message is in another room"
        assert receipt.outcome is Outcome.ANSWERED
        assert "it opened the thread 'The engine'" in receipt.notes
        store = harness.agent.store
        room = await store.worlds.room(adapter.sent[0].room_id)
        assert room is not None
        assert (room.type, room.name, room.parent_id) == (THREAD, "The engine", receipt.room_id)
        assert [memory.content.text for memory in await store.memories.recent(room.id, 5)] == ["Here we go."]
        assert len([call for call in receipt.model_calls if not call.error]) == 1


async def test_what_became_of_an_action_alone_is_said_in_its_thread(adapter: RecordingAdapter) -> None:
    alone = model_answer(actions=["OPEN_THREAD"], parameters={"name": "The engine"})
    async with running_agent(model=ScriptedModel([alone, model_answer("So, the engine.")]), adapter=adapter) as harness:
        await ask(harness)
        assert places(adapter) == [("lobby/thread-1", "So, the engine.")]


@pytest.mark.parametrize(
    ("key", "value", "role", "is_possible"),
    [
        ("", "", Role.ADMIN, True),
        ("", "", Role.MEMBER, False),
        ("threads", "on", Role.MEMBER, True),
        ("threads", "admins", Role.MEMBER, False),
        ("threads", "off", Role.OWNER, False),
        ("tools", "off", Role.OWNER, False),
    ],
)
async def test_threads_are_opened_for_those_whom_the_room_allows(
    adapter: RecordingAdapter, key: str, value: str, role: Role, is_possible: bool
) -> None:
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        if key:
            await set_room(harness, key, value)
        await ask(harness, role=role)
        assert len(adapter.opened) == is_possible
        [request] = harness.model.requests_for(Purpose.REPLY)
        assert ("OPEN_THREAD" in request.prompt) is is_possible
        assert adapter.sent[-1].target == ("lobby/thread-1" if is_possible else "lobby")


def test_admins_of_a_room_open_threads_for_no_more_people_than_the_file_allows() -> None:
    limit = RoomInstructions(threads=ThreadRule.ADMINS)
    assert RoomInstructions(threads=ThreadRule.ON).narrowed_by(limit).threads is ThreadRule.ADMINS
    assert RoomInstructions(threads=ThreadRule.OFF).narrowed_by(limit).threads is ThreadRule.OFF


@pytest.mark.parametrize("kind", [ChannelType.DM, THREAD])
async def test_where_the_platform_has_no_threads_the_action_is_not_offered(
    adapter: RecordingAdapter, kind: ChannelType
) -> None:
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        await ask(harness, kind=kind)
        assert adapter.opened == []
        assert not any("OPEN_THREAD" in request.prompt for request in harness.model.requests_for(Purpose.REPLY))


async def test_neither_a_bot_nor_a_message_of_distress_gets_a_thread(adapter: RecordingAdapter) -> None:
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        bot_turn = make_turn(harness.agent, ASKED, kind=GROUP, role=Role.ADMIN, is_bot=True)
        person_turn = make_turn(harness.agent, ASKED, kind=GROUP, role=Role.ADMIN)
        assert (bot_turn.may_open_thread(), person_turn.may_open_thread()) == (False, True)
        await ask(harness, "Ada, I want to kill myself")
        assert adapter.opened == []


@pytest.mark.parametrize(("limit", "expected"), [("2", 2), ("0", 0)])
async def test_threads_in_a_room_are_limited_by_the_hour(adapter: RecordingAdapter, limit: str, expected: int) -> None:
    async with running_agent(model=ScriptedModel(answer), adapter=adapter, settings={"THREADS": limit}) as harness:
        for number in range(3):
            await ask(harness, f"{ASKED} {number}")
        assert len(adapter.opened) == expected


@pytest.mark.parametrize(
    ("fault", "state"),
    [(Undeliverable("no permission"), DeliveryState.FAILED), (DeliveryHeld("unclear"), DeliveryState.UNKNOWN)],
)
async def test_a_thread_that_cannot_be_opened_is_reported_and_the_answer_stays_in_the_room(
    fault: Exception, state: DeliveryState
) -> None:
    adapter = RecordingAdapter(has_threads=True, faults=[fault])
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        receipt = await ask(harness)
        assert adapter.opened == []
        assert places(adapter) == [("lobby", "It did not work.")]
        assert adapter.sent[0].reply_to == receipt.key.message_id
        assert any(f"the thread could not be opened: {fault}" in note for note in receipt.notes)
        assert await openings(harness, receipt) == [state]


@pytest.mark.parametrize("fault", [NotSent("busy", retry_after=0.0), DeliveryUnknown("broken off")])
async def test_a_thread_of_unknown_outcome_is_opened_again_as_a_repeat(fault: Exception) -> None:
    adapter = RecordingAdapter(has_threads=True, faults=[fault])
    async with running_agent(model=ScriptedModel(answer), adapter=adapter) as harness:
        await ask(harness)
        assert len(adapter.opened) == 1
        assert adapter.repeats == ([True] if isinstance(fault, DeliveryUnknown) else [False])
        assert places(adapter) == [("lobby/thread-1", "Here we go.")]


async def test_a_thread_that_is_not_open_in_time_is_not_opened_later() -> None:
    adapter = RecordingAdapter(has_threads=True, faults=[NotSent("busy", retry_after=3600.0)])
    async with running_agent(adapter=adapter) as harness:
        turn = make_turn(harness.agent, kind=GROUP)
        await harness.agent.store.worlds.save_world(turn.world, [turn.room])
        opening = await harness.agent.outbox.open_thread(turn.room, turn.id, "The engine", "m1", seconds=0.05)
        assert opening.state is DeliveryState.CANCELLED
        assert not harness.agent.outbox.is_busy(turn.room.id)
        assert adapter.opened == []


async def test_the_name_is_filtered_as_an_answer_is(adapter: RecordingAdapter) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz123456"
    name = {"OPEN_THREAD": {"name": f"The\nkey {secret}"}}
    model = ScriptedModel(model_answer("Here.", actions=["REPLY", "OPEN_THREAD"], parameters=name))
    async with running_agent(model=model, adapter=adapter, settings={"OPENAI_API_KEY": secret}) as harness:
        await ask(harness)
        assert "\n" not in adapter.opened[0].content.text
        assert secret not in adapter.opened[0].content.text


async def test_what_is_said_in_the_thread_has_the_instructions_of_its_room(adapter: RecordingAdapter) -> None:
    model = ScriptedModel(answer)
    async with running_agent(model=model, adapter=adapter) as harness:
        await set_room(harness, "language", "German")
        receipt = await ask(harness)
        room = await harness.agent.store.worlds.room(adapter.sent[0].room_id)
        assert room is not None
        inbound = make_message("Ada, and now?", sent_at=harness.agent.clock(), kind=GROUP)
        in_thread = replace(inbound, room=room, message=replace(inbound.message, room_id=room.id))
        in_thread = replace(in_thread, key=replace(inbound.key, room_id=room.id))
        submitted = await harness.agent_runtime.inbox.submit(in_thread)
        closed = await harness.agent_runtime.inbox.wait_outcome(submitted.id)
        assert (closed.outcome, closed.room_id != receipt.room_id) == (Outcome.ANSWERED, True)
        assert "German" in model.requests[-1].system
        assert "Here we go." in model.requests[-1].prompt


async def test_the_answer_to_an_edit_replaces_what_was_said_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)
    adapter = RecordingAdapter(has_threads=True, can_edit=True)
    model = ScriptedModel([OPEN, model_answer("Then the boiler.")])
    async with running_agent(model=model, adapter=adapter, settings={"ON_EDIT": "rerun"}) as harness:
        await harness.send(ASKED, kind=GROUP, role=Role.ADMIN, message_id="m1")
        inbound = make_message(
            "Ada, no, the boiler", sent_at=harness.agent.clock(), kind=GROUP, role=Role.ADMIN, message_id="m1"
        )
        edit = replace(inbound, key=replace(inbound.key, event_id="edit", revision=1))
        receipt = await harness.agent_runtime.handle.edits.submit_edit(edit)
        await harness.agent_runtime.handle.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        [edited] = adapter.edited
        assert (edited.target, edited.content.text) == ("lobby/thread-1", "Then the boiler.")
        assert (len(adapter.sent), len(adapter.opened)) == (1, 1)


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_turn_that_goes_on_after_a_crash_answers_in_the_thread_that_it_has_opened(
    adapter: RecordingAdapter, is_open: bool
) -> None:
    store = InMemoryStore()
    async with running_agent(store=store, adapter=adapter) as harness:
        first = make_turn(harness.agent, kind=GROUP, role=Role.ADMIN)
        await store.worlds.save_world(first.world, [first.room])
        assert await first.open_thread("The engine") == ""
        assert first.thread is not None
        steps = list((await harness.agent.store.ledger.steps(first.id)).values())
        if not is_open:  # it was interrupted before it knew of the room
            steps = [replace(step, result={"name": "The engine"}) for step in steps]
        second = Turn(harness.agent, first.id, first.room, first.world, first.inputs)
        await second.restore_thread(steps)
        assert (second.thread is not None) is is_open
        assert await second.open_thread("Another name") == ""
        assert second.thread == first.thread
        assert [delivery.content.text for delivery in adapter.opened] == ["The engine"]
