"""A character with stored messages, for the tests of commands that read the store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bot.cli.characters import load_character_config
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.plugin_system.plugin import find_storage
from bot.runtime.runtime import Runtime
from bot.store.protocols import Store
from bot.testing import RecordingAdapter, make_message

T = TypeVar("T")
FILE = "ada.json"


def write_character(folder: Path) -> None:
    """Write a character that names no plugins, so that its data is stored in a database."""
    (folder / FILE).write_text('{"name": "Ada"}', encoding="utf-8")


def answer_messages(*texts: str, room: str = "lobby") -> list[Receipt]:
    """Submit messages to the character; return their receipts."""

    async def run_agent() -> list[Receipt]:
        agent_config = load_character_config(Path(FILE)).agent_config
        async with Runtime([agent_config]) as runtime:
            await runtime.connect(RecordingAdapter())
            receipts = []
            for number, text in enumerate(texts):
                inbound = make_message(text, sent_at=agent_config.clock(), room=room, message_id=f"{room}-{number}")
                receipt = await runtime.handles[0].submit(inbound)
                receipts.append(await runtime.handles[0].wait_outcome(receipt.id))
            return receipts

    receipts = asyncio.run(run_agent())
    assert all(receipt.outcome is Outcome.ANSWERED for receipt in receipts)
    return receipts


def run_with_store(work: Callable[[Store], Awaitable[T]]) -> T:
    """Run a function with the character's open store."""

    async def run() -> T:
        config = load_character_config(Path(FILE))
        storage = find_storage(config.plugins)
        assert storage is not None
        async with storage.open(config.agent_config.agent_id, config.settings) as store:
            return await work(store)

    return asyncio.run(run())


def set_delivery_state(receipt: Receipt, state: DeliveryState, cause: str = "timed out") -> Delivery:
    """Set the state of an answer's only part."""

    async def change(store: Store) -> Delivery:
        assert receipt.turn_id is not None
        [part] = await store.ledger.deliveries(turn_id=receipt.turn_id)
        changed = replace(part, state=state, cause=cause)
        await store.ledger.save_delivery(changed)
        return changed

    return run_with_store(change)
