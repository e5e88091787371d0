"""The plugin that `bot plugin new` writes: small, whole, tested, and meant to be replaced."""

from string import Template

_PLUGIN = Template('''\
"""$title: throws dice when somebody asks for it. Replace it by what your character should be able to do."""

import random
from typing import Annotated

from bot import ActionResult, Agent, Plugin, ProviderResult, Service, SettingsModel, Turn, action, provider
from pydantic import Field


class ${title}Settings(SettingsModel):
    """The variables of this plugin; each can be set in .env."""

    ${name}_sides: int = Field(6, ge=2, le=1000, description="How many sides a die has if nobody says.")


class Cup(Service):
    """The dice: opened and closed with the agent, shared by everything below."""

    capability = "throw dice"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.sides = agent.settings.load(${title}Settings).${name}_sides
        self.last: int | None = None

    def throw(self, sides: int) -> int:
        """Throw one die."""
        self.last = random.randint(1, sides)
        return self.last


@action("ROLL_DICE", "Throw a die and tell what it shows.", similes=["THROW_DICE"])
async def roll(
    turn: Turn,
    sides: Annotated[int | None, "How many sides the die has", Field(ge=2, le=1000)] = None,
) -> ActionResult:
    """Throw, and say what came of it."""
    cup = turn.agent.services[Cup]
    shown = cup.throw(sides or cup.sides)
    await turn.reply(f"The die shows {shown}.")
    return ActionResult(text=f"The die showed {shown}.", data={"shown": shown})


@provider("LAST_THROW", "What the die showed last.", position=50)
async def last_throw(turn: Turn) -> ProviderResult:
    """Tell the model what lies on the table."""
    last = turn.agent.services[Cup].last
    return ProviderResult(text=f"The die on the table shows {last}." if last else "")


plugin = Plugin(
    "$name",
    "Throws dice when somebody asks for it.",
    actions=[roll],
    providers=[last_throw],
    services=[Cup],
    settings=${title}Settings,
)
''')

_TEST = Template('''\
"""Tests of the plugin $name; run them with: pytest test_$name.py"""

import asyncio

from bot import Outcome, Receipt
from bot.testing import ScriptedModel, answer, on_stage

from $name import plugin


def test_the_die_is_thrown_and_told() -> None:
    async def talk() -> tuple[Receipt, list[str]]:
        model = ScriptedModel(answer(actions=["ROLL_DICE"], parameters={"sides": 2}))
        async with on_stage(plugin, model=model) as stage:
            receipt = await stage.say("Throw a coin for me, will you?")
            return receipt, stage.texts

    receipt, texts = asyncio.run(talk())
    assert receipt.outcome is Outcome.ANSWERED
    assert texts in (["The die shows 1."], ["The die shows 2."])
''')


def plugin_files(name: str) -> dict[str, str]:
    """Give the files of a new plugin, by name."""
    words = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    return {f"{name}.py": _PLUGIN.substitute(words), f"test_{name}.py": _TEST.substitute(words)}
