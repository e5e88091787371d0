"""Made-up rooms where people talk with each other and call the bot now and then, and a model that decides rightly."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot import Content
from bot.models import Purpose, TextRequest
from bot.platform import MentionContext
from bot.testing import ScriptedModel, model_answer

ROOMS, SCENES, SEED = 20, 14, 7
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
    """A message of a made-up room, whether its author means the bot, and whether it answers the one before it."""

    author: str
    content: Content
    is_addressed: bool
    is_answer: bool = False

    def count(self, *, is_answered: bool) -> Counter[str]:
        """Return what the message adds to the figures of its rooms."""
        return Counter(
            messages=1,
            addressed=int(self.is_addressed),
            lost=int(self.is_addressed and not is_answered),
            interrupted=int(is_answered and not self.is_addressed),
        )


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
                yield replace(_to_room(speaker, _with_name(chance, other, chance.choice(ANSWERS))), is_answer=True)


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


def format_counts(counts: Counter[str], decisions: int) -> str:
    """Return the figures of rooms as text."""
    return (
        f"{decisions / counts['messages']:.2f} model calls a message, {counts['lost']} of {counts['addressed']} "
        f"addressed lost, {counts['interrupted']} of {counts['messages'] - counts['addressed']} others answered"
    )
