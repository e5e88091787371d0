"""`AgentRuntime`: one running agent, from its configuration to its handle.

What code that answers no message can do with its agent: register components, work in rooms.

Builds the `AgentHandle` of an agent with its commands, choices, edits and membership.

Binds, initialises and supervises what plugins bring.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from bot.adapter.adapter import ConnectionStatus
from bot.background.maintenance import ConfirmedActions, MemoryRetention, ProposalExpiry
from bot.background.posting import PostScheduler
from bot.background.scheduler import Scheduler
from bot.care.settings import CareSettings
from bot.commands.builtin import BuiltinCommands
from bot.commands.dispatcher import ChoiceHandler, CommandDispatcher, CommandReceipts
from bot.commands.inline import InlineQuestions
from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.supervisor import Supervisor
from bot.concurrency.tasks import Failure, MemorySemaphore, await_in_task, run_isolated
from bot.costs.budget import (
    Budget,
    BudgetSettings,
    CostLimits,
    CostMeter,
    PriceList,
    ReservationLedger,
    SharedBudget,
    load_prices,
    parse_degrade,
)
from bot.domain.character import CommandSpec
from bot.domain.content import Content
from bot.domain.environment import Component, Entity, Role, Room, World
from bot.domain.ids import new_id
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import PLUGIN_MESSAGE_PREFIX, CostEntry, EventOrigin, Receipt, State
from bot.errors import ConfigError, InboxClosed, PluginError, SettingError, Undeliverable
from bot.event_bus import EventBus
from bot.fetch.client import Fetcher
from bot.http import BoundRoute, RouteRequest, RouteResponse
from bot.inbound.agent_handle import AgentHandle, MembershipReporter
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import ForgottenWords, Inbox
from bot.inbound.work_sharing import WorkSharingLoop
from bot.models.handler import CallPolicy, ModelHandler, ModelSettings, read_sampling
from bot.models.router import ModelRouter
from bot.models.types import ModelType
from bot.operate.activity import AgentActivity
from bot.operate.conversations import ConversationReader
from bot.operate.operations import Operations
from bot.operate.people import People, PersonActivityRecorder, load_muted_people
from bot.operate.tools import TaskControl
from bot.outbound.content_filter import LinkPolicy
from bot.outbound.outbox import Outbox, Speech, UndeliveredParts, VoiceReplies
from bot.outbound.proposals import Approval, ApprovalSettings, Proposals
from bot.pipeline.compose import Composer
from bot.pipeline.filters import ContentStage, build_content_stage, check_moderation
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.components import Action, Evaluator, Listener, Model, Provider, Route, Service, Worker
from bot.plugin_system.plugin import Plugin, collect_schemas, sort_services
from bot.plugin_system.registry import Registry
from bot.runs import Run, current_run, list_call_owners, retry_reporter, usage_recorder
from bot.runtime.character_reload import AgentConfig, CharacterPicture, CharacterReloader, apply_steps
from bot.runtime.world_settings import AgentWorldSettings, open_world_settings
from bot.settings import CoreSettings, FilterSettings, Layer, Settings
from bot.settings.model import is_secret_name, secret_fields
from bot.store.ledger import ProcessRole
from bot.store.protocols import RecallScope, Schemas, Store
from bot.store.storage import NO_SCHEMAS
from bot.text import suggest
from bot.turn import Agent, CurrentDefinition, Services, Turn

logger = logging.getLogger(__name__)
MAX_VISIBLE_ROOMS = 50
STORED_SETTINGS_KEY = "settings-set-by-plugins"


async def load_stored_settings(store: Store, plugins: Sequence[Plugin]) -> dict[str, str]:
    """Return what plugins have set of the variables that they still declare."""
    models = [plugin.settings for plugin in plugins if plugin.settings is not None]
    declared = {info.alias or field for model in models for field, info in model.model_fields.items()}
    stored = await store.cache.get(STORED_SETTINGS_KEY) if declared else None
    return {name: value for name, value in (stored or {}).items() if name in declared}


class AgentComponents:
    """Implements `Components` of an agent with its registry and its event bus."""

    def __init__(self, registry: Registry, stored_settings: dict[str, str], world_settings: AgentWorldSettings) -> None:
        self._registry = registry
        self.catalog = registry.catalog
        self._world_settings = world_settings
        self._stored_settings = stored_settings  # a layer of the agent's settings, changed in place
        self._settings_lock = asyncio.Lock()
        self._agent: Agent | None = None

    def bind(self, agent: Agent) -> None:
        """Begin to accept listeners, and check what is stored about people against the declared types."""
        self._agent = agent
        self._world_settings.bind(agent)
        if self._registry.component_types:
            agent.store.entities.check_components(self._check_component)

    @property
    def world_settings(self) -> AgentWorldSettings:
        """The settings of worlds that plugins declare."""
        return self._world_settings

    def register(self, plugin: str, component: object, *, replaces_own: bool = False) -> Callable[[], None]:
        """Add a component to a plugin; see `Components`."""
        owner = self._registry.find_plugin(plugin)
        if isinstance(component, Listener) and self._agent is not None:
            return subscribe_listener(self._agent, owner.name, component)
        if isinstance(component, Action | Provider | Evaluator | Worker):
            remove = self._registry.register(owner, component, replaces_own=replaces_own)
            self.catalog = self._registry.catalog

            def unregister() -> None:
                remove()
                self.catalog = self._registry.catalog

            return unregister
        kind = type(component).__name__
        raise PluginError(
            f"plugin {plugin!r} cannot register a {kind} while the agent runs: only actions, providers, evaluators, "
            "workers and listeners; pass the others to Plugin(...)"
        )

    async def set_setting(self, plugin: str, name: str, value: str) -> None:
        """Set a variable that a plugin declares; see `Components`."""
        model, agent = self._registry.find_plugin(plugin).settings, self._agent
        fields = {} if model is None else {info.alias or field: field for field, info in model.model_fields.items()}
        if model is None or agent is None or name not in fields:
            hint = suggest(name, fields, start=": ", quote="")
            raise SettingError(f"{name} is no setting that plugin {plugin!r} declares{hint}")
        if is_secret_name(name) or fields[name] in dict(secret_fields(model)):
            raise SettingError(f"{name} is a secret: only the operator sets it, in .env or the environment")
        agent.settings.with_layer(Layer(f"a change by plugin {plugin}", {name: value})).load(model)
        async with self._settings_lock:
            changed = {key: item for key, item in {**self._stored_settings, name: value.strip()}.items() if item}
            await agent.store.cache.set(STORED_SETTINGS_KEY, changed)
            self._stored_settings.clear()
            self._stored_settings.update(changed)

    def _check_component(self, component: Component) -> None:
        component_type = self._registry.component_types.get(component.type)
        if component_type is not None:
            component_type.check(component.data)


def subscribe_listener(agent: Agent, plugin: str, listener: Listener[Any]) -> Callable[[], None]:
    """Call a plugin's listener for its events until the returned function is called."""
    name = f"{plugin}.{listener.handler.__name__}"
    listen = partial(listener.handler, agent)
    return agent.events.subscribe(listener.kind, listen, name=name, at_once=listener.is_immediate)


