"""Every documented event is emitted; unprompted messages reach their room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bot import (
    ActionResult,
    Agent,
    Attachment,
    ChannelType,
    Content,
    Entity,
    MediaKind,
    Plugin,
    Room,
    Turn,
    World,
    action,
    derived_id,
    evaluator,
    model,
)
from bot.background.posting import write_post
from bot.domain.events import EVENT_CLASSES
from bot.events import Event, RunEnded, VoiceMessageReceived
from bot.models import ModelType, TextResult, TranscriptionRequest
from bot.platform import ChoiceSelection, Reaction
from bot.prompts import Authority
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent

ELSEWHERE = {
    "CHARACTER_RELOADED",
    "CONTROL_MESSAGE",
    "VOICE_MESSAGE_SENT",
    "RUN_TIMEOUT",
    "EMBEDDING_GENERATION_FAILED",
    "ENTITY_FORGOTTEN",
    "MESSAGE_HELD",
    "MODEL_RETRIED",
}  # see the tests of those
WORLD = World(derived_id("guild"), "test", "guild", "Guild")
LOBBY = Room(derived_id("guild", "lobby"), WORLD.id, ChannelType.GROUP, "test", "guild lobby", "account")
CAROL = Entity(derived_id("Carol"), "test", "Carol", ("Carol",))


@action("WAVE", "Wave.", authority=Authority.harmless("a wave changes nothing"))
async def wave(turn: Turn) -> ActionResult:
    return ActionResult(text="waved")


@evaluator("LOOK", "Looks.")
async def look(turn: Turn) -> None:
    """Record that it ran."""


@model(ModelType.TRANSCRIPTION)
async def hear(agent: Agent, request: TranscriptionRequest) -> TextResult:
    return TextResult("hello from far away")


GESTURES = Plugin("gestures", "Waves.", actions=[wave], evaluators=[look], models=[hear])


class Files(RecordingAdapter):
    """A platform that records what is sent to it."""

    async def download(self, url: str) -> bytes | None:
        return b"OggS\x00 a voice"


class EventRecorder:
    """Records all events; can wait for a number of events of a class."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._more = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        self._more.set()

    async def until(self, kind: type[Event], count: int) -> None:
        while sum(isinstance(event, kind) for event in self.heard) < count:
            self._more.clear()
            await self._more.wait()


@asynccontextmanager
async def recording_harness(recorder: EventRecorder) -> AsyncIterator[AgentHarness]:
    scripted = ScriptedModel(model_answer("Hello.", actions=["REPLY", "WAVE"]), can_embed=True)
    async with running_agent(GESTURES, model=scripted, adapter=Files()) as harness:
        harness.agent.events.subscribe(Event, recorder, name="test", at_once=True)
        yield harness


async def test_b4_every_documented_event_is_emitted() -> None:
    recorder = EventRecorder()
    async with recording_harness(recorder) as harness:
        handle = harness.agent_runtime.handle
        await handle.membership.join_world(WORLD, [LOBBY], event_id="1")
        await handle.membership.join_world(WORLD, [LOBBY])
        await handle.membership.join_room(WORLD, Room(derived_id("new"), WORLD.id, ChannelType.GROUP, "test", "new"))
        await handle.membership.add_member(WORLD, CAROL, event_id="2")
        await handle.membership.update_member(WORLD, Entity(CAROL.id, "test", "Carol", ("Caroline", "Carol")))
        await handle.membership.remove_member(WORLD, CAROL, event_id="3")
        await harness.send("Hello", message_id="m1")
        await harness.send(Content(attachments=(Attachment("1", MediaKind.AUDIO, "https://example.org/a"),)))
        await recorder.until(RunEnded, 2)
        await changed(harness)
        await write_post(harness.agent, harness.agent_runtime.registry)
        await harness.agent.events.wait_idle()
    emitted = {type(event) for event in recorder.heard}
    missing = {name for name, kind in EVENT_CLASSES.items() if kind not in emitted}
    assert missing == ELSEWHERE


async def changed(harness: AgentHarness) -> None:
    """Edit, react to and delete a message, press a button, and migrate, clear and leave rooms."""
    handle, at = harness.agent_runtime.handle, harness.agent.clock()
    arrival = make_message("Hello again", sent_at=at, message_id="m1")
    await handle.edits.submit_edit(replace(arrival, key=replace(arrival.key, event_id="edit", revision=1)))
    place = (arrival.world, arrival.room, arrival.author)
    await handle.edits.add_reaction(Reaction(*place, "m1", "🎉", at))
    await handle.select_choice(ChoiceSelection(*place, "blue", "p1", at))
    await handle.edits.delete_messages(arrival.room.id, ["m1"])
    moved = Room(derived_id("moved"), arrival.world.id, ChannelType.DM, "test", "moved", "account")
    await handle.edits.migrate_room(arrival.room.id, arrival.world, moved)
    await handle.edits.clear_room(moved.id)
    await handle.edits.leave_room(LOBBY.id)
    await handle.edits.leave_world(WORLD.id)


@pytest.mark.failure("M-12")
async def test_a_voice_message_is_processed_by_its_transcript() -> None:
    recorder = EventRecorder()
    spoken = Attachment("1", MediaKind.AUDIO, "https://example.org/voice", "audio/ogg")
    async with recording_harness(recorder) as harness:
        receipt = await harness.send(Content(attachments=(spoken,)))
        [voice] = [event for event in recorder.heard if isinstance(event, VoiceMessageReceived)]
        assert receipt.outcome == "answered"
        assert harness.texts == ["Hello."]
        assert any("hello from far away" in request.prompt for request in harness.model.requests)
        kept = await harness.agent.store.memories.memories([voice.message.id])
        assert kept[voice.message.id].content.attachments[0].text == "hello from far away"


@pytest.mark.failure("C-13")
async def test_unprompted_messages_reach_a_room_and_a_person_once() -> None:
    async with running_agent() as harness:
        for room, kind in (("lobby", ChannelType.GROUP), ("alice", ChannelType.DM)):
            await harness.send("Ada, hello", room=room, kind=kind)
        before = len(harness.texts)
        lobby = make_message("", sent_at=harness.agent.clock(), kind=ChannelType.GROUP).room
        for _ in range(2):
            await harness.agent.say(lobby, "The tide is out.", key="tide")
            await harness.agent.say_to(derived_id("test", "entity", "Alice"), "Yours is ready.", key="yours")
        await harness.agent.outbox.drain(5.0)
        sent_texts = [(part.target, part.content.text) for part in harness.adapter.sent[before:]]
        assert sorted(sent_texts) == [("alice", "Yours is ready."), ("lobby", "The tide is out.")]
        assert await harness.agent.say_to(derived_id("test", "entity", "Nobody"), "Hello?") is None
