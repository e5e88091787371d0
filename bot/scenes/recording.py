"""Recorded answers of a model: read, matched at the provider's boundary, and written as YAML.

An answer belongs to the step of the scene, the purpose of the call, its number in the step, the offered actions and
the messages since the character last said something. The wording of the prompt, times and ids do not count: an answer
to another wording is stale, which is a warning.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import yaml
from pydantic import Field

from bot.characters.source import mask_secrets
from bot.errors import ModelRefused
from bot.models.handler import note_call
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, ToolCall, Usage
from bot.plugin_system.components import Model
from bot.plugin_system.plugin import Plugin
from bot.prompts.templates import (
    CONTINUE,
    INLINE_ANSWER,
    MESSAGE_HANDLER,
    MULTI_STEP_DECISION,
    MULTI_STEP_SUMMARY,
    PARAMETER_REPAIR,
    POST_CREATION,
    REFLECTION,
    SHOULD_RESPOND,
    SYSTEM,
)
from bot.scenes.scene import FileModel, answers_path, read_file
from bot.text import parse_history, redact, shorten
from bot.turn import Agent

TEXT_TYPES = (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE)
TEMPLATES = {
    Purpose.SHOULD_RESPOND: (SHOULD_RESPOND,),
    Purpose.REPLY: (MESSAGE_HANDLER, CONTINUE),
    Purpose.STEP: (MULTI_STEP_DECISION,),
    Purpose.SUMMARY: (MULTI_STEP_SUMMARY,),
    Purpose.REPAIR: (PARAMETER_REPAIR,),
    Purpose.POST: (POST_CREATION,),
    Purpose.INLINE: (INLINE_ANSWER,),
    Purpose.REFLECTION: (REFLECTION,),
}
CHARACTER_FIELDS = ("name", "system", "bio", "lore", "topics", "adjectives", "style", "message_examples")
WORDING_LENGTH = 12


class RecordedCall(FileModel):
    """A function that the model called in an answer."""

    name: str
    arguments: Mapping[str, Any] = Field(default_factory=dict)


class RecordedAnswer(FileModel):
    """One answer of a model, and the call that it belongs to.

    `actions` and `messages` are not compared where they are missing, as in answers written by hand.
    """

    step: int = Field(ge=1)
    purpose: Purpose = Purpose.REPLY
    call: int = Field(1, ge=1)
    actions: tuple[str, ...] | None = None
    messages: tuple[str, ...] | None = None
    wording: str = ""
    answer: str = ""
    calls: tuple[RecordedCall, ...] = ()
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


class Verdict(FileModel):
    """The judgement of a model about a text: by `llm-rubric` or `similar`, with its reason."""

    step: int
    assertion: str
    value: str
    output: str
    score: float
    passed: bool
    reason: str = ""


class Recording(FileModel):
    """The recorded answers of a scene, and the verdicts of its judges; by hand those that no model has written.

    With `tools` the model was offered the actions as functions. `wording` has a hash of each part of the wording, so
    that a stale answer can name what has changed.
    """

    written_by: Literal["hand", "model"] = "hand"
    tools: bool = True
    answers: tuple[RecordedAnswer, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    wording: Mapping[str, str] = Field(default_factory=dict)


def read_recording(scene_path: Path) -> Recording:
    """Return the recording beside a scene's file; an empty one if there is none. Raises SceneError."""
    path = answers_path(scene_path)
    return read_file(path, Recording)[0] if path.exists() else Recording()


def write_recording(scene_path: Path, recording: Recording, secrets: Collection[str]) -> Path:
    """Write the recording beside a scene's file, without secrets; return its path."""
    document = remove_secrets(recording.model_dump(mode="json", exclude_defaults=True), secrets)
    text = yaml.dump(
        {"written_by": recording.written_by, **document},
        Dumper=SceneDumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
    )
    path = answers_path(scene_path)
    path.write_text(text, encoding="utf-8")
    return path


