"""The files of scenes: what is said in a room, and what the character must do. Read with limits, and strictly."""

import ast
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator

from bot.domain.environment import ChannelType, ParticipantState, Role
from bot.errors import ConfigError

MAX_FILE_BYTES = 2**20
MAX_STEPS = 500
MAX_DEPTH = 20
ANSWERS_SUFFIX = ".answers.yaml"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
M = TypeVar("M", bound=BaseModel)


class SceneError(ConfigError):
    """A file of a scene or of its answers that cannot be used; it names file, line and key."""


class FileModel(BaseModel):
    """A part of a file: unknown keys are errors, and numbers may stand for texts."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, populate_by_name=True)


def parse_duration(value: object) -> object:
    """Return the time that a text such as `90s` or `1h 30m` names; other values as they are. Raises ValueError."""
    if not isinstance(value, str):
        return value
    parts = _DURATION.findall(value)
    if not parts or _DURATION.sub("", value).strip():
        raise ValueError("write it as 30s, 10m, 3h or 2d")
    return timedelta(**{_UNITS[unit]: float(number) for number, unit in parts})


class PersonEntry(FileModel):
    """A person of a scene."""

    role: Role = Role.MEMBER
    is_bot: bool = Field(False, alias="bot")

    @model_validator(mode="before")
    @classmethod
    def _read_role(cls, value: object) -> object:
        entry = {"role": value} if isinstance(value, str) else value
        return {**entry, "role": str(entry["role"]).upper()} if isinstance(entry, dict) and "role" in entry else entry


_ROLES = {"enum": [spelling for role in Role for spelling in (role.value, role.lower())]}
_PERSON_SCHEMA = {
    "anyOf": [
        _ROLES,
        {"type": "object", "properties": {"role": _ROLES, "bot": {"type": "boolean"}}, "additionalProperties": False},
    ]
}


class RoomEntry(FileModel):
    """The room of a scene; `private` is a conversation with one person."""

    name: str = "lobby"
    kind: Literal["group", "private", "thread", "feed"] = "group"
    platform: str = Field("test", pattern=r"^[a-z][a-z0-9_]*$")
    state: Literal["default", "followed", "muted"] = "default"
    threads: bool = Field(False, description="Whether the character can open threads in a group.")

    @property
    def channel_type(self) -> ChannelType:
        """The kind of the room."""
        return ChannelType.DM if self.kind == "private" else ChannelType(self.kind)

    @property
    def participant_state(self) -> ParticipantState:
        """How the character takes part in the room."""
        return ParticipantState(self.state.upper())


class AssertionType(StrEnum):
    """What an assertion checks; the first part has the names and meanings of promptfoo."""

    EQUALS = "equals"
    CONTAINS = "contains"
    ICONTAINS = "icontains"
    STARTS_WITH = "starts-with"
    REGEX = "regex"
    IS_JSON = "is-json"
    PYTHON = "python"
    SIMILAR = "similar"
    LLM_RUBRIC = "llm-rubric"
    COST = "cost"
    LATENCY = "latency"
    RULE = "rule"
    CALLS = "calls"
    PROMPT_CONTAINS = "prompt-contains"
    NEVER_SAYS = "never-says"
    IN_VOICE = "in-voice"


_LIMITS = frozenset({AssertionType.COST, AssertionType.LATENCY})
_NAMES = [name for kind in AssertionType for name in (kind.value, f"not-{kind}")]


class Assertion(FileModel):
    """One check of a step: `type`, `value` and `threshold` as in promptfoo, or in short `type: value`.

    Every type can be negated by `not-` before its name.
    """

    type: AssertionType
    value: Any = None
    threshold: float | None = None
    is_negated: bool = False

    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema.update(
            properties={
                **{name: {} for name in _NAMES},
                "type": {"enum": _NAMES},
                "value": {},
                "threshold": {"type": "number"},
            },
            required=[],
        )
    )

    @model_validator(mode="before")
    @classmethod
    def _read_short(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        entry = dict(value)
        if "type" not in entry:
            names = [name for name in entry if name != "threshold"]
            if len(names) != 1:
                raise ValueError("an assertion has one name, such as `icontains: hello`")
            entry = {**entry, "type": names[0], "value": entry[names[0]]}
            del entry[names[0]]
        name = str(entry["type"])
        entry["is_negated"] = name.startswith("not-")
        entry["type"] = name.removeprefix("not-")
        if entry["type"] not in {kind.value for kind in AssertionType}:
            raise ValueError(f"{name!r} is no assertion; there are {', '.join(AssertionType)}")
        if entry["type"] in _LIMITS and "threshold" not in entry:
            entry["threshold"] = entry.pop("value", None)
        return entry

    @property
    def name(self) -> str:
        """The name as it stands in the file."""
        return f"not-{self.type}" if self.is_negated else self.type.value


class ExpectedKind(StrEnum):
    """What a step is expected to lead to."""

    REPLY = "reply"
    SILENCE = "silence"
    DRAFT = "draft"
    NOTICE = "notice"
    ACTION = "action"
    REACTION = "reaction"


class Expectation(FileModel):
    """What a step is expected to lead to; `arguments` are those of an action that must be equal.

    Without an `emoji` any reaction is as expected.
    """

    kind: ExpectedKind
    action: str = ""
    arguments: dict[str, Any] = {}
    emoji: str = ""

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        kind, _, call = value.strip().partition(" ")
        if kind not in set(ExpectedKind):
            raise ValueError(f"{value!r} cannot be expected; there are {', '.join(ExpectedKind)}")
        if kind == ExpectedKind.REACTION:
            return {"kind": kind, "emoji": call.strip()}
        if kind != ExpectedKind.ACTION:
            return {"kind": value.strip()}
        try:
            node = ast.parse(call.strip(), mode="eval").body
            arguments = {item.arg or "": ast.literal_eval(item.value) for item in getattr(node, "keywords", ())}
        except (SyntaxError, ValueError, RecursionError):
            node, arguments = ast.Constant(None), {}
        name = node.func if isinstance(node, ast.Call) and not node.args else node
        if not isinstance(name, ast.Name) or "" in arguments:
            raise ValueError("write an action as `action NAME` or `action NAME(city='Rome', days=2)`")
        return {"kind": kind, "action": name.id, "arguments": arguments}

    def __str__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        if self.emoji:
            return f"{self.kind} {self.emoji}"
        return f"action {self.action}" + (f"({listed})" if listed else "") if self.action else self.kind.value


def _to_list(value: object) -> object:
    return value if isinstance(value, list) or value is None else [value]


Duration = Annotated[timedelta, BeforeValidator(parse_duration), WithJsonSchema({"type": "string"})]
_Expected = Annotated[
    tuple[Expectation, ...],
    BeforeValidator(_to_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
STEP_KINDS = ("say", "history", "edit", "delete", "react", "join", "wait", "image")


class SceneStep(FileModel):
    """One step of a scene: what happens, and what the character must make of it.

    `id` names its message for later steps; `ID.reply` is the character's reply to it. A message of the `history` is
    stored and nothing else: nothing is decided about it.
    """

    say: str | None = Field(None, max_length=20_000, description="What `by` writes.")
    history: str | None = Field(
        None, max_length=20_000, description="What `by` has written before, or without `by` the character, to `to`."
    )
    decided: Literal["respond", "ignore"] | None = Field(
        None, description="What a model decided then about a message of the history."
    )
    after: Duration | None = Field(None, description="How much time has passed since the step before; 20s by default.")
    by: str = Field("", max_length=100, description="Who writes or reacts; by default the first of the people.")
    id: str = Field("", pattern=r"^[\w-]*$", description="A name for the message, for later steps.")
    reply_to: str = Field("", description="The message that is replied to: an id, or `ID.reply`.")
    mention: bool = Field(False, description="Whether the platform reports a mention of the character.")
    image: str | None = Field(None, description="What a picture shows that comes with the message.")
    edit: str | None = Field(None, description="The new text of the message `to`.")
    delete: str | None = Field(None, description="The id of the message that its author deletes.")
    react: str | None = Field(None, description="An emoji, on the message `to`.")
    to: str = Field("", description="The message that is edited, reacted to or answered: an id, or `ID.reply`.")
    join: str | None = Field(None, description="Who joins.")
    wait: Duration | None = Field(None, description="How much time passes, such as `3h`.")
    expect: _Expected = ()
    assertions: tuple[Assertion, ...] = Field((), alias="assert")

    @model_validator(mode="after")
    def _check_kind(self) -> "SceneStep":
        kinds = [kind for kind in STEP_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1 and kinds not in (["say", "image"], ["history", "image"]):
            raise ValueError(f"a step has one of {', '.join(STEP_KINDS)}, or `say` or `history` with `image`")
        if self.after is not None and kinds[0] not in ("say", "history", "image"):
            raise ValueError("`after` belongs to `say` and `history`: write a step `wait` before this one")
        if kinds[0] == "history" and (self.expect or self.assertions):
            raise ValueError("nothing is decided about a message of the history: it has neither `expect` nor `assert`")
        if kinds[0] in ("edit", "react") and not self.to:
            raise ValueError(f"`{kinds[0]}` needs `to: ID`")
        return self

    @property
    def summary(self) -> str:
        """What happens, in one line."""
        kind = next(kind for kind in STEP_KINDS if getattr(self, kind) is not None)
        return f"{self.by} {kind} {getattr(self, kind)}".strip()


class Scene(FileModel):
    """A scene: a room, its people, and steps; `character` is the file of the character, relative to the scene's."""

    description: str = Field("", description="What the scene shows.")
    character: str = Field(description="The file of the character, relative to this one.")
    room: RoomEntry = RoomEntry()
    people: dict[str, Annotated[PersonEntry, WithJsonSchema(_PERSON_SCHEMA)]] = {}
    settings: dict[str, str | int | float | bool] = Field({}, description="Settings that differ from the character's.")
    steps: tuple[SceneStep, ...] = Field(min_length=1, max_length=MAX_STEPS)

    @model_validator(mode="after")
    def _check_references(self) -> "Scene":
        ids: set[str] = set()
        for number, step in enumerate(self.steps, 1):
            for name in (step.reply_to, step.to, step.delete or ""):
                if name and name.removesuffix(".reply") not in ids:
                    raise ValueError(f"step {number}: no earlier step has the id {name.removesuffix('.reply')!r}")
            if step.id in ids:
                raise ValueError(f"step {number}: an earlier step has the id {step.id!r} too")
            ids |= {step.id} - {""}
        return self

    @property
    def first_person(self) -> str:
        """Who acts in steps that name no person."""
        return next(iter(self.people), "Alice")


