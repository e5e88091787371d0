"""Closes receipts with the reply; repetition and echo checks."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from bot.concurrency.crash_points import reached
from bot.domain.edits import LATE_EDIT
from bot.domain.ledger import Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.outbound.message_parts import Outgoing
from bot.pipeline.evaluate import has_lessons
from bot.store.similarity import wording
from bot.text import shorten
from bot.turn import Input, Turn

logger = logging.getLogger(__name__)


async def close(
    turn: Turn, outcome: Outcome, reason: str, rule: str, outgoing: Sequence[Outgoing] = ()
) -> Outcome:
    """Give the turn's newest message its outcome and every earlier one `superseded` by it.

    What is outgoing is kept in the same commit. Whoever waits for an outcome is told afterwards. A turn
    that was called off closes nothing: whoever did that has seen to its messages.
    """
    if turn.is_called_off:
        return Outcome.CANCELLED
    *earlier, newest = turn.inputs
    failures = (f"provider {one.name}: {one.cause}" for one in turn.state.failures)
    notes = tuple(dict.fromkeys((*newest.receipt.notes, *turn.notes, *failures)))
    final = replace(booked(turn, newest), outcome=outcome, reason=reason, rule=rule, notes=notes)
    closed = [(one, taken_over(turn, one, newest)) for one in earlier if not one.receipt.outcome.is_final]
    closed.append((newest, final))
    reached("turn.pre_commit")
    turn.replies += await turn.agent.outbox.commit(outgoing, [receipt for _, receipt in closed])
    for one, receipt in closed:
        one.receipt = receipt
    for one in turn.inputs:
        one.settle(one.receipt)
    await mark_late(turn, closed)
    taken = f", with {len(earlier)} before it" if earlier else ""
    logger.info("message %s: %s%s: %s (%s)", newest.message.id, outcome, taken, shorten(reason, 300), rule)
    return outcome


def booked(turn: Turn, one: Input) -> Receipt:
    """Put down what a message has cost, which turn it ends in, and whether is still to be learnt from it."""
    calls = (*one.receipt.model_calls, *one.calls)
    is_learnt = one.is_learnt or not has_lessons(turn.agent)
    now = turn.agent.clock()
    return replace(one.receipt, turn_id=turn.id, closed_at=now, model_calls=calls, is_learnt=is_learnt)


def taken_over(turn: Turn, one: Input, newest: Input) -> Receipt:
    """Close a message as one that a newer one's answer answers too, if it is about so many."""
    listed = turn.listed
    but = "" if one in listed else f", but the answer is about the newest {len(listed)} of {len(turn.inputs)}"
    return replace(
        booked(turn, one),
        outcome=Outcome.SUPERSEDED,
        reason=f"a newer message was taken up together with it{but}",
        rule="LATEST_RESPONSE",
        superseded_by=newest.message.id,
    )


async def mark_late(turn: Turn, closed: Iterable[tuple[Input, Receipt]]) -> None:
    """Mark what was learnt from while its close, which does not know of it, was being written."""
    late = [receipt.id for one, receipt in closed if one.is_learnt and not receipt.is_learnt]
    if late:
        await turn.agent.store.ledger.mark_learnt(late)


LAST_WORDS = 20
LAST_MESSAGES = 100
WHILE = timedelta(minutes=10)
MOST_ALIKE = 3
REPETITION = "repetition"


async def earlier_answer(turn: Turn) -> Memory | None:
    """Find what was first said to a message that is edited now, where it was answered."""
    receipt = turn.inputs[-1].receipt
    if receipt.rule != LATE_EDIT:
        return None
    for one in await turn.agent.store.ledger.called(receipt.key.message_id):
        is_earlier = one.memory_id == receipt.memory_id and one.outcome is Outcome.ANSWERED
        if is_earlier and one.turn_id not in (None, turn.id):
            made = await turn.agent.store.memories.by_turn(one.turn_id)
            return next((memory for memory in made if memory.kind is MemoryKind.MESSAGE), None)
    return None


async def drop_echo(turn: Turn) -> None:
    """Forget a message of ours that only brings back what is remembered as said already."""
    memories, echo = turn.agent.store.memories, turn.message
    last = await memories.recent(turn.room.id, LAST_WORDS)
    ours = (one for one in last if one.entity_id == turn.agent.id and one.turn_id is not None)
    if any(echo.content.text in one.content.text for one in ours):
        await memories.remove([echo.id])


async def is_repetition(turn: Turn, text: str) -> bool:
    """Tell whether the agent has said the same here three times within ten minutes."""
    last = await turn.agent.store.memories.recent(turn.room.id, LAST_MESSAGES)
    since = turn.agent.clock() - WHILE
    own = (one for one in last if one.entity_id == turn.agent.id and one.created_at >= since)
    return sum(wording(one.content.text) == wording(text) for one in own) >= MOST_ALIKE
