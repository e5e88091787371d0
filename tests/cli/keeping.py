"""A character whose books hold something: what the commands over the store are tried on."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bot.cli.characters import read_part
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.plugin_system.plugin import storage_of
from bot.runtime.runtime import Runtime
from bot.store.protocols import Store
from bot.testing import RecordingAdapter, make_arrival

T = TypeVar("T")
FILE = "ada.json"


def write_character(folder: Path) -> None:
    """Write a character that names no plugins, so that it is kept in a database."""
    (folder / FILE).write_text('{"name": "Ada"}', encoding="utf-8")


def have_said(*texts: str, room: str = "lobby") -> list[Receipt]:
    """Have it answer messages, as `bot run` would."""

    async def say() -> list[Receipt]:
        blueprint = read_part(Path(FILE)).blueprint
        async with Runtime([blueprint]) as runtime:
            await runtime.connect(RecordingAdapter())
            found = []
            for number, text in enumerate(texts):
                arrival = make_arrival(text, at=blueprint.clock(), room=room, message_id=f"{room}-{number}")
                receipt = await runtime.doors[0].inbox.put(arrival)
                found.append(await runtime.doors[0].inbox.settled(receipt.id))
            return found

    receipts = asyncio.run(say())
    assert all(receipt.outcome is Outcome.ANSWERED for receipt in receipts)
    return receipts


def in_books(work: Callable[[Store], Awaitable[T]]) -> T:
    """Do something with the books while nothing else has them open."""

    async def do() -> T:
        part = read_part(Path(FILE))
        storage = storage_of(part.plugins)
        assert storage is not None
        async with storage.open(part.blueprint.agent_id, part.settings) as store:
            return await work(store)

    return asyncio.run(do())


def leave(receipt: Receipt, state: DeliveryState, cause: str = "timed out") -> Delivery:
    """Have the only part of an answer stand like this."""

    async def change(store: Store) -> Delivery:
        assert receipt.turn_id is not None
        [part] = await store.ledger.deliveries(turn_id=receipt.turn_id)
        left = replace(part, state=state, cause=cause)
        await store.ledger.save_delivery(left)
        return left

    return in_books(change)
