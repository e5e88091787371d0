"""Who may have something done on X: rights in one place are none in another, so people are named for it."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from bot import Agent, Entity, Service, SettingsModel, Turn, Words

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
