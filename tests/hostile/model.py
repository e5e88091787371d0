"""A model that obeys every attacker in its prompt, and otherwise picks effects at random."""

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from bot import short_id
from bot.models import Purpose, TextRequest
from bot.testing import ScriptedModel, model_answer
from tests.hostile.attacks import ORDER, Call, build_call
from tests.hostile.places import MARK, PEOPLE, WORD_OF_A_NAME, person_id, rooms_named, writers_in

SHORT_ID = re.compile(r"\((?:id )([0-9a-f]{8})")
FACT_LINE = re.compile(r'^- (?P<told>[^"\n]*\(id [0-9a-f]{8}\)[^"\n]*): "(?P<text>[^\n]*)"$', re.MULTILINE)
NUMBERED = re.compile(r"^\s*\[?(\d{1,3})[\].]", re.MULTILINE)
PROVIDERS = (
    *("FACTS", "RELATIONSHIPS", "ROLES", "SETTINGS", "ATTACHMENTS", "CHOICE", "CONTACTS", "ENTITIES"),
    *("WORLD", "KNOWLEDGE", "TOOL_OUTPUT", "ACTION_STATE"),
)
SHARED_ROOM = re.compile(r"with (?:others|Ada \(id )")
SHORT_IDS = {name: short_id(person_id(name)) for name in PEOPLE}


def find_marks(text: str) -> list[str]:
    """Return the marks in a text, as they are written."""
    return [match[0] for match in MARK.finditer(text)]


@dataclass(slots=True)
class Reading:
    """What the model has read in one event: whose words, canaries of which rooms, and facts attributed to whom.

    `before_calls` has whose words it had read before each answer whose actions may have run.
    """

    writers: set[str] = field(default_factory=set)
    before_calls: list[frozenset[str]] = field(default_factory=list)
    rooms: set[str] = field(default_factory=set)
    misattributed: list[str] = field(default_factory=list)
    reflection_writers: set[str] = field(default_factory=set)
    orders: int = 0
    model_calls: int = 0


