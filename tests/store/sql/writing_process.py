"""A process that writes until it is killed, and prints what has been acknowledged."""

import asyncio
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

from bot import Content, Memory, MemoryKind, Outcome, derived_id, new_id, system_clock
from bot.domain.ids import delivery_id
from bot.platform import Delivery
from bot.store.ledger import TurnCommit
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message

ROOMS = 8


async def main(path: Path) -> None:
    """Answer messages in several rooms at once until it is killed."""
    async with OpenFiles().open_store(path, derived_id("agent")) as store, asyncio.TaskGroup() as group:
        for room in range(ROOMS):
            group.create_task(_answer(store, f"room {room}"))


async def _answer(store: SqlStore, room: str) -> None:
    for number in count():
        now, turn = system_clock(), new_id()
        arrival = make_message(f"message {number}", sent_at=now, room=room)
        receipt = (await store.ledger.receive([arrival], now))[0].receipt
        _tell("received", receipt.id)
        reply = Memory(
            new_id(),
            MemoryKind.MESSAGE,
            derived_id("agent"),
            arrival.room.id,
            arrival.world.id,
            Content(text=f"answer {number}"),
            now,
            turn_id=turn,
        )
        part = Delivery(
            delivery_id(turn, 0, 0), turn, arrival.room.id, reply.id, "test", "a", room, 0, reply.content, now
        )
        answered = replace(receipt, outcome=Outcome.ANSWERED, turn_id=turn, closed_at=now)
        await store.ledger.commit(TurnCommit((reply,), (part,), (answered,)))
        _tell("answered", receipt.id)


def _tell(what: str, receipt_id: object) -> None:
    sys.stdout.write(f"{what} {receipt_id}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
