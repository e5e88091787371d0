"""The resume_journal stage: what earlier attempts of a turn have done; claiming and releasing messages."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from bot.agent import Agent
from bot.domain.authority import ANYBODY, UNKNOWN_AUTHORS
from bot.domain.ids import new_id
from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Outcome, Receipt, Rule, Step, StepState
from bot.domain.memory import AUTHORS_KEY
from bot.domain.results import ActionResult
from bot.errors import StoreUnavailable, UnreadableRow
from bot.models.types import TextResult, ToolCall
from bot.pipeline.commit import keep_calls, mark_late_evaluations, supersede_receipt
from bot.turn import Turn, TurnInput

logger = logging.getLogger(__name__)
MAX_VALUE_LENGTH = 262_144


async def load_steps(turn: Turn) -> dict[str, Step]:
    """Return the steps that earlier attempts at this turn have stored, by key."""
    return {} if turn.is_fresh else await turn.agent.store.ledger.steps(turn.id)


async def cached_response(turn: Turn, key: str) -> TextResult | None:
    """Return the stored model response of a step; None if the model has not been asked."""
    step = (await load_steps(turn)).get(key)
    if step is None:
        return None
    calls = tuple(ToolCall(call["name"], call["arguments"]) for call in step.result.get("calls", ()))
    is_truncated = step.result.get("is_truncated") is True
    return TextResult(str(step.result["raw"]), tool_calls=calls, is_truncated=is_truncated)


async def save_response(turn: Turn, key: str, response: TextResult) -> None:
    """Store a model response and the messages that it answers.

    The earlier messages are closed as superseded in the same transaction and the newest is assigned to this
    turn, so that after a restart none of them gets a turn of its own.
    """
    *earlier, newest = turn.inputs
    entry: dict[str, Any] = {"raw": response.text, "inputs": [str(turn_input.message.id) for turn_input in turn.inputs]}
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
    steps = (await load_steps(turn)).values()
    input_lists = [step.result["inputs"] for step in steps if "inputs" in step.result]
    if not input_lists:
        has_draft = turn.agent.outbox.has_draft(turn.id)
        return frozenset({turn.message.id}) if has_draft else None
    memories = await turn.agent.store.memories.by_turn(turn.id)
    turn.replies = [memory for memory in memories if memory.is_reply]
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
