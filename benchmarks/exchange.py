"""A message and its answer, as the store is handed them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bot import Content, Memory, MemoryKind, Outcome, Receipt, delivery_id, derived_id, new_id
from bot.models import ModelCall
from bot.platform import Arrival, Delivery, DeliveryState
from bot.store import Commitment, Step, StepState, Store
from bot.testing import answer, make_arrival

AGENT = derived_id("agent", "Ada")
SAID = "Would you tell me again where we left off yesterday, and what you thought of it?"
REPLY = "We were at the second half of the plan; I thought that it was good, apart from its price."
RAW = answer(REPLY)
RULE, REASON = "room type", "every message in a room of type DM is answered"
CALLS = (ModelCall("TEXT_LARGE", "reply", "a-model", 1500, 60, prompt_bytes=6000, seconds=1.5),)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What there is to keep of one message that is answered, made before anything is measured."""

    at: datetime
    arrival: Arrival
    step: Step
    reply: Memory
    part: Delivery


def make_exchange(room: str) -> Exchange:
    """Make a message of a room and the answer to it; each room has one person."""
    at, turn_id = datetime.now(UTC), new_id()
    arrival = make_arrival(SAID, at=at, room=room, author=f"person of {room}")
    place = arrival.room
    result = {"raw": RAW, "inputs": [str(arrival.message.id)]}
    step = Step(turn_id, "answer:1", "model", StepState.DONE, result=result, at=at)
    content = Content(text=REPLY, thought="a thought", actions=("REPLY",), in_reply_to=arrival.message.id)
    reply = Memory(
        new_id(), MemoryKind.MESSAGE, AGENT, place.id, place.world_id, content, at, turn_id=turn_id
    )
    part = Delivery(
        delivery_id(turn_id, 0, 0),
        turn_id,
        place.id,
        reply.id,
        place.platform,
        place.account,
        place.external_id,
        0,
        Content(text=REPLY),
        at,
        reply_to=arrival.message.external_id,
    )
    return Exchange(at, arrival, step, reply, part)


def make_exchanges(rooms: Sequence[str], count: int) -> list[Exchange]:
    """Make so many, room after room in turn."""
    return [make_exchange(rooms[number % len(rooms)]) for number in range(count)]


def closed(receipt: Receipt, one: Exchange) -> Receipt:
    """Close the receipt of an exchange."""
    return replace(
        receipt,
        outcome=Outcome.ANSWERED,
        reason=REASON,
        rule=RULE,
        turn_id=one.step.turn_id,
        closed_at=one.at,
        model_calls=CALLS,
    )


def attempting(part: Delivery, one: Exchange) -> Delivery:
    """Say that a part is about to leave."""
    return replace(part, state=DeliveryState.ATTEMPTING, attempts=1, first_attempt_at=one.at)


def sent(part: Delivery) -> Delivery:
    """Say that a part has left."""
    return replace(part, state=DeliveryState.SENT, external_id=f"{part.target}-1")


async def keep(store: Store, one: Exchange) -> None:
    """Ask of a store what an answered message asks of it, from the receipt to the part that has left."""
    ledger = store.ledger
    [received] = await ledger.receive([one.arrival], one.at)
    await store.memories.recent(one.arrival.room.id)
    await ledger.save_step(one.step)
    [part] = await ledger.commit(Commitment((one.reply,), (one.part,), (closed(received.receipt, one),)))
    part = attempting(part, one)
    await ledger.save_delivery(part)
    await ledger.save_delivery(sent(part))


async def keep_all(store: Store, exchanges: Sequence[Exchange], lanes: int = 1) -> None:
    """Keep them in so many lanes at once, in each one after another."""
    await asyncio.gather(*(_keep_each(store, exchanges[lane::lanes]) for lane in range(lanes)))


async def _keep_each(store: Store, exchanges: Iterable[Exchange]) -> None:
    for one in exchanges:
        await keep(store, one)
