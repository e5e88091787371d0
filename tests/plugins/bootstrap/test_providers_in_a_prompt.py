"""Rules of whole prompts: how large they are, and how much of each stays as it was."""

from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

from bot import ChannelType, Role
from bot.characters import load_character
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from tests.plugins.bootstrap.reflecting import fact, noted, relationship

DEFAULT = load_character(Path(__file__).parents[3] / "characters" / "default.json").character
LARGEST_HELLO = 8 * 1024
PEOPLE = ("Ann", "Bo", "Cy")


def shared(first: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False)))


def write(request: TextRequest) -> str:
    """Answer like a person of few words, and learn something of every talk."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><action>RESPOND</action></response>"
    if request.purpose is Purpose.REFLECTION:
        last = request.prompt.rstrip().rpartition("\n")[2].partition(".")[0]
        return noted(
            [fact(int(last), f"Ann has made point {last}.")], relationships=[relationship("Ann", "Bo", "friend")]
        )
    return model_answer("That is a good point, and I would look at it once more tomorrow.")


async def large_prompts(harness: AgentHarness, count: int) -> list[str]:
    for number in range(count):
        name = PEOPLE[number % len(PEOPLE)]
        text = f"Marlo, and what about point {number}, which {name} has brought?"
        await harness.send(text, author=name, kind=ChannelType.GROUP)
    return [request.prompt for request in harness.model.requests_for(Purpose.REPLY)]


@pytest.mark.long
async def test_of_each_prompt_of_a_long_talk_four_fifths_are_as_the_previous_prompt_began() -> None:
    async with running_agent(model=ScriptedModel(write), character=DEFAULT) as harness:
        prompts = await large_prompts(harness, 40)
    shares = list(_shares(prompts))
    assert len(shares) == 39
    assert min(shares) >= 0.8


@pytest.mark.long
async def test_what_is_asked_for_on_demand_follows_what_was_shown_already() -> None:
    def ask(request: TextRequest) -> str:
        if request.purpose is not Purpose.REPLY or "# Told in earlier talks" in request.prompt:
            return write(request)
        return model_answer(providers=["FACTS", "RELATIONSHIPS"], actions=[])

    async with running_agent(model=ScriptedModel(ask), character=DEFAULT) as harness:
        await large_prompts(harness, 12)
        first, again = [request.prompt for request in harness.model.requests_for(Purpose.REPLY)][-2:]
    assert "# Who knows whom" in again
    assert first[: first.index("It is ")] == again[: first.index("It is ")]


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
@pytest.mark.parametrize("kind", [ChannelType.DM, ChannelType.GROUP])
async def test_a_first_hello_costs_at_most_eight_kilobytes(kind: ChannelType, role: Role) -> None:
    async with running_agent(model=ScriptedModel(write), character=DEFAULT) as harness:
        await harness.send("Hello!", kind=kind, role=role)
        [request] = harness.model.requests_for(Purpose.REPLY)
    assert len(request.system.encode()) + len(request.prompt.encode()) <= LARGEST_HELLO


def _shares(prompts: list[str]) -> Iterator[float]:
    return (shared(*pair) / len(pair[1]) for pair in pairwise(prompts))
