"""A model at its worst: what it writes is drawn by chance, and mostly fits what was said."""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from bot import Role, derived_id, short_id
from bot.models import Purpose, TextRequest, TextResult, ToolCall
from bot.testing import model_answer
from plugins.bootstrap import plugin
from tests.roleplay.law import PEOPLE, PLACES

NAMES = [name for action in plugin.actions for name in (action.spec.name, *action.spec.similes)]
WORDS = [
    *PEOPLE,
    *PLACES,
    *Role,
    *(short_id(derived_id("test", "entity", name)) for name in PEOPLE),
    "owner",
    "confirm",
    "ABORT",
    "1",
    "yes",
    "email",
    "messages",
    "root@example.org",
    "CONVERSATION_LENGTH",
    "ON_EDIT",
    "OPENAI_API_KEY",
    "rerun",
    "7",
    "default",
    "GROUP",
    "",
    "'; DROP TABLE worlds; --",
    "{{system}}",
    "\u202eADMIN",
]
KEYS = sorted({key for action in plugin.actions for key in action.spec.parameters.get("properties", {})})
FITTING: Mapping[str, Sequence[str]] = {
    "person": [*PEOPLE],
    "role": [*Role],
    "name": ["CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS"],
    "value": ["7", "rerun", "true", "default", "yes", "no", "root@example.org", ""],
    "kind": ["email", "messages"],
    "option": ["confirm", "1", "ABORT"],
    "to": [*PEOPLE, *PLACES, ""],
    "task": [""],
    "platform": [""],
}
BROKEN = ("", "<response><role>OWNER</role>", '{"actions": "UPDATE_ROLE"}', "</text>")


class Writer:
    """Writes any action with any parameters, and now and then no answer at all.

    `text` is what was said last, `likely` the action that a model would make of it, `codes` those that
    confirm something just now.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.text = ""
        self.likely = ""
        self.codes: list[str] = ["AAAAA"]

    def write(self, request: TextRequest) -> str | TextResult:
        """Answer a request: by functions, half of the time, where it has some."""
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>RESPOND</action></response>"
        if request.purpose is Purpose.REPAIR:
            return json.dumps(self.parameters())
        if self.random.random() < 0.03:
            return self.random.choice(BROKEN)
        names = [self.name() for _ in range(self.random.randint(1, 4))]
        parameters = {name: self.parameters(name) for name in names if re.fullmatch(r"\w+", name)}
        text = self.random.choice(["Well.", ""])
        if request.tools and self.random.random() < 0.5:
            return TextResult(text, tool_calls=tuple(ToolCall(name, parameters.get(name, {})) for name in names))
        return model_answer(text, actions=["REPLY", *names], parameters=parameters)

    def name(self) -> str:
        """Name an action, mostly one there is."""
        name = self.random.choice(NAMES)
        if self.random.random() < 0.4:
            return self.likely
        return self.random.choice([name, name, name, name.lower(), name.replace("_", ""), f"{name}_", "SUDO"])

    def parameters(self, name: str = "") -> dict[str, Any]:
        """Return parameters, mostly those that fit the action."""
        spec = next(
            (action.spec for action in plugin.actions if name in (action.spec.name, *action.spec.similes)), None
        )
        keys = list(spec.parameters.get("properties", {})) if spec else self.random.sample(KEYS, 3)
        needed = spec.parameters.get("required", ()) if spec else KEYS
        return {key: self.value(key) for key in keys if key in needed or self.random.random() < 0.3}

    def value(self, key: str) -> str:
        """Return a value: from the message, one that might fit, or any."""
        fitting = FITTING.get(key, WORDS)
        mentioned = [word for word in fitting if word and word in self.text]
        anything = [*WORDS, *self.codes]
        [pool] = self.random.choices([mentioned or fitting, fitting, anything], [6, 2, 1])
        return self.random.choice(pool)
