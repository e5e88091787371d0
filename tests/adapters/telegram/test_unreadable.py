"""An update that cannot be read is recorded; the others are answered, and the offset moves past it."""

import json
from typing import Any

import pytest

from adapters.telegram.emulator import Emulator, Fault
from bot.store import InMemoryStore
from tests.adapters.telegram.conftest import TOKEN, run_character


def build_message(message_id: int, text: Any) -> dict[str, Any]:
    """Return a private message of a user."""
    user = {"id": 5, "is_bot": False, "first_name": "Alice"}
    chat = {"id": 5, "type": "private", "first_name": "Alice"}
    return {"message_id": message_id, "date": 1_790_000_000, "chat": chat, "from": user, "text": text}


def is_confirmed(telegram: Emulator, offset: int) -> bool:
    """Return whether the bot has asked for the updates from an offset on."""
    return any(parameters.get("offset") == offset for parameters in telegram.recorder.calls_of("getUpdates"))


@pytest.mark.failure("B-15")
@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"message": build_message(2, ["lost?"])}, "lost?"),
        ({"message": {**build_message(2, "lost?"), "date": -(10**14)}}, "lost?"),
        ({"message": {**build_message(2, "lost?"), "chat": {}}}, "lost?"),
    ],
    ids=["wrong type", "impossible time", "no chat"],
)
async def test_an_unreadable_update_is_recorded_once_and_costs_no_other(bad: dict[str, Any], expected: str) -> None:
    store = InMemoryStore()
    async with Emulator() as telegram, run_character(telegram, store=store) as harness:
        good = [{"update_id": number, "message": build_message(number, "Hello")} for number in (11, 13)]
        body = json.dumps({"ok": True, "result": [good[0], {"update_id": 12, **bad}, good[1]]})
        telegram.faults.append(Fault("getUpdates", 200, body))
        harness.bot.next_update = 14
        await harness.wait_receipts()
        await telegram.recorder.wait_until(lambda: is_confirmed(telegram, 14))
    [event] = await store.ledger.unreadable_events()
    assert event.event_id == "update 12"
    assert expected in event.raw
    assert TOKEN not in event.raw
    assert len(await store.ledger.receipts()) == 2
