"""Operators; whether a turn contains untrusted text.

Decided by where words come from, never by what they say. What is not known to be the operator's, the
character's own or the house's counts as foreign.
"""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from bot import (
    Agent,
    ChannelType,
    Entity,
    Memory,
    Service,
    SettingsModel,
    Turn,
    Words,
    derived_id,
    folded_name,
)

ALONE = frozenset({ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF, ChannelType.API})
ACTS = frozenset({"POST", "REPLY_ON_X", "QUOTE", "REPOST", "LIKE"})
HISTORY = "RECENT_MESSAGES"
HOUSE = frozenset(
    {
        "ACTIONS",
        "ACTION_STATE",  # what was used before is looked at by itself
        "ANXIETY",
        "CAPABILITIES",
        "CHARACTER",
        "ENTITIES",
        "EVALUATORS",
        "PROVIDERS",
        "ROLES",
        "SETTINGS",
        "TIME",
        "WORLD",
        HISTORY,  # looked at message by message
    }
)
LOOKS_BACK = 100  # further than most prompts: what was said then may have been put into other words since
_QUOTED = re.compile(r"^[^\S\n]*>", re.MULTILINE)


async def foreign_words(turn: Turn) -> str:
    """Say where a turn has words from that are not its operator's; empty where from nowhere."""
    if turn.room.type not in ALONE:
        return "others can write here too"
    if brought := [name for name in turn.results if name not in ACTS]:
        return f"{brought[0]} was used before it"
    state = turn.state.results
    if known := [name for name, one in state.items() if one.text and name not in HOUSE]:
        return f"{known[0]} was read with it"
    last = await turn.agent.store.memories.recent(turn.room.id, _looks_back(turn))
    messages = {one.id: one for one in (*last, *(one.message for one in turn.inputs))}
    people = await turn.agent.store.entities.entities({one.entity_id for one in messages.values()})
    knows = turn.agent.services[Operators].knows
    operators = {one for one, person in people.items() if knows(person)}
    operators |= {one.author.id for one in turn.inputs}  # or they could ask for nothing
    names = _own_acts(turn)
    if all(_is_own(turn, one, names) or _is_theirs(one, operators) for one in messages.values()):
        return ""
    return "there are words of others in this conversation"


def _looks_back(turn: Turn) -> int:
    shown = turn.state.results.get(HISTORY)
    return max(LOOKS_BACK, len(shown.data.get("recentMessages", ())) if shown is not None else 0)


def _is_theirs(message: Memory, operators: set[UUID]) -> bool:
    """Tell whether an operator has written all of a message: adapters put a mark before what is quoted."""
    content = message.content
    return message.entity_id in operators and not content.attachments and not _QUOTED.search(content.text)


def _is_own(turn: Turn, message: Memory, names: frozenset[str]) -> bool:
    """Tell whether the character has written it, in a turn that had done nothing before but act on X."""
    content, maker = message.content, message.turn_id
    if message.entity_id != turn.agent.id or maker is None or content.in_reply_to is None:
        return False
    is_first = message.id == derived_id(maker, "reply", "0")
    return is_first or (bool(content.actions) and {folded_name(one) for one in content.actions} <= names)


def _own_acts(turn: Turn) -> frozenset[str]:
    specs = [one for one in turn.agent.catalog.actions if one.name in ACTS]
    return frozenset({"REPLY", *(folded_name(name) for one in specs for name in (one.name, *one.similes))})


TERMINAL = "console"  # whoever sits there runs the bot
PERSON = re.compile(r"[a-z]+:\S+")


def _people(words: tuple[str, ...]) -> tuple[str, ...]:
    for one in words:
        if not PERSON.fullmatch(one):
            raise ValueError(f"{one[:40]!r} names nobody: it must look like discord:80351110224678912")
    return words


class OperatorSettings(SettingsModel):
    """Whom the bot obeys where its account on X is concerned."""

    x_operators: Annotated[Words, AfterValidator(_people)] = Field(
        (),
        description="Who may have it post, reply, quote, repost, like and search on X, as platform and id: "
        "`discord:80351110224678912,telegram:123456`. Whoever sits at the terminal may too; a character's "
        "file cannot set this.",
    )


class Operators(Service):
    """Knows these people.

    A role is not enough: whoever invites the bot into a server or a group of their own owns that place.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._people = frozenset(agent.settings.of_operator().load(OperatorSettings).x_operators)

    def ask_for(self, turn: Turn) -> bool:
        """Tell whether it is they, and nobody else, whom a turn answers."""
        return all(self.knows(one.author) for one in turn.inputs)

    def knows(self, person: Entity) -> bool:
        """Tell whether somebody is one of them."""
        return person.platform == TERMINAL or f"{person.platform}:{person.external_id}" in self._people