class AgentRooms:
    """Implements `Rooms` of an agent; messages are accepted between `start` and the end of the inbox."""

    def __init__(self, registry: Registry) -> None:
        self._composer = Composer(registry)
        self._agent: Agent | None = None
        self._inbox: Inbox | None = None

    def bind(self, agent: Agent) -> None:
        """Set the agent whose rooms these are, before its services start."""
        self._agent = agent

    def start(self, inbox: Inbox) -> None:
        """Begin to accept messages."""
        self._inbox = inbox

    async def compose(
        self,
        room: Room,
        include: Collection[str] = (),
        *,
        only_included: bool = False,
        author: Entity | None = None,
        text: str = "",
    ) -> State:
        """Compose the state of a room; see `Rooms`."""
        agent = self._require_agent()
        turn = Turn.for_room(agent, room, await self._find_world(room), author=author, text=text)
        with self.charge(room, author):
            return await self._composer.compose(turn, include, only_included=only_included)

    async def submit(
        self, room: Room, content: str | Content, *, author: Entity, key: str, role: Role | None = None
    ) -> Receipt:
        """Store a message as if it had come from the room's platform; see `Rooms`."""
        if isinstance(content, str):
            content = Content(text=content)
        mention = replace(content.mention, is_mention=True)
        content = replace(content, source=content.source or room.platform, mention=mention)
        if role is None and author.platform != room.platform:
            role = Role.NONE
        world = replace(await self._find_world(room), roles={} if role is None else {author.id: role})
        inbound = InboundMessage.build(
            world,
            room,
            author,
            content,
            created_at=self._require_agent().clock(),
            message_id=f"{PLUGIN_MESSAGE_PREFIX}{key}",
        )
        message = replace(inbound.message, external_id="")  # no message of the platform, that a reply could refer to
        return await self._require_inbox().submit(replace(inbound, message=message, origin=EventOrigin.PLUGIN))

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait for the final receipt of a message."""
        return await self._require_inbox().wait_outcome(receipt_id)

    async def find(self, platform: str, external_id: str, *, account: str = "") -> Room | None:
        """Return the room with this id of a platform; reads the list of all rooms."""
        rooms = await self._require_agent().store.worlds.rooms()
        matches = (room for room in rooms if (room.platform, room.external_id) == (platform, external_id))
        return next((room for room in matches if account in ("", room.account)), None)

    async def open_direct(self, person: Entity) -> Room | None:
        """Return the private chat with a person, opened where the platform can; see `Rooms`."""
        agent = self._require_agent()
        adapter = agent.outbox.adapters.get(person.platform)
        try:
            opened = await adapter.open_direct(agent.id, person) if adapter is not None else None
        except Undeliverable as error:
            logger.info("no private chat with %s can be opened on %s: %s", person.id, person.platform, error)
            return None
        if opened is None:
            return None
        world, room = opened
        await agent.store.worlds.save_world(world, [room])
        await agent.store.entities.save_entities([person], room.id)
        return await agent.store.worlds.room(room.id) or room

    async def visible_to(self, person_id: UUID) -> RecallScope:
        """Return the scope of all that a person may see; see `Rooms`."""
        rooms = (await self._require_agent().store.worlds.rooms_of(person_id))[:MAX_VISIBLE_ROOMS]
        if not rooms:
            return RecallScope(person_id, person_id)  # the audience of no memory
        audiences = {audience for room in rooms for audience in (room.id, room.world_id)}
        return RecallScope(rooms[0].id, rooms[0].world_id, frozenset(audiences - {rooms[0].id, rooms[0].world_id}))

    @contextmanager
    def charge(self, room: Room, person: Entity | None = None) -> Iterator[None]:
        """Count the model calls in this block for a room and a person."""
        if current_run.get() is not None:  # the work on a message counts for its own room and author
            yield
            return
        token = current_run.set(Run(new_id(), room.id, new_id(), person.id if person is not None else None))
        try:
            yield
        finally:
            current_run.reset(token)

    async def _find_world(self, room: Room) -> World:
        stored = await self._require_agent().store.worlds.world(room.world_id)
        return stored or World(room.world_id, room.platform, "")

    def _require_agent(self) -> Agent:
        if self._agent is None:
            raise InboxClosed("the agent has not been built yet")
        return self._agent

    def _require_inbox(self) -> Inbox:
        if self._inbox is None:
            raise InboxClosed("the agent is still starting; messages are accepted once its services and plugins are up")
        return self._inbox


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
    response = await run_isolated(
        route(agent, request), label=label, timeout=None, trusted=plugin.is_trusted, logs_failure=False
    )
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


DAILY_LIMIT = "BUDGET_USD"


def build_handle(
    agent: Agent,
    config: AgentConfig,
    registry: Registry,
    inbox: Inbox,
    pipeline: MessagePipeline,
    connections: Callable[[], Sequence[ConnectionStatus]],
    meter: CostMeter,
    activity: PersonActivityRecorder,
    reloader: CharacterReloader,
    limits: CostLimits,
) -> AgentHandle:
    """Build what adapters may call on an agent; raises ConfigError for commands or room rules that clash."""
    store, events, clock = agent.store, agent.events, agent.clock
    edits = EditReporter(
        agent.id,
        store=store,
        inbox=inbox,
        outbox=agent.outbox,
        turns=pipeline.active_turns,
        events=events,
        clock=clock,
        flushes=(pipeline.traces.flush, meter.flush, activity.flush),
        show_withdrawn=lambda proposals: agent.proposals.show_withdrawn(proposals),
        drop_proposals=lambda take_over: agent.proposals.drop_taken_over(take_over),
    )
    router = build_commands(agent, registry, inbox, edits, config.secrets)
    return AgentHandle(
        agent_id=agent.id,
        read_definition=agent.read_definition,
        inbox=inbox,
        edits=edits,
        membership=MembershipReporter(agent.id, store=store, inbox=inbox, events=events, clock=clock),
        operations=Operations(
            agent.id,
            store,
            ConversationReader(store, meter.flush, pipeline.traces.flush),
            UndeliveredParts(store.ledger, agent.outbox),
            People(
                agent.id,
                store=store,
                muted=agent.muted_people,
                models=agent.models,
                flush_activity=activity.flush,
                clock=clock,
            ),
            edits.erase_entity,
            edits.ignore_person,
            edits.take_over,
            Proposals(agent.id, store, agent.outbox, lambda: agent.settings.load(ApprovalSettings), clock),
            partial(_add_costs, meter),
            agent.say,
        ),
        activity=AgentActivity(
            store,
            agent.models.statuses,
            cost_limit=lambda: sum(limit.maximum for limit in agent.budget.limits if limit.setting == DAILY_LIMIT),
            recent_costs=meter.recent_costs,
            clock=clock,
        ),
        tasks=TaskControl(store.tasks, clock),
        world_settings=agent.world_settings,
        limits=limits,
        catalog=lambda: agent.catalog,
        room_rules=reloader.room_rules,
        commands=router.specs,
        run_command=router.dispatcher.dispatch,
        add_commands=router.dispatcher.add_commands,
        select_choice=router.choices.select,
        inline=router.inline,
        reload=reloader.reload,
        events=events,
        routes=bind_routes(agent, config.plugins),
        read_picture=CharacterPicture(agent).read,
        connections=connections,
        note_typing=pipeline.debounce.note_typing,
    )


@dataclass(frozen=True, slots=True)
class CommandRouter:
    """What runs the commands and applies the pressed buttons of one agent."""

    dispatcher: CommandDispatcher
    choices: ChoiceHandler
    inline: InlineQuestions
    specs: tuple[CommandSpec, ...]


def build_commands(
    agent: Agent, registry: Registry, inbox: Inbox, edits: EditReporter, secrets: Collection[str] = ()
) -> CommandRouter:
    """Build the router of built-in and plugin commands; raises PluginError where two have the same name."""
    builtin = {entry.spec.name: entry for entry in BuiltinCommands(inbox, edits, registry.plugins, secrets).commands()}
    plugin_by_command = {entry.name: entry.plugin for entry in agent.catalog.commands}
    if duplicates := builtin.keys() & plugin_by_command.keys():
        name = min(duplicates)
        raise PluginError(f"command {name} of plugin {plugin_by_command[name]!r}: every bot has one of that name")
    commands = builtin | {
        spec.name: replace(registry.commands[spec.name], spec=spec) for spec in agent.catalog.commands
    }
    receipts = CommandReceipts(agent, inbox)
    dispatcher = CommandDispatcher(agent, commands, receipts, secrets)
    specs = (*(entry.spec for entry in builtin.values()), *agent.catalog.commands)
    choices = ChoiceHandler(agent, dispatcher, receipts, inbox)
    return CommandRouter(dispatcher, choices, InlineQuestions(agent, registry, receipts), specs)


Connections = Callable[[], Sequence[ConnectionStatus]]


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """A running agent, the parts that the runtime starts and stops, and why plugins of it are off."""

    agent: Agent
    registry: Registry
    inbox: Inbox
    handle: AgentHandle
    post_scheduler: PostScheduler
    pipeline: MessagePipeline
    inactive: Mapping[str, str] = field(default_factory=dict)


@asynccontextmanager
async def run_agent(
    config: AgentConfig,
    shutdown_deadline: ShutdownDeadline | None = None,
    schemas: Schemas = NO_SCHEMAS,
    connections: Connections = tuple,
    memory: MemorySemaphore | None = None,
    *,
    is_strict: bool = False,
) -> AsyncIterator[AgentRuntime]:
    """Start an agent, and stop it at the end in reverse order, within `shutdown_deadline`.

    `schemas` are those of all plugins in this process, for agents that share a database; `connections`
    returns the connection of every account of the process; `memory` is what its agents share, by default as
    MEMORY_LIMIT says. Raises ConfigError where settings or plugins do not fit together. A plugin whose
    `init` fails is off, with all that require it; with `is_strict`, or where it brings the store or the only
    large text model, its error is raised. So it is with those that
    are off in `config`. A service that does not start is logged and tried again.
    """
    shutdown_deadline = shutdown_deadline or ShutdownDeadline()
    schemas = schemas or collect_schemas(config.plugins)
    memory = memory or open_memory(config.settings)
    inactive = dict(config.inactive)
    for name, cause in inactive.items():
        if is_strict:
            raise PluginError(f"plugin {name!r} is off: {cause}")
        logger.error("plugin %r is off: %s", name, cause)
    async with AsyncExitStack() as stack:
        while True:
            active_config = replace(config, plugins=with_inactive_stubs(config.plugins, inactive), memory=memory)
            starting = _running_agent(active_config, shutdown_deadline, schemas, connections)
            try:
                agent_runtime = await stack.enter_async_context(starting)
                break
            except PluginInitError as error:
                also_inactive = find_inactive(active_config.plugins, error.name, error.cause)
                if is_strict or is_essential(config.plugins, {**inactive, **also_inactive}):
                    raise
            for name, cause in also_inactive.items():
                logger.error("plugin %r is off: %s", name, cause)
            inactive |= also_inactive
        if config.build_tools is not None:
            tools = config.build_tools(agent_runtime.agent, agent_runtime.registry, inactive)
            agent_runtime.handle.operator_tools = tools
        yield replace(agent_runtime, inactive=inactive)


@asynccontextmanager
async def _running_agent(
    config: AgentConfig, shutdown_deadline: ShutdownDeadline, schemas: Schemas, connections: Connections
) -> AsyncIterator[AgentRuntime]:
    """Enter the parts of an agent, each after those that it uses; they are left in reverse order."""
    core, registry = config.settings.load(CoreSettings), Registry(config.plugins)
    config.settings.load(CareSettings)  # what is wrong there is reported now
    config.settings.load(ApprovalSettings)
    money, budget = config.settings.operator_only().load(BudgetSettings), Budget(clock=config.clock)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        store = await enter(config.open_store(schemas))
        _set_role(config, store)
        loaded_config, (config, changed_settings) = config, await _with_changed_settings(config, store)
        components, rooms = await _build_access(registry, core, changed_settings)
        limits, prices = CostLimits(money, store, budget), load_prices(money.model_prices)
        meter = await enter(_build_meter(config, store, prices, budget, shutdown_deadline, limits))
        events = await enter(EventBus(shutdown_deadline=shutdown_deadline))
        models = _build_router(config, events, meter, budget, prices)
        outbox = _build_outbox(config, core, store, events, shutdown_deadline)
        outbox.approval = Approval.of(config.settings)
        definition = CurrentDefinition(config.definition)
        agent = Agent(
            id=config.agent_id,
            read_definition=definition.read,
            models=models,
            store=store,
            events=events,
            outbox=outbox,
            speech=_build_speech(core, models, outbox),
            services=Services(),
            components=components,
            rooms=rooms,
            filters=await _build_filters(config, core, registry),
            fetcher=await enter(Fetcher(environment=config.settings.network_environment())),
            budget=budget,
            memory=config.memory,
            clock=config.clock,
            folder=config.folder,
            muted_people=await load_muted_people(store),
        )
        await store.entities.save_entities([Entity(agent.id, "greenroom", str(agent.id), (config.character.name,))])
        bind_components(agent, config.plugins, components, rooms)
        await enter(run_services(agent, config.plugins, shutdown_deadline))
        await initialize_plugins(agent, config.plugins)
        apply_steps(agent, parse_degrade(config.settings.load(BudgetSettings).degrade))
        check_moderation(agent)
        pipeline = MessagePipeline(agent, registry, core)
        activity = await enter(PersonActivityRecorder(store.entities, events, shutdown_deadline=shutdown_deadline))
        inbox = _build_inbox(agent, config, pipeline, activity, shutdown_deadline)
        pipeline.turn_queue.is_processing = inbox.processor.is_processing
        agent.outbox.on_reopened = inbox.processor.reopen
        inbox.processor.on_resumed = pipeline.turn_queue.expect
        pipeline.turn_queue.resume_slots = inbox.processor.resume_slots
        models.leave_slot = inbox.processor.resume_slots.leave
        rooms.start(inbox)
        post_scheduler = PostScheduler(agent, registry)
        await enter(pipeline.evaluated)
        await enter(pipeline.traces)
        stack.push_async_callback(events.flush)  # listeners may use services, which stop after this
        if not config.is_idle and config.role.answers:
            await enter(MemoryRetention(store.memories, registry.memory_kinds, config.clock))
            await enter(ProposalExpiry(lambda: agent.proposals.expire()))
            workers = [post_scheduler.worker, ConfirmedActions(registry, pipeline.active_turns).worker]
            await enter(Scheduler(agent, registry, workers, shutdown_deadline=shutdown_deadline))
        await enter(WorkSharingLoop(store, inbox, agent.outbox, agent.muted_people, config.clock))
        reloader = CharacterReloader(loaded_config, agent, definition, pipeline)
        handle = build_handle(agent, config, registry, inbox, pipeline, connections, meter, activity, reloader, limits)
        if not config.is_idle:
            await enter(handle.activity)
        yield AgentRuntime(agent, registry, inbox, handle, post_scheduler, pipeline)


async def _add_costs(meter: CostMeter, entries: Sequence[CostEntry]) -> None:
    meter.add(entries)
    await meter.flush()


def _set_role(config: AgentConfig, store: Store) -> None:
    """Set the role of this process in its store; raise ConfigError if there can be one process only."""
    if store.sharing is not None:
        store.sharing.role = config.role
    elif config.role is not ProcessRole.ALL:
        raise ConfigError(
            f"BOT_ROLE is {config.role}, and the data of {config.character.name} is used by one process only: "
            "processes with roles share a PostgreSQL database (set POSTGRES_URL), or set BOT_ROLE=all"
        )


async def _with_changed_settings(config: AgentConfig, store: Store) -> tuple[AgentConfig, dict[str, str]]:
    """Return the configuration with what plugins have set, and those values, a layer that may change later."""
    changed = await load_stored_settings(store, config.plugins)
    return replace(config, settings=config.settings.with_layer(Layer("a plugin", changed))), changed


async def _build_access(
    registry: Registry, core: CoreSettings, changed_settings: dict[str, str]
) -> tuple[AgentComponents, AgentRooms]:
    """Return what the agent lends to its plugins; raises SettingError where secrets cannot be encrypted."""
    world_settings = await open_world_settings(registry, core)
    return AgentComponents(registry, changed_settings, world_settings), AgentRooms(registry)


async def _build_filters(config: AgentConfig, core: CoreSettings, registry: Registry) -> ContentStage:
    """Return the filters of an agent; raises ConfigError for a list of words that cannot be read."""
    settings = config.settings.operator_only()
    hosts = settings.load(CoreSettings).link_hosts
    filters = tuple(registry.filters.values())
    return await asyncio.to_thread(
        build_content_stage, filters, settings.load(FilterSettings), hosts, registry.trusted_ids
    )


def open_memory(settings: Settings) -> MemorySemaphore:
    """Return the memory that all agents of a process share, as the operator has limited it."""
    return MemorySemaphore(settings.operator_only().load(CoreSettings).memory_limit)


def _build_router(
    config: AgentConfig, events: EventBus, meter: CostMeter, budget: Budget, prices: PriceList
) -> ModelRouter:
    model_settings = config.settings.load(ModelSettings)
    record = usage_recorder(events, config.agent_id, meter.record)
    on_retry = retry_reporter(events, config.agent_id)
    policy = CallPolicy(
        first_seconds=model_settings.model_timeout,
        pause_seconds=model_settings.model_token_timeout,
        max_retries=model_settings.model_retries,
        memory=config.memory,
    )
    reservations = ReservationLedger(budget, prices, record, meter.begin)
    sampling = read_sampling(config.settings)
    return ModelRouter(
        reserve=reservations.reserve,
        on_retry=on_retry,
        record=record,
        list_owners=list_call_owners,
        policy=policy,
        sampling=sampling,
        answer_form=model_settings.model_answer_form,
    )


def _build_inbox(
    agent: Agent,
    config: AgentConfig,
    pipeline: MessagePipeline,
    activity: PersonActivityRecorder,
    shutdown_deadline: ShutdownDeadline,
) -> Inbox:
    return Inbox(
        agent.store.ledger,
        pipeline.process_message,
        ownership=agent.outbox.ownership,
        on_closed=activity.then(agent.outbox.on_closed),
        clock=config.clock,
        shutdown_deadline=shutdown_deadline,
        secrets=config.secrets,
        forgotten_words=ForgottenWords(agent.store.ledger, agent.store.entities),
        marks=agent.store.marks,
    )


def _build_speech(core: CoreSettings, models: ModelRouter, outbox: Outbox) -> Speech:
    mode = VoiceReplies(core.voice_replies)
    return Speech(models, outbox.adapters.get, outbox.filter_text, mode=mode, max_length=core.voice_max_length)


def _build_meter(
    config: AgentConfig,
    store: Store,
    prices: PriceList,
    budget: Budget,
    shutdown_deadline: ShutdownDeadline,
    limits: CostLimits,
) -> CostMeter:
    if store.sharing is not None:
        budget.sharing = SharedBudget(store.sharing.limits)
    return CostMeter(
        store.costs, prices, budget, clock=config.clock, shutdown_deadline=shutdown_deadline, limits=limits
    )


def _build_outbox(
    config: AgentConfig, core: CoreSettings, store: Store, events: EventBus, shutdown_deadline: ShutdownDeadline
) -> Outbox:
    return Outbox(
        store.ledger,
        events,
        config.agent_id,
        secrets=config.secrets,
        link_policy=LinkPolicy(config.settings.operator_only().load(CoreSettings).link_hosts),
        is_streaming=core.streaming,
        sharing=store.sharing,
        clock=config.clock,
        shutdown_deadline=shutdown_deadline,
    )
