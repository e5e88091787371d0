"""Descriptions of components, without their behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from bot.domain.authority import Authority
from bot.domain.environment import Role


class Effect(StrEnum):
    """What running an action again would do; decides what happens to it after a crash."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """One line of an example conversation: speaker, text and actions."""

    name: str
    text: str
    actions: tuple[str, ...] = ()


DEFAULT_AUTHORITY = replace(Authority.named(), is_default=True)
MAX_DEADLINE = 1_800.0  # of an action, in seconds
Confirmation = Literal["answer", "code"]  # what confirms an action in a private chat; elsewhere it is always the code


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Description of an action; `parameters` is the JSON schema of its arguments.

    If it has to be confirmed, its asker does so with a button or a code; in a private chat, unless `confirm` is
    "code", also with a message that only says yes, or a thumbs-up on the question. `deadline` is in seconds,
    None for that of all actions.
    """

    name: str
    description: str
    similes: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    role: Role = Role.NONE
    effect: Effect = Effect.UNSAFE
    is_critical: bool = False
    examples: tuple[tuple[ExampleLine, ...], ...] = ()
    plugin: str = ""
    authority: Authority = DEFAULT_AUTHORITY
    confirm: Confirmation = "answer"
    deadline: float | None = None

    def __hash__(self) -> int:
        return hash(self.name)


class ProviderKind(StrEnum):
    """What a provider's text is for; the pipeline selects providers by it, never by their names."""

    PERSONA = "persona"
    ACTIONS = "actions"
    ACTION_RESULTS = "action_results"
    STYLE = "style"
    WORLD = "world"
    PARTICIPANTS = "participants"
    HISTORY = "history"
    ATTACHMENTS = "attachments"
    TIME = "time"
    OTHER = "other"


class Shortening(StrEnum):
    """What remains of a provider's text in a prompt that was too long for the model."""

    KEEP = "keep"
    HEAD = "head"
    TAIL = "tail"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Description of a provider.

    Dynamic and hidden providers are composed on request only; hidden ones are not listed either. `position`
    orders their texts: lower comes first, and the more stable a text is, the lower it should be. In a catalog
    `is_trusted_content` is set only for providers of trusted plugins that declare it.
    """

    name: str
    description: str
    is_dynamic: bool = False
    is_hidden: bool = False
    position: int = 0
    plugin: str = ""
    kind: ProviderKind = ProviderKind.OTHER
    shorten: Shortening = Shortening.HEAD
    is_trusted_content: bool = False


@dataclass(frozen=True, slots=True)
class EvaluatorSpec:
    """Description of an evaluator; with `always_run` it also runs for messages without an answer."""

    name: str
    description: str
    similes: tuple[str, ...] = ()
    always_run: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Description of a command; `parameters` is the JSON schema of its arguments.

    It requires `role`, except in a direct chat with the bot if `is_open_in_direct_chat`.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.NONE
    is_open_in_direct_chat: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class ComponentTypeSpec:
    """Description of a type of entity components; `schema` is the JSON schema of its data."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingSpec:
    """Description of a setting of worlds that a plugin declares.

    `usage` says what its value does and looks like. It can be set once those in `depends_on` are.
    """

    name: str
    description: str
    usage: str = ""
    is_secret: bool = False
    is_required: bool = False
    depends_on: tuple[str, ...] = ()
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingState:
    """A setting of one world: whether it is set, and its value, or its default; never the value of a secret."""

    spec: WorldSettingSpec
    value: str = ""
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Catalog:
    """The descriptions of all components of an agent: plugins can read them, but not reach the components."""

    plugins: tuple[str, ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    providers: tuple[ProviderSpec, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] = ()
    services: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    commands: tuple[CommandSpec, ...] = ()
    component_types: tuple[ComponentTypeSpec, ...] = ()
    world_settings: tuple[WorldSettingSpec, ...] = ()