class _Loader(yaml.SafeLoader):
    """Reads YAML without aliases, which can stand for gigabytes, with few levels, and with unique keys."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed here", problem_mark=self.get_mark())
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="too many levels", problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.value in names:
                    raise yaml.MarkedYAMLError(problem="a key stands twice, or is no text", problem_mark=key.start_mark)
                names.add(key.value)
        return node


# Only `true` and `false` are truth values: `off` and `no` are words, and times are texts.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":timestamp", ":bool"))]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def read_file(path: Path, model: type[M]) -> tuple[M, yaml.Node]:
    """Return the content of a YAML file, and its nodes, which have its lines. Raises SceneError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise SceneError(f"{path}: it is larger than {MAX_FILE_BYTES // 2**20} MB")
        loader = _Loader(data.decode())
        node = loader.get_single_node()
        document = loader.construct_document(node) if node is not None else {}
    except OSError as error:
        raise SceneError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise SceneError(f"{path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SceneError(f"{path}: it is no YAML in UTF-8: {str(error).splitlines()[0]}") from None
    try:
        return model.model_validate(document), node or yaml.MappingNode("", [])
    except ValidationError as error:
        raise SceneError("\n".join(_format(path, node, problem) for problem in error.errors()[:10])) from None


def read_scene(path: Path) -> tuple[Scene, list[int]]:
    """Return the scene of a file, and the line of each of its steps. Raises SceneError."""
    scene, node = read_file(path, Scene)
    return scene, [find_line(node, ("steps", index)) for index in range(len(scene.steps))]


def answers_path(path: Path) -> Path:
    """Return the file with the recorded answers of a scene's file."""
    return path.with_name(path.name.removesuffix(path.suffix) + ANSWERS_SUFFIX)


def find_scene_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of scenes among these paths, folders with all that is in them. Raises SceneError."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SceneError(f"{path}: there is no such file or folder")
        inside = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        found += [file for file in inside if not file.name.endswith(ANSWERS_SUFFIX)]
    return list(dict.fromkeys(found))


def find_line(node: yaml.Node | None, place: Sequence[str | int]) -> int:
    """Return the line of a place in a file, or of the nearest part around it."""
    for name in place:
        child: yaml.Node | None = None
        if isinstance(node, yaml.SequenceNode) and isinstance(name, int) and name < len(node.value):
            child = node.value[name]
        elif isinstance(node, yaml.MappingNode):
            child = next((value for key, value in node.value if key.value == name), None)
        if child is None:
            break
        node = child
    return 1 if node is None or node.start_mark is None else node.start_mark.line + 1


def _format(path: Path, node: yaml.Node | None, problem: Any) -> str:
    place = [part for part in problem["loc"] if part != "PersonEntry"]
    key = ".".join(str(part + 1) if isinstance(part, int) else part for part in place)
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path}:{find_line(node, place)}: " + (f"{key}: {message}" if key else message)
