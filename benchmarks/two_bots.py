"""Made-up rooms with two bots and people: who answers lines that are for one of them, for a person, or for all."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.figures import Row
from benchmarks.seeded_rooms import ANSWERS, CALLS, FOLLOW_UPS, OPENINGS, PEOPLE, SUBJECTS, TruthfulModel
from bot import ChannelType, Character, Content, Outcome
from bot.models import Purpose
from bot.platform import MentionContext
from bot.testing import AgentHarness, running_agent

BOTS, ALL = ("Ada", "Bruno"), "all"
ROOMS, SCENES, SEED = 20, 14, 11
TO_ALL = ("does anyone know where {x} is?", "who can help with {x}?", "any ideas about {x}?")
SETTINGS = {"MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a room, and the bot that it is for, "all", or no bot."""

    author: str
    text: str
    meant: str = ""


def generate_lines(chance: random.Random) -> Iterator[Line]:
    """Yield the lines that people write in a room with both bots."""
    people = chance.sample(PEOPLE, 4)
    for _ in range(SCENES):
        subject, kind = chance.choice(SUBJECTS), chance.random()
        if kind < 0.45:
            caller, bot = chance.choice(people), chance.choice(BOTS)
            yield Line(caller, f"{bot}, {chance.choice(CALLS).format(x=subject)}", bot)
            for _ in range(chance.choice((0, 1, 1, 2))):
                if chance.random() < 0.3:
                    yield Line(chance.choice([person for person in people if person != caller]), "I will be late today")
                yield Line(caller, chance.choice(FOLLOW_UPS), bot)
        elif kind < 0.55:
            yield Line(chance.choice(people), chance.choice(TO_ALL).format(x=subject), ALL)
        else:
            first, second = chance.sample(people, 2)
            yield Line(first, f"{second}: {chance.choice(OPENINGS).format(x=subject)}")
            for turn in range(chance.randint(1, 4)):
                yield Line(first if turn % 2 else second, chance.choice(ANSWERS))


async def play_two_bots(rooms: int = ROOMS) -> Counter[str]:
    """Run two bots in the same rooms; count what each answers, and what its model is asked about."""
    counts = Counter[str]()
    async with AsyncExitStack() as stack:
        models = {name: TruthfulModel() for name in BOTS}
        harnesses = {
            name: await stack.enter_async_context(
                running_agent(model=model, character=Character(name=name), settings=SETTINGS)
            )
            for name, model in models.items()
        }
        for number in range(rooms):
            for line in generate_lines(random.Random(SEED + number)):
                for name, model in models.items():
                    model.is_addressed = line.meant in (name, ALL)
                hearings = [_hear(harnesses, name, line, f"room {number}", counts) for name in harnesses]
                answers = await asyncio.gather(*hearings)
                _count(
                    counts, line, [name for name, is_answered in zip(harnesses, answers, strict=True) if is_answered]
                )
    counts["decisions"] = sum(model.decisions for model in models.values())
    return counts


async def _hear(harnesses: Mapping[str, AgentHarness], name: str, line: Line, room: str, counts: Counter[str]) -> bool:
    """Send a line to a bot, and its answer to the other; return whether it answered."""
    harness = harnesses[name]
    harness.model.requests.clear()
    receipt = await harness.send(line.text, author=line.author, room=room, kind=ChannelType.GROUP)
    is_asked = any(request.purpose is Purpose.SHOULD_RESPOND for request in harness.model.requests)
    is_meant = line.meant in (harness.agent.name, ALL)
    counts["asked though another bot was meant"] += is_asked and line.meant in BOTS and not is_meant
    if receipt.outcome is not Outcome.ANSWERED:
        return False
    mention = MentionContext(replies_to=receipt.author_id)
    answer = Content(text=harness.texts[-1], source="test", mention=mention)
    for other in harnesses.keys() - {name}:
        await harnesses[other].send(answer, author=name, room=room, kind=ChannelType.GROUP, is_bot=True)
    return True


def _count(counts: Counter[str], line: Line, answering: list[str]) -> None:
    counts["lines"] += 1
    if line.meant == ALL:
        counts["to all"] += 1
        counts["to all, answered by both"] += len(answering) > 1
        counts["to all, answered by nobody"] += not answering
    elif line.meant:
        counts["for a bot"] += 1
        counts["answered by that bot"] += line.meant in answering
        counts["answered by the other"] += any(name != line.meant for name in answering)
    else:
        counts["answered among people"] += bool(answering)


async def measure_two_bots() -> Row:
    """Return the figures of the rooms."""
    counts = await play_two_bots()
    both, none = counts["to all, answered by both"], counts["to all, answered by nobody"]
    figure = (
        f"of {counts['for a bot']} lines for one bot {counts['answered by that bot']} answered by it, "
        f"{counts['answered by the other']} by the other, {counts['asked though another bot was meant']} times the "
        f"other's model was asked; of {counts['to all']} lines to all {both} answered by both, {none} by none; "
        f"{counts['decisions'] / counts['lines'] / len(BOTS):.2f} model calls a message"
    )
    return f"{ROOMS} made-up rooms with two bots", figure
