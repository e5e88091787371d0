"""What components look like from outside: descriptions without behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.domain.environment import Role


class Effect(StrEnum):
    """What running an action again would do; decides what happens to it after a crash."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """One line of an example conversation: who says what, and with which actions."""

    name: str
    text: str
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """What an action does and needs; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    similes: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.NONE
    effect: Effect = Effect.UNSAFE
    is_critical: bool = False
    examples: tuple[tuple[ExampleLine, ...], ...] = ()
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """What a provider tells.

    Neither dynamic nor private ones are composed unless asked for; private ones are not even listed.
    `position` orders their texts: lower comes first, and the stabler a text is the lower it should be.
    """

    name: str
    description: str
    is_dynamic: bool = False
    is_hidden: bool = False
    position: int = 0
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class EvaluatorSpec:
    """What an evaluator looks at after a turn; `always_run` includes messages left unanswered."""

    name: str
    description: str
    similes: tuple[str, ...] = ()
    always_run: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What people may ask the bot itself; `parameters` is the JSON schema of what they give with it.

    Who has not this `role` may not, unless it `is_free_alone` and they are alone with the bot.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.NONE
    is_open_in_direct_chat: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every component of an agent, described: a plugin can see all of them and reach into none."""

    plugins: tuple[str, ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    providers: tuple[ProviderSpec, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] = ()
    services: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    commands: tuple[CommandSpec, ...] = ()
