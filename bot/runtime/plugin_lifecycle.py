"""Binds, initialises and supervises what plugins bring."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from bot.agent import Agent
from bot.concurrency.clock import Patience
from bot.concurrency.isolation import Failure, contained, released
from bot.concurrency.supervisor import Upkeep
from bot.errors import PluginError
from bot.http import BoundRoute, RouteRequest, RouteResponse
from bot.models.handler import ModelHandler
from bot.models.types import ModelType
from bot.plugin_system.components import Model, Route, Service
from bot.plugin_system.plugin import Plugin

logger = logging.getLogger(__name__)


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


INIT_DEADLINE = 30.0


class NotSetUp(PluginError):
    """A plugin whose `init` has failed, and why."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"plugin {name!r} could not be set up: {cause}")
        self.name = name
        self.cause = cause


async def set_up(agent: Agent, plugins: Sequence[Plugin]) -> None:
    """Run every plugin's `init`; raises NotSetUp at the first that fails."""
    for plugin in plugins:
        if plugin.init is None:
            continue
        what = f"init of plugin {plugin.name}"
        done = await contained(_begun(plugin.init, agent), what=what, deadline=INIT_DEADLINE)
        if isinstance(done, Failure):
            raise NotSetUp(plugin.name, done.cause)


async def _begun(init: Callable[[Agent], Awaitable[None]], agent: Agent) -> None:
    await init(agent)


def off_without(plugins: Sequence[Plugin], name: str, cause: str) -> dict[str, str]:
    """Say of every plugin why it is off where this one is: by its own cause, or by the chain down to it.

    Plugins come after those they require.
    """
    off = {name: cause}
    for plugin in plugins:
        needed = next((one for one in plugin.requires if one in off), None)
        if needed is not None and plugin.name not in off:
            off[plugin.name] = f"it requires {needed!r}, which is off: {off[needed]}"
    return off


def without(plugins: Sequence[Plugin], off: Mapping[str, str]) -> tuple[Plugin, ...]:
    """Leave of plugins that are off what their names, their secrets and their tables are known by."""
    return tuple(_husk(plugin) if plugin.name in off else plugin for plugin in plugins)


def is_vital(plugins: Sequence[Plugin], off: Mapping[str, str]) -> bool:
    """Tell whether nothing is kept, or nobody writes, where these plugins are off."""
    lost = [plugin for plugin in plugins if plugin.name in off]
    rest = [plugin for plugin in plugins if plugin.name not in off]
    return any(plugin.store is not None for plugin in lost) or (_writes(lost) and not _writes(rest))


def _writes(plugins: Sequence[Plugin]) -> bool:
    return any(model.type is ModelType.TEXT_LARGE for plugin in plugins for model in plugin.models)


def _husk(plugin: Plugin) -> Plugin:
    return Plugin(plugin.name, plugin.description, settings=plugin.settings, schema=plugin.schema)


START_DEADLINE, STOP_DEADLINE = 30.0, 5.0


@asynccontextmanager
async def running_services(
    agent: Agent, plugins: Sequence[Plugin], patience: Patience
) -> AsyncIterator[None]:
    """Have the services of these plugins run as long as the block lasts.

    One that does not start is noted, and tried again meanwhile; the others run.
    """

    async def is_up(service: Service) -> None:
        agent.services.add(service)

    def is_down(kind: type[Service], cause: str) -> None:
        agent.services.remove(kind, cause)
        logger.warning("service %s is not there: %s", kind.__name__, cause)

    async with AsyncExitStack() as stack:
        for kind in dict.fromkeys(service for plugin in plugins for service in plugin.services):
            upkeep = Upkeep(
                partial(kind, agent),
                what=f"service {kind.__name__}",
                goes_up=is_up,
                goes_down=partial(is_down, kind),
                patience=patience,
            )
            stack.callback(agent.services.remove, kind)
            stack.push_async_callback(upkeep.end, STOP_DEADLINE)
            await upkeep.begin(START_DEADLINE)
        yield
