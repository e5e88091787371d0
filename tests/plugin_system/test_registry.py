"""The registry: components by name, and rejection of ambiguous names."""

from typing import Any

import pytest

from bot.domain.ledger import ProviderResult
from bot.domain.task import Task
from bot.errors import PluginError
from bot.http import RouteRequest, RouteResponse
from bot.plugin_system.components import Action, Service, action, evaluator, provider, route, worker
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry, fold_name
from bot.turn import Turn


def an_action(name: str, *similes: str) -> Action[Any]:
    @action(name, "x", similes=similes)
    async def handler(turn: Turn) -> None: ...

    return handler


async def knowing(turn: Turn) -> ProviderResult:
    return ProviderResult()


async def looking(turn: Turn) -> None: ...


async def answering(agent: Any, request: RouteRequest) -> RouteResponse:
    return RouteResponse()


async def working(agent: Any, task: Task) -> None: ...


class Forecasts(Service):
    capability = "It knows the weather."


class Quiet(Service):
    """A service without a capability."""


@pytest.mark.parametrize(
    ("written", "folded"), [("FOLLOW_ROOM", "FOLLOWROOM"), (" follow room ", "FOLLOWROOM"), ("", ""), ("_ ", "")]
)
def test_names_are_folded_for_spelling_variants_of_models(written: str, folded: str) -> None:
    assert fold_name(written) == folded


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("FOLLOW_ROOM", "FOLLOW_ROOM"),
        ("follow_room", "FOLLOW_ROOM"),
        ("FollowRoom", "FOLLOW_ROOM"),
        ("FOLLOW ROOM", "FOLLOW_ROOM"),
        ("JOIN_IN", "FOLLOW_ROOM"),
        ("join in", "FOLLOW_ROOM"),
        ("FOLLOW", None),
        ("FOLLOW_ROOMS", None),
        ("UNFOLLOW_ROOM", None),
        ("", None),
        ("_", None),
    ],
)
def test_an_action_is_found_by_name_or_simile_but_not_by_part_of_a_name(written: str, found: str | None) -> None:
    registry = Registry([Plugin("a", actions=[an_action("FOLLOW_ROOM", "JOIN_IN", "LISTEN")])])
    action = registry.find_action(written)
    assert (action.spec.name if action else None) == found


def test_a_name_takes_precedence_over_similes_and_earlier_similes_over_later() -> None:
    registry = Registry(
        [Plugin("a", actions=[an_action("A", "B", "C")]), Plugin("b", actions=[an_action("B"), an_action("D", "C")])]
    )
    for written, found in (("B", "B"), ("C", "A"), ("D", "D")):
        action = registry.find_action(written)
        assert action is not None
        assert action.spec.name == found


def test_a_provider_is_found_by_its_folded_name() -> None:
    registry = Registry([Plugin("a", providers=[provider("RECENT_MESSAGES", "x")(knowing)])])
    assert registry.find_provider("recent messages") is registry.providers["RECENT_MESSAGES"]
    assert registry.find_provider("RECENT") is None


@pytest.mark.failure("H-14")
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("action", {"actions": [an_action("SAME_ONE")]}, {"actions": [an_action("SAME_ONE")]}),
        ("action", {"actions": [an_action("SAME_ONE")]}, {"actions": [an_action("SAMEONE")]}),
        (
            "provider",
            {"providers": [provider("SAME_ONE", "x")(knowing)]},
            {"providers": [provider("SAME_ONE", "y")(knowing)]},
        ),
        (
            "evaluator",
            {"evaluators": [evaluator("SAME_ONE", "x")(looking)]},
            {"evaluators": [evaluator("SAME_ONE", "x")(looking)]},
        ),
        ("worker", {"workers": [worker("SAME_ONE")(working)]}, {"workers": [worker("SAME_ONE")(working)]}),
    ],
)
def test_duplicate_component_names_are_rejected_naming_both_plugins(
    kind: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    with pytest.raises(PluginError) as raised:
        Registry([Plugin("weather", **first), Plugin("climate", **second)])
    for part in (kind, "'weather'", "'climate'", "remove one of the two"):
        assert part in str(raised.value)


@pytest.mark.failure("H-14")
def test_two_routes_of_a_plugin_with_the_same_path_are_rejected() -> None:
    routes = [route(method, "/status")(answering) for method in ("GET", "POST", "get")]
    with pytest.raises(PluginError, match="plugin 'weather' brings 2 routes at GET /status: keep one of them"):
        Registry([Plugin("weather", routes=routes)])
    Registry([Plugin("weather", routes=routes[:2]), Plugin("climate", routes=routes[:2])])


def test_components_of_different_kinds_may_share_a_name() -> None:
    registry = Registry(
        [
            Plugin(
                "a",
                actions=[an_action("SAME")],
                providers=[provider("SAME", "x")(knowing)],
                evaluators=[evaluator("SAME", "x")(looking)],
                workers=[worker("SAME")(working)],
            )
        ]
    )
    assert len({id(registry.actions["SAME"]), id(registry.providers["SAME"])}) == 2


def test_the_catalog_lists_all_components_in_order_with_their_plugins() -> None:
    catalog = Registry(
        [
            Plugin("a", actions=[an_action("ONE")], services=[Forecasts, Quiet]),
            Plugin("b", actions=[an_action("TWO")], providers=[provider("P", "x")(knowing)]),
        ]
    ).build_catalog()
    assert catalog.plugins == ("a", "b")
    assert [(action.name, action.plugin) for action in catalog.actions] == [("ONE", "a"), ("TWO", "b")]
    assert [(provider.name, provider.plugin) for provider in catalog.providers] == [("P", "b")]
    assert catalog.services == ("Forecasts", "Quiet")
    assert catalog.capabilities == ("It knows the weather.",)
