"""The commit stage: closes receipts together with the reply and the results of actions; maps errors to outcomes.

The resume_journal stage: what earlier attempts of a turn have done; claiming and releasing messages.

The evaluate stage: embeddings and evaluators, after the reply.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self
from uuid import UUID

from bot.concurrency.tasks import Batcher, Failure, call_isolated, crash_point, log_failure, run_isolated
from bot.domain.character import ActionSpec, Effect
from bot.domain.content import Content
from bot.domain.environment import ANYBODY, UNKNOWN_AUTHORS, ChannelType, Role
from bot.domain.events import (
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EvaluatorCompleted,
    EvaluatorStarted,
)
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import INCOMPLETE_KEY, REVISIONS_KEY, StoredEvent
from bot.domain.ledger import (
    SOURCES_KEY,
    ActionResult,
    Delivery,
    DeliveryKind,
    EditState,
    Outcome,
    ProviderResult,
    Receipt,
    Rule,
    Step,
    StepState,
)
from bot.domain.memory import AUTHORS_KEY, Memory, MemoryKind
from bot.domain.proposal import Proposal, parked_reason, proposal_id
from bot.errors import BudgetSpent, ModelError, ModelRefused, NoAnswer, StoreUnavailable, UnreadableRow
from bot.models.types import ModelType, TextResult, ToolCall
from bot.outbound.sender import OutgoingReply
from bot.pipeline.compose import Composer
from bot.pipeline.should_respond import MessageCounters, ResponseDecision, limit_notice
from bot.plugin_system.components import Evaluator
from bot.plugin_system.registry import Registry
from bot.prompts.templates import APOLOGY
from bot.store.similarity import normalize_wording
from bot.text import is_blank
from bot.turn import Agent, Turn, TurnInput
from bot.user_texts import user_text

logger = logging.getLogger(__name__)
APOLOGY_INTERVAL = timedelta(minutes=5)
PUBLIC_TYPES = (ChannelType.FEED, ChannelType.BROADCAST)  # where every message is a post
MAX_ECHO_SCAN = 20
MAX_REPETITION_SCAN = 100
REPETITION_WINDOW = timedelta(minutes=10)
MAX_REPETITIONS = 3
MAX_STORED_RESULTS = 10  # of one turn
UNSOLICITED_RULES = frozenset(
    {Rule.FOLLOWED, Rule.DECIDED_RESPOND, Rule.ADDRESSED}
)  # the message did not address the bot


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The outcome of a turn, the reason and rule, and the content to send with it, if any.

    `notice` tells the room that answers degrade; it follows an answer once a day.
    """

    outcome: Outcome
    reason: str
    rule: str
    content: Content | None = None
    notice: Content | None = None

    @classmethod
    def answered(cls, decision: ResponseDecision, content: Content | None = None) -> Self:
        """Return the result of a turn that ran as it was decided."""
        return cls(Outcome.ANSWERED, decision.reason, decision.rule, content)


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """Why a turn could not be finished: the rule for the receipt, the reason, and what the room is told."""

    rule: str
    reason: str
    should_apologize: bool = False
    is_over_budget: bool = False


class ActionParked(Exception):
    """An action waits for the approval of a person; the turn goes on once they have decided."""

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(f"{proposal.action_name} waits for approval as draft {proposal.id}")
        self.proposal = proposal


def classify(error: Exception, turn: Turn, *, is_answering: bool) -> TurnFailure:
    """Return the failure that an error of a stage stands for; unexpected errors are logged.

    There is an apology only where the turn `is_answering`: before, it is not known whether one is due.
    """
    if isinstance(error, BudgetSpent):
        return TurnFailure(error.setting, str(error), is_over_budget=True)
    if isinstance(error, ModelError | NoAnswer) and is_answering:
        return TurnFailure(type(error).__name__, str(error), should_apologize=True)
    if isinstance(error, ModelError):
        return TurnFailure(Rule.DECISION_FAILED, f"no model could decide whether to answer: {error}")
    stage = "answer" if is_answering else "decide whether to answer"
    logger.error("could not %s message %s", stage, turn.message.id, exc_info=error)
    return TurnFailure(Rule.INTERNAL_ERROR, f"{type(error).__name__}: {error}", should_apologize=is_answering)


