"""How a message ends: reply, parts and receipts move together, or not at all."""

from collections.abc import Sequence
from dataclasses import replace

from bot.domain.ledger import ModelCall, Outcome, Receipt
from bot.platform.outbox import Outgoing
from bot.runs import current_run
from bot.turn import Turn


async def close(
    turn: Turn, outcome: Outcome, reason: str, rule: str, outgoing: Sequence[Outgoing] = ()
) -> Outcome:
    """Give the turn's newest message its outcome and every earlier one `superseded` by it.

    What is outgoing is kept in the same commit. Whoever waits for an outcome is told afterwards.
    """
    now = turn.agent.clock()
    newest = turn.inputs[-1]
    closed: list[Receipt] = []
    for one in turn.inputs:
        receipt = replace(one.receipt, turn_id=turn.id, closed_at=now)
        if one is newest:
            receipt = replace(
                receipt,
                outcome=outcome,
                reason=reason,
                rule=rule,
                model_calls=(*receipt.model_calls, *_calls()),
                notes=(*turn.notes, *(f"provider {one.name}: {one.cause}" for one in turn.state.failures)),
            )
        else:
            receipt = replace(
                receipt,
                outcome=Outcome.SUPERSEDED,
                reason="a newer message was answered together with it",
                rule="LATEST_RESPONSE",
                superseded_by=newest.message.id,
            )
        one.receipt = receipt
        closed.append(receipt)
    turn.replies += await turn.agent.outbox.commit(outgoing, closed)
    for one in turn.inputs:
        one.settle(one.receipt)
    return outcome


def _calls() -> Sequence[ModelCall]:
    run = current_run.get()
    return run.calls if run is not None else ()
