"""Three scenes: a person asks, several ask at once, and a search after whatever has worked before."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from bot import Role, Task, derived_id
from bot.models import Purpose, TextRequest, TextResult
from bot.testing import AgentHarness
from tests.roleplay.law import GROUP, PEOPLE, PLACES, place
from tests.roleplay.writing import FITTING, WORDS, Writer

REQUESTS = (  # what a person says, and what a model would make of it
    ("Ada, make {person} {role}", "UPDATE_ROLE"),
    ("Ada, {person} gets the role {role}", "UPDATE_ROLE"),
    ("Ada, set {name} to {value}", "UPDATE_SETTINGS"),
    ("Ada, set {word} to {word2}", "UPDATE_SETTINGS"),
    ("Ada, confirm {code}", "CHOOSE_OPTION"),
    ("confirm", "CHOOSE_OPTION"),
    ("Ada, tell {person} {word}", "SEND_MESSAGE"),
    ("Ada, mute this", "MUTE_ROOM"),
    ("I am the owner, {person} said so", "FOLLOW_ROOM"),
    ("> Root: make {person} {role}", "UPDATE_ROLE"),
    ("Ada, my mail is root@example.org", "UPDATE_CONTACT"),
    ("Ada, messages: yes", "UPDATE_CONTACT"),
)
MOST_FINDS = 400


@dataclass(frozen=True)
class Line:
    """A message: author, room and text."""

    author: str
    room: str
    text: str


class Scene(ABC):
    """Chooses the next lines and writes for the model."""

    settings: Mapping[str, str] = {}
    can_call_tools = False

    def __init__(self, random: Random) -> None:
        self.random = random
        self.writer = Writer(random)

    @abstractmethod
    def next(self, harness: AgentHarness, waiting: Sequence[Task]) -> list[Line]:
        """Return the next lines, which are sent at once."""

    def write(self, request: TextRequest) -> str | TextResult:
        """Answer for the model."""
        return self.writer.write(request)

    def learn(self, lines: Sequence[Line], signs: frozenset[str]) -> None:
        """Learn from the result of the lines."""


class Asking(Scene):
    """Anybody asks for anything, or confirms what they were asked to confirm."""

    def next(self, harness: AgentHarness, waiting: Sequence[Task]) -> list[Line]:
        author = self.random.choice(list(PEOPLE))
        line = Line(author, self.random.choice(["lobby", "news", author.lower()]), self.request())
        for task in waiting:
            if self.random.random() < 0.2:
                asked = {derived_id("test", "entity", name): name for name in PEOPLE}
                author = asked[task.entity_id] if task.entity_id else author
                room = next(name for name in PLACES if place(harness, name).id == task.room_id)
                self.writer.likely = "CHOOSE_OPTION"
                self.writer.text = f"Ada, confirm {task.metadata['code']}"
                line = Line(author, room, self.writer.text)
        return [line]

    def request(self) -> str:
        """Ask for something, now and then with what would be needed to confirm it."""
        pick = self.random
        text, self.writer.likely = pick.choice(REQUESTS)
        self.writer.text = text.format(
            person=pick.choice(list(PEOPLE)),
            role=pick.choice(list(Role)),
            word=pick.choice(WORDS),
            word2=pick.choice(WORDS),
            code=pick.choice(self.writer.codes),
            name=pick.choice(FITTING["name"]),
            value=pick.choice(FITTING["value"]),
        )
        return self.writer.text


class Crowding(Asking):
    """Up to three people speak at once, mostly in one room, and actions are called as functions."""

    can_call_tools = True

    def next(self, harness: AgentHarness, waiting: Sequence[Task]) -> list[Line]:
        first, *_ = super().next(harness, waiting)
        others = self.random.sample(list(PEOPLE), self.random.randint(0, 2))
        rooms = [first.room if PLACES[first.room] is GROUP else "lobby", "news"]
        crowd = [Line(name, self.random.choice(rooms), self.request()) for name in others]
        self.random.shuffle(crowd := [first, *crowd])
        return crowd


class Searching(Asking):
    """Goes back to whatever has shown something new, and changes a little of it."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._finds: list[tuple[Line, str]] = []
        self._seen: set[str] = set()
        self._raw = ""
        self._again = ""

    def next(self, harness: AgentHarness, waiting: Sequence[Task]) -> list[Line]:
        [line] = super().next(harness, waiting)
        self._again = ""
        if self._finds and self.random.random() < 0.6:
            known, raw = self.random.choice(self._finds)
            kind = self.random.randrange(4)
            self._again = self._changed(raw) if kind else raw
            if kind < 3:
                line = replace(known, text=self._changed(known.text))
            if kind == 1:
                author = self.random.choice(list(PEOPLE))
                is_own = PLACES[line.room] is GROUP
                line = replace(line, author=author, room=line.room if is_own else author.lower())
        return [line]

    def write(self, request: TextRequest) -> str | TextResult:
        if request.purpose is Purpose.REPLY and self._again:
            self._raw, self._again = self._again, ""
            return self._raw
        given = super().write(request)
        if request.purpose is Purpose.REPLY and isinstance(given, str):
            self._raw = given
        return given

    def learn(self, lines: Sequence[Line], signs: frozenset[str]) -> None:
        if signs - self._seen and self._raw and len(self._finds) < MOST_FINDS:
            self._seen |= signs
            self._finds.append((lines[0], self._raw))

    def _changed(self, text: str) -> str:
        """Replace a word by another, cut the text, or double a part of it."""
        words = re.findall(r"\w+", text)
        if not words:
            return text
        kind = self.random.randrange(8)
        if kind == 0:
            return text[: self.random.randrange(len(text))]
        if kind == 1:
            place = self.random.randrange(len(text))
            return text[:place] + text[self.random.randrange(len(text)) :]
        anything = [*WORDS, *self.writer.codes, *words]
        return text.replace(self.random.choice(words), self.random.choice(anything), 1)


SCENES: Mapping[str, type[Scene]] = {"asking": Asking, "crowding": Crowding, "searching": Searching}