async def commit(turn: Turn, result: TurnResult) -> Outcome:
    """Close the turn's messages with `result` and send its content.

    An unsolicited reply that repeats earlier ones is not sent, and the message is ignored; one that tells
    what became of actions is always sent, unless a filter stops it.
    """
    content = result.content
    is_unsolicited = (result.rule in UNSOLICITED_RULES or turn.author.is_bot) and not turn.results
    is_reply = content is not None and result.outcome is Outcome.ANSWERED
    if content is not None and is_reply and is_unsolicited and await is_repetition(turn, content.text):
        reason = "it would have said the same words a fourth time within ten minutes"
        return await close_turn(turn, Outcome.IGNORED, reason, Rule.REPETITION)
    if content is not None and is_reply:
        content = turn.cite_sources(content)
    outgoing: list[OutgoingReply] = []
    if content is not None and (turn.agent.filters.is_on or turn.world.settings):
        content = await turn.agent.filters.check_reply(turn, content)
        if content is None and is_reply and not turn.replies:
            return await close_turn(turn, Outcome.IGNORED, turn.notes.pop(), Rule.FILTERED)
    if content is not None:
        reply = turn.build_reply(content)
        outgoing.append(await turn.with_speech(reply) if is_reply else reply)
    if result.notice is not None and outgoing and is_reply and await _may_tell_degraded(turn):
        outgoing.append(turn.build_reply(result.notice))
    return await close_turn(turn, result.outcome, result.reason, result.rule, outgoing)


async def commit_failure(turn: Turn, failure: TurnFailure, composer: Composer, counters: MessageCounters) -> Outcome:
    """Close a turn that failed, with one short notice to the room at most.

    Over budget it is ignored, as new messages are; where something was said already it counts as answered.
    """
    outcome, template = Outcome.FAILED, ""
    if failure.is_over_budget and turn.replies:
        outcome = Outcome.ANSWERED
    elif failure.is_over_budget:
        outcome, template = Outcome.IGNORED, limit_notice(turn, counters, failure.rule)
    elif failure.should_apologize and await _may_apologize(turn):
        template = APOLOGY
    elif failure.should_apologize and not turn.replies:
        turn.notes.append("no apology was sent: the room got one within the last five minutes")
    if turn.is_regeneration and turn.replaces is not None:
        template = ""  # the earlier reply stays
    notice = composer.render_notice(turn, template)
    outgoing = [turn.build_reply(notice)] if notice is not None else []
    return await close_turn(turn, outcome, failure.reason, failure.rule, outgoing)


async def commit_stopped(turn: Turn) -> Outcome:
    """Close a turn that a person stopped; what is shown of its reply stays, marked as incomplete.

    Its message is not evaluated: nothing more is spent on it.
    """
    turn_input, outgoing = turn.inputs[-1], []
    turn_input.is_evaluated = True
    text = turn.agent.outbox.shown_text(turn.id)
    if text:
        adapter = turn.agent.outbox.adapters.get(turn.room.platform)
        if adapter is None or not adapter.shows_versions:
            text = f"{text}\n\n{user_text('notices.stopped')}"
        reply = turn.build_reply(Content(text=text))
        metadata = {**reply.memory.metadata, INCOMPLETE_KEY: True}
        outgoing = [replace(reply, memory=replace(reply.memory, metadata=metadata))]
    turn.notes += [
        f"{call} was under way when it was stopped: it may have taken effect" for call in turn.running_actions
    ]
    return await close_turn(turn, Outcome.CANCELLED, "a person stopped it", Rule.STOPPED, outgoing)


async def _may_apologize(turn: Turn) -> bool:
    """Return whether the room may get an apology, and reserve it for this turn."""
    cache = turn.agent.store.cache
    key, turn_id = f"apology:{turn.room.id}", str(turn.id)
    if turn.replies or await cache.get(key) not in (None, turn_id):
        return False
    await cache.set(key, turn_id, expires_at=turn.agent.clock() + APOLOGY_INTERVAL)
    return True


async def _may_tell_degraded(turn: Turn) -> bool:
    """Return whether the room may be told that answers degrade, and reserve it for this turn: once a day (UTC)."""
    cache, now = turn.agent.store.cache, turn.agent.clock()
    key, turn_id = f"degraded:{turn.room.id}:{now.date()}", str(turn.id)
    if (reserved_by := await cache.get(key)) is None:
        await cache.set(key, turn_id, expires_at=now + timedelta(days=1))
    return reserved_by in (None, turn_id)


