"""One character at work: from its file and its plugins to a running agent."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from bot.adapter.connection_status import Link
from bot.adapter.room_rules import rules_of
from bot.agent import Agent, Services
from bot.background.posting import Poster
from bot.background.scheduler import Scheduler
from bot.concurrency.clock import Clock, Patience, system_clock
from bot.costs.budget import Budget, MoneySettings, limits_of
from bot.costs.metering import Meter, Till
from bot.costs.prices import PriceList, read_prices
from bot.domain.character import Character
from bot.domain.environment import Entity
from bot.domain.ids import derived_id
from bot.domain.ledger import Receipt
from bot.errors import PluginError
from bot.event_bus import EventBus
from bot.fetch.client import Fetcher
from bot.inbound.agent_handle import Door, Records
from bot.inbound.edits import Changes
from bot.inbound.inbox import Inbox
from bot.inbound.membership import News
from bot.inbound.work_sharing import SharedWork
from bot.models.attempt import Deadlines, Record
from bot.models.retry import Manner, Retries
from bot.models.router import ModelRouter
from bot.models.settings import ModelSettings, read_sampling
from bot.outbound.content_filter import Hyperlinks
from bot.outbound.outbox import Outbox
from bot.outbound.undelivered import Unsent
from bot.pipeline.process_message import Processor
from bot.plugin_system.plugin import Plugin, schemas_of, storage_of
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS
from bot.runs import recorder
from bot.runtime.handle_factory import open_counter
from bot.runtime.plugin_lifecycle import (
    NotSetUp,
    bind,
    is_vital,
    off_without,
    routes_of,
    running_services,
    set_up,
    without,
)
from bot.settings import CoreSettings, Settings, SettingsModel
from bot.store.inmemory import InMemoryStore
from bot.store.protocols import Schemas, Store
from bot.store.storage import NO_SCHEMAS

logger = logging.getLogger(__name__)
OUTSIDE = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class Blueprint:
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
    is_at_rest: bool = False

    @property
    def agent_id(self) -> UUID:
        """The agent's id: the character's own, else the one its name always has."""
        return self.character.id or derived_id("agent", self.character.name)


@dataclass(frozen=True, slots=True)
class Resident:
    """A running agent, the parts that the runtime starts and stops, and why plugins of it are off."""

    agent: Agent
    registry: Registry
    inbox: Inbox
    door: Door
    poster: Poster
    off: Mapping[str, str] = field(default_factory=dict)


@asynccontextmanager
async def move_in(
    plan: Blueprint,
    patience: Patience | None = None,
    schemas: Schemas = NO_SCHEMAS,
    links: Callable[[], Sequence[Link]] = tuple,
    *,
    is_strict: bool = False,
) -> AsyncIterator[Resident]:
    """Bring a character to life and, at the end, put it to rest: what was opened last closes first.

    `schemas` are those of all plugins in this process, for agents that share a database; `links` gives how
    all its accounts stand with their platforms.
    Services stop within five seconds each, and all of it within what `patience` leaves.
    Raises ConfigError where settings or plugins do not fit together. A plugin whose `init` fails is off, and
    what requires it; with `is_strict`, or where nothing is kept or nobody writes without it, that is an
    error too. A service that does not start is noted and tried again; the others run.
    """
    patience, schemas = patience or Patience(), schemas or schemas_of(plan.plugins)
    off: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        while True:
            rest = replace(plan, plugins=without(plan.plugins, off))
            try:
                resident = await stack.enter_async_context(_at_work(rest, patience, schemas))
                break
            except NotSetUp as error:
                more = off_without(rest.plugins, error.name, error.cause)
                if is_strict or is_vital(plan.plugins, {**off, **more}):
                    raise
            for name, cause in more.items():
                logger.error("plugin %r is off: %s", name, cause)
            off |= more
        yield replace(resident, door=replace(resident.door, links=links), off=off)


@asynccontextmanager
async def _at_work(plan: Blueprint, patience: Patience, schemas: Schemas) -> AsyncIterator[Resident]:
    core = plan.settings.load(CoreSettings)
    agent_id = plan.agent_id
    registry = Registry(plan.plugins)
    money = plan.settings.of_operator().load(MoneySettings)
    budget = Budget(limits_of(money), plan.clock)
    prices = read_prices(money.model_prices, are_needed=money.has_money_budget)
    async with (
        _store(plan, agent_id, schemas) as store,
        _meter(plan, store, prices, budget, patience) as meter,
        Fetcher(environment=_environment(plan.settings)) as fetcher,
        EventBus(patience=patience) as events,
    ):
        agent = Agent(
            id=agent_id,
            character=plan.character,
            settings=plan.settings,
            models=_router(plan.settings, recorder(events, agent_id, meter.book), budget, prices),
            store=store,
            events=events,
            outbox=_outbox(plan, store, events, patience),
            services=Services(),
            catalog=registry.catalog(),
            fetcher=fetcher,
            budget=budget,
            templates=_templates(plan),
            clock=plan.clock,
            folder=plan.folder,
        )
        own = Entity(agent_id, "greenroom", str(agent_id), (plan.character.name,))
        await store.entities.save_entities([own])
        bind(agent, plan.plugins)
        async with running_services(agent, plan.plugins, patience):
            await set_up(agent, plan.plugins)
            processor = Processor(agent, registry, core)
            inbox = Inbox(
                store.ledger,
                processor.process_message,
                holds=_holds(store),
                reaches=agent.outbox.reaches,
                ended=_letting_go(agent.outbox),
                clock=plan.clock,
                patience=patience,
            )
            # Entered again: listeners are told what has happened as long as the services are there.
            poster = Poster(agent, registry)
            scheduler = Scheduler(agent, registry, [poster.worker], patience=patience)
            sharing = SharedWork(store, inbox, agent.outbox, plan.clock)
            async with processor.learnt, events, nullcontext() if plan.is_at_rest else scheduler, sharing:
                door = _door(agent, plan, registry, inbox, processor)
                yield Resident(agent, registry, inbox, door, poster)


def _letting_go(outbox: Outbox) -> Callable[[Receipt], None]:
    """Give what takes away what is still seen of a reply, once its message has come to its end without it."""

    def let_go(receipt: Receipt) -> None:
        if receipt.turn_id is not None and outbox.has_draft(receipt.turn_id):
            outbox.take_back(receipt.turn_id)

    return let_go


def _router(settings: Settings, record: Record, budget: Budget, prices: PriceList) -> ModelRouter:
    how = settings.load(ModelSettings)
    manner = Manner(Deadlines(first=how.model_timeout), Retries(most=how.model_retries))
    till = Till(budget, prices, record)
    return ModelRouter(record=record, reserve=till.reserve, manner=manner, sampling=read_sampling(settings))


def _environment(settings: Settings) -> dict[str, str]:
    """Give what says how the outside is reached: the operator's word alone."""
    operator = settings.of_operator()
    return {name: value for name in OUTSIDE if (value := operator.get(name))}


