"""Rules of the three basic actions."""

import pytest

from bot import ActionResult, Effect
from bot.testing import AgentHarness, make_turn
from plugins.bootstrap import plugin

ACTIONS = {is_allowed.spec.name: is_allowed for is_allowed in plugin.actions}


def test_the_basic_three_come_first_and_none_is_unsafe_to_repeat() -> None:
    basic = plugin.actions[:3]
    assert [is_allowed.spec.name for is_allowed in basic] == ["REPLY", "IGNORE", "NONE"]
    assert {is_allowed.spec.effect for is_allowed in basic} <= {Effect.PURE, Effect.KEYED}


async def test_reply_says_its_text(agent_harness: AgentHarness) -> None:
    result = await ACTIONS["REPLY"].run(make_turn(agent_harness.agent), {"text": "Hi"})
    assert result == ActionResult(text="Hi")
    assert await agent_harness.adapter.wait_until_sent(1) == ["Hi"]


@pytest.mark.parametrize("text", ["", "\u200b"])
async def test_reply_without_anything_to_say_has_not_succeeded(agent_harness: AgentHarness, text: str) -> None:
    result = await ACTIONS["REPLY"].run(make_turn(agent_harness.agent), {"text": text})
    assert result is not None
    assert not result.success
    assert agent_harness.texts == []


@pytest.mark.parametrize("name", ["IGNORE", "NONE"])
async def test_silence_says_nothing(agent_harness: AgentHarness, name: str) -> None:
    assert await ACTIONS[name].run(make_turn(agent_harness.agent), {}) == ActionResult()
    assert agent_harness.texts == []
