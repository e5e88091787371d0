"""Actions: the signature is the schema, and invalid arguments are rejected before the call."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from bot.domain.character import Effect, ExampleLine
from bot.domain.environment import Role
from bot.domain.ledger import ActionResult
from bot.errors import PluginError
from bot.models import ModelType
from bot.plugin_system.components import Action, action, command, evaluator, model, route, worker
from bot.plugin_system.plugin import Plugin
from bot.testing import AgentHarness, make_turn
from bot.turn import Turn


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    city: str
    zip_code: int | None = None


@action("EVERYTHING", "Takes everything.")
async def everything(
    turn: Turn,
    text: Annotated[str, "Some text"],
    number: Annotated[int, Field(ge=1, le=10), "A small number"],
    *,
    places: list[Place],
    colour: Colour = Colour.RED,
    size: Literal["s", "m"] | None = None,
    tags: dict[str, float] | None = None,
) -> ActionResult:
    return ActionResult(
        data={"text": text, "number": number, "places": places, "colour": colour, "size": size, "tags": tags}
    )


def test_the_signature_is_the_schema() -> None:
    schema = everything.spec.parameters
    assert "title" not in schema
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["text", "number", "places"]
    properties = schema["properties"]
    assert list(properties) == ["text", "number", "places", "colour", "size", "tags"]
    assert properties["text"] == {"type": "string", "description": "Some text"}
    assert (properties["number"]["minimum"], properties["number"]["maximum"]) == (1, 10)
    assert properties["number"]["description"] == "A small number"
    assert properties["colour"]["default"] == "red"
    assert properties["size"]["default"] is None


def test_an_action_without_parameters_accepts_no_arguments() -> None:
    @action("WAIT", "Wait.")
    async def wait(turn: Turn) -> None: ...

    assert wait.spec.parameters["properties"] == {}
    assert "required" not in wait.spec.parameters


async def test_arguments_are_converted_and_defaults_filled_in(agent_harness: AgentHarness) -> None:
    given = {"text": "hi", "number": "3", "places": [{"city": "Oslo"}], "colour": "blue"}
    result = await everything.run(make_turn(agent_harness.agent), given)
    assert result is not None
    assert result.data == {
        "text": "hi",
        "number": 3,
        "places": [Place(city="Oslo")],
        "colour": Colour.BLUE,
        "size": None,
        "tags": None,
    }


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"number": 1, "places": []}, "text"),
        ({"text": "hi", "number": 0, "places": []}, "number"),
        ({"text": "hi", "number": "many", "places": []}, "number"),
        ({"text": "hi", "number": 1, "places": "Oslo"}, "places"),
        ({"text": "hi", "number": 1, "places": [{"town": "Oslo"}]}, "places"),
        ({"text": "hi", "number": 1, "places": [], "colour": "green"}, "colour"),
        ({"text": "hi", "number": 1, "places": [], "turn": "mine"}, "turn"),
        ({"text": "hi", "number": 1, "places": [], "parameter_0": "x"}, "parameter_0"),
        ({"text": None, "number": 1, "places": []}, "text"),
    ],
)
async def test_invalid_arguments_are_rejected_before_the_call(
    agent_harness: AgentHarness, given: dict[str, Any], where: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        await everything.run(make_turn(agent_harness.agent), given)
    assert raised.value.errors()[0]["loc"][0] == where


async def test_a_parameter_may_have_any_name(agent_harness: AgentHarness) -> None:
    @action("ODD", "Odd names.")
    async def odd(
        turn: Turn, schema: str, json: int, model_config: str, copy: bool = True, _hidden: str = "h", self: str = "s"
    ) -> ActionResult:
        return ActionResult(data={"all": (schema, json, model_config, copy, _hidden, self)})

    assert list(odd.spec.parameters["properties"]) == ["schema", "json", "model_config", "copy", "_hidden", "self"]
    assert odd.spec.parameters["required"] == ["schema", "json", "model_config"]
    result = await odd.run(make_turn(agent_harness.agent), {"schema": "a", "json": 1, "model_config": "c"})
    assert result is not None
    assert result.data["all"] == ("a", 1, "c", True, "h", "s")


async def test_a_mutable_default_is_not_shared(agent_harness: AgentHarness) -> None:
    @action("COLLECT", "Collects.")
    async def collect(turn: Turn, found: list[str] = []) -> ActionResult:  # noqa: B006  # what is tested
        found.append("one")
        return ActionResult(data={"found": found})

    for _ in range(2):
        result = await collect.run(make_turn(agent_harness.agent), {})
        assert result is not None
        assert result.data["found"] == ["one"]


@pytest.mark.parametrize("name", ["", "follow", "Follow", "FOLLOW-ROOM", "1FOLLOW", "FOLLOW ROOM", "_F", "FOLLOW\n"])
def test_an_action_name_must_be_upper_snake(name: str) -> None:
    with pytest.raises(PluginError, match="UPPER_SNAKE"):
        action(name, "x")(nothing)


async def nothing(turn: Turn) -> None: ...


async def untyped(turn: Turn, city) -> None: ...  # type: ignore[no-untyped-def]  # what is tested


async def many(turn: Turn, *cities: str) -> None: ...


async def named(turn: Turn, **cities: str) -> None: ...


async def by_place(turn: Turn, city: str, /) -> None: ...


async def unknown_type(turn: Turn, city: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def no_json(turn: Turn, call: Callable[[], None]) -> None: ...


async def no_turn() -> None: ...


@pytest.mark.parametrize("handler", [untyped, many, named, by_place, unknown_type, no_json, no_turn])
def test_a_parameter_type_unknown_to_json_is_rejected_at_definition(handler: Any) -> None:
    with pytest.raises(PluginError, match="action ACT"):
        action("ACT", "x")(handler)


@pytest.mark.parametrize(
    "decorate",
    [
        action("LOOK", "Looks."),
        command("look", "Looks."),
        evaluator("LOOK", "Looks."),
        model(ModelType.TEXT_LARGE),
        route("GET", "/look"),
        worker("LOOK"),
    ],
    ids=["action", "command", "evaluator", "model", "route", "worker"],
)
def test_a_function_that_is_not_async_is_rejected_at_definition(decorate: Any) -> None:
    def look(turn: Turn, request: int = 0) -> None:
        return None

    with pytest.raises(PluginError, match="its function must be async"):
        decorate(look)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([len], "plugin 'test': len in its actions is none of them: decorate the function with @action"),
        (len, "plugin 'test': actions is a builtin_function_or_method: write a list"),
    ],
)
def test_what_is_no_component_is_rejected_with_the_name_of_its_plugin(actions: Any, message: str) -> None:
    with pytest.raises(PluginError, match=re.escape(message)):
        Plugin("test", actions=actions)


async def test_the_decorated_function_can_be_called_directly(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent)
    result = await everything(turn, "hi", 3, places=[])
    assert result is not None
    assert result.data["text"] == "hi"


def test_the_spec_has_all_other_options() -> None:
    lines = [[ExampleLine("Alice", "bye"), ExampleLine("Ada", "bye", ("LEAVE",))]]
    made: Action[Any] = action(
        "LEAVE", "Leave.", similes=["GO"], role=Role.ADMIN, effect=Effect.PURE, critical=True, examples=lines
    )(nothing)
    spec = made.spec
    assert (spec.name, spec.description, spec.similes) == ("LEAVE", "Leave.", ("GO",))
    assert (spec.role, spec.effect, spec.is_critical) == (Role.ADMIN, Effect.PURE, True)
    assert spec.examples[0][1].actions == ("LEAVE",)
    assert action("ACT", "x")(nothing).spec.effect is Effect.UNSAFE
