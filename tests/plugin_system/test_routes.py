"""Routes: what a definition may say."""

from pathlib import Path
from typing import Any

import pytest

from bot.errors import PluginError
from bot.http import DEFAULT_BODY_BYTES, MAX_BODY_BYTES, RouteRequest, RouteResponse, RouteScope
from bot.plugin_system.components import WebhookSignature, route, static_folder
from bot.turn import Agent


async def respond(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse()


@pytest.mark.parametrize(
    ("method", "details", "scope"),
    [
        ("GET", {}, RouteScope.READ_ONLY),
        ("POST", {}, RouteScope.OPERATOR),
        ("POST", {"public": True}, RouteScope.PUBLIC),
        ("POST", {"scope": "chat"}, RouteScope.CHAT),
        ("POST", {"signature": WebhookSignature("SECRET")}, RouteScope.PUBLIC),
        ("GET", {"scope": "operator", "max_body_bytes": MAX_BODY_BYTES}, RouteScope.OPERATOR),
    ],
)
def test_a_route_has_the_scope_that_it_declares(method: str, details: dict[str, Any], scope: RouteScope) -> None:
    made = route(method, "/a", **details)(respond)
    assert (made.scope, made.is_public) == (scope, scope is RouteScope.PUBLIC)


@pytest.mark.parametrize(
    ("details", "cause"),
    [
        ({"scope": "admin"}, "none of public, chat, read_only, operator"),
        ({"scope": "chat", "public": True}, "leave out the scope"),
        ({"scope": "chat", "signature": WebhookSignature("SECRET")}, "leave out the scope"),
        ({"max_body_bytes": MAX_BODY_BYTES + 1}, "at most"),
        ({"max_body_bytes": 0}, "at most"),
        ({"public": True, "max_body_bytes": DEFAULT_BODY_BYTES + 1}, "for a public route"),
    ],
)
def test_a_contradictory_route_is_rejected(details: dict[str, Any], cause: str) -> None:
    with pytest.raises(PluginError, match=cause):
        route("POST", "/a", **details)


def test_a_missing_static_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="does not exist"):
        static_folder("/app", tmp_path / "nothing")
