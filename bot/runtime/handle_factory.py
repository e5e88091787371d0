"""Builds the `AgentHandle` of an agent with its commands, choices, edits and membership."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from bot.adapter.connection_status import ConnectionStatus
from bot.agent import Agent
from bot.commands.builtin import BuiltinCommands
from bot.commands.choices import ChoiceHandler
from bot.commands.dispatcher import CommandDispatcher
from bot.commands.receipts import CommandReceipts
from bot.costs.limits import CostLimits
from bot.costs.metering import CostMeter
from bot.domain.component_specs import CommandSpec
from bot.errors import PluginError
from bot.inbound.activity import AgentActivity
from bot.inbound.agent_handle import AgentHandle, ConversationReader
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox
from bot.inbound.membership import MembershipReporter
from bot.inbound.people import People
from bot.inbound.person_activity import PersonActivityRecorder
from bot.inbound.task_control import TaskControl
from bot.outbound.undelivered import UndeliveredParts
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.registry import Registry
from bot.runtime.agent_config import AgentConfig
from bot.runtime.character_picture import CharacterPicture
from bot.runtime.character_reload import CharacterReloader
from bot.runtime.plugin_lifecycle import bind_routes

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
    )
    router = build_commands(agent, registry, inbox, edits, config.secrets)
    return AgentHandle(
        agent_id=agent.id,
        read_definition=agent.read_definition,
        inbox=inbox,
        edits=edits,
        membership=MembershipReporter(agent.id, store=store, inbox=inbox, events=events, clock=clock),
        conversations=ConversationReader(store, meter.flush, pipeline.traces.flush),
        activity=AgentActivity(
            store,
            agent.models.statuses,
            cost_limit=lambda: sum(limit.maximum for limit in agent.budget.limits if limit.setting == DAILY_LIMIT),
            recent_costs=meter.recent_costs,
            clock=clock,
        ),
        undelivered=UndeliveredParts(store.ledger, agent.outbox),
        people=People(
            agent.id, store=store, models=agent.models, flush_activity=activity.flush, muted=agent.muted_people
        ),
        tasks=TaskControl(store.tasks, clock),
        world_settings=agent.world_settings,
        read_lists=lambda: store.lists,
        limits=limits,
        catalog=lambda: agent.catalog,
        room_rules=reloader.room_rules,
        commands=router.specs,
        run_command=router.dispatcher.dispatch,
        select_choice=router.choices.select,
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
    return CommandRouter(dispatcher, ChoiceHandler(agent, dispatcher, receipts, inbox), specs)
