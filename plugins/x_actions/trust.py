"""Operators, and whether a turn contains untrusted text.

Decided by where text comes from, never by what it says. Text that is not known to be the operator's, the
character's or the framework's is untrusted.
"""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from bot import Agent, CommaList, Entity, Memory, ProviderKind, Service, SettingsModel, Turn, derived_id, fold_name

X_ACTIONS = frozenset({"POST", "REPLY_ON_X", "QUOTE", "REPOST", "LIKE", "DELETE_POST"})
MAX_MESSAGES_CHECKED = 100  # more than most prompts contain: older text may have been paraphrased since
_QUOTED_LINE = re.compile(r"^[^\S\n]*>", re.MULTILINE)
TERMINAL_PLATFORM = "console"  # only the operator uses the terminal
OPERATOR_PATTERN = re.compile(r"[a-z]+:\S+")


async def untrusted_source(turn: Turn) -> str:
    """Return where a turn has text from that is not its operator's; empty if nowhere."""
    if not turn.room.type.is_direct:
        return "others can write here too"
    if other_results := [name for name in turn.results if name not in X_ACTIONS]:
        return f"{other_results[0]} was used before it"
    state = turn.state.results
    # The history is among them: it is checked message by message. So are earlier results, by their names.
    trusted_providers = {spec.name for spec in turn.agent.catalog.providers if spec.is_trusted_content}
    if untrusted_providers := [name for name, item in state.items() if item.text and name not in trusted_providers]:
        return f"{untrusted_providers[0]} was read with it"
    conversation = await turn.agent.store.memories.conversation(turn.room.id, _message_limit(turn))
    trusted_actions = _x_action_names(turn)
    if not all(trusted_actions.issuperset(map(fold_name, result.content.actions)) for result in conversation.results):
        return "the conversation contains results of other actions"
    recent = (*conversation.messages, *conversation.reactions)
    messages = {item.id: item for item in (*recent, *(item.message for item in turn.inputs))}
    entities = await turn.agent.store.entities.entities({item.entity_id for item in messages.values()})
    is_operator = turn.agent.services[Operators].is_operator
    operators = {item for item, entity in entities.items() if is_operator(entity)}
    operators |= {item.author.id for item in turn.inputs}  # or no action would be available
    if all(
        _is_by_character(turn, item, trusted_actions) or _is_by_operator(item, operators) for item in messages.values()
    ):
        return ""
    return "the conversation contains text of others"


def _message_limit(turn: Turn) -> int:
    """Return how many messages are checked: at least as many as the prompt contained."""
    kinds = {spec.name: spec.kind for spec in turn.agent.catalog.providers}
    histories = [item for name, item in turn.state.results.items() if kinds.get(name) is ProviderKind.HISTORY]
    return max([MAX_MESSAGES_CHECKED, *(len(item.data.get("recentMessages", ())) for item in histories)])


def _is_by_operator(message: Memory, operators: set[UUID]) -> bool:
    """Return whether an operator wrote the whole message: adapters mark quoted lines."""
    content = message.content
    return message.entity_id in operators and not content.attachments and not _QUOTED_LINE.search(content.text)


def _is_by_character(turn: Turn, message: Memory, trusted_actions: frozenset[str]) -> bool:
    """Return whether the character wrote it in a turn that had done nothing before but act on X."""
    content, turn_id = message.content, message.turn_id
    if message.entity_id != turn.agent.id or turn_id is None or content.in_reply_to is None:
        return False
    is_first = message.id == derived_id(turn_id, "reply", "0")
    return is_first or (
        bool(content.actions) and {fold_name(action_name) for action_name in content.actions} <= trusted_actions
    )


def _x_action_names(turn: Turn) -> frozenset[str]:
    specs = [spec for spec in turn.agent.catalog.actions if spec.name in X_ACTIONS]
    return frozenset({"REPLY", *(fold_name(name) for spec in specs for name in (spec.name, *spec.similes))})


def _check_operators(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not OPERATOR_PATTERN.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not an operator: it must look like discord:80351110224678912")
    return names


class OperatorSettings(SettingsModel):
    """The variables of the operators."""

    CHARACTER_SETTINGS = frozenset()

    x_operators: Annotated[CommaList, AfterValidator(_check_operators)] = Field(
        (),
        description="Who may let it post, reply, quote, repost, like, delete and search on X, as platform and id: "
        "`discord:80351110224678912,telegram:123456`. The terminal may too; a character's "
        "file cannot set this.",
    )


class Operators(Service):
    """The people whom the bot obeys about its account on X.

    A role is not enough: anybody may add the bot to a guild or group of their own.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._operators = frozenset(agent.settings.operator_only().load(OperatorSettings).x_operators)

    def is_asking(self, turn: Turn) -> bool:
        """Return whether the turn answers operators only."""
        return all(self.is_operator(turn_input.author) for turn_input in turn.inputs)

    def is_operator(self, entity: Entity) -> bool:
        """Return whether an entity is an operator."""
        return entity.platform == TERMINAL_PLATFORM or f"{entity.platform}:{entity.external_id}" in self._operators
