"""A message and its reply, as the store receives them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bot import Content, Memory, MemoryKind, Outcome, Receipt, derived_id, new_id
from bot.domain.ids import delivery_id
from bot.models import ModelCall
from bot.platform import Delivery, DeliveryState, InboundMessage
from bot.store import Step, StepState, Store, TurnCommit
from bot.testing import make_message, model_answer

AGENT = derived_id("agent", "Ada")
MESSAGE_TEXT = "Would you tell me again where we left off yesterday, and what you thought of it?"
REPLY_TEXT = "We were at the second half of the plan; I thought that it was good, apart from its price."
RAW_RESPONSE = model_answer(REPLY_TEXT)
RULE, REASON = "room type", "every message in a room of type DM is answered"
CALLS = (ModelCall("TEXT_LARGE", "reply", "a-model", 1500, 60, prompt_bytes=6000, seconds=1.5),)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The rows of one answered message, built before anything is measured."""

    at: datetime
    inbound: InboundMessage
    step: Step
    reply: Memory
    delivery: Delivery


def make_exchange(room: str) -> Exchange:
    """Build a message of a room and its reply; each room has one person."""
    at, turn_id = datetime.now(UTC), new_id()
    inbound = make_message(MESSAGE_TEXT, sent_at=at, room=room, author=f"person of {room}")
    room_row = inbound.room
    result = {"raw": RAW_RESPONSE, "inputs": [str(inbound.message.id)]}
    step = Step(turn_id, "answer:1", "model", StepState.DONE, result=result, recorded_at=at)
    content = Content(text=REPLY_TEXT, thought="a thought", actions=("REPLY",), in_reply_to=inbound.message.id)
    reply = Memory(new_id(), MemoryKind.MESSAGE, AGENT, room_row.id, room_row.world_id, content, at, turn_id=turn_id)
    delivery = Delivery(
        delivery_id(turn_id, 0, 0),
        turn_id,
        room_row.id,
        reply.id,
        room_row.platform,
        room_row.account,
        room_row.external_id,
        0,
        Content(text=REPLY_TEXT),
        at,
        reply_to=inbound.message.external_id,
    )
    return Exchange(at, inbound, step, reply, delivery)


def make_exchanges(rooms: Sequence[str], count: int) -> list[Exchange]:
    """Build `count` exchanges, in each room in turn."""
    return [make_exchange(rooms[number % len(rooms)]) for number in range(count)]


def close_receipt(receipt: Receipt, exchange: Exchange) -> Receipt:
    """Return the closed receipt of an exchange."""
    return replace(
        receipt,
        outcome=Outcome.ANSWERED,
        reason=REASON,
        rule=RULE,
        turn_id=exchange.step.turn_id,
        closed_at=exchange.at,
        model_calls=CALLS,
    )


def mark_attempting(delivery: Delivery, exchange: Exchange) -> Delivery:
    """Return a delivery whose sending has begun."""
    return replace(delivery, state=DeliveryState.ATTEMPTING, attempts=1, first_attempt_at=exchange.at)


def mark_sent(delivery: Delivery) -> Delivery:
    """Return a delivery that was sent."""
    return replace(delivery, state=DeliveryState.SENT, external_id=f"{delivery.target}-1")


async def store_exchange(store: Store, exchange: Exchange) -> None:
    """Make all calls of an answered message to a store, from the receipt to the sent delivery."""
    ledger = store.ledger
    [received] = await ledger.receive([exchange.inbound], exchange.at)
    await store.memories.recent(exchange.inbound.room.id)
    await ledger.save_step(exchange.step)
    [delivery] = await ledger.commit(
        TurnCommit((exchange.reply,), (exchange.delivery,), (close_receipt(received.receipt, exchange),))
    )
    delivery = mark_attempting(delivery, exchange)
    await ledger.save_delivery(delivery)
    await ledger.save_delivery(mark_sent(delivery))


async def store_exchanges(store: Store, exchanges: Sequence[Exchange], concurrency: int = 1) -> None:
    """Store exchanges, `concurrency` of them at once."""
    await asyncio.gather(*(_store_each(store, exchanges[offset::concurrency]) for offset in range(concurrency)))


async def _store_each(store: Store, exchanges: Iterable[Exchange]) -> None:
    for exchange in exchanges:
        await store_exchange(store, exchange)
