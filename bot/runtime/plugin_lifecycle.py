"""Binds, initialises and supervises what plugins bring."""

import asyncio
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

from bot.agent import Agent
from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.isolation import Failure, await_in_task, run_isolated
from bot.concurrency.supervisor import Supervisor
from bot.errors import PluginError
from bot.http import BoundRoute, RouteRequest, RouteResponse
from bot.models.handler import ModelHandler
from bot.models.types import ModelType
from bot.plugin_system.components import Model, Service
from bot.plugin_system.plugin import Plugin, sort_services
from bot.plugin_system.routes import Route
from bot.runtime.agent_access import AgentComponents, AgentRooms, subscribe_listener

logger = logging.getLogger(__name__)


def bind_components(agent: Agent, plugins: Sequence[Plugin], components: AgentComponents, rooms: AgentRooms) -> None:
    """Register the models and listeners of these plugins with the agent, and bind what it lends to them."""
    components.bind(agent)
    rooms.bind(agent)
    for plugin in plugins:
        for model in (candidate for candidate in plugin.models if candidate.when(agent.settings)):
            priority = model.priority or plugin.priority
            handle = partial(_call_model, model, plugin, agent)
            can_call_tools: bool | Callable[[], bool] = model.can_call_tools(agent.settings)
            if can_call_tools and model.has_tools_now is not None:
                can_call_tools = partial(model.has_tools_now, agent)
            can_write_json = None if model.can_write_json is None else partial(model.can_write_json, agent)
            describe_model = None if model.describe_model is None else partial(model.describe_model, agent)
            handler = ModelHandler(
                model.type, handle, plugin.name, priority, can_call_tools, can_write_json, describe_model
            )
            agent.models.register(handler)
        for listener in plugin.listeners:
            subscribe_listener(agent, plugin.name, listener)


def bind_routes(agent: Agent, plugins: Sequence[Plugin]) -> tuple[BoundRoute, ...]:
    """Return the routes of these plugins, ready to be called."""
    return tuple(
        BoundRoute(
            plugin.name,
            route.method,
            route.path,
            route.is_public,
            partial(_handle_route, route, plugin, agent),
            scope=route.scope,
            max_body_bytes=route.max_body_bytes,
            accepts_files=route.accepts_files,
            summary=(inspect.getdoc(route.handler) or "").partition("\n")[0].rstrip("."),
            memory=agent.memory,
        )
        for plugin in plugins
        for route in plugin.routes
    )


async def _call_model(model: Model, plugin: Plugin, agent: Agent, request: Any) -> Any:
    label = f"{model.type} of plugin {plugin.name}"
    return await await_in_task(model(agent, request), label=label, trusted=plugin.is_trusted)


async def _handle_route(route: Route, plugin: Plugin, agent: Agent, request: RouteRequest) -> RouteResponse:
    label = f"{route.method} {route.path} of plugin {plugin.name}"
    response = await run_isolated(route(agent, request), label=label, timeout=None, trusted=plugin.is_trusted)
    if isinstance(response, Failure):
        raise PluginError(f"{label} failed{_describe_place(route, response)}: {response.cause}") from response.error
    return response


def _describe_place(route: Route, failure: Failure) -> str:
    """Return the last line that ran in the file of a route's handler; empty if there is none."""
    code = getattr(inspect.unwrap(route.handler), "__code__", None)
    frames = traceback.extract_tb(failure.error.__traceback__) if failure.error is not None else []
    lines = [f" at {frame.filename}:{frame.lineno}" for frame in frames if code and frame.filename == code.co_filename]
    return lines[-1] if lines else ""


INIT_TIMEOUT = 30.0


class PluginInitError(PluginError):
    """A plugin whose `init` has failed, and why."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"plugin {name!r} could not be set up: {cause}")
        self.name = name
        self.cause = cause


async def initialize_plugins(agent: Agent, plugins: Sequence[Plugin]) -> None:
    """Run every plugin's `init`; raises PluginInitError at the first that fails."""
    for plugin in plugins:
        if plugin.init is None:
            continue
        label = f"init of plugin {plugin.name}"
        result = await run_isolated(
            _run_init(plugin.init, agent), label=label, timeout=INIT_TIMEOUT, trusted=plugin.is_trusted
        )
        if isinstance(result, Failure):
            raise PluginInitError(plugin.name, result.cause)


async def _run_init(init: Callable[[Agent], Awaitable[None]], agent: Agent) -> None:
    await init(agent)


