"""One character at work: from its file and its plugins to a running agent."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from bot.adapter.connection_status import ConnectionStatus
from bot.adapter.room_rules import parse_room_rules
from bot.agent import Agent, Services
from bot.background.posting import PostScheduler
from bot.background.scheduler import Scheduler
from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.costs.budget import Budget, BudgetSettings, build_limits
from bot.costs.metering import CostMeter, ReservationLedger
from bot.costs.prices import PriceList, load_prices
from bot.domain.character import Character
from bot.domain.environment import Entity
from bot.domain.ids import derived_id
from bot.domain.ledger import Receipt
from bot.errors import PluginError
from bot.event_bus import EventBus
from bot.fetch.client import Fetcher
from bot.inbound.agent_handle import AgentHandle, ConversationReader
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox
from bot.inbound.membership import MembershipReporter
from bot.inbound.work_sharing import WorkSharingLoop
from bot.models.attempt import CallTimeouts, Record
from bot.models.retry import CallPolicy, RetryPolicy
from bot.models.router import ModelRouter
from bot.models.settings import ModelSettings, read_sampling
from bot.outbound.content_filter import LinkPolicy
from bot.outbound.outbox import Outbox
from bot.outbound.undelivered import UndeliveredParts
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.plugin import Plugin, collect_schemas, find_storage
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS
from bot.runs import usage_recorder
from bot.runtime.handle_factory import build_commands
from bot.runtime.plugin_lifecycle import (
    PluginInitError,
    bind_components,
    bind_routes,
    find_inactive,
    initialize_plugins,
    is_essential,
    run_services,
    with_inactive_stubs,
)
from bot.settings import CoreSettings, Settings, SettingsModel
from bot.store.inmemory import InMemoryStore
from bot.store.protocols import Schemas, Store
from bot.store.storage import NO_SCHEMAS

logger = logging.getLogger(__name__)
NETWORK_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is made of; `folder` is where the character's file lies.

    Without a `store` a plugin's is opened, else one in memory. One that `is_at_rest` begins no task that is
    due: it is there for one errand.
    """

    character: Character
    plugins: tuple[Plugin, ...]
    settings: Settings
    store: Store | None = None
    clock: Clock = system_clock
    folder: Path | None = None
    is_idle: bool = False

    @property
    def agent_id(self) -> UUID:
        """The agent's id: the character's own, else the one its name always has."""
        return self.character.id or derived_id("agent", self.character.name)


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
    connections: Callable[[], Sequence[ConnectionStatus]] = tuple,
    *,
    is_strict: bool = False,
) -> AsyncIterator[AgentRuntime]:
    """Bring a character to life and, at the end, put it to rest: what was opened last closes first.

    `schemas` are those of all plugins in this process, for agents that share a database; `links` gives how
    all its accounts stand with their platforms.
    Services stop within five seconds each, and all of it within what `patience` leaves.
    Raises ConfigError where settings or plugins do not fit together. A plugin whose `init` fails is off, and
    what requires it; with `is_strict`, or where nothing is kept or nobody writes without it, that is an
    error too. A service that does not start is noted and tried again; the others run.
    """
    shutdown_deadline, schemas = (
        shutdown_deadline or ShutdownDeadline(),
        schemas or collect_schemas(config.plugins),
    )
    inactive: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        while True:
            active_config = replace(config, plugins=with_inactive_stubs(config.plugins, inactive))
            try:
                agent_runtime = await stack.enter_async_context(
                    _running_agent(active_config, shutdown_deadline, schemas)
                )
                break
            except PluginInitError as error:
                also_inactive = find_inactive(active_config.plugins, error.name, error.cause)
                if is_strict or is_essential(config.plugins, {**inactive, **also_inactive}):
                    raise
            for name, cause in also_inactive.items():
                logger.error("plugin %r is off: %s", name, cause)
            inactive |= also_inactive
        yield replace(
            agent_runtime, handle=replace(agent_runtime.handle, connections=connections), inactive=inactive
        )


@asynccontextmanager
async def _running_agent(
    config: AgentConfig, shutdown_deadline: ShutdownDeadline, schemas: Schemas
) -> AsyncIterator[AgentRuntime]:
    core = config.settings.load(CoreSettings)
    agent_id = config.agent_id
    registry = Registry(config.plugins)
    money_settings = config.settings.operator_only().load(BudgetSettings)
    budget = Budget(build_limits(money_settings), config.clock)
    prices = load_prices(money_settings.model_prices, assume_unknown=money_settings.has_money_budget)
    async with (
        _open_store(config, agent_id, schemas) as store,
        _build_meter(config, store, prices, budget, shutdown_deadline) as meter,
        Fetcher(environment=_network_environment(config.settings)) as fetcher,
        EventBus(shutdown_deadline=shutdown_deadline) as events,
    ):
        agent = Agent(
            id=agent_id,
            character=config.character,
            settings=config.settings,
            models=_build_router(
                config.settings, usage_recorder(events, agent_id, meter.record), budget, prices
            ),
            store=store,
            events=events,
            outbox=_build_outbox(config, store, events, shutdown_deadline),
            services=Services(),
            catalog=registry.build_catalog(),
            fetcher=fetcher,
            budget=budget,
            templates=_merge_templates(config),
            clock=config.clock,
            folder=config.folder,
        )
        self_entity = Entity(agent_id, "greenroom", str(agent_id), (config.character.name,))
        await store.entities.save_entities([self_entity])
        bind_components(agent, config.plugins)
        async with run_services(agent, config.plugins, shutdown_deadline):
            await initialize_plugins(agent, config.plugins)
            processor = MessagePipeline(agent, registry, core)
            inbox = Inbox(
                store.ledger,
                processor.process_message,
                ownership=agent.outbox.ownership,
                on_closed=_draft_remover(agent.outbox),
                clock=config.clock,
                shutdown_deadline=shutdown_deadline,
            )
            # Entered again: listeners are told what has happened as long as the services are there.
            post_scheduler = PostScheduler(agent, registry)
            scheduler = Scheduler(
                agent, registry, [post_scheduler.worker], shutdown_deadline=shutdown_deadline
            )
            sharing = WorkSharingLoop(store, inbox, agent.outbox, config.clock)
            async with processor.evaluated, events, nullcontext() if config.is_idle else scheduler, sharing:
                handle = _build_handle(agent, config, registry, inbox, processor)
                yield AgentRuntime(agent, registry, inbox, handle, post_scheduler)


