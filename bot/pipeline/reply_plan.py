"""Turns a reply of the model into text to send and actions to call."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bot.domain.component_specs import Effect
from bot.plugin_system.action import Action
from bot.plugin_system.registry import Registry, fold_name
from bot.prompts.reply_parser.reader import MAX_ACTIONS, Reply
from bot.text import shorten

logger = logging.getLogger(__name__)
REPLY = "REPLY"
SILENT_ACTIONS = frozenset({"IGNORE", "NONE"})
MAX_NAME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One action to run, with the parameters the model gave it."""

    action: Action[Any]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """Whether a reply has text to send, which actions it calls, and names that match no action."""

    has_text: bool
    calls: tuple[ActionCall, ...]
    unknown: tuple[str, ...] = ()

    @property
    def is_simple(self) -> bool:
        """Whether there is only text to send."""
        return self.has_text and not (self.calls or self.unknown)

    @property
    def has_effects(self) -> bool:
        """Whether the text may promise something that an action has yet to do, or that none will do."""
        return bool(self.unknown) or any(call.action.spec.effect is not Effect.PURE for call in self.calls)

    @property
    def is_silent(self) -> bool:
        """Whether the character chose to neither write nor act."""
        return not (self.has_text or self.calls or self.unknown)


def plan_reply(reply: Reply, registry: Registry) -> ReplyPlan:
    """Return the plan for a reply.

    Names are matched exactly, folded, then as similes; unknown ones are not run. IGNORE or NONE alone is
    silence, whatever the text; together with other actions they are left out.
    """
    calls: dict[str, ActionCall] = {}
    unknown: dict[str, str] = {}
    has_text, action_count = False, 0
    requested = _list_requested(reply, registry)
    for written, parameters in requested:
        action = registry.find_action(written)
        name = action.spec.name if action is not None else fold_name(written)
        if name in SILENT_ACTIONS:
            continue
        action_count += 1
        if name == REPLY:
            has_text = bool(reply.text)
        elif action is None:
            unknown.setdefault(name, shorten(written, MAX_NAME_LENGTH))
        else:
            calls.setdefault(call_key(action, parameters), ActionCall(action, parameters))
    if not requested or (action_count and not calls):
        has_text = bool(reply.text)
    return ReplyPlan(has_text, tuple(calls.values()), tuple(unknown.values()))


def _list_requested(reply: Reply, registry: Registry) -> list[tuple[str, Mapping[str, object]]]:
    """Return the actions of a reply with their parameters, an action once for each set of parameters."""
    if reply.calls:
        other_names = reply.actions[: -len(reply.calls)]
        return [*((name, {}) for name in other_names), *reply.calls]
    parameters = {fold_name(name): [values, *reply.repeated.get(name, ())] for name, values in reply.parameters.items()}
    remaining = Counter(map(fold_name, reply.actions))
    requested: list[tuple[str, Mapping[str, object]]] = []
    for name in reply.actions:
        folded = fold_name(name)
        if not folded:
            continue
        action = registry.find_action(folded)
        canonical = fold_name(action.spec.name) if action is not None else folded
        entries = parameters.get(folded) or parameters.get(canonical) or [{}]
        remaining[folded] -= 1
        taken = sum(1 for written, _ in requested if fold_name(written) == folded)
        count = 1 if remaining[folded] else max(1, len(entries))
        requested += [(name, values) for values in entries[taken : taken + count]]
    return requested[:MAX_ACTIONS]


def call_key(action: Action[Any], parameters: Mapping[str, Any]) -> str:
    """Return a key that is the same for two calls of an action with equal validated parameters."""
    try:
        parameters = action.arguments.model_validate(dict(parameters)).model_dump(by_alias=True)
    except ValidationError:
        logger.debug("parameters of %s are invalid and compared unvalidated", action.spec.name)
    return f"{action.spec.name} {json.dumps(parameters, sort_keys=True, default=str)}"
