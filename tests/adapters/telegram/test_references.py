"""What a message refers to is read with it, and what cannot be read is named; nothing in private is met by silence."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapters.telegram.emulator.people import People
from bot import Agent, Plugin, model
from bot.models import ImageDescriptionRequest, ModelType, Purpose, TextResult, TranscriptionRequest
from tests.adapters.telegram.conftest import OpenHarness

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