def _draft_remover(outbox: Outbox) -> Callable[[Receipt], None]:
    """Give what takes away what is still seen of a reply, once its message has come to its end without it."""

    def remove_draft(receipt: Receipt) -> None:
        if receipt.turn_id is not None and outbox.has_draft(receipt.turn_id):
            outbox.remove_draft(receipt.turn_id)

    return remove_draft


def _build_router(settings: Settings, record: Record, budget: Budget, prices: PriceList) -> ModelRouter:
    model_settings = settings.load(ModelSettings)
    policy = CallPolicy(
        CallTimeouts(first=model_settings.model_timeout),
        RetryPolicy(max_retries=model_settings.model_retries),
    )
    reservations = ReservationLedger(budget, prices, record)
    return ModelRouter(
        record=record, reserve=reservations.reserve, policy=policy, sampling=read_sampling(settings)
    )


def _network_environment(settings: Settings) -> dict[str, str]:
    """Give what says how the outside is reached: the operator's word alone."""
    operator = settings.operator_only()
    return {name: value for name in NETWORK_VARIABLES if (value := operator.get(name))}


@asynccontextmanager
async def _open_store(config: AgentConfig, agent_id: UUID, schemas: Schemas) -> AsyncIterator[Store]:
    if config.store is not None:
        yield config.store
        return
    storage = find_storage(config.plugins)
    if storage is None:
        if schema_names := sorted(collect_schemas(config.plugins)):
            raise PluginError(
                f"{', '.join(schema_names)} needs a database for its tables: give the character the sql "
                "plugin"
            )
        yield InMemoryStore(config.clock)
        return
    async with storage.open(agent_id, config.settings, schemas) as store:
        yield store


def _build_meter(
    config: AgentConfig, store: Store, prices: PriceList, budget: Budget, shutdown_deadline: ShutdownDeadline
) -> CostMeter:
    return CostMeter(
        store.costs,
        prices,
        budget,
        clock=config.clock,
        shutdown_deadline=shutdown_deadline,
        is_shared=store.sharing is not None,
    )


def _build_outbox(
    config: AgentConfig, store: Store, events: EventBus, shutdown_deadline: ShutdownDeadline
) -> Outbox:
    return Outbox(
        store.ledger,
        events,
        config.agent_id,
        secrets=_collect_secrets(config),
        link_policy=LinkPolicy(config.settings.operator_only().load(CoreSettings).link_hosts),
        is_streaming=config.settings.load(CoreSettings).streaming,
        sharing=store.sharing,
        clock=config.clock,
        shutdown_deadline=shutdown_deadline,
    )


def _collect_secrets(config: AgentConfig) -> frozenset[str]:
    models: list[type[SettingsModel]] = [plugin.settings for plugin in config.plugins if plugin.settings]
    return config.settings.secrets(*models)


def _merge_templates(config: AgentConfig) -> dict[str, str]:
    templates = dict(DEFAULTS)
    for plugin in config.plugins:
        templates.update(plugin.templates)
    return {**templates, **config.character.templates}


def _build_handle(
    agent: Agent, config: AgentConfig, registry: Registry, inbox: Inbox, processor: MessagePipeline
) -> AgentHandle:
    edits = EditReporter(
        agent.id,
        store=agent.store,
        inbox=inbox,
        outbox=agent.outbox,
        turns=processor.active_turns,
        events=agent.events,
        clock=agent.clock,
    )
    router = build_commands(agent, registry, inbox, edits, _collect_secrets(config))
    return AgentHandle(
        agent_id=agent.id,
        character=agent.character,
        settings=agent.settings,
        inbox=inbox,
        edits=edits,
        membership=MembershipReporter(
            agent.id, store=agent.store, inbox=inbox, events=agent.events, clock=agent.clock
        ),
        conversations=ConversationReader(agent.store),
        undelivered=UndeliveredParts(agent.store.ledger, agent.outbox),
        events=agent.events,
        catalog=agent.catalog,
        room_rules=parse_room_rules(agent.character),
        commands=router.specs,
        run_command=router.dispatcher.dispatch,
        select_choice=router.choices.select,
        routes=bind_routes(agent, config.plugins),
    )
