"""Run a character over a recorded room, in isolation: in memory, by the clock of the messages, sending nothing."""

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.costs.budget import LIMIT_SCOPES, Budget, add_call
from bot.domain.content import Attachment
from bot.domain.events import ModelUsed
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import CostEntry, CostKey, Outcome, Receipt, Rule
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, Usage
from bot.plugin_system.components import Model
from bot.plugin_system.loading import PluginPurpose, bundled_names
from bot.plugin_system.plugin import Plugin
from bot.rehearsal.exports import RecordedMessage, Recording
from bot.rehearsal.report import Decision, RehearsalReport, RehearsedMessage, build_report
from bot.runtime.character_reload import AgentConfig
from bot.scenes.simulation import SimulatedRoom, Simulation, run_simulation
from bot.store.protocols import Store
from bot.testing.manual_clock import ManualClock
from bot.turn import Agent, Turn

# What would wait, be paid for beside the answer, reach people, or count by the wall clock.
SETTINGS = {
    **dict.fromkeys(LIMIT_SCOPES, "0"),  # `DaySpending` has those of today
    "AI_NOTICE": "off",
    "APPROVAL": "off",
    "LATEST_RESPONSE": "queue",
    "MESSAGES_PER_PERSON": "0",
    "MESSAGES_PER_ROOM": "0",
    "MESSAGES_PER_WORLD": "0",
    "VOICE_REPLIES": "never",
}
MAX_FAILURES = 3  # in a row: the model does not answer at all
NO_MODEL = "the model would decide"
NOT_RUN = "In a rehearsal no action of a plugin runs."


def without_model() -> Plugin:
    """Return a plugin with a model that writes nothing: where the rules leave the decision to it, it is not made."""
    numbers = itertools.count(1)  # equal answers would be repetitions

    async def write(agent: Agent, request: TextRequest) -> TextResult:
        if request.purpose is Purpose.SHOULD_RESPOND:
            text = f"<response><reasoning>{NO_MODEL}</reasoning><action>IGNORE</action></response>"
        elif request.purpose in (Purpose.REPLY, Purpose.STEP, Purpose.REPAIR):
            text = f"<response><actions>REPLY</actions><text>(answer {next(numbers)})</text></response>"
        else:
            text = ""
        return TextResult(text, "none", Usage())

    models = [Model(kind, write) for kind in (ModelType.TEXT_SMALL, ModelType.TEXT_LARGE)]
    return Plugin("no_model", "Stands in for a model.", models=models)


@dataclass(slots=True)
class DaySpending:
    """What a rehearsal spends of the limits of today, whatever the day of its messages.

    `budget` has the limits of the agent and what was used of them before; `entries` are those of the rehearsal.
    """

    budget: Budget
    entries: dict[CostKey, CostEntry] = field(default_factory=dict)

    def add(self, event: ModelUsed) -> None:
        """Count a call of the rehearsed agent."""
        self.budget.record(add_call(self.entries, event.call, Purpose.REHEARSAL.value))

    def find_end(self, limit: float) -> str:
        """Return why no further message is rehearsed: it has cost `limit` dollars, or a limit of today is reached."""
        spent = sum(entry.cost for entry in self.entries.values())
        if spent and spent >= limit:
            return f"the budget of ${limit:g} was used up"
        reached = self.budget.find_reached_limit(None, None)
        return "" if reached is None else f"the limit of today, {reached.setting}, is reached"


async def rehearse(
    config: AgentConfig,
    recording: Recording,
    *,
    has_model: bool,
    budget: float,
    spending: DaySpending,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_finished: Callable[[Store], Awaitable[object]] | None = None,
) -> RehearsalReport:
    """Return what the agent would have answered to the messages of a recording, one after another.

    `config` is used in memory only: nothing is read from or written to its database, and nothing is sent. Plugins
    other than the bundled base plugin bring their models; of the others only actions are offered, which do not run.
    Once the calls have cost `budget` dollars, or a limit of `spending` is reached, the rest is left out. `on_progress`
    gets the number of messages done, `on_finished` the store in memory with what was rehearsed.
    """
    rehearsed: list[RehearsedMessage] = []
    stopped = ""
    first = recording.messages[0].inbound
    base = bundled_names(PluginPurpose.BASE)
    plugins = [_restrict(item, is_base=item.name in base) for item in config.plugins if item.store is None]
    simulating = run_simulation(
        replace(config, plugins=tuple(plugins)),
        model=None if has_model else without_model(),
        room=SimulatedRoom(recording.room.name, recording.room.type, recording.room.platform),
        settings=SETTINGS,
        clock=ManualClock(first.message.created_at),
    )
    async with simulating as simulation:
        if has_model:
            simulation.agent.events.subscribe(ModelUsed, spending.add, name="what is spent", at_once=True)
        worlds = simulation.agent.store.worlds
        await worlds.save_world(first.world, [recording.room])
        await worlds.set_participant_state(recording.room.id, recording.participant_state)
        for number, message in enumerate(recording.messages):
            if has_model and (end := spending.find_end(budget)):
                stopped = f"{end} after {number} of {len(recording.messages)} messages"
                break
            result = await _rehearse_message(simulation, message, has_model=has_model)
            rehearsed.append(result)
            if [item.after for item in rehearsed[-MAX_FAILURES:]] == [Decision.FAILED] * MAX_FAILURES:
                stopped = f"{MAX_FAILURES} messages in a row failed: {result.reason}"
                break
            on_progress(number + 1, len(recording.messages))
        if on_finished is not None:
            await on_finished(simulation.agent.store)
    return build_report(config.character, recording, rehearsed, has_model=has_model, stopped=stopped)


