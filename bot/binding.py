"""What plugins brought, bound to the agent that it works for: models, listeners, routes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from bot.agent import Agent
from bot.concurrency.isolation import Failure, contained, released
from bot.errors import PluginError
from bot.http import BoundRoute, RouteRequest, RouteResponse
from bot.models.handler import ModelHandler
from bot.plugin_system.components import Model, Route
from bot.plugin_system.plugin import Plugin


def bind(agent: Agent, plugins: Sequence[Plugin]) -> None:
    """Hand the agent to what a plugin brought: its models and its listeners."""
    for plugin in plugins:
        for model in (one for one in plugin.models if one.when(agent.settings)):
            priority = model.priority or plugin.priority
            handle = partial(_ask, model, plugin.name, agent)
            agent.models.register(
                ModelHandler(model.type, handle, plugin.name, priority, model.can_call_tools(agent.settings))
            )
        for listener in plugin.listeners:
            name = f"{plugin.name}.{listener.handler.__name__}"
            told = partial(listener.handler, agent)
            agent.events.subscribe(listener.kind, told, name=name, at_once=listener.at_once)


def routes_of(agent: Agent, plugins: Sequence[Plugin]) -> tuple[BoundRoute, ...]:
    """Give the routes of these plugins, ready to be called."""
    return tuple(
        BoundRoute(
            plugin.name, one.method, one.path, one.is_public, partial(_answer, one, plugin.name, agent)
        )
        for plugin in plugins
        for one in plugin.routes
    )


async def _ask(model: Model, plugin: str, agent: Agent, request: Any) -> Any:
    return await released(model(agent, request), what=f"{model.type} of plugin {plugin}")


async def _answer(route: Route, plugin: str, agent: Agent, request: RouteRequest) -> RouteResponse:
    what = f"{route.method} {route.path} of plugin {plugin}"
    given = await contained(route(agent, request), what=what, deadline=None)
    if isinstance(given, Failure):
        raise PluginError(f"{what} failed: {given.cause}")
    return given
