"""Measure how often a model is asked whether to speak in groups, and how often the bot is wrong without asking."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.conversation import load_recording, run_conversation
from benchmarks.figures import Row
from benchmarks.train_addressed import MIN_LINES, describe, find_cases, read_logs
from bot import ChannelType, Content, Outcome
from bot.addressing.classifier import load_classifier
from bot.models import Purpose, TextRequest
from bot.platform import MentionContext
from bot.testing import ScriptedModel, model_answer, running_agent

LOGS_VARIABLE = "BENCH_ADDRESSED_LOGS"  # a folder with annotated logs; without it they are not measured
ROOMS, SCENES, SEED, BURST = 20, 14, 7, 20
PEOPLE = ("Ines", "Tobias", "Keiko", "Sam", "Leïla", "Bo", "Priya", "Jonas")
SUBJECTS = ("the van", "the poster", "the printer", "the rehearsal", "the tent", "the invoice", "the wifi", "the cake")
OPENINGS = ("did you see {x}?", "{x} is gone again", "who has {x} now?", "I fixed {x} this morning", "so, {x}")
ANSWERS = (
    "yes, it was fine yesterday",
    "no idea, ask at the desk",
    "it is in the hall I think",
    "not me",
    "ok, I will look",
    "that was weeks ago",
    "haha, again?",
    "I can do that tonight",
)
CALLS = ("what do you think about {x}?", "can you find out about {x}?", "how much is {x}?", "tell us about {x}")
FOLLOW_UPS = (
    "and on Sunday?",
    "no, the other one",
    "thanks!",
    "why is that?",
    "the small one",
    "can you say that again?",
)


@dataclass(frozen=True, slots=True)
class SeededMessage:
    """A message of a made-up room, and whether its author means the bot."""

    author: str
    content: Content
    is_addressed: bool


class TruthfulModel(ScriptedModel):
    """Decides as the author of the current message meant it."""

    def __init__(self) -> None:
        self.is_addressed = False
        self.decisions = self.replies = 0
        super().__init__(self._answer)

    def _answer(self, request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            self.decisions += 1
            return f"<response><action>{'RESPOND' if self.is_addressed else 'IGNORE'}</action></response>"
        self.replies += 1
        return model_answer(f"Which one do you mean, number {self.replies}?")


def measure_speaking() -> list[Row]:
    """Measure the recorded talk, made-up rooms, a burst, and annotated logs where there are some."""
    rows = [asyncio.run(_measure_recorded()), asyncio.run(_measure_rooms()), asyncio.run(_measure_burst())]
    if folder := os.environ.get(LOGS_VARIABLE):
        rows.append(_measure_logs(Path(folder)))
    return rows


async def _measure_recorded() -> Row:
    messages = load_recording()
    calls = await run_conversation(messages)
    decisions = sum(call.purpose is Purpose.SHOULD_RESPOND for call in calls)
    return "decisions in the recorded talk", f"{decisions} by the model for {len(messages)} messages"


async def _measure_rooms() -> Row:
    counts: Counter[str] = Counter()
    model = TruthfulModel()
    async with running_agent(model=model) as stage:
        for number in range(ROOMS):
            for message in generate_room(random.Random(SEED + number)):
                model.is_addressed = message.is_addressed
                receipt = await stage.send(
                    message.content, author=message.author, room=f"room {number}", kind=ChannelType.GROUP
                )
                is_answered = receipt.outcome is Outcome.ANSWERED
                counts["messages"] += 1
                counts["addressed"] += message.is_addressed
                counts["lost"] += message.is_addressed and not is_answered
                counts["interrupted"] += is_answered and not message.is_addressed
    figure = (
        f"{model.decisions / counts['messages']:.2f} model calls a message, {counts['lost']} of {counts['addressed']} "
        f"addressed lost, {counts['interrupted']} of {counts['messages'] - counts['addressed']} others answered"
    )
    return f"{ROOMS} made-up rooms", figure


def generate_room(chance: random.Random) -> Iterator[SeededMessage]:
    """Yield the messages of a room: people talk with each other, and call the bot now and then."""
    people = chance.sample(PEOPLE, chance.randint(3, 6))
    for _ in range(SCENES):
        subject = chance.choice(SUBJECTS)
        if chance.random() < 0.3:
            yield from _generate_call(chance, people, subject)
        else:
            first, second = chance.sample(people, 2)
            yield _to_room(first, _with_name(chance, second, chance.choice(OPENINGS).format(x=subject)))
            for turn in range(chance.randint(1, 6)):
                speaker, other = (first, second) if turn % 2 else (second, first)
                yield _to_room(speaker, _with_name(chance, other, chance.choice(ANSWERS)))


def _generate_call(chance: random.Random, people: list[str], subject: str) -> Iterator[SeededMessage]:
    caller, text = chance.choice(people), chance.choice(CALLS).format(x=subject)
    way = chance.choice(("name", "mention", "reply"))
    mention = MentionContext(is_mention=way == "mention", is_reply=way == "reply")
    yield SeededMessage(caller, _content(f"Ada, {text}" if way == "name" else text, mention), True)
    if chance.random() < 0.3:
        yield _to_room(chance.choice([person for person in people if person != caller]), "I will be late today")
    if chance.random() < 0.6:
        yield SeededMessage(caller, _content(chance.choice(FOLLOW_UPS)), True)


def _with_name(chance: random.Random, name: str, text: str) -> str:
    return f"{name}: {text}" if chance.random() < 0.25 else text


def _to_room(author: str, text: str) -> SeededMessage:
    return SeededMessage(author, _content(text), False)


def _content(text: str, mention: MentionContext | None = None) -> Content:
    return Content(text=text, source="test", mention=mention or MentionContext())


async def _measure_burst() -> Row:
    async def slow(request: TextRequest) -> str:
        await asyncio.sleep(0.2)
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>RESPOND</action></response>"
        return model_answer("Hello to you too.")

    async with running_agent(model=ScriptedModel(slow)) as stage:
        receipts = [
            await stage.submit(f"part {number}", author=PEOPLE[number % 8], kind=ChannelType.GROUP)
            for number in range(BURST)
        ]
        await asyncio.gather(*(stage.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts))
        await stage.agent.outbox.drain(5)
        purposes = Counter(request.purpose for request in stage.model.requests)
        replies = len(stage.texts)
    begun = f"{purposes[Purpose.SHOULD_RESPOND]} decisions and {purposes[Purpose.REPLY]} replies begun"
    return f"{BURST} messages at once in a group, 200 ms model", f"{replies} reply, {begun}"


def _measure_logs(folder: Path) -> Row:
    classifier = load_classifier()
    found = [
        (classifier.probability(features), is_addressed)
        for log in read_logs(folder)
        for features, is_addressed in find_cases(log, MIN_LINES)
    ]
    return f"addressed or not, logs of {folder.name}", describe(found)
