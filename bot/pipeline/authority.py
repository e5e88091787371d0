"""Whether an action has the authority it needs, by who wrote the texts that the model has read.

This is decided once, before an action runs, and by code: what the model says of it does not count.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from bot.domain.authority import ANYBODY, AuthorityKind, contains_words, is_all_own, names_action
from bot.domain.component_specs import ActionSpec
from bot.domain.environment import Role
from bot.domain.memory import AUTHORS_KEY, Memory
from bot.domain.results import ActionPreview
from bot.plugin_system.action import Action
from bot.text import escape_line
from bot.turn import Turn
from bot.user_texts import user_text

MAX_CHECKED_MESSAGES = 100  # more than most prompts contain: older text may have been paraphrased since
MAX_QUESTION_LENGTH = 3_000
MayCause = Callable[[UUID], bool]


async def reason_to_confirm(
    turn: Turn, action: Action[Any], arguments: Mapping[str, Any], preview: ActionPreview | None
) -> str:
    """Return why an action must be confirmed before it runs; empty if it may run at once."""
    authority = action.spec.authority
    if authority.kind is AuthorityKind.HARMLESS or (preview is not None and preview.is_harmless):
        return ""
    if authority.must_confirm(arguments):
        return "it is always confirmed"
    if is_named(turn, action, arguments, preview):
        return ""
    return await _find_foreign_text(turn, action.spec)


def is_named(turn: Turn, action: Action[Any], arguments: Mapping[str, Any], preview: ActionPreview | None) -> bool:
    """Return whether the author's own words name the action and each of its targets."""
    spec, text = action.spec, turn.own_text
    authority = spec.authority
    if not (authority.by_targets or names_action(text, (spec.name, *spec.similes), authority.words)):
        return False
    groups = _target_values(action, arguments) if preview is None else preview.names
    return (bool(groups) or not authority.by_targets) and all(contains_words(text, *group) for group in groups)


def describe_call(action: Action[Any], arguments: Mapping[str, Any]) -> str:
    """Return what a call would do, with every argument, as a sentence; empty if it is too long to be read."""
    listed = [f"{name}: {_show(value)}" for name, value in action.validate(arguments).items() if value is not None]
    values = {"action": action.spec.name, "arguments": ", ".join(listed)}
    text = user_text("choices.action_with" if listed else "choices.action", **values)
    return text if len(text) <= MAX_QUESTION_LENGTH else ""


def _show(value: Any) -> str:
    """Return a value as one line, so that no text in it looks like another argument."""
    if not isinstance(value, str):
        return escape_line(json.dumps(value, ensure_ascii=False, default=str))
    text = escape_line(value).replace('"', '\\"')
    return f'"{text}"'


def _target_values(action: Action[Any], arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the values of the targets that a call gives, each in a group of its own; defaults are left out."""
    targets, values = action.spec.authority.targets, action.validate(arguments)
    defaults = {field.alias: field.default for field in action.arguments.model_fields.values()}
    given = [value for name, value in values.items() if targets is None or name in targets if value != defaults[name]]
    return tuple((str(leaf),) for value in given for leaf in _leaves(value))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list | tuple | set | frozenset):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


async def _find_foreign_text(turn: Turn, spec: ActionSpec) -> str:
    """Return where the prompt has text of people with less authority than an action needs; empty if nowhere.

    An action that needs no role of an admin concerns its asker alone: any other person's text is foreign.
    """
    own = {turn.author.id, turn.agent.id}

    def may_cause(author: UUID) -> bool:
        return author in own or (
            author != ANYBODY
            and spec.role.is_at_least(Role.ADMIN)
            and turn.world.role_of(author).is_at_least(spec.role)
        )

    if not all(map(may_cause, turn.state.result_authors)):
        return "an action before it returned text of others"
    for name, result in turn.state.results.items():
        if not all(map(may_cause, result.known_authors)):
            return f"its prompt has text of others ({name})"
    if not all(_is_by(turn, item.message, may_cause) for item in turn.inputs):
        return "the message has text of others"
    conversation = await turn.agent.store.memories.conversation(turn.room.id, MAX_CHECKED_MESSAGES)
    earlier = (message for message in conversation.messages if message.turn_id != turn.id)
    if not all(_is_by(turn, message, may_cause) for message in earlier):
        return "the conversation has text of others"
    if not all(may_cause(reaction.entity_id) for reaction in conversation.reactions):
        return "the conversation has reactions of others"
    if not all(_may_all_cause(result, may_cause, default=False) for result in conversation.results):
        return "the conversation has results of actions with text of others"
    return ""


def _is_by(turn: Turn, message: Memory, may_cause: MayCause) -> bool:
    """Return whether all of a message was written by people who may cause the action.

    The character's own messages repeat what it has read: in private they name the authors, elsewhere, and
    where it spoke without being asked, these are not known.
    """
    content = message.content
    if message.entity_id == turn.agent.id:
        is_answer = turn.room.type.is_direct and content.in_reply_to is not None
        return is_answer and _may_all_cause(message, may_cause, default=True)
    return may_cause(message.entity_id) and is_all_own(content)


def _may_all_cause(memory: Memory, may_cause: MayCause, *, default: bool) -> bool:
    authors = memory.metadata.get(AUTHORS_KEY)
    return default if authors is None else all(may_cause(UUID(str(author))) for author in authors)
