"""Replays a turn: what its store has of it is run again by an agent of its own, which exists for this only."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import bot.store
from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.models.types import ModelType
from bot.operate.results import ReplayBody, ReplayState
from bot.pipeline.filters import ContentStage
from bot.pipeline.process_message import list_versions
from bot.pipeline.replay import Comparison, RecordedFilters, RecordedModels, ReplayPipeline, add_missing, join_prompt
from bot.plugin_system.components import Model
from bot.plugin_system.plugin import Plugin
from bot.receipts import REPLAY_KEY, TRACE_KEY, ReplayRecord, digest_prompt
from bot.runtime.agent_runtime import run_agent
from bot.runtime.character_reload import AgentConfig
from bot.settings import CoreSettings
from bot.store.protocols import Store

MAX_MESSAGES = 100  # of the room before the turn


class NotReplayable(Exception):
    """A turn cannot be run again; the message says why."""


async def replay_turn(
    store: Store, receipt: Receipt, config: AgentConfig, other: AgentConfig | None = None
) -> ReplayBody:
    """Run the turn that answered a message again, by its character or by an `other` one, and compare both.

    Nothing is sent or stored, and no model is called. The `store` is only read.
    """
    try:
        return await _replay(store, receipt, config, other)
    except NotReplayable as error:
        return ReplayBody(receipt_id=receipt.id, state=ReplayState.NOT_REPLAYED, reason=str(error))


async def _replay(store: Store, receipt: Receipt, config: AgentConfig, other: AgentConfig | None) -> ReplayBody:
    record, prompts = await _load_record(store, receipt, config)
    turn_id = receipt.turn_id
    assert turn_id is not None, "a turn with a record has an id"
    definition = (other or config).definition
    for name, version in list_versions(definition).items():
        recorded = record.versions.get(name)
        if version != recorded and (other is None or name == "program"):
            hint = "; `--with` and the character's file shows what that changes" if name == "character" else ""
            raise NotReplayable(f"another version ran it: its {name} was {recorded!r}, now {version!r}{hint}")
    plugins = tuple(
        replace(plugin, services=(), models=_keep_moderation(plugin), workers=(), listeners=(), init=None)
        for plugin in (other or config).plugins
    )
    memory = bot.store.InMemoryStore(lambda: record.started_at)
    offline = replace(
        other or config, plugins=plugins, store=memory, clock=lambda: record.started_at, is_idle=True, build_tools=None
    )
    comparison = Comparison()
    models = RecordedModels(record, prompts, comparison)
    async with run_agent(offline) as agent_runtime:
        stage = agent_runtime.agent.filters
        assert isinstance(stage, ContentStage), "a running agent has the stage that was built for it"
        filters = RecordedFilters(stage, record.verdicts, comparison)
        agent = replace(agent_runtime.agent, models=models, filters=filters)
        add_missing(agent_runtime.registry, record)
        await _fill(agent.store, store, record, turn_id)
        pipeline = ReplayPipeline(
            agent,
            agent_runtime.registry,
            agent.settings.load(CoreSettings),
            record,
            models,
            comparison,
            is_other=other is not None,
        )
        await pipeline.replay(turn_id)
    state = ReplayState.DIFFERENT if comparison.differences else ReplayState.EQUAL
    return ReplayBody(
        receipt_id=receipt.id, state=state, steps=tuple(comparison.steps), differences=tuple(comparison.differences)
    )


def _keep_moderation(plugin: Plugin) -> tuple[Model, ...]:
    """Return the models without which no filter can ask for moderation; they are not asked."""
    return tuple(model for model in plugin.models if model.type is ModelType.MODERATION)


async def _load_record(store: Store, receipt: Receipt, config: AgentConfig) -> tuple[ReplayRecord, dict[str, str]]:
    """Return the record of the turn of a message, and its prompts by digest. Raises NotReplayable."""
    keep = timedelta(days=config.settings.load(CoreSettings).replay_keep)
    if receipt.superseded_by is not None:
        raise NotReplayable(f"message {receipt.superseded_by} was answered in its place: replay that one")
    if not receipt.outcome.is_final:
        raise NotReplayable("it has no outcome yet")
    is_withdrawn = receipt.outcome is Outcome.CANCELLED and receipt.rule != Rule.STOPPED
    if is_withdrawn or receipt.rule in (Rule.ERASED, Rule.TAKEN_OVER):
        raise NotReplayable(f"it was ended from outside ({receipt.rule or receipt.outcome})")
    steps = {} if receipt.turn_id is None else await store.ledger.steps(receipt.turn_id)
    step = steps.get(TRACE_KEY)
    if step is None and not receipt.model_calls:
        raise NotReplayable("no model was asked: `bot why` names the rule that decided")
    if receipt.closed_at is not None and receipt.closed_at + keep < config.clock():
        raise NotReplayable(f"it expired: replay records are kept for {keep.days} days (REPLAY_KEEP)")
    if receipt.rule == Rule.FILTERED and (step is None or REPLAY_KEY not in step.result):
        raise NotReplayable("a filter has stopped the message: what was in it is not kept")
    if step is None or REPLAY_KEY not in step.result:
        raise NotReplayable(
            "its record is not there: it was erased with somebody's data, the process ended before it was stored, or "
            "REPLAY_KEEP was 0"
        )
    try:
        record = ReplayRecord.decode(step.result[REPLAY_KEY])
    except ValueError:
        raise NotReplayable("another version of the program wrote its record") from None
    if record.is_confirmed:
        raise NotReplayable("it only carried out what somebody confirmed: its answer is by no model")
    prompts = step.result["prompts"]
    texts = {
        digest_prompt(prompt["system"], prompt["prompt"]): join_prompt(prompt["system"], prompt["prompt"])
        for prompt in prompts
    }
    return record, texts


async def _fill(memory: Store, store: Store, record: ReplayRecord, turn_id: UUID) -> None:
    """Store in memory what the turn found: its room, messages and people, and the journal of earlier attempts."""
    parent = await store.worlds.room(record.room.parent_id) if record.room.parent_id is not None else None
    await memory.worlds.save_world(record.world, [record.room, *([parent] if parent is not None else [])])
    await memory.entities.save_entities([item.author for item in record.inputs], record.room.id)
    author, mark, origin = record.inputs[-1].author, PersonMark.MINOR, MarkOrigin.OPERATOR
    if record.has_minor or (record.has_minor is None and author.id in store.marks.minors):
        marked = MarkedPerson(author.id, mark, author.platform, author.external_id, origin, record.started_at)
        await memory.marks.save(marked)
    until = record.started_at + timedelta(microseconds=1)
    recent = await store.memories.recent(record.room.id, MAX_MESSAGES, before=until)
    earlier = [message for message in recent if not (record.is_fresh and message.turn_id == turn_id)]
    authors = await store.entities.entities({message.entity_id for message in earlier})
    if authors:
        await memory.entities.save_entities(list(authors.values()), record.room.id)
    await memory.memories.add([*earlier, *(item.message for item in record.inputs)])
    if not record.is_fresh:
        for step in (await store.ledger.steps(turn_id)).values():
            if step.key != TRACE_KEY and step.recorded_at is not None and step.recorded_at < record.started_at:
                await memory.ledger.save_step(step)
