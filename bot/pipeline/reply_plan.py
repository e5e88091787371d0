"""What an answer of the model comes to: to say something, to do something, or neither."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bot.plugin_system.action import Action
from bot.plugin_system.registry import Registry, folded_name
from bot.prompts.reply_parser.reader import Reply
from bot.text import shorten

logger = logging.getLogger(__name__)
REPLY = "REPLY"
SILENT = frozenset({"IGNORE", "NONE"})
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Call:
    """One action to run, with the parameters the model gave it."""

    action: Action[Any]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Course:
    """What an answer comes to: say its text, run actions, or neither; `unknown` names no action there is."""

    says: bool
    calls: tuple[Call, ...]
    unknown: tuple[str, ...] = ()

    @property
    def is_simple(self) -> bool:
        """Whether there is only a text to be said."""
        return self.says and not self.calls

    @property
    def is_silent(self) -> bool:
        """Whether the character chose to say and do nothing."""
        return not (self.says or self.calls or self.unknown)


def course_of(reply: Reply, registry: Registry) -> Course:
    """Read what an answer wants done.

    Names are matched exactly, folded, then as similes; unknown ones are not run. IGNORE or NONE
    beside anything else counts for nothing; alone it is silence, whatever text came with it.
    """
    calls: dict[str, Call] = {}
    unknown: dict[str, str] = {}
    says, deeds = False, 0
    asked = _asked(reply, registry)
    for written, parameters in asked:
        action = registry.action(written)
        name = action.spec.name if action is not None else folded_name(written)
        if name in SILENT:
            continue
        deeds += 1
        if name == REPLY:
            says = bool(reply.text)
        elif action is None:
            unknown.setdefault(name, shorten(written, LONGEST_NAME))
        else:
            own = mark_of(action, parameters) if reply.calls else name
            calls.setdefault(own, Call(action, parameters))
    if not asked or (deeds and not calls):
        says = bool(reply.text)
    return Course(says, tuple(calls.values()), tuple(unknown.values()))


def _asked(reply: Reply, registry: Registry) -> list[tuple[str, Mapping[str, object]]]:
    """List the actions of an answer with their parameters: as a function one may be called several times."""
    if reply.calls:
        beside = reply.actions[: -len(reply.calls)]
        return [*((name, {}) for name in beside), *reply.calls]
    written = {folded_name(name): name for name in reply.actions}
    parameters = {folded_name(name): values for name, values in reply.parameters.items()}
    asked: list[tuple[str, Mapping[str, object]]] = []
    for folded in filter(None, written):
        action = registry.action(folded)
        own = folded_name(action.spec.name) if action is not None else folded
        asked.append((written[folded], parameters.get(folded) or parameters.get(own) or {}))
    return asked


def mark_of(action: Action[Any], parameters: Mapping[str, Any]) -> str:
    """Give what two runs have in common that would do the same, however their parameters are written."""
    try:
        parameters = action.arguments.model_validate(dict(parameters)).model_dump(by_alias=True)
    except ValidationError:
        logger.debug("parameters of %s are compared as they are written", action.spec.name)
    return f"{action.spec.name} {json.dumps(parameters, sort_keys=True, default=str)}"
