"""Claims on messages: what an earlier process left is taken up, and what is cut short is given back."""

from contextlib import suppress
from dataclasses import replace

from bot.agent import Agent
from bot.domain.ids import new_id
from bot.domain.inbound import Received
from bot.domain.ledger import Outcome, Receipt
from bot.errors import StoreUnavailable
from bot.turn import Turn


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
