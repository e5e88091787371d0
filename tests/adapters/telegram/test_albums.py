"""Albums: several messages of Telegram that are stored as one, and their edits."""

import pytest

from adapters.telegram.incoming import ChatTarget, derive_room_id
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness


async def test_the_pictures_of_an_album_are_a_single_message(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.send_album(chat, alice, [b"one", b"two", b"three"], "Three of them")
    [text] = await harness.wait_texts(1, chat)
    assert text.startswith("You said: Three of them")
    [receipt] = await harness.wait_receipts()
    message = (await harness.store.memories.memories([receipt.memory_id]))[receipt.memory_id]
    assert len(message.content.attachments) == 3
    assert harness.clock.pauses.count(1.0) == 1


@pytest.mark.failure("B-06")
@pytest.mark.parametrize(("edited", "text"), [(0, "Better"), (1, "Three\nBetter"), (2, "Three\nBetter")])
async def test_an_edit_of_any_part_of_an_album_changes_the_message_of_the_album(
    edited: int, text: str, harness: TelegramHarness
) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    parts = harness.people.send_album(chat, alice, [b"one", b"two", b"three"], "Three")
    await harness.wait_texts(1, chat)
    harness.people.edit(parts[edited], "Better")
    first, second = await harness.wait_receipts()
    assert (second.memory_id, second.rule) == (first.memory_id, "ON_EDIT")
    message = (await harness.store.memories.memories([first.memory_id]))[first.memory_id]
    assert message.content.text == text
    assert len({file.id for file in message.content.attachments}) == 3
    assert len(await harness.wait_texts(1, chat)) == 1


@pytest.mark.failure("B-06")
async def test_a_replaced_picture_of_an_album_replaces_the_earlier_picture(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    parts = harness.people.send_album(chat, alice, [b"one", b"two", b"three"], "Three")
    await harness.wait_texts(1, chat)
    [receipt] = await harness.wait_receipts()

    async def stored_files() -> list[str]:
        message = (await harness.store.memories.memories([receipt.memory_id]))[receipt.memory_id]
        return [file.id for file in message.content.attachments]

    before = await stored_files()
    harness.people.edit({**parts[1], "photo": harness.people.store_photo(b"other")}, "")
    await harness.wait_receipts()
    after = await stored_files()
    assert [first == second for first, second in zip(before, after, strict=True)] == [True, False, True]


async def test_messages_after_an_album_in_the_same_chat_wait_and_others_do_not(harness: TelegramHarness) -> None:
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    chat, other = harness.people.open_private_chat(alice), harness.people.open_private_chat(bob)
    harness.people.send_album(chat, alice, [b"one", b"two"], "Album")
    harness.people.say(chat, alice, "after it")
    harness.people.say(other, bob, "elsewhere")
    await harness.wait_receipts()
    chat_room = derive_room_id(str(harness.bot.id), ChatTarget(chat["id"]))
    stored = list(reversed(await harness.store.ledger.receipts()))
    assert [item.key.message_id for item in stored if item.room_id == chat_room] == ["1", "3"]
    assert await harness.wait_texts(1, other) == ["You said: elsewhere"]


@pytest.mark.failure("B-06")
@pytest.mark.parametrize("edited", [0, 1])
async def test_an_album_that_mentions_the_bot_still_does_after_an_edit_of_another_part(
    edited: int, open_harness: OpenHarness
) -> None:
    async with open_harness(settings={"ON_EDIT": "rerun"}) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        parts = harness.people.send_album(group, alice, [b"one", b"two"], "@ada_bot what is this?")
        await harness.wait_texts(1, group)
        harness.people.edit(parts[edited], "@ada_bot and this?" if edited == 0 else "and this?")
        first, second = await harness.wait_receipts()
        assert (second.outcome, second.rule) == (first.outcome, first.rule)
        assert len(harness.telegram.recorder.texts(group["id"])) == 1
