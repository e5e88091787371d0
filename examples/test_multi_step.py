"""Tests of multi-step answers; run them with: bot plugin test ./multi_step --trust"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from multi_step import Wallet, plugin

from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, running_agent

REQUEST = "Swap 10 ETH to USDC, then bridge 5000 USDC to Arbitrum"
SWAP = ("SWAP_TOKENS", {"source": "ETH", "target": "USDC", "amount": 10})
BRIDGE = ("BRIDGE_TOKENS", {"token": "USDC", "amount": 5000, "network": "Arbitrum"})
FINISH: tuple[str, Mapping[str, object]] = ("", {})
Step = tuple[str, Mapping[str, object]]


def answer(name: str, parameters: Mapping[str, object]) -> str:
    """Return what a model answers that chooses a step; without a name it has finished."""
    return (
        f"<response><thought>next</thought><action>{name}</action><parameters>{json.dumps(parameters)}</parameters>"
        f"<isFinish>{str(not name).lower()}</isFinish></response>"
    )


def steps(*chosen: Step, **settings: str) -> AbstractAsyncContextManager[AgentHarness]:
    """Run an agent whose model chooses these steps; the last one again and again."""
    left = iter(chosen)

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return "<response><thought>t</thought><text>All done.</text></response>"
        return answer(*next(left, chosen[-1]))

    return running_agent(plugin, model=ScriptedModel(script), settings={"USE_MULTI_STEP": "true", **settings})


async def test_each_step_sees_the_results_so_far_and_a_single_summary_is_sent() -> None:
    async with steps(SWAP, BRIDGE, FINISH) as harness:
        await harness.send(REQUEST)
        first, second, third = harness.model.requests_for(Purpose.STEP)
        [summary] = harness.model.requests_for(Purpose.SUMMARY)
        wallet = harness.agent.services[Wallet]
    assert "The wallet holds 12 ETH." in first.prompt
    assert "SWAP_TOKENS: ok: swapped 10 ETH for 30000 USDC" in second.prompt
    assert "bridged 5000 USDC to Arbitrum" in third.prompt
    assert "bridged 5000 USDC to Arbitrum" in summary.prompt
    assert (wallet.balances, wallet.bridged) == ({"ETH": 2.0, "USDC": 25_000.0}, [("USDC", 5000, "Arbitrum")])
    assert harness.texts == ["All done."]


async def test_the_same_step_is_not_done_twice() -> None:
    async with steps(SWAP, SWAP, FINISH) as harness:
        receipt = await harness.send(REQUEST)
        assert harness.agent.services[Wallet].balances["ETH"] == 2.0
    assert any("SWAP_TOKENS was asked for twice" in note for note in receipt.notes)


async def test_a_failed_step_is_shown_to_the_next_step() -> None:
    too_much = ("SWAP_TOKENS", {"source": "ETH", "target": "USDC", "amount": 13})
    async with steps(too_much, SWAP, FINISH) as harness:
        await harness.send(REQUEST)
        _, second, _ = harness.model.requests_for(Purpose.STEP)
        assert harness.agent.services[Wallet].balances == {"ETH": 2.0, "USDC": 30_000.0}
    assert "there are only 12 ETH" in second.prompt


async def test_a_model_that_never_finishes_is_stopped_after_so_many_steps() -> None:
    endless = [("SWAP_TOKENS", {"source": "ETH", "target": "USDC", "amount": amount}) for amount in (1, 2, 3, 4)]
    async with steps(*endless, MAX_MULTISTEP_ITERATIONS="3") as harness:
        await harness.send("Swap ETH to USDC, again and again")
        assert len(harness.model.requests_for(Purpose.STEP)) == 3
        assert harness.agent.services[Wallet].balances["ETH"] == 6.0
    assert harness.texts == ["All done."]


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
