"""What earlier attempts of a turn have done; claim and release."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from bot.agent import Agent
from bot.domain.ids import new_id
from bot.domain.inbound import Received
from bot.domain.ledger import Outcome, Receipt, Step, StepState
from bot.domain.memory import MemoryKind
from bot.errors import StoreUnavailable
from bot.models.types import TextResult, ToolCall
from bot.pipeline.commit import mark_late, taken_over
from bot.turn import Input, Turn


async def journalled(turn: Turn) -> dict[str, Step]:
    """Find what earlier tries at this turn have done, by step."""
    return {} if turn.is_fresh else await turn.agent.store.ledger.steps(turn.id)


async def paid(turn: Turn, key: str) -> TextResult | None:
    """Find what a model gave for this step of the turn; None where it has not been asked yet."""
    step = (await journalled(turn)).get(key)
    if step is None:
        return None
    calls = tuple(ToolCall(one["name"], one["arguments"]) for one in step.result.get("calls", ()))
    return TextResult(str(step.result["raw"]), calls=calls)


async def keep(turn: Turn, key: str, given: TextResult) -> None:
    """Write down what a model gave, and which messages it is about.

    From here on this turn alone answers them: the earlier ones are closed at once and the newest is
    this turn's, so that after a restart none of them is answered again by a turn of its own.
    """
    *earlier, newest = turn.inputs
    result: dict[str, Any] = {"raw": given.text, "inputs": [str(one.message.id) for one in turn.inputs]}
    if given.calls:
        result["calls"] = [{"name": call.name, "arguments": dict(call.arguments)} for call in given.calls]
    step = Step(turn.id, key, "model", StepState.DONE, result=result, at=turn.agent.clock())
    changed = [(one, taken_over(turn, one, newest)) for one in earlier if not one.receipt.outcome.is_final]
    if newest.receipt.turn_id != turn.id:
        changed.append((newest, replace(newest.receipt, turn_id=turn.id)))
    await turn.agent.store.ledger.save_step(step, [receipt for _, receipt in changed])
    for one, receipt in changed:
        one.receipt = receipt
    await mark_late(turn, [(one, receipt) for one, receipt in changed if receipt.outcome.is_final])


async def resumed(turn: Turn) -> frozenset[UUID] | None:
    """Take up what an earlier process has done for this turn.

    Gives back the messages that its answer is about; None where there is no answer yet, and nothing of
    one is seen. What the turn has said already counts among its replies again.
    """
    steps = (await journalled(turn)).values()
    listed = [step.result["inputs"] for step in steps if "inputs" in step.result]
    if not listed:
        is_seen = turn.agent.outbox.has_draft(turn.id)
        return frozenset({turn.message.id}) if is_seen else None
    made = await turn.agent.store.memories.by_turn(turn.id)
    turn.replies = [memory for memory in made if memory.kind is MemoryKind.MESSAGE]
    about = [UUID(one) for one in listed[-1]]
    await _bring_back(turn, [one for one in about if one != turn.message.id])
    return frozenset(about) | {turn.message.id}


async def _bring_back(turn: Turn, message_ids: Sequence[UUID]) -> None:
    """Have a turn answer again what it had taken over: who asked decides what may be done."""
    if not message_ids:
        return
    store, own = turn.agent.store, turn.inputs[-1]
    messages = await store.memories.memories(message_ids)
    authors = await store.entities.entities({one.entity_id for one in messages.values()})
    for message_id in message_ids:
        receipt, message = await store.ledger.receipt(message_id), messages.get(message_id)
        author = authors.get(message.entity_id) if message is not None else None
        if receipt is not None and message is not None and author is not None:
            one = Input(receipt, message, author, own.arrived, own.settle, is_learnt=receipt.is_learnt)
            turn.inputs.insert(-1, one)


async def taken_up(agent: Agent, receipt: Receipt) -> Received:
    """Claim what an earlier process left open; it is cancelled where its message was removed."""
    store, now = agent.store, agent.clock()
    arrival = await store.ledger.arrival(receipt)
    if receipt.outcome.is_final:
        return Received(receipt, arrival)
    room_id = receipt.room_id if arrival is None else arrival.room.id
    attendance = await store.worlds.attendance(room_id)
    if arrival is None:
        gone = "its message was removed"
        receipt = replace(receipt, outcome=Outcome.CANCELLED, reason=gone, closed_at=now)
    else:
        receipt = replace(
            receipt,
            outcome=Outcome.CLAIMED,
            turn_id=receipt.turn_id or new_id(),
            attempts=receipt.attempts + 1,
            claimed_at=now,
        )
    await store.ledger.save_receipts([receipt])
    return Received(receipt, arrival, attendance)


async def forgive(turn: Turn) -> None:
    """Take an attempt back: that the process was told to stop is no fault of the message."""
    left = (one.receipt for one in turn.inputs if not one.receipt.outcome.is_final)
    forgiven = [replace(receipt, attempts=receipt.attempts - 1) for receipt in left]
    with suppress(StoreUnavailable):
        await turn.agent.store.ledger.save_receipts(forgiven)


def hand_back(turn: Turn) -> None:
    """Leave the turn's messages open; the inbox comes back to them when the store's outage is over."""
    if turn.successor is None:
        for one in turn.inputs:
            one.settle(one.receipt)
