"""Count private facts that reach prompts of other rooms, and superseded values that prompts show as current."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.exchange import AGENT
from benchmarks.figures import Row, report_progress
from bot import ChannelType, Content, Entity, Memory, MemoryKind, MemoryScope, Role, Room, World, derived_id, new_id
from bot.events import RunEnded
from bot.models import Purpose, TextRequest
from bot.platform import InboundMessage
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from plugins.bootstrap.providers.conversation import HEADING

PRIVATE_FACTS, CORRECTED_FACTS = 1_000, 500
_TEST = "test"  # the platform of the tests


@dataclass(frozen=True, slots=True)
class Place:
    """A room of a world."""

    world: str
    room: str
    kind: ChannelType = ChannelType.GROUP

    def arrival(self, text: str, person: str, at: datetime) -> InboundMessage:
        """Return a message that a person writes here."""
        author = Entity(derived_id(_TEST, "entity", person), _TEST, person, (person,))
        world = World(derived_id(_TEST, self.world), _TEST, self.world, self.world, {author.id: Role.MEMBER})
        names = world.id, self.kind, _TEST, self.room, "account", self.room
        room = Room(derived_id(_TEST, self.world, self.room), *names)
        ids = {"message_id": new_id().hex, "event_id": new_id().hex}
        return InboundMessage.build(world, room, author, Content(text=text), created_at=at, **ids)


HERE = Place("the inn", "the hall")
SETTINGS = {"CONVERSATION_LENGTH": "4"}  # reflection after every message
_STATEMENT = re.compile(r"^(\d+)\. \S+ .+? \(id \w+\): (.*)$", re.MULTILINE)
_LINE = re.compile(r"^(\d+)\. \S+ (.+?) \(id \w+\): .*\b(?:I live in|I moved to) (Town\w+)", re.MULTILINE)


def measure_remembering() -> list[Row]:
    """Measure with the whole pipeline on SQLite, with a scripted model."""
    report_progress(f"{PRIVATE_FACTS:,} private facts")
    leaked, known = asyncio.run(count_leaks(PRIVATE_FACTS))
    report_progress(f"{CORRECTED_FACTS} corrected facts")
    stale, current = asyncio.run(count_stale(CORRECTED_FACTS))
    return [
        ("private facts asked for in another room", f"{leaked} of {PRIVATE_FACTS:,} leaked; goal 0"),
        ("  the same asked where they were told", f"{known} of {PRIVATE_FACTS:,} told"),
        ("old values told as current", f"{stale} of {CORRECTED_FACTS}; goal 0"),
        ("  the new value is told instead", f"{current} of {CORRECTED_FACTS}"),
    ]


async def count_leaks(count: int) -> tuple[int, int]:
    """Return of so many facts and messages how many reach a prompt of another room, and of their own.

    Each is asked for in its own words by the person who stated it, and the model asks for all that it may know of it.
    """
    leaked = known = 0
    async with _harness(lambda request: model_answer("I see.", providers=("FACTS", "RECALL"))) as harness:
        for number in range(count):
            person, place = _private(number)
            await _send(harness, place, person, f"my key number {number} lies under zebra{number}x")
            await _learn(harness, place, person, f"{person} keeps key number {number} under zebra{number}x.")
        for number in range(count):
            person, place = _private(number)
            question = f"Ada, where does {person} keep key number {number}?"
            leaked += "zebra" in await _prompts(harness, HERE, person, question)
            known += f"zebra{number}x" in await _prompts(harness, place, person, question)
    return leaked, known


def _private(number: int) -> tuple[str, Place]:
    """Return who states a private fact, and where: alone with the agent, in another world, in another room."""
    person = f"person {number % 7}"
    places = (
        Place("the inn", f"alone {person}", ChannelType.DM),
        Place("far away", "a hall"),
        Place("the inn", "a room"),
    )
    return person, places[number % 3]


async def _prompts(harness: AgentHarness, place: Place, person: str, question: str) -> str:
    """Return all prompts for replies of a turn that asks something."""
    harness.model.requests.clear()
    await _send(harness, place, person, question)
    return "\n".join(request.prompt for request in harness.model.requests_for(Purpose.REPLY))


async def count_stale(count: int) -> tuple[int, int]:
    """Return of so many corrected facts how many prompts show the old value in MEMORY, and how many the new one."""
    stale = current = 0
    async with _harness(note_place) as harness:
        for number in range(count):
            place, person = Place("the inn", f"alone {number}", ChannelType.DM), f"person {number}"
            texts = (f"I live in Town{number}old", "the weather is fine", f"no, I moved to Town{number}new", "so it is")
            for text in texts:
                await _send(harness, place, person, text)
            memory = memory_section(await _prompts(harness, place, person, "Where do I live?"))
            stale += f"Town{number}old" in memory
            current += f"Town{number}new" in memory
    return stale, current


def memory_section(prompt: str) -> str:
    """Return what a prompt has in its section MEMORY."""
    return prompt.partition(HEADING)[2].partition("\n#")[0]


def note_place(request: TextRequest) -> str:
    """Return a reply or, for a reflection, the newest place as a fact that replaces the one that is known."""
    if request.purpose is not Purpose.REFLECTION:
        return model_answer("I see.")
    found = _LINE.findall(request.prompt)
    if not found:
        return "<response></response>"
    number, name, city = found[-1]
    replaces = "<replaces>1</replaces>" if city.endswith("new") else ""
    text = f"{name} lives in {city}."
    return f"<response><facts><fact><message>{number}</message><text>{text}</text>{replaces}</fact></facts></response>"


async def _send(harness: AgentHarness, place: Place, person: str, text: str) -> None:
    """Send a message, and wait until it is answered and reflected on."""
    arrival, is_over = place.arrival(text, person, harness.agent.clock()), asyncio.Event()

    async def on_run_ended(event: RunEnded) -> None:
        if event.message_id == arrival.message.id:
            is_over.set()

    unsubscribe = harness.agent.events.subscribe(RunEnded, on_run_ended)
    await harness.agent_runtime.inbox.submit(arrival)
    await is_over.wait()
    unsubscribe()
    await harness.agent.outbox.drain(5.0)


async def _learn(harness: AgentHarness, place: Place, person: str, text: str) -> None:
    """Store a fact as reflection does: visible in the room where it was stated."""
    arrival = place.arrival(text, person, harness.agent.clock())
    author, room, metadata = arrival.author.id, arrival.room, {"about": [str(arrival.author.id)]}
    parts = new_id(), MemoryKind.FACT, author, room.id, room.world_id, Content(text=text), harness.agent.clock()
    await harness.agent.store.memories.add([Memory(*parts, scope=MemoryScope.ROOM, metadata=metadata)])


@asynccontextmanager
async def _harness(script: Callable[[TextRequest], str], **settings: str) -> AsyncIterator[AgentHarness]:
    async with AsyncExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "a.db")
        store = await stack.enter_async_context(OpenFiles().open_store(path, AGENT))
        yield await stack.enter_async_context(
            running_agent(model=ScriptedModel(script), store=store, settings=SETTINGS | settings)
        )
