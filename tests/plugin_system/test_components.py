"""The other components: definitions, and errors for invalid ones."""

from typing import Any

import pytest

from bot.domain.character import EvaluatorSpec, ProviderSpec, Shortening
from bot.domain.events import Event, MessageDeleted, MessageReceived
from bot.domain.ledger import ProviderResult
from bot.domain.task import Task
from bot.errors import PluginError
from bot.http import RouteRequest, RouteResponse
from bot.models.types import ModelType, TextRequest, TextResult
from bot.plugin_system.components import Service, evaluator, model, on, provider, route, worker
from bot.testing import AgentHarness, make_turn
from bot.turn import Agent, Turn


async def knowing(turn: Turn) -> ProviderResult:
    return ProviderResult(f"about {turn.message.content.text}")


async def looking(turn: Turn) -> None: ...


async def working(agent: Agent, task: Task) -> None: ...


async def hearing(agent: Agent, event: Event) -> None: ...


async def serving(agent: Agent, request: TextRequest) -> TextResult:
    return TextResult(request.prompt.upper())


async def answering(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json={"path": request.path})


@pytest.mark.parametrize(
    "make",
    [
        lambda name: provider(name, "x")(knowing),
        lambda name: evaluator(name, "x")(looking),
        lambda name: worker(name)(working),
    ],
)
@pytest.mark.parametrize("name", ["lower", "", "A-B", "A B", "9A"])
def test_a_component_name_must_be_upper_snake(make: Any, name: str) -> None:
    with pytest.raises(PluginError, match="UPPER_SNAKE, as in FOLLOW_ROOM"):
        make(name)


async def test_a_provider_is_a_description_and_a_function_of_the_turn(agent_harness: AgentHarness) -> None:
    made = provider("MOON", "The moon.", position=-5, dynamic=True, hidden=True)(knowing)
    assert made.spec == ProviderSpec(
        "MOON", "The moon.", is_dynamic=True, is_hidden=True, position=-5, shorten=Shortening.DROP
    )
    assert (await made(make_turn(agent_harness.agent, "it"))).text == "about it"


async def test_an_evaluator_has_a_condition(agent_harness: AgentHarness) -> None:
    async def never(turn: Turn) -> bool:
        return False

    made = evaluator("LOOK", "Looks.", similes=["SEE"], always_run=True, when=never)(looking)
    assert made.spec == EvaluatorSpec("LOOK", "Looks.", ("SEE",), always_run=True)
    turn = make_turn(agent_harness.agent)
    assert made.when is never
    await made(turn)


def test_a_worker_has_a_name_and_a_timeout() -> None:
    made = worker("REMIND", deadline=5.0)(working)
    assert (made.name, made.deadline, worker("REMIND")(working).deadline) == ("REMIND", 5.0, 300.0)


def test_a_listener_receives_a_single_class_of_events() -> None:
    assert on(MessageDeleted)(hearing).kind is MessageDeleted
    assert on(MessageReceived)(hearing).handler is hearing


async def test_a_model_handler_serves_a_type(agent_harness: AgentHarness) -> None:
    made = model(ModelType.TEXT_SMALL, priority=3)(serving)
    assert (made.type, made.priority) == (ModelType.TEXT_SMALL, 3)
    result = await made(agent_harness.agent, TextRequest("hi"))
    assert isinstance(result, TextResult)
    assert result.text == "HI"


async def test_a_route_responds_to_a_request(agent_harness: AgentHarness) -> None:
    made = route("get", "/status", public=True)(answering)
    assert (made.method, made.path, made.is_public) == ("GET", "/status", True)
    assert (await made(agent_harness.agent, RouteRequest("GET", "/status"))).json == {"path": "/status"}
    assert not route("POST", "/status")(answering).is_public


@pytest.mark.parametrize(("method", "path"), [("FETCH", "/a"), ("GET", "a"), ("GET", ""), ("GET", "/../a"), ("", "/a")])
def test_an_invalid_route_is_rejected(method: str, path: str) -> None:
    with pytest.raises(PluginError, match="use one of"):
        route(method, path)(answering)


async def test_a_service_has_harmless_defaults(agent_harness: AgentHarness) -> None:
    async with Service(agent_harness.agent) as service:
        assert service.agent is agent_harness.agent
    assert Service.capability == ""
