"""What a receipt says when its message has come to its end."""

from collections.abc import Iterable
from dataclasses import replace

from bot.domain.ledger import Outcome, Receipt
from bot.pipeline.evaluate import has_lessons
from bot.turn import Input, Turn


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
