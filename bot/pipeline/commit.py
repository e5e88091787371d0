"""How a message ends: reply, parts and receipts move together, or not at all."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from bot.concurrency.crash_points import reached
from bot.domain.ledger import Outcome
from bot.outbound.message_parts import Outgoing
from bot.pipeline.booking import booked, mark_late, taken_over
from bot.text import shorten
from bot.turn import Turn

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