async def close_turn(
    turn: Turn,
    outcome: Outcome,
    reason: str,
    rule: str,
    outgoing: Sequence[OutgoingReply] = (),
    proposal: Proposal | None = None,
) -> Outcome:
    """Close the newest message of a turn with `outcome` and the earlier ones as superseded by it.

    With the `proposal` of an action the turn is parked until a person decides about that.

    The outgoing replies are stored in the same transaction; callers that wait for an outcome are notified
    afterwards. A cancelled turn closes nothing: its messages are processed by other turns. From here on it
    cannot be stopped; raises CancelledError where it was stopped before.
    """
    if turn.is_cancelled:
        return Outcome.CANCELLED
    if turn.is_stopped and rule != Rule.STOPPED:  # a stage has swallowed the cancellation
        raise asyncio.CancelledError
    turn.is_closing = True
    *earlier, newest = turn.inputs
    if proposal is None and (turn.hold_reason or turn.agent.outbox.approval is not None):
        proposal = await build_proposal(turn, outcome, outgoing)
    if proposal is not None:
        outcome, reason, rule = Outcome.PARKED, parked_reason(proposal), Rule.DRAFT
    outgoing = [*outgoing, *await _change_reaction(turn, outcome)]
    failures = (f"provider {turn_input.name}: {turn_input.cause}" for turn_input in turn.state.failures)
    notes = tuple(dict.fromkeys((*newest.receipt.notes, *turn.notes, *failures)))
    final = close_receipt(turn, newest, outcome=outcome, reason=reason, rule=rule, notes=notes)
    closing = [
        (turn_input, supersede_receipt(turn, turn_input, newest))
        for turn_input in earlier
        if not turn_input.receipt.outcome.is_final
    ]
    closing.append((newest, final))
    crash_point("turn.pre_commit")
    receipts = [receipt for _, receipt in closing]
    if turn.obsolete_replies and (outgoing or turn.replies) and proposal is None:
        await turn.agent.store.memories.remove(turn.obsolete_replies)
    action_results = build_result_memories(turn)
    is_care = turn.is_care
    if proposal is not None:
        replaces = partial(_may_replace, turn)
        await turn.agent.proposals.propose(proposal, receipts, action_results, may_replace=replaces)
        turn.replies = []  # no person has read them
    else:
        stored = await turn.send(outgoing, receipts, action_results)
        turn.replies += [memory for memory in stored if memory.kind is not MemoryKind.REACTION]
    for turn_input, receipt in closing:
        turn_input.receipt = receipt
    for turn_input in turn.inputs:
        turn_input.resolve(turn_input.receipt)
    await mark_late_evaluations(turn, closing)
    if not is_care:  # of a person in distress nothing is logged
        _log_outcome(newest, outcome, reason, rule, len(earlier))
    return outcome


async def _change_reaction(turn: Turn, outcome: Outcome) -> list[OutgoingReply]:
    """Return the reaction of an answered turn, or the removal of an earlier one; empty if nothing changes."""
    earlier = turn.earlier_reaction
    shown = earlier.content.text if earlier is not None else ""
    if shown == turn.reaction or outcome is not Outcome.ANSWERED:
        return []
    if earlier is not None:
        await turn.agent.store.memories.remove([earlier.memory_id])
    if turn.reaction:
        turn.notes.append(f"it reacted with {turn.reaction}")
    return [turn.build_reaction()]


def _log_outcome(newest: TurnInput, outcome: Outcome, reason: str, rule: str, earlier_count: int) -> None:
    suffix = f", with {earlier_count} before it" if earlier_count else ""
    if rule == Rule.FILTERED:
        reason = "a filter stopped it"  # what it says of the text is in the receipt only
    logger.info("message %s: %s%s: %.300s (%s)", newest.message.id, outcome, suffix, reason, rule)


async def park_turn(turn: Turn, proposal: Proposal) -> Outcome:
    """Close the messages of a turn as parked, until a person has decided about an action; return the outcome.

    Its evaluators run when it goes on, once there is an answer.
    """
    turn.inputs[-1].is_evaluated = True
    return await close_turn(turn, Outcome.PARKED, parked_reason(proposal), Rule.DRAFT, proposal=proposal)


async def build_proposal(turn: Turn, outcome: Outcome, outgoing: Sequence[OutgoingReply]) -> Proposal | None:
    """Return the replies of an answer as one that waits for a person; None where none does."""
    reason, replies = turn.find_hold_reason(), [*turn.held_replies, *outgoing]
    is_answer = outcome is Outcome.ANSWERED or (outcome is Outcome.FAILED and turn.held_replies)
    if not (reason and replies and is_answer):
        return None
    contents = [reply.memory.content for reply in replies]
    merged = replace(
        contents[-1],
        text="\n\n".join(content.text for content in contents if content.text),
        attachments=tuple(attachment for content in contents for attachment in content.attachments),
    )
    content = turn.agent.outbox.filter_content(merged, turn.room.id)
    if content is None:
        return None
    first = replies[0]
    unnotified = await turn.find_unnotified()
    return replace(
        propose(turn, content, reason),
        memory_id=first.memory.id,
        replaces_id=turn.replaces.id if turn.replaces is not None else None,
        reply_to=first.reply_to,
        metadata={**first.memory.metadata, **replies[-1].memory.metadata},
        notice=turn.agent.notice_text if unnotified else "",
        unnotified_ids=unnotified,
    )


def propose(turn: Turn, content: Content, reason: str, action: str = "") -> Proposal:
    """Return a proposal of a turn: of a content, or of the `action` that it describes, by the key of its step."""
    newest, now = turn.inputs[-1], turn.agent.clock()
    subject_ids = {item for turn_input in turn.inputs for item in (turn_input.message.id, turn_input.author.id)}
    id_ = proposal_id(turn.id, action)
    return Proposal(
        id=id_,
        room_id=turn.room.id,
        turn_id=turn.id,
        memory_id=derived_id(turn.id, id_),
        content=content,
        proposed=content,
        created_at=now,
        expires_at=now + turn.agent.proposals.timeout,
        reason=reason,
        receipt_id=newest.receipt.id,
        message_id=newest.message.id,
        subject_ids=frozenset(subject_ids),
        author_ids=frozenset(turn.foreign_authors() | {turn_input.author.id for turn_input in turn.inputs}),
        action=action,
    )