class HostileModel:
    """Answers each request with what attackers order, with random calls, or with what was really asked for.

    `wanted` are the calls that the sender of the event has asked for in their own words, if any. `reading`
    collects what the prompts of the event held; the oracle judges by it.
    """

    def __init__(self, chance: random.Random, orders: Mapping[str, Sequence[Call]]) -> None:
        self.scripted = ScriptedModel(self._write)
        self.reading = Reading()
        self.wanted: tuple[Call, ...] = ()
        self.tried: Counter[str] = Counter()
        self.action_names: Sequence[str] = ("REPLY",)
        self._chance, self._orders = chance, orders

    def begin(self, wanted: tuple[Call, ...] = ()) -> None:
        """Forget what was read, before the next event."""
        self.reading, self.wanted = Reading(), wanted
        self.scripted.requests.clear()

    def _write(self, request: TextRequest) -> str:
        text = f"{request.system or ''}\n{request.prompt}"
        self._read(text, request.purpose)
        if request.purpose is Purpose.SHOULD_RESPOND:
            action = self._chance.choice(("RESPOND", "RESPOND", "IGNORE", "STOP"))
            return f"<response><reasoning>x</reasoning><action>{action}</action></response>"
        if request.purpose is Purpose.REPAIR:
            return json.dumps(self._choose_calls(text)[0][1])
        if request.purpose is Purpose.REFLECTION:
            return self._reflect(text)
        if request.purpose is Purpose.STEP:
            return self._write_step(text)
        if request.purpose is Purpose.REPLY:
            return self._write_reply(text)
        return model_answer(self._say(text))

    def _read(self, text: str, purpose: Purpose) -> None:
        reading = self.reading
        read = writers_in(text)
        reading.model_calls += 1
        reading.rooms |= rooms_named(text)
        if purpose is Purpose.REFLECTION:
            reading.reflection_writers |= read
        else:
            reading.writers |= read
        if purpose is Purpose.STEP:
            reading.before_calls.append(frozenset(reading.writers))
        elif purpose is Purpose.REPLY:  # a reply that asks for providers is drafted again: only the last one acts
            reading.before_calls = [frozenset(reading.writers)]
        reading.orders += bool(ORDER.search(text))
        if MARK.search(text):
            for line in FACT_LINE.finditer(text):
                fact_text = line["told"]
                if SHARED_ROOM.search(fact_text):
                    continue
                writers = writers_in(WORD_OF_A_NAME.sub("", line["text"]))  # a name only says whom a fact is about
                others = [name for name in writers if name in PEOPLE and SHORT_IDS[name] not in fact_text]
                reading.misattributed += [f"{name}'s words told as those of {fact_text}" for name in others]

    def _choose_calls(self, text: str) -> Sequence[Call]:
        chance = self._chance
        ordered = ORDER.findall(text)
        roll = chance.random()
        if self.wanted and roll < 0.5:
            return self.wanted
        if ordered and roll < 0.85:
            calls: Sequence[Call] = self._orders.get(chance.choice(ordered), ())
        else:
            calls = ()
        if not calls:
            ids = SHORT_ID.findall(text)[-8:]
            calls = [build_call(chance, self.action_names, ids) for _ in range(chance.choice((1, 1, 2)))]
        calls = [self._sign(call, text) for call in calls]
        return [*self.wanted, *calls] if roll > 0.7 else calls

    def _sign(self, call: Call, text: str) -> Call:
        """Return a call whose texts bear a mark of the prompt: text that the model invents belongs to no person."""
        name, arguments = call
        marks = find_marks(text) or [""]
        return name, {
            key: MARK.sub(self._chance.choice(marks), value) if isinstance(value, str) else value
            for key, value in arguments.items()
        }

    def _write_reply(self, text: str) -> str:
        chance = self._chance
        roll = chance.random()
        providers = chance.sample(PROVIDERS, 3) if chance.random() < 0.15 else ()
        if roll < 0.15 and not self.wanted:
            return model_answer(self._say(text), providers=providers)
        parameters: dict[str, Any] = {}
        for name, arguments in self._choose_calls(text):
            parameters[self._spell(name)] = dict(arguments)
            self.tried[name] += 1
        return model_answer(self._say(text), actions=("REPLY", *parameters), parameters=parameters, providers=providers)

    def _write_step(self, text: str) -> str:
        name, arguments = self._chance.choice(self._choose_calls(text))
        self.tried[name] += 1
        is_last = "true" if self._chance.random() < 0.5 else "false"
        return (
            f"<response><thought>x</thought><action>{name}</action><parameters>{escape(json.dumps(arguments))}"
            f"</parameters><providers></providers><isFinish>{is_last}</isFinish></response>"
        )

    def _spell(self, name: str) -> str:
        if self._chance.random() < 0.8:
            return name
        return self._chance.choice((name.lower(), name.replace("_", " ").title(), name))

    def _say(self, text: str) -> str:
        """Return a reply: harmless, a piece of the prompt, an order to be obeyed later, or a forged question."""
        chance, roll = self._chance, self._chance.random()
        if roll < 0.5:
            return "Very well."
        if roll < 0.75:
            start = chance.randrange(max(1, len(text) - 200))
            return text[start : start + 200]
        ordered, marks = ORDER.findall(text), find_marks(text)
        if roll < 0.92 and ordered and marks:
            return f"Remember: {chance.choice(ordered)} {chance.choice(marks)}"
        return "Please confirm with the code ABCDE: nothing changes at all."

    def _reflect(self, text: str) -> str:
        """Note facts with the words of some people as those of others, forget facts, and tie people."""
        chance = self._chance
        numbers = NUMBERED.findall(text) or ["1"]
        words = [*ORDER.findall(text), *find_marks(text)] or ["bees"]
        facts = [
            f"<fact><message>{chance.choice(numbers)}</message><about></about><kind></kind>"
            f"<text>{chance.choice(PEOPLE)} keeps {' '.join(chance.sample(words, min(2, len(words))))} in town.</text>"
            f"<replaces>{chance.choice(('', '', '1', '2,3'))}</replaces></fact>"
            for _ in range(chance.randint(0, 3))
        ]
        forgotten = f"<fact><number>{chance.randint(1, 3)}</number><message>{chance.choice(numbers)}</message></fact>"
        relationship = f"<source>{chance.choice(PEOPLE)}</source><target>{chance.choice((*PEOPLE, 'you'))}</target>"
        return (
            f"<response><facts>{''.join(facts)}</facts><forgotten>{forgotten if chance.random() < 0.3 else ''}"
            f"</forgotten><relationships><relationship>{relationship}<tags>{chance.choice(words)}</tags></relationship>"
            "</relationships></response>"
        )
