"""What a message refers to is read with it, and what cannot be read is named; nothing in private is met by silence."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapters.telegram.emulator.people import People
from adapters.telegram.incoming import ChatTarget, derive_room_id
from bot import Agent, Plugin, model
from bot.models import ImageDescriptionRequest, ModelType, Purpose, TextResult, TranscriptionRequest
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (64).to_bytes(4) * 2
WAVE = b"RIFF\x04\0\0\0WAVE\0\0\0\0"
HERON = "A heron stands in shallow water."
NOTES = b"The gate code is 4711."
DATE = 1_780_000_000


@model(ModelType.IMAGE_DESCRIPTION)
async def look(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Describe the test's picture."""
    assert request.image == PNG
    return TextResult(f"<response><title>Heron</title><description>{HERON}</description></response>")


@model(ModelType.TRANSCRIPTION)
async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the words of the test's recording."""
    assert request.audio == WAVE
    return TextResult("the ferry leaves at nine")


SENSES = Plugin("senses", models=[look, listen])


STILL = {"type": "regular", "is_animated": False, "is_video": False, "width": 64, "height": 64}
HIDDEN = {"type": "hidden_user", "date": DATE, "sender_user_name": "Mo"}
TASKS = [{"id": 1, "text": "Paint"}, {"id": 2, "text": "Sail", "completion_date": DATE}]
POLL = {
    **{"id": "1", "question": "Tea?", "options": [{"text": "Yes", "voter_count": 0, "persistent_id": "1"}]},
    **{"total_voter_count": 0, "is_closed": False, "is_anonymous": True, "type": "regular"},
    **{"allows_multiple_answers": False, "allows_revoting": False, "members_only": False},
}
INVOICE = {"title": "Rope", "description": "d", "start_parameter": "s", "currency": "EUR", "total_amount": 1}
UNDESCRIBED = "thing of tomorrow"
CONTENT: dict[str, dict[str, Any]] = {
    "animated sticker": {
        "sticker": {"file_id": "f", "file_unique_id": "u", **STILL, "is_animated": True, "emoji": "🐦"}
    },
    "forward": {"text": "Meet at dawn.", "forward_origin": HIDDEN},
    "paid preview": {"paid_media": {"star_count": 5, "paid_media": [{"type": "preview"}]}},
    "checklist": {"checklist": {"title": "Boats", "tasks": TASKS}},
    "poll": {"poll": POLL},
    "contact": {"contact": {"first_name": "Mo", "phone_number": "123"}},
    "location": {"location": {"latitude": 1, "longitude": 2}},
    "invoice": {"invoice": INVOICE},
    "story": {"story": {"id": 1, "chat": {"id": 9, "type": "private", "first_name": "Mo"}}},
    UNDESCRIBED: {"thing_of_tomorrow": {"id": 1}},  # which the library does not know
}


def build_content(people: People, kind: str) -> dict[str, Any]:
    """Return the fields of a message of a kind, with its file stored on the platform."""
    match kind:
        case "picture":
            return {"photo": people.store_photo(PNG)}
        case "picture sent as a file":
            return {"document": people.store_file(PNG, name="a", mime_type="application/octet-stream")}
        case "voice message":
            return {"voice": people.store_file(WAVE, duration=1, mime_type="audio/wav")}
        case "file":
            return {"document": people.store_file(NOTES, file_name="notes.txt", mime_type="text/plain")}
        case "sticker":
            return {"sticker": people.store_file(PNG, emoji="🐦", **STILL)}
        case "paid picture":
            photo = {"type": "photo", "photo": people.store_photo(PNG)}
            return {"paid_media": {"star_count": 5, "paid_media": [photo]}}
    return CONTENT[kind]


PROMPT_TEXTS = {
    "picture": f"[image: {HERON}]",
    "picture sent as a file": f"[image: {HERON}]",
    "voice message": "[audio: the ferry leaves at nine]",
    "file": "The gate code is 4711.",
    "sticker": f"[sticker 🐦] [image: {HERON}]",
    "animated sticker": "[sticker 🐦]",
    "forward": r"> [forwarded from Mo]\n> > Meet at dawn.",
    "paid picture": f"[paid media for 5 stars] [image: {HERON}]",
    "paid preview": "[paid media for 5 stars, 1 of its files cannot be seen]",
    "checklist": "[checklist: Boats: Paint; Sail (done)]",
    "poll": "[poll: Tea? Yes]",
    "contact": "[contact: Mo, 123]",
    "location": "[location: 1.00000, 2.00000]",
    "invoice": "[invoice: Rope]",
    "story": "[story]",
    UNDESCRIBED: "[thing of tomorrow]",
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("kind", PROMPT_TEXTS)
async def test_the_message_that_is_replied_to_is_read_with_its_files(open_harness: OpenHarness, kind: str) -> None:
    async with open_harness(plugins=(SENSES,), is_checked=kind != UNDESCRIBED) as harness:
        people = harness.people
        alice, bob = people.add_user("Alice"), people.add_user("Bob")
        group = people.add_group("The group", alice, bob)
        shown = people.say(group, bob, **build_content(people, kind))
        await harness.wait_deliveries()
        sent = len(harness.telegram.recorder.texts(group["id"]))
        people.say(group, alice, "@ada_bot what is this?", reply_to=shown)
        await harness.wait_texts(sent + 1, group)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert "> Bob: " in prompt
    assert PROMPT_TEXTS[kind] in prompt


@pytest.mark.parametrize("kind", ["picture", "voice message", "file", "checklist", "story"])
async def test_a_message_in_another_chat_is_read_with_its_files(open_harness: OpenHarness, kind: str) -> None:
    async with open_harness(plugins=(SENSES,)) as harness:
        people = harness.people
        alice, mo = people.add_user("Alice"), people.add_user("Mo")
        chat = people.open_private_chat(alice)
        external: Mapping[str, Any] = {
            "origin": {"type": "user", "date": DATE, "sender_user": mo},
            **build_content(people, kind),
        }
        people.say(chat, alice, "what is this?", external_reply=external)
        await harness.wait_texts(1)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert "> Mo: " in prompt
    assert PROMPT_TEXTS[kind] in prompt


async def test_a_reply_to_a_story_says_so(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        alice, mo = harness.people.add_user("Alice"), harness.people.add_user("Mo")
        chat = harness.people.open_private_chat(alice)
        story = {"id": 1, "chat": {"id": mo["id"], "type": "private", "first_name": "Mo"}}
        harness.people.say(chat, alice, "lovely", reply_to_story=story)
        await harness.wait_texts(1)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert r"> Mo: [story]\nlovely" in prompt


@pytest.mark.matrix(3)
@pytest.mark.parametrize("kind", PROMPT_TEXTS)
async def test_no_private_message_is_met_by_silence(open_harness: OpenHarness, kind: str) -> None:
    async with open_harness(plugins=(SENSES,), is_checked=kind != UNDESCRIBED) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, **build_content(harness.people, kind))
        await harness.wait_texts(1)
        prompt = harness.model.requests_for(Purpose.REPLY)[-1].prompt
    assert PROMPT_TEXTS[kind].removeprefix("> ").replace("> >", ">") in prompt


async def test_a_private_service_message_is_not_answered(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, message_auto_delete_timer_changed={"message_auto_delete_time": 60})
        harness.people.say(chat, alice, "hello")
        assert await harness.wait_texts(1) == ["You said: hello"]


# Albums: several messages of Telegram that are stored as one, and their edits.


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