def _may_replace(turn: Turn, earlier: Proposal) -> bool:
    """Return whether the answer of a turn takes the place of one that waits in its room, as LATEST_RESPONSE says.

    An action that waits is never replaced, and a turn that has waited for an action replaces no answer: that may be
    to a newer message.
    """
    mode = turn.agent.settings.get(Rule.LATEST_RESPONSE) or "room"
    is_answer = earlier.receipt_id is not None and not earlier.action and not turn.was_parked
    return is_answer and (mode == "room" or (mode == "author" and turn.author.id in earlier.subject_ids))


def close_receipt(turn: Turn, turn_input: TurnInput, **changes: Any) -> Receipt:
    """Return the receipt of an input with `changes`, its turn, time, calls and whether evaluators have run."""
    is_evaluated = turn_input.is_evaluated or not has_evaluation_work(turn.agent)
    now = turn.agent.clock()
    changes |= {"turn_id": turn.id, "closed_at": now, "model_calls": turn_input.all_calls, "is_evaluated": is_evaluated}
    return replace(turn_input.receipt, **changes)


def supersede_receipt(turn: Turn, turn_input: TurnInput, newest: TurnInput) -> Receipt:
    """Return the receipt of an earlier input, superseded by the newest one of its turn."""
    listed = turn.recent_inputs
    suffix = "" if turn_input in listed else f", but the answer is about the newest {len(listed)} of {len(turn.inputs)}"
    return close_receipt(
        turn,
        turn_input,
        outcome=Outcome.SUPERSEDED,
        reason=f"a newer message was taken up together with it{suffix}",
        rule=Rule.LATEST_RESPONSE,
        superseded_by=newest.message.id,
    )


async def mark_late_evaluations(turn: Turn, closed: Iterable[tuple[TurnInput, Receipt]]) -> None:
    """Mark messages whose evaluators ran while the commit, which did not know of it, was being written."""
    receipt_ids = [receipt.id for turn_input, receipt in closed if turn_input.is_evaluated and not receipt.is_evaluated]
    if receipt_ids:
        await turn.agent.store.ledger.mark_evaluated(receipt_ids)


async def record_cancelled_calls(turn: Turn) -> None:
    """Add the model calls of a cancelled turn to the newest of its receipts that was closed before they ended.

    Without one, as after a migration of its room, the turns that answer its messages now store them. The receipt of a
    message that this turn had superseded has its calls.
    """
    inputs = [turn_input for turn_input in turn.inputs if turn_input.receipt.outcome is not Outcome.SUPERSEDED]
    calls = [call for turn_input in inputs for call in turn_input.calls]
    with suppress(StoreUnavailable):  # the sums of the costs have them
        for turn_input in reversed(inputs if calls else ()):
            if await turn.agent.store.ledger.add_model_calls(turn_input.receipt.id, calls):
                return
    keep_calls(turn)


def keep_calls(turn: Turn) -> None:
    """Keep the model calls of an interrupted turn for the receipts of its messages, which are processed again."""
    for turn_input in turn.inputs:
        turn_input.interrupted_calls += turn_input.calls


async def previous_replies(turn: Turn) -> list[Memory]:
    """Return the replies to a message that was edited late or is answered again; empty if it had none.

    They are those of its last answer; where a new answer is asked for, also an apology, or what was shown of a
    reply that was stopped.
    """
    receipt = turn.inputs[-1].receipt
    if receipt.edit_state is EditState.NORMAL:
        return []
    memories = turn.agent.store.memories
    for earlier in await turn.agent.store.ledger.receipts_by_message_id(receipt.key.message_id):
        is_answer = earlier.outcome is Outcome.ANSWERED or turn.is_regeneration or earlier.turn_id == turn.id
        if earlier.memory_id == receipt.memory_id and is_answer and earlier.turn_id is not None:
            replies = [item for item in await memories.by_turn(earlier.turn_id) if item.is_reply]
            if earlier.turn_id == turn.id:  # an earlier attempt at this turn may have replaced the reply
                replies = [reply for reply in replies if REVISIONS_KEY in reply.metadata]
            if replies:
                return replies
    return []


async def find_earlier_reaction(turn: Turn) -> Delivery | None:
    """Return the reaction to a message that was edited or is answered again; None where there is none."""
    receipt, ledger = turn.inputs[-1].receipt, turn.agent.store.ledger
    found: list[Delivery] = []
    for earlier in await ledger.receipts_by_message_id(receipt.key.message_id):
        if earlier.memory_id == receipt.memory_id and earlier.turn_id not in (None, turn.id):
            parts = await ledger.deliveries(turn_id=earlier.turn_id)
            found += [part for part in parts if part.kind is DeliveryKind.REACTION]
    latest = max(found, key=lambda part: part.seq, default=None)
    return latest if latest is not None and latest.content.text else None