class SceneDumper(yaml.SafeDumper):
    """Writes YAML without aliases, and texts of several lines as they are read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


SceneDumper.add_representer(str, _represent_text)


def remove_secrets(value: Any, secrets: Collection[str]) -> Any:
    """Return data without secrets: known ones, and what looks like one."""
    if isinstance(value, str):
        return mask_secrets(redact(value, secrets))[0]
    if isinstance(value, Mapping):
        return {key: remove_secrets(item, secrets) for key, item in value.items()}
    return [remove_secrets(item, secrets) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class CallKey:
    """What an answer is looked up by."""

    step: int
    purpose: Purpose
    call: int
    actions: tuple[str, ...]
    messages: tuple[str, ...]

    def matches(self, answer: RecordedAnswer) -> bool:
        """Return whether an answer was recorded for this call."""
        return (
            (self.step, self.purpose, self.call) == (answer.step, answer.purpose, answer.call)
            and answer.actions in (None, self.actions)
            and answer.messages in (None, self.messages)
        )

    def describe_difference(self, answer: RecordedAnswer) -> str:
        """Return the first thing in which the call differs from a recorded one."""
        for name, now, then in (
            ("step", self.step, answer.step),
            ("purpose", self.purpose, answer.purpose),
            ("call", self.call, answer.call),
        ):
            if now != then:
                return f"{name} {then} was recorded"
        if answer.actions is not None and answer.actions != self.actions:
            added, gone = set(self.actions) - set(answer.actions), set(answer.actions) - set(self.actions)
            changes = [*(f"+{name}" for name in sorted(added)), *(f"-{name}" for name in sorted(gone))]
            return f"the offered actions differ: {' '.join(changes) or 'their order'}"
        then_lines = answer.messages or ()
        for index in range(max(len(then_lines), len(self.messages))):
            then_line, now_line = (lines[index] if index < len(lines) else "" for lines in (then_lines, self.messages))
            if then_line != now_line:
                return f"message {index + 1} was {then_line!r} and is {now_line!r}"
        return "nothing"

    def __str__(self) -> str:
        return f"call {self.call} for {self.purpose} in step {self.step}"


def hash_wording(agent: Agent, request: TextRequest) -> tuple[str, dict[str, str]]:
    """Return a hash of the wording of a prompt: templates, character and offered actions, without what was said.

    With it come the hashes of its parts, by their names.
    """
    names = TEMPLATES.get(request.purpose, ())
    templates = {name: text for name, text in agent.templates.items() if name in (SYSTEM, *names) or not names}
    # Answers were recorded before there were final rules.
    fields = {*CHARACTER_FIELDS, *(["final_rules"] if agent.character.final_rules else [])}
    character = agent.character.model_dump(mode="json", include=fields)
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    parts: dict[str, Any] = {f"template {name}": templates[name] for name in (SYSTEM, *names) if name in templates}
    for name, value in character.items():
        is_lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
        parts |= {f"line {n} of {name}": line for n, line in enumerate(value, 1)} if is_lines else {name: value}
    parts["actions"] = tools
    return _hash([templates, character, tools]), {name: _hash(part) for name, part in parts.items() if part}


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:WORDING_LENGTH]


def list_new_messages(prompt: str) -> tuple[str, ...]:
    """Return the messages at the end of a prompt's conversation, since the character's last one."""
    lines = parse_history(prompt)
    start = max((index for index, line in enumerate(lines) if line.is_agent), default=-1) + 1
    return tuple(f"{line.name}: {line.text}" for line in lines[start:])


@dataclass(slots=True)
class RecordedModel:
    """Answers text requests from a recording, and asks no model; or records what models answer.

    The owner sets `step` before each step. `problems` are requests without an answer. Plugins that `wrap` returned
    answer what is not in the recording by their models, with `is_live` everything; `recorded` has all answers that
    were given, `keyed` those of the recording with the messages and the wording of the calls that they were given to,
    whose parts are in `wording`.
    """

    recording: Recording
    is_live: bool = False
    step: int = 0
    problems: list[str] = field(default_factory=list)
    _stale: dict[str, list[CallKey]] = field(default_factory=dict)  # by what has changed
    purposes: Counter[Purpose] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)
    recorded: list[RecordedAnswer] = field(default_factory=list)
    keyed: list[RecordedAnswer] = field(default_factory=list)
    wording: dict[str, str] = field(default_factory=dict)
    _used: set[int] = field(default_factory=set)
    _counts: Counter[tuple[int, Purpose]] = field(default_factory=Counter)
    _asked: list[TextRequest] = field(default_factory=list)

    @property
    def plugin(self) -> Plugin:
        """A plugin whose models answer from the recording."""
        models = [
            Model(kind, partial(self._answer, None), can_call_tools=lambda settings: self.recording.tools)
            for kind in (ModelType.TEXT_SMALL, ModelType.TEXT_LARGE)
        ]
        return Plugin("recording", "Answers from a recording.", models=models)

    def wrap(self, plugin: Plugin) -> Plugin:
        """Return a plugin whose text models are recorded, without its other models."""
        models = [replace(m, handler=partial(self._answer, m)) for m in plugin.models if m.type in TEXT_TYPES]
        return replace(plugin, models=models)

    @property
    def unused(self) -> list[RecordedAnswer]:
        """The recorded answers that nothing has asked for."""
        return [answer for index, answer in enumerate(self.recording.answers) if index not in self._used]

    @property
    def stale(self) -> list[str]:
        """Which answers were given to requests of another wording, and what has changed, as sentences."""
        return [
            f"{f'the answer to {keys[0]} is' if len(keys) == 1 else f'{len(keys)} answers are'} stale: the wording of "
            f"the prompt has changed{change}"
            for change, keys in self._stale.items()
        ]

    @property
    def has_tools(self) -> bool:
        """Whether the actions were offered as functions; as in the recording where no model was asked."""
        return any(request.tools for request in self._asked) if self._asked else self.recording.tools

    async def _answer(self, model: Model | None, agent: Agent, request: TextRequest) -> TextResult:
        self.purposes[request.purpose] += 1
        if model is not None and (self.is_live or request.purpose is Purpose.CHECK):  # a judge's call is no answer
            return await self._ask(model, agent, request)
        self._counts[self.step, request.purpose] += 1
        key = CallKey(
            self.step,
            request.purpose,
            self._counts[self.step, request.purpose],
            tuple(sorted(tool.name for tool in request.tools)),
            list_new_messages(request.prompt),
        )
        found = [index for index, answer in enumerate(self.recording.answers) if key.matches(answer)]
        wording, parts = hash_wording(agent, request)
        self.wording |= parts
        if len(found) == 1:
            answer = self.recording.answers[found[0]]
            self._used.add(found[0])
            if answer.wording and answer.wording != wording:
                changed = self._describe_change(parts)
                self._stale.setdefault(changed, []).append(key)
            self.recorded.append(answer)
            self.keyed.append(answer.model_copy(update={"messages": key.messages, "wording": wording}))
            return self._return(answer)
        if model is None:
            if request.purpose in (Purpose.REFLECTION, Purpose.ROOM_SUMMARY) and not found:
                note_call("recording")
                return TextResult("", "recording", Usage())
            self.problems.append(self._explain(key, found))
            raise ModelRefused(f"there is no recorded answer to {key}")
        started = monotonic()
        self._asked.append(request)
        result = await self._ask(model, agent, request)
        usage = result.usage or Usage()
        answer = RecordedAnswer(
            step=key.step,
            purpose=key.purpose,
            call=key.call,
            actions=key.actions,
            messages=key.messages,
            wording=wording,
            answer=result.text,
            calls=tuple(RecordedCall(name=call.name, arguments=dict(call.arguments)) for call in result.tool_calls),
            model=result.model,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            seconds=round(monotonic() - started, 3),
        )
        self.recorded.append(answer)
        self.seconds[self.step] += round(1000 * answer.seconds)
        return result

    async def _ask(self, model: Model, agent: Agent, request: TextRequest) -> TextResult:
        result = await model(agent, request)
        if not isinstance(result, TextResult):
            raise ModelRefused("the model returned no text")
        return result

    def _describe_change(self, parts: Mapping[str, str]) -> str:
        """Return which parts of the wording are other ones than those recorded, for the end of a sentence."""
        known = self.recording.wording
        changed = [name for name in dict.fromkeys([*parts, *known]) if parts.get(name) != known.get(name)]
        changed = [name for name in changed if name in parts or not name.startswith("template ")]  # of other purposes
        return f": {', '.join(changed)}" if known and changed else ""

    def _return(self, answer: RecordedAnswer) -> TextResult:
        note_call(answer.model or "recording")
        self.seconds[self.step] += round(1000 * answer.seconds)
        calls = tuple(ToolCall(call.name, call.arguments) for call in answer.calls)
        usage = Usage(answer.tokens_in, answer.tokens_out)
        return TextResult(answer.answer, answer.model or "recording", usage, tool_calls=calls)

    def _explain(self, key: CallKey, found: Sequence[int]) -> str:
        if found:
            return f"{len(found)} recorded answers fit {key}: delete all but one of them"
        answers = self.recording.answers
        if not answers:
            advice = "record one with `bot scene record --missing`, or write it"
            return f"there is no recorded answer to {key}: {advice}; messages: {_join(key.messages)}"
        nearest = max(answers, key=partial(_measure_likeness, key))
        return (
            f"there is no recorded answer to {key}; the nearest is that of step {nearest.step} "
            f"({nearest.purpose}, call {nearest.call}); first difference: {key.describe_difference(nearest)}"
        )


def _measure_likeness(key: CallKey, answer: RecordedAnswer) -> tuple[bool, bool, float, int]:
    texts = SequenceMatcher(None, _join(key.messages), _join(answer.messages or ())).ratio()
    return answer.purpose is key.purpose, answer.step == key.step, texts, -abs(answer.step - key.step)


def _join(messages: Sequence[str]) -> str:
    return shorten(" / ".join(messages), 300)
