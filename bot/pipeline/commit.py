"""How a message ends: reply, parts and receipts move together, or not at all."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from bot.domain.ledger import Outcome, Receipt
from bot.killpoints import reached
from bot.pipeline.evaluate import has_lessons, note_learnt
from bot.platform.packing import Outgoing
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
    notes = tuple(dict.fromkeys((*turn.notes, *failures)))
    closed = [(one, _taken_over(_booked(turn, one), newest)) for one in earlier]
    final = replace(_booked(turn, newest), outcome=outcome, reason=reason, rule=rule, notes=notes)
    closed.append((newest, final))
    reached("turn.pre_commit")
    turn.replies += await turn.agent.outbox.commit(outgoing, [receipt for _, receipt in closed])
    for one, receipt in closed:
        one.receipt = receipt
        one.settle(receipt)
        if one.is_learnt:  # while it was being closed
            await note_learnt(turn, one)
    taken = f", with {len(earlier)} before it" if earlier else ""
    logger.info("message %s: %s%s: %s (%s)", newest.message.id, outcome, taken, shorten(reason, 300), rule)
    return outcome


def _booked(turn: Turn, one: Input) -> Receipt:
    calls = (*one.receipt.model_calls, *one.calls)
    is_learnt = one.is_learnt or not has_lessons(turn.agent)
    now = turn.agent.clock()
    return replace(one.receipt, turn_id=turn.id, closed_at=now, model_calls=calls, is_learnt=is_learnt)


def _taken_over(receipt: Receipt, newest: Input) -> Receipt:
    return replace(
        receipt,
        outcome=Outcome.SUPERSEDED,
        reason="a newer message was taken up together with it",
        rule="LATEST_RESPONSE",
        superseded_by=newest.message.id,
    )