async def drop_echo(turn: Turn) -> None:
    """Delete an inbound message of the agent itself that repeats a reply already stored."""
    memories, echo = turn.agent.store.memories, turn.message
    recent = await memories.recent(turn.room.id, MAX_ECHO_SCAN)
    own_messages = (memory for memory in recent if memory.entity_id == turn.agent.id and memory.turn_id is not None)
    if any(echo.content.text in memory.content.text for memory in own_messages):
        await memories.remove([echo.id])


async def is_repetition(turn: Turn, text: str) -> bool:
    """Whether the agent has sent the same text three times to this room within ten minutes."""
    recent = await turn.agent.store.memories.recent(turn.room.id, MAX_REPETITION_SCAN)
    since = turn.agent.clock() - REPETITION_WINDOW
    own_messages = (memory for memory in recent if memory.entity_id == turn.agent.id and memory.created_at >= since)
    return (
        sum(normalize_wording(memory.content.text) == normalize_wording(text) for memory in own_messages)
        >= MAX_REPETITIONS
    )


def build_result_memories(turn: Turn) -> list[Memory]:
    """Return what the turn's last actions returned; names that match no action are left out.

    A result stays in its room. If its action needs a role, only people with that role are told of it.
    """
    if not turn.results:
        return []
    specs = {spec.name: spec for spec in turn.agent.catalog.actions}
    entries = [entry for entry in turn.state.data["workingMemory"] if _has_result(entry, specs)]
    numbered = list(enumerate(entries))[-MAX_STORED_RESULTS:]
    return [
        _build_memory(turn, number, specs[entry["actionName"]], entry["result"], entry["timestamp"])
        for number, entry in numbered
    ]


def _has_result(entry: Mapping[str, Any], specs: Mapping[str, ActionSpec]) -> bool:
    """Return whether an entry is the result of an action: not of a pure one that says nothing."""
    spec, result = specs.get(entry["actionName"]), entry["result"]
    return spec is not None and bool(spec.effect is not Effect.PURE or result.text or result.error)


def _build_memory(turn: Turn, number: int, spec: ActionSpec, result: ActionResult, created_at: datetime) -> Memory:
    metadata: dict[str, object] = {} if result.success else {"failed": True}
    if result.authors is not None:
        metadata[AUTHORS_KEY] = [str(author) for author in result.authors]
    if spec.role is not Role.NONE:
        metadata["role"] = spec.role.value
    return Memory(
        id=derived_id(turn.id, "result", str(number)),
        kind=MemoryKind.ACTION_RESULT,
        entity_id=turn.agent.id,
        room_id=turn.room.id,
        world_id=turn.world.id,
        content=Content(result.text or result.error, actions=(spec.name,)),
        created_at=created_at,
        source_id=turn.message.id,
        turn_id=turn.id,
        metadata=metadata,
    )


MAX_VALUE_LENGTH = 262_144


JOURNAL = "JOURNAL"  # in a state, the name of what an earlier process has composed


async def load_steps(turn: Turn) -> dict[str, Step]:
    """Return the steps that earlier attempts at this turn have stored, by key."""
    return {} if turn.is_fresh else await turn.agent.store.ledger.steps(turn.id)


async def cached_response(turn: Turn, key: str) -> TextResult | None:
    """Return the stored model response of a step; None if the model has not been asked.

    The state gets what matters of the prompt of then: who wrote in it, and which sources were read for it.
    """
    step = (await load_steps(turn)).get(key)
    if step is None:
        return None
    authors = map(UUID, step.result["authors"]) if "authors" in step.result else UNKNOWN_AUTHORS
    sources = step.result.get("sources", ())
    turn.state.results[JOURNAL] = ProviderResult(values={SOURCES_KEY: sources}, authors=frozenset(authors))
    calls = tuple(ToolCall(call["name"], call["arguments"]) for call in step.result.get("calls", ()))
    is_truncated = step.result.get("is_truncated") is True
    return TextResult(str(step.result["raw"]), tool_calls=calls, is_truncated=is_truncated)


