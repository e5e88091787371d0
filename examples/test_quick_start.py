"""Tests of the quick start; run them with: bot plugin test ./quick_start --trust"""

from quick_start import Greeter, plugin, status

from bot import Outcome, RouteRequest
from bot.models import Purpose
from bot.testing import ScriptedModel, check_plugin_contract, model_answer, run_plugin_tests, running_agent


async def test_the_action_greets_the_person_who_asks() -> None:
    model = ScriptedModel(model_answer(actions=["HELLO_WORLD"]))
    async with running_agent(plugin, model=model, settings={"QUICK_START_GREETING": "Ahoy"}) as harness:
        receipt = await harness.send("Say hello to me", author="Alice")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["Ahoy, Alice!"]


async def test_a_simile_is_the_same_action() -> None:
    async with running_agent(plugin, model=ScriptedModel(model_answer(actions=["SAY_HELLO"]))) as harness:
        await harness.send("Say hello to me", author="Bob")
    assert harness.texts == ["Hello, Bob!"]


async def test_the_prompt_has_the_action_and_the_count() -> None:
    async with running_agent(plugin) as harness:
        harness.agent.services[Greeter].greeted = 3
        await harness.send("Hi")
        [request] = harness.model.requests_for(Purpose.REPLY)
    assert "Greetings so far: 3." in request.prompt
    assert "HELLO_WORLD" in request.prompt


async def test_the_route_returns_what_the_listener_counts() -> None:
    async with running_agent(plugin, model=ScriptedModel(model_answer(actions=["HELLO_WORLD"]))) as harness:
        await harness.send("Say hello to me")
        await harness.agent.events.flush()
        response = await status.handler(harness.agent, RouteRequest("GET", "/status"))
    assert response.json == {"greeted": 1, "sent": 1}


async def test_the_tests_in_the_plugin_itself_pass() -> None:
    [result] = await run_plugin_tests(plugin)
    assert (result.test, result.failure) == ("shows the count", None)


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
