"""Rules of a turn: whose word it carries, what it says, and that a replay calls each reply by the same id."""

from dataclasses import replace

import pytest

from bot.domain.content import Content
from bot.domain.environment import Role
from bot.domain.ledger import ActionResult
from bot.testing import AgentHarness, make_turn
from bot.turn import Turn


def joined(*turns: Turn) -> Turn:
    """Make the last turn answer all messages; the world has every person's role."""
    last = turns[-1]
    roles = {key: role for turn in turns for key, role in turn.world.roles.items()}
    last.world = replace(last.world, roles=roles)
    last.inputs = [turn_input for turn in turns for turn_input in turn.inputs]
    return last


async def test_the_newest_message_and_its_author_are_the_turns(agent_harness: AgentHarness) -> None:
    turn = joined(make_turn(agent_harness.agent, "one", author="Bob"), make_turn(agent_harness.agent, "two"))
    assert (turn.message.content.text, turn.author.name) == ("two", "Alice")


@pytest.mark.parametrize(
    ("roles", "least"),
    [
        ((Role.ADMIN,), Role.ADMIN),
        ((Role.MEMBER, Role.ADMIN), Role.MEMBER),
        ((Role.OWNER, Role.ADMIN), Role.ADMIN),
        ((Role.OWNER, Role.NONE, Role.ADMIN), Role.NONE),
    ],
)
async def test_no_persons_request_is_carried_out_with_another_persons_role(
    agent_harness: AgentHarness, roles: tuple[Role, ...], least: Role
) -> None:
    turns = [make_turn(agent_harness.agent, "hi", author=f"a{place}", role=role) for place, role in enumerate(roles)]
    assert joined(*turns).role is least


async def test_a_reply_is_kept_before_it_is_on_its_way(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "hi", message_id="m1")
    reply = await turn.reply("Hello")
    assert reply is not None
    assert turn.replies == [reply]
    assert await agent_harness.agent.store.memories.by_turn(turn.id) == [reply]
    assert (reply.entity_id, reply.content.in_reply_to) == (agent_harness.agent.id, turn.message.id)
    await agent_harness.adapter.wait_until_sent(1)
    assert agent_harness.adapter.sent[0].reply_to == "m1"


@pytest.mark.parametrize("nothing", ["", " \n", "\u200b", "<think></think>"])
async def test_an_empty_reply_is_not_sent(agent_harness: AgentHarness, nothing: str) -> None:
    turn = make_turn(agent_harness.agent, "hi")
    assert await turn.reply(nothing) is None
    assert turn.replies == []
    assert await turn.reply(Content(text="Something")) is not None
    assert await agent_harness.adapter.wait_until_sent(1) == ["Something"]


async def test_a_replay_says_nothing_twice_and_loses_nothing(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "hi")
    turn.begin_step(1)
    await turn.reply("one")
    replay = replace(make_turn(agent_harness.agent, "hi"), id=turn.id, replies=list(turn.replies))
    replay.begin_step(2)
    await replay.reply("two")
    replay.begin_step(1)
    await replay.reply("one, again")
    await replay.reply("one and a half")
    assert [memory.content.text for memory in replay.replies] == ["one", "two", "one and a half"]
    assert await agent_harness.adapter.wait_until_sent(3) == ["one", "two", "one and a half"]


async def test_what_an_action_did_is_there_for_the_next(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "hi")
    assert turn.get_previous_result("FORECAST") is None
    turn.results["FORECAST"] = ActionResult(text="mild")
    assert turn.get_previous_result("FORECAST") == ActionResult(text="mild")