async def save_response(turn: Turn, key: str, response: TextResult) -> None:
    """Store a model response, the messages that it answers, and who wrote what the model has read, from which sources.

    The earlier messages are closed as superseded in the same transaction and the newest is assigned to this
    turn, so that after a restart none of them gets a turn of its own.
    """
    *earlier, newest = turn.inputs
    entry: dict[str, Any] = {
        "raw": response.text,
        "inputs": [str(turn_input.message.id) for turn_input in turn.inputs],
        "authors": sorted(str(author) for author in turn.foreign_authors()),
    }
    if sources := [source for result in turn.state.results.values() for source in result.values.get(SOURCES_KEY, ())]:
        entry["sources"] = sources
    if response.is_truncated:
        entry["is_truncated"] = True
    if response.tool_calls:
        entry["calls"] = [{"name": call.name, "arguments": dict(call.arguments)} for call in response.tool_calls]
    step = Step(turn.id, key, "model", StepState.DONE, result=entry, recorded_at=turn.agent.clock())
    changes = [
        (turn_input, supersede_receipt(turn, turn_input, newest))
        for turn_input in earlier
        if not turn_input.receipt.outcome.is_final
    ]
    if newest.receipt.turn_id != turn.id:
        changes.append((newest, replace(newest.receipt, turn_id=turn.id)))
    await turn.agent.store.ledger.save_step(step, [receipt for _, receipt in changes])
    for turn_input, receipt in changes:
        turn_input.receipt = receipt
    await mark_late_evaluations(
        turn, [(turn_input, receipt) for turn_input, receipt in changes if receipt.outcome.is_final]
    )


async def resume_journal(turn: Turn) -> frozenset[UUID] | None:
    """Restore what earlier attempts at this turn have done: its inputs and its replies.

    Returns the ids of the messages that its answer covers, None without an answer and without a draft.
    """
    if turn.is_fresh:
        return None
    steps = (await turn.agent.store.ledger.steps(turn.id)).values()
    input_lists = [step.result["inputs"] for step in steps if "inputs" in step.result]
    if not input_lists:
        has_draft = turn.agent.outbox.has_draft(turn.id)
        return frozenset({turn.message.id}) if has_draft else None
    memories = await turn.agent.store.memories.by_turn(turn.id)
    turn.replies = [memory for memory in memories if memory.is_reply]
    turn.restore_held(steps)
    await turn.restore_thread(steps)
    answered_ids = [UUID(message_id) for message_id in input_lists[-1]]
    await _restore_inputs(turn, [message_id for message_id in answered_ids if message_id != turn.message.id])
    return frozenset(answered_ids) | {turn.message.id}


async def _restore_inputs(turn: Turn, message_ids: Sequence[UUID]) -> None:
    """Add the messages that the turn had superseded: all authors decide which actions are allowed."""
    if not message_ids:
        return
    store, newest = turn.agent.store, turn.inputs[-1]
    messages = await store.memories.memories(message_ids)
    authors = await store.entities.entities({turn_input.entity_id for turn_input in messages.values()})
    for message_id in message_ids:
        receipt, message = await store.ledger.receipt(message_id), messages.get(message_id)
        author = authors.get(message.entity_id) if message is not None else None
        if receipt is not None and message is not None and author is not None:
            turn_input = TurnInput(
                receipt, message, author, newest.received_monotonic, newest.resolve, is_evaluated=receipt.is_evaluated
            )
            turn.inputs.insert(-1, turn_input)


async def claim(agent: Agent, receipt: Receipt) -> StoredEvent:
    """Claim a message that an earlier process left open; cancel it if it was deleted, fail it if it cannot be read."""
    store, now = agent.store, agent.clock()
    try:
        inbound = await store.ledger.inbound_message(receipt)
    except UnreadableRow as error:
        return StoredEvent(await _fail_unreadable(agent, receipt, error))
    if receipt.outcome.is_final:
        return StoredEvent(receipt, inbound)
    room_id = receipt.room_id if inbound is None else inbound.room.id
    participant_state = await store.worlds.participant_state(room_id)
    if inbound is None and receipt.rule == Rule.COMMAND:
        receipt = replace(receipt, outcome=Outcome.FAILED, rule=Rule.COMMAND_INTERRUPTED, closed_at=now)
    elif inbound is None:
        reason = "its message was removed"
        receipt = replace(receipt, outcome=Outcome.CANCELLED, reason=reason, closed_at=now)
    else:
        receipt = replace(
            receipt,
            outcome=Outcome.CLAIMED,
            turn_id=receipt.turn_id or new_id(),
            attempts=receipt.attempts + 1,
            claimed_at=now,
        )
    await store.ledger.save_receipts([receipt])
    return StoredEvent(receipt, inbound, participant_state)


async def _fail_unreadable(agent: Agent, receipt: Receipt, error: UnreadableRow) -> Receipt:
    """Close a message of which a row cannot be read, so that no later start tries it again; return its receipt."""
    if receipt.outcome.is_final:
        return receipt
    reason = f"what is stored of it cannot be read ({error}); `bot db check` lists such rows"
    logger.error("message %s was not answered: %s", receipt.id, reason)
    failed = replace(receipt, outcome=Outcome.FAILED, reason=reason, rule=Rule.INTERNAL_ERROR, closed_at=agent.clock())
    await agent.store.ledger.save_receipts([failed])
    return failed


async def release_claim(turn: Turn) -> None:
    """Release the turn's messages because the process is stopped: they are not under way when it ends."""
    receipts = [
        replace(
            turn_input.receipt,
            outcome=Outcome.RECEIVED,
            attempts=turn_input.receipt.attempts - 1,
            model_calls=turn_input.all_calls,
        )
        for turn_input in turn.inputs
        if not turn_input.receipt.outcome.is_final
    ]
    for turn_input in turn.inputs:
        turn_input.interrupted_calls.clear()  # this process may process them again, from these receipts
    with suppress(StoreUnavailable):
        await turn.agent.store.ledger.save_receipts(receipts)


