"""`AgentRuntime`: one running agent, from its configuration to its handle."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from bot.adapter.connection_status import ConnectionStatus
from bot.agent import Agent, CurrentDefinition, Services
from bot.background.confirmed_actions import ConfirmedActions
from bot.background.memory_retention import MemoryRetention
from bot.background.posting import PostScheduler
from bot.background.scheduler import Scheduler
from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.tasks import MemorySemaphore
from bot.costs.budget import Budget, BudgetSettings
from bot.costs.limits import CostLimits
from bot.costs.metering import CostMeter, ReservationLedger
from bot.costs.prices import PriceList, load_prices
from bot.costs.shared_budget import SharedBudget
from bot.domain.environment import Entity
from bot.errors import ConfigError
from bot.event_bus import EventBus
from bot.fetch.client import Fetcher
from bot.inbound.agent_handle import AgentHandle
from bot.inbound.forgotten_words import ForgottenWords
from bot.inbound.inbox import Inbox
from bot.inbound.people import load_muted_people
from bot.inbound.person_activity import PersonActivityRecorder
from bot.inbound.work_sharing import WorkSharingLoop
from bot.models.attempt import CallTimeouts
from bot.models.retry import CallPolicy, RetryPolicy
from bot.models.router import ModelRouter
from bot.models.settings import ModelSettings, read_sampling
from bot.outbound.content_filter import LinkPolicy
from bot.outbound.outbox import Outbox
from bot.outbound.speech import Speech, VoiceReplies
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.plugin import collect_schemas
from bot.plugin_system.registry import Registry
from bot.runs import list_call_owners, retry_reporter, usage_recorder
from bot.runtime.agent_access import AgentComponents, AgentRooms, load_stored_settings
from bot.runtime.agent_config import AgentConfig
from bot.runtime.character_reload import CharacterReloader
from bot.runtime.handle_factory import build_handle
from bot.runtime.plugin_lifecycle import (
    PluginInitError,
    bind_components,
    find_inactive,
    initialize_plugins,
    is_essential,
    run_services,
    with_inactive_stubs,
)
from bot.runtime.world_settings import open_world_settings
from bot.settings import CoreSettings, Layer, Settings
from bot.store.protocols import Schemas, Store
from bot.store.storage import NO_SCHEMAS
from bot.store.work_sharing import ProcessRole

logger = logging.getLogger(__name__)
Connections = Callable[[], Sequence[ConnectionStatus]]


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """A running agent, the parts that the runtime starts and stops, and why plugins of it are off."""

    agent: Agent
    registry: Registry
    inbox: Inbox
    handle: AgentHandle
    post_scheduler: PostScheduler
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
    large text model, its error is raised. A service that does not start is logged and tried again.
    """
    shutdown_deadline = shutdown_deadline or ShutdownDeadline()
    schemas = schemas or collect_schemas(config.plugins)
    memory = memory or open_memory(config.settings)
    inactive: dict[str, str] = {}
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
        pipeline = MessagePipeline(agent, registry, core)
        activity = await enter(PersonActivityRecorder(store.entities, events, shutdown_deadline=shutdown_deadline))
        inbox = _build_inbox(agent, config, pipeline, activity, shutdown_deadline)
        pipeline.turn_queue.is_processing = inbox.processor.is_processing
        inbox.processor.on_resumed = pipeline.turn_queue.expect
        pipeline.turn_queue.resume_slots = inbox.processor.resume_slots
        rooms.start(inbox)
        post_scheduler = PostScheduler(agent, registry)
        await enter(pipeline.evaluated)
        await enter(pipeline.traces)
        stack.push_async_callback(events.flush)  # listeners may use services, which stop after this
        if not config.is_idle and config.role.answers:
            await enter(MemoryRetention(store.memories, registry.memory_kinds, config.clock))
            workers = [post_scheduler.worker, ConfirmedActions(registry, pipeline.active_turns).worker]
            await enter(Scheduler(agent, registry, workers, shutdown_deadline=shutdown_deadline))
        await enter(WorkSharingLoop(store, inbox, agent.outbox, agent.muted_people, config.clock))
        reloader = CharacterReloader(loaded_config, agent, definition, pipeline)
        handle = build_handle(agent, config, registry, inbox, pipeline, connections, meter, activity, reloader, limits)
        if not config.is_idle:
            await enter(handle.activity)
        yield AgentRuntime(agent, registry, inbox, handle, post_scheduler)


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
        CallTimeouts(first=model_settings.model_timeout, token=model_settings.model_token_timeout),
        RetryPolicy(max_retries=model_settings.model_retries),
        memory=config.memory,
    )
    reservations = ReservationLedger(budget, prices, record)
    sampling = read_sampling(config.settings)
    return ModelRouter(
        record=record,
        reserve=reservations.reserve,
        on_retry=on_retry,
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
    )


def _build_speech(core: CoreSettings, models: ModelRouter, outbox: Outbox) -> Speech:
    mode = VoiceReplies(core.voice_replies)
    return Speech(models, outbox.adapter, outbox.filter_text, mode=mode, max_length=core.voice_max_length)


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
    meter = CostMeter(
        store.costs,
        prices,
        budget,
        clock=config.clock,
        shutdown_deadline=shutdown_deadline,
        is_shared=store.sharing is not None,
        load_limits=limits.load,
    )
    limits.bind(meter.reload)
    return meter


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