def find_inactive(plugins: Sequence[Plugin], name: str, cause: str) -> dict[str, str]:
    """Return why each plugin is off when this one is: its own cause, or the chain of requirements to it.

    Plugins come after those they require.
    """
    inactive = {name: cause}
    for plugin in plugins:
        missing = next((required for required in plugin.requires if required in inactive), None)
        if missing is not None and plugin.name not in inactive:
            inactive[plugin.name] = f"it requires {missing!r}, which is off: {inactive[missing]}"
    return inactive


def with_inactive_stubs(plugins: Sequence[Plugin], inactive: Mapping[str, str]) -> tuple[Plugin, ...]:
    """Return the plugins; inactive ones keep only their names, settings and tables."""
    return tuple(_build_inactive_stub(plugin) if plugin.name in inactive else plugin for plugin in plugins)


def is_essential(plugins: Sequence[Plugin], inactive: Mapping[str, str]) -> bool:
    """Return whether without these plugins there is no store, or no model that writes."""
    inactive_plugins = [plugin for plugin in plugins if plugin.name in inactive]
    active_plugins = [plugin for plugin in plugins if plugin.name not in inactive]
    return any(plugin.store is not None for plugin in inactive_plugins) or (
        _has_large_model(inactive_plugins) and not _has_large_model(active_plugins)
    )


def _has_large_model(plugins: Sequence[Plugin]) -> bool:
    return any(model.type is ModelType.TEXT_LARGE for plugin in plugins for model in plugin.models)


def _build_inactive_stub(plugin: Plugin) -> Plugin:
    return Plugin(plugin.name, plugin.description, settings=plugin.settings, schema=plugin.schema)


START_TIMEOUT, STOP_TIMEOUT = 30.0, 5.0


class RunningService:
    """A service with its background tasks and what it has registered; entered and left by its supervisor.

    The tasks are cancelled before the service stops. If one raises, leaving the context raises that.
    """

    def __init__(self, kind: type[Service], plugin: str, agent: Agent) -> None:
        self.service: Service
        self._kind = kind
        self.registrations = ExitStack()
        self._plugin = plugin
        self._agent = agent
        self._exits = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.callback(self.registrations.close)
            await stack.enter_async_context(self._group)
            is_method = inspect.isfunction(inspect.getattr_static(self._kind, "start"))  # of an instance
            self.service = self._kind(self._agent) if is_method else await self._kind.start(self._agent)
            self.service.scope = self
            await stack.enter_async_context(self.service)
            stack.push_async_callback(self._cancel_tasks)
            self._exits = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.__aexit__(kind, error, trace)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task of the service's group."""
        task = self._group.create_task(_without_exit(work), name=f"task of service {self._kind.__name__}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def register(self, component: object) -> Callable[[], None]:
        """Register a component of the service's plugin."""
        return self.registrations.callback(self._agent.components.register(self._plugin, component))

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _without_exit(work: Coroutine[Any, Any, None]) -> None:
    """Await plugin code; SystemExit becomes an ordinary error: in a task it would end the process."""
    try:
        await work
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error


@asynccontextmanager
async def run_services(
    agent: Agent, plugins: Sequence[Plugin], shutdown_deadline: ShutdownDeadline
) -> AsyncIterator[None]:
    """Run the services of these plugins while the block lasts, each after those that it uses.

    One that does not start, or fails later, is logged and started again; the others run. Raises PluginError
    for services that use one another.
    """
    plugin_names = {kind: plugin.name for plugin in plugins for kind in plugin.services}
    running: dict[type[Service], RunningService] = {}

    def build(kind: type[Service]) -> RunningService:
        running[kind] = RunningService(kind, plugin_names[kind], agent)
        return running[kind]

    async def on_up(context: RunningService) -> None:
        agent.services.add(context.service)

    def on_down(kind: type[Service], cause: str) -> None:
        if kind in running:
            running[kind].registrations.close()  # also where the service was stopped by force
        agent.services.remove(kind, cause)
        logger.warning("service %s is not running: %s", kind.__name__, cause)

    async with AsyncExitStack() as stack:
        for kind in sort_services(plugins):
            supervisor = Supervisor(
                partial(build, kind),
                label=f"service {kind.__name__}",
                on_up=on_up,
                on_down=partial(on_down, kind),
                shutdown_deadline=shutdown_deadline,
            )
            stack.callback(agent.services.remove, kind)
            stack.push_async_callback(supervisor.stop, STOP_TIMEOUT)
            await supervisor.start(START_TIMEOUT)
        yield