def release(turn: Turn) -> None:
    """Leave the turn's messages open; the inbox retries them when the store is available again."""
    if turn.superseded_by is None:
        keep_calls(turn)
        for turn_input in turn.inputs:
            turn_input.resolve(turn_input.receipt)


def result_to_journal(result: ActionResult) -> dict[str, Any]:
    """Return the journal entry of the result of an action."""
    entry: dict[str, Any] = {
        "success": result.success,
        "text": result.text,
        "values": _to_json(result.values),
        "data": _to_json(result.data),
        "error": result.error,
    }
    entry |= {"is_error_internal": True} if result.is_error_internal else {}
    known = result.authors is not None and ANYBODY not in result.authors
    return {**entry, AUTHORS_KEY: list(map(str, result.authors or ()))} if known else entry


def _to_json(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a mapping; other values are lost at a restart."""
    encodable: dict[str, Any] = {}
    for key, value in mapping.items():
        try:
            encoded = json.dumps(value, default=str, skipkeys=True, allow_nan=False)
        except Exception:  # the str() of a plugin's object may raise anything
            logger.debug("result value %r cannot be journalled; it is lost at a restart", key, exc_info=True)
            continue
        if len(encoded) <= MAX_VALUE_LENGTH:
            encodable[str(key)] = json.loads(encoded)
    return encodable


def result_from_step(step: Step) -> ActionResult:
    """Return the result that a step of the journal holds."""
    name = step.key.rsplit(":", 1)[-1]
    entry = dict(step.result)
    authors = entry.pop(AUTHORS_KEY, None)
    return ActionResult(
        **entry, action=name, authors=UNKNOWN_AUTHORS if authors is None else frozenset(map(UUID, authors))
    )


EVALUATOR_TIMEOUT = 60.0
EMBEDDING_TIMEOUT = 120.0
MAX_BATCH_TURNS = 32  # in one embedding call
MAX_RETRIES = 3
RETRY_COUNT_TTL = timedelta(days=30)


def has_evaluation_work(agent: Agent) -> bool:
    """Whether the agent has evaluators or embeds messages."""
    return bool(agent.components.catalog.evaluators) or agent.models.has_handler_for(ModelType.TEXT_EMBEDDING)


async def evaluate(turn: Turn, registry: Registry, *, should_reply: bool) -> None:
    """Run the evaluators whose condition holds, concurrently; failures are logged."""
    selected: list[tuple[Evaluator, Awaitable[bool] | bool]] = []
    for evaluator in registry.evaluators.values():
        if not (should_reply or evaluator.spec.always_run):
            continue
        condition: Awaitable[bool] | bool | Failure = True
        if evaluator.when is not None:
            try:
                value = evaluator.when(turn)
                condition = value if isinstance(value, Awaitable) else bool(value)
            except BaseException as error:  # plugin code may raise anything, SystemExit included
                condition = log_failure(error, label=f"validating {_full_name(evaluator, registry)}")
        if condition is not False and not isinstance(condition, Failure):
            selected.append((evaluator, condition))
    if not selected:
        return
    async with asyncio.TaskGroup() as group:
        for evaluator, condition in selected:
            group.create_task(_run_evaluator(turn, evaluator, registry, condition))


def _full_name(evaluator: Evaluator, registry: Registry) -> str:
    return f"{evaluator.spec.name} of the plugin {registry.plugin_of(evaluator)}"


async def _run_evaluator(
    turn: Turn, evaluator: Evaluator, registry: Registry, condition: Awaitable[bool] | bool
) -> None:
    agent, name, full_name = turn.agent, evaluator.spec.name, _full_name(evaluator, registry)
    trusted = id(evaluator) in registry.trusted_ids
    if isinstance(condition, Awaitable):
        is_needed = await run_isolated(
            _to_bool(condition), label=f"validating {full_name}", timeout=EVALUATOR_TIMEOUT, trusted=trusted
        )
        if isinstance(is_needed, Failure) or not is_needed:
            return
    agent.events.emit(EvaluatorStarted(agent.id, turn.id, turn.room.id, name))
    call: Callable[[], Awaitable[None] | None] = partial(evaluator.handler, turn)
    started = time.monotonic()
    result = await call_isolated(call, label=f"evaluator {full_name}", timeout=EVALUATOR_TIMEOUT, trusted=trusted)
    error = result.cause if isinstance(result, Failure) else ""
    turn.trace.spans.append(("evaluator", name, started, time.monotonic(), error))
    agent.events.emit(EvaluatorCompleted(agent.id, turn.id, turn.room.id, name, error))


async def _to_bool(condition: Awaitable[bool]) -> bool:
    """Return the value of a condition; that of a plugin may be anything, also what has no truth value."""
    return bool(await condition)


@dataclass(frozen=True, slots=True, eq=False)
class _EmbeddingJob:
    """The memories of one turn that wait for embeddings."""

    memories: tuple[Memory, ...]


class Embeddings:
    """Embeds messages of one agent with one model call at a time; turns that wait meanwhile form a batch.

    Messages that get no embedding, because of an error or a restart, are found in the store later.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = asyncio.Lock()
        self._waiting: list[_EmbeddingJob] = []

    async def embed(self, turn: Turn, message: Memory) -> None:
        """Embed a message and the replies to it; does nothing without a handler for embeddings."""
        agent = self._agent
        if not agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return
        memories = tuple(item for item in (message, *turn.replies) if not is_blank(item.content.text))
        if not memories:
            return
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        job = _EmbeddingJob(memories)
        self._waiting.append(job)
        try:
            async with self._lock:
                while job in self._waiting:
                    await self._run_batch(self._waiting[:MAX_BATCH_TURNS])
        finally:
            if job in self._waiting:
                self._waiting.remove(job)

    async def _run_batch(self, batch: Sequence[_EmbeddingJob]) -> None:
        """Embed a batch; if the request is refused, embed each message alone."""
        memories = [memory for job in batch for memory in job.memories]
        try:
            await self._embed_batch(memories)
        except ModelRefused as error:
            if len(memories) == 1:
                self._emit_failures(memories, error)
            else:
                for memory in memories:
                    await self._embed_alone(memory)
        except ModelError as error:
            self._emit_failures(memories, error)
        for job in batch:
            if job in self._waiting:
                self._waiting.remove(job)

    async def _embed_alone(self, memory: Memory) -> None:
        try:
            await self._embed_batch([memory])
        except ModelError as error:
            self._emit_failures([memory], error)

    async def _embed_batch(self, memories: Sequence[Memory]) -> None:
        agent = self._agent
        result = await agent.models.embed([memory.content.text for memory in memories])
        vectors = zip((memory.id for memory in memories), result.vectors, strict=True)
        await agent.store.memories.set_embeddings(dict(vectors), result.model)
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))

    def _emit_failures(self, memories: Sequence[Memory], error: ModelError) -> None:
        for memory in memories:
            self._agent.events.emit(EmbeddingFailed(self._agent.id, memory.id, str(error)))


