"""A character whose content is mature speaks only where adults are."""

from dataclasses import replace

import pytest

from bot import ChannelType, Character, Outcome
from bot.domain.character import ContentRating
from bot.domain.ledger import Rule
from bot.testing import make_message, running_agent

MATURE = Character(name="Ada", content=ContentRating.MATURE)


async def test_a_mature_character_is_silent_in_a_room_that_is_not_restricted() -> None:
    async with running_agent(character=MATURE) as harness:
        receipt = await harness.send("Hello")
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.MATURE_CONTENT)
        assert not harness.model.requests
        room = await harness.agent.store.worlds.room(receipt.room_id)
        assert room is not None
        assert await harness.agent.say(room, "Good evening.") is None
        assert not harness.texts


@pytest.mark.parametrize("kind", [ChannelType.DM, ChannelType.GROUP])
async def test_it_speaks_where_the_platform_lets_only_adults_in(kind: ChannelType) -> None:
    async with running_agent(character=MATURE) as harness:
        inbound = make_message("Ada, hello", sent_at=harness.agent.clock(), kind=kind)
        inbound = replace(inbound, room=replace(inbound.room, is_age_restricted=True))
        receipt = await harness.agent_runtime.inbox.submit(inbound)
        closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert closed.outcome is Outcome.ANSWERED
        stored = await harness.agent.store.worlds.room(inbound.room.id)
        assert stored is not None
        assert stored.is_age_restricted


@pytest.mark.parametrize(
    ("listed", "outcome"),
    [("test", Outcome.ANSWERED), ("x, test:lobby", Outcome.ANSWERED), ("test:garden,web", Outcome.IGNORED)],
)
async def test_the_operator_lists_further_rooms_of_adults(listed: str, outcome: Outcome) -> None:
    async with running_agent(character=MATURE, settings={"AGE_RESTRICTED_ROOMS": listed}) as harness:
        assert (await harness.send("Hello")).outcome is outcome


async def test_a_general_character_speaks_everywhere() -> None:
    async with running_agent() as harness:
        assert (await harness.send("Hello")).outcome is Outcome.ANSWERED