@asynccontextmanager
async def _store(plan: Blueprint, agent_id: UUID, schemas: Schemas) -> AsyncIterator[Store]:
    if plan.store is not None:
        yield plan.store
        return
    storage = storage_of(plan.plugins)
    if storage is None:
        if own := sorted(schemas_of(plan.plugins)):
            raise PluginError(
                f"{', '.join(own)} needs a database for its tables: give the character the sql plugin"
            )
        yield InMemoryStore(plan.clock)
        return
    async with storage.open(agent_id, plan.settings, schemas) as store:
        yield store


def _meter(plan: Blueprint, store: Store, prices: PriceList, budget: Budget, patience: Patience) -> Meter:
    return Meter(
        store.spending,
        prices,
        budget,
        clock=plan.clock,
        patience=patience,
        is_shared=store.sharing is not None,
    )


def _outbox(plan: Blueprint, store: Store, events: EventBus, patience: Patience) -> Outbox:
    return Outbox(
        store.ledger,
        events,
        plan.agent_id,
        secrets=_secrets(plan),
        hyperlinks=Hyperlinks(plan.settings.of_operator().load(CoreSettings).link_hosts),
        streams=plan.settings.load(CoreSettings).streaming,
        holds=_holds(store),
        clock=plan.clock,
        patience=patience,
    )


def _holds(store: Store) -> Callable[[UUID], bool]:
    """Give what tells whether a room is this process's work: every one is, where nobody else works."""
    return store.sharing.holds if store.sharing is not None else lambda room_id: True


def _secrets(plan: Blueprint) -> frozenset[str]:
    models: list[type[SettingsModel]] = [plugin.settings for plugin in plan.plugins if plugin.settings]
    return plan.settings.secrets(*models)


def _templates(plan: Blueprint) -> dict[str, str]:
    templates = dict(DEFAULTS)
    for plugin in plan.plugins:
        templates.update(plugin.templates)
    return {**templates, **plan.character.templates}


def _door(agent: Agent, plan: Blueprint, registry: Registry, inbox: Inbox, processor: Processor) -> Door:
    changes = Changes(
        agent.id,
        store=agent.store,
        inbox=inbox,
        outbox=agent.outbox,
        work=processor.underway,
        events=agent.events,
        clock=agent.clock,
    )
    counter = open_counter(agent, registry, inbox, changes, _secrets(plan))
    return Door(
        agent_id=agent.id,
        character=agent.character,
        settings=agent.settings,
        inbox=inbox,
        changes=changes,
        news=News(agent.id, store=agent.store, inbox=inbox, events=agent.events, clock=agent.clock),
        records=Records(agent.store),
        unsent=Unsent(agent.store.ledger, agent.outbox),
        events=agent.events,
        catalog=agent.catalog,
        rules=rules_of(agent.character),
        commands=counter.specs,
        command=counter.desk.answer,
        chosen=counter.presses.chosen,
        routes=routes_of(agent, plan.plugins),
    )