class Evaluation:
    """The evaluate stage of one agent: embeddings, evaluators, and the mark that they have run.

    `evaluated` collects receipt ids and writes them in batches; the pipeline's owner enters and leaves it.

    What an earlier process did not finish is evaluated one turn after another, and each try is counted before
    it begins: the evaluation itself may be what ended that process.
    """

    def __init__(self, agent: Agent, registry: Registry) -> None:
        self._agent = agent
        self._registry = registry
        self._embeddings = Embeddings(agent)
        self._retry_lock = asyncio.Lock()
        self.evaluated = Batcher(agent.store.ledger.mark_evaluated, label="marks of evaluated messages")

    async def evaluate(self, turn: Turn, turn_input: TurnInput, *, should_reply: bool) -> None:
        """Embed the messages of a turn and run its evaluators, unless the budget is spent, or too little is left."""
        agent = self._agent
        if agent.budget.find_reached_limit(turn.room.id, turn_input.author.id) is None:
            if agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
                embedding = self._embeddings.embed(turn, turn_input.message)
                await run_isolated(embedding, label="embedding", timeout=EMBEDDING_TIMEOUT)
            crash_point("eval.pre")
            if turn.degradation is None or turn.degradation.is_evaluated:
                await evaluate(turn, self._registry, should_reply=should_reply)
        self.mark_evaluated(turn_input)

    async def evaluate_again(self, turn: Turn, turn_input: TurnInput, *, should_reply: bool) -> None:
        """Evaluate what an earlier process did not finish, unless MAX_RETRIES processes died while they did this."""
        cache, key = self._agent.store.cache, f"evaluation retries:{turn_input.receipt.id}"
        async with self._retry_lock:
            retries = await cache.get(key) or 0
            if retries >= MAX_RETRIES:
                cause = f"the process died {retries} times while this was done again"
                logger.error("message %s is not evaluated: %s", turn_input.message.id, cause)
                self.mark_evaluated(turn_input)
                return
            await cache.set(key, retries + 1, expires_at=self._agent.clock() + RETRY_COUNT_TTL)
            try:
                await self.evaluate(turn, turn_input, should_reply=should_reply)
            finally:  # stopped is not died
                await cache.delete(key)

    def mark_evaluated(self, turn_input: TurnInput) -> None:
        """Note that the evaluators have run; for a message still open the commit stores it."""
        turn_input.is_evaluated = True
        receipt = turn_input.receipt
        if receipt.outcome.is_final and not receipt.is_evaluated:
            turn_input.receipt = replace(receipt, is_evaluated=True)
            self.evaluated.add(receipt.id)
