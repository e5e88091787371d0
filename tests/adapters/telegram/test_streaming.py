"""Streamed replies in a group, and what may happen to them meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapters.telegram import adapter
from adapters.telegram.incoming import ChatTarget
from bot import Outcome
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryState
from bot.testing import StreamedText
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness

pytestmark = pytest.mark.usefixtures("nothing_held_back")


@pytest.fixture(autouse=True)
def update_drafts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Update drafts without a pause."""
    monkeypatch.setattr(adapter, "GROUP_DRAFT_INTERVAL", 0.0)


LIVE = {"STREAMING": "true"}
HEAD = "<response><thought>hm</thought><actions>REPLY</actions><text>"
TAIL = "</text></response>"
FIRST, WHOLE = "Once upon a time", "Once upon a time there was a bot."


def stream_script(gate: asyncio.Event, rest: str = WHOLE.removeprefix(FIRST)) -> Callable[[TextRequest], Any]:
    """Return a script that streams the beginning, and the rest when the gate opens."""

    def write(request: TextRequest) -> Any:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><reasoning>not for us</reasoning><action>IGNORE</action></response>"
        return StreamedText(HEAD, FIRST, gate, rest + TAIL)

    return write


async def start_reply(harness: TelegramHarness, **details: Any) -> tuple[Any, Any]:
    """Ask the bot in a group and wait for the beginning of its answer."""
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice, **details)
    harness.people.say(group, alice, "@ada_bot tell me a story")
    assert await harness.wait_texts(1, group) == [FIRST]
    return alice, group


def visible_texts(harness: TelegramHarness, chat: Any) -> list[str]:
    return [item.text for item in harness.telegram.recorder.messages if item.room == chat["id"] and not item.is_gone]


async def wait_for_message(harness: TelegramHarness, text: str, chat: Any) -> None:
    await harness.telegram.recorder.wait_until(lambda: text in visible_texts(harness, chat))


async def test_a_reply_in_a_group_is_streamed(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(stream_script(gate), settings=LIVE) as harness:
        _, group = await start_reply(harness)
        gate.set()
        await wait_for_message(harness, WHOLE, group)
        assert visible_texts(harness, group) == [WHOLE]


@pytest.mark.failure("B-14")
async def test_a_group_that_migrates_during_a_reply_gets_all_of_it_in_the_supergroup(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(stream_script(gate), settings=LIVE) as harness:
        alice, group = await start_reply(harness, kind="group")
        [receipt] = await harness.store.ledger.receipts(limit=10)
        before = await harness.store.worlds.room(receipt.room_id)
        await harness.store.worlds.set_setting(before.world_id, "CONVERSATION_LENGTH", "12")
        new = harness.people.migrate(group, alice)
        harness.people.say(new, alice, "hm")
        await harness.wait_confirmed()
        gate.set()
        await wait_for_message(harness, WHOLE, new)
        parts = await harness.wait_deliveries()
        assert visible_texts(harness, new) == [WHOLE]
        assert visible_texts(harness, group) == [FIRST]  # there nothing can be changed any more
        assert {item.state for item in parts} <= {DeliveryState.SENT}
        assert parts[-1].target == str(ChatTarget(new["id"]))
        after = await harness.store.worlds.room(parts[-1].room_id)
        world = await harness.store.worlds.world(after.world_id)
        assert world.settings == {"CONVERSATION_LENGTH": "12"}
        memories = await harness.store.memories.recent(after.id, 10)
        assert "@ada_bot tell me a story" in [item.content.text for item in memories]


@pytest.mark.failure("B-14")
async def test_a_migration_reported_only_by_an_error_moves_the_whole_reply(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(stream_script(gate), settings=LIVE) as harness:
        alice, group = await start_reply(harness, kind="group")
        new = harness.people.migrate(group, alice, is_announced=False)
        harness.people.say(new, alice, "not the bot's: it has the number of what was seen before")
        gate.set()
        await wait_for_message(harness, WHOLE, new)
        await harness.wait_deliveries()
        assert visible_texts(harness, new) == [WHOLE]
        assert await harness.store.ledger.deliveries(is_open=True) == []


@pytest.mark.failure("B-14")
async def test_a_migration_between_two_parts_sends_the_rest_to_the_supergroup(open_harness: OpenHarness) -> None:
    text = "word " * 1500
    async with open_harness(lambda request: f"{HEAD}{text}{TAIL}") as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice, kind="group")
        moved: list[Any] = []

        def moves() -> bool:
            if harness.telegram.recorder.texts(group["id"]) and not moved:
                moved.append(harness.people.migrate(group, alice, is_announced=False))
            return bool(moved)

        harness.people.say(group, alice, "@ada_bot tell me a story")
        await harness.telegram.recorder.wait_until(moves)
        parts = await harness.wait_deliveries()
        texts = harness.telegram.recorder.texts(group["id"]) + harness.telegram.recorder.texts(moved[0]["id"])
        assert " ".join(" ".join(texts).split()) == text.strip()
        assert {item.state for item in parts} == {DeliveryState.SENT}


async def test_a_draft_deleted_by_a_moderator_is_not_sent_again_and_the_receipt_says_why(
    open_harness: OpenHarness,
) -> None:
    gate = asyncio.Event()
    async with open_harness(stream_script(gate, " word" * 1500), settings=LIVE) as harness:
        _, group = await start_reply(harness)
        [shown] = harness.telegram.recorder.messages
        shown.is_gone = True
        gate.set()
        [receipt] = await harness.wait_receipts()
        parts = await harness.wait_deliveries()
        assert receipt.outcome is Outcome.ANSWERED
        assert visible_texts(harness, group) == []
        reported = [item for item in parts if item.memory_id != parts[0].memory_id or item.cause]
        assert len(reported) > 1
        assert {(item.state, item.cause) for item in reported} == {
            (DeliveryState.CANCELLED, "the message was deleted from the chat: it is not sent again")
        }


@pytest.mark.failure("B-08")
async def test_erasing_a_user_deletes_the_draft_of_the_answer(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(stream_script(gate), settings=LIVE) as harness:  # Telegram reports no deletions
        _, group = await start_reply(harness)
        [receipt] = await harness.store.ledger.receipts(limit=10)
        await harness.runtime.agents[0].handle.edits.erase_entity(receipt.author_id)
        await harness.telegram.recorder.wait_until(lambda: visible_texts(harness, group) == [])
        gate.set()
        await harness.wait_deliveries()
        assert visible_texts(harness, group) == []