def _restrict(plugin: Plugin, *, is_base: bool) -> Plugin:
    """Return what of a plugin a rehearsal runs: nothing that reaches others, or is paid for after an answer."""
    if is_base:
        return replace(plugin, evaluators=(), workers=())
    actions = [replace(action, handler=_do_not_run) for action in plugin.actions]
    services, init = (plugin.services, plugin.init) if plugin.models else ((), None)
    return Plugin(
        plugin.name,
        plugin.description,
        actions=actions,
        models=plugin.models,
        services=services,
        init=init,
        settings=plugin.settings,
        priority=plugin.priority,
        templates=plugin.templates,
        template_variables=plugin.template_variables,
        is_trusted=plugin.is_trusted,
    )


async def _do_not_run(turn: Turn, *args: Any, **arguments: Any) -> bool:
    turn.notes.append(NOT_RUN)
    return True


async def _rehearse_message(simulation: Simulation, recorded: RecordedMessage, *, has_model: bool) -> RehearsedMessage:
    started = time.perf_counter()
    result = await simulation.submit(_without_files(recorded.inbound))
    seconds = time.perf_counter() - started
    receipt = result.receipt
    assert receipt is not None  # each message has one
    decision = _decision_of(receipt, has_reply=bool(result.replies), has_model=has_model)
    message, author = recorded.inbound.message, recorded.inbound.author
    return RehearsedMessage(
        id=message.external_id,
        at=message.created_at,
        author=author.name or "a person without a name",
        is_bot=author.is_bot,
        text=message.content.render_text(),
        attachments=[attachment.name or attachment.kind.lower() for attachment in message.content.attachments],
        before=_decision_before(recorded),
        before_rule=recorded.rule,
        before_reason=recorded.reason,
        before_replies=list(recorded.replies),
        after=decision,
        rule=Rule.DECISION_FAILED if decision is Decision.UNDECIDED else receipt.rule,  # whose rest no model wrote
        reason=receipt.reason,
        replies=[text for text in result.replies if text] if has_model else [],
        notes=list(receipt.notes),
        cost=receipt.cost,
        unpriced_calls=sum(call.cost is None and call.is_counted for call in receipt.model_calls) if has_model else 0,
        calls=len(receipt.model_calls) if has_model else 0,
        seconds=round(seconds, 4),
    )


def _without_files(inbound: InboundMessage) -> InboundMessage:
    """Return a message whose attachments have no address: none is read again."""
    content = inbound.message.content
    quotation = content.quotation and replace(content.quotation, attachments=_strip(content.quotation.attachments))
    content = replace(content, attachments=_strip(content.attachments), quotation=quotation)
    return replace(inbound, message=replace(inbound.message, content=content))


def _strip(attachments: Sequence[Attachment]) -> tuple[Attachment, ...]:
    return tuple(replace(attachment, url="", data=None) for attachment in attachments)


def _decision_of(receipt: Receipt, *, has_reply: bool, has_model: bool) -> Decision:
    if receipt.outcome is Outcome.ANSWERED:
        return Decision.ANSWERED if has_reply else Decision.SILENT
    if receipt.outcome is Outcome.FAILED:
        return Decision.FAILED
    is_open = not has_model and receipt.rule in (Rule.DECIDED_IGNORE, Rule.DECISION_UNREADABLE)
    return Decision.UNDECIDED if is_open else Decision.SILENT


def _decision_before(recorded: RecordedMessage) -> Decision | None:
    if recorded.replies or recorded.outcome is Outcome.ANSWERED:
        return Decision.ANSWERED
    if recorded.outcome is Outcome.IGNORED or (recorded.outcome is None and recorded.is_complete):
        return Decision.SILENT
    return Decision.FAILED if recorded.outcome is Outcome.FAILED else None
