"""What a message refers to: the files and texts that it replies to, and the documents that came before it."""

from collections.abc import Callable
from typing import Any

import pytest

from adapters.discord.emulator.state import Json
from bot import ActionResult, Agent, Content, Effect, Plugin, Turn, action, derived_id, model
from bot.models import ImageDescriptionRequest, ModelType, Purpose, TextRequest, TextResult, TranscriptionRequest
from bot.testing import AgentHarness, ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (64).to_bytes(4) * 2
JPEG = b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x40\x00\x40"
WAVE = b"RIFF\x04\0\0\0WAVE\0\0\0\0"
HERON = "A heron stands in shallow water."
NOTES = b"Moorings are paid on Mondays. The gate code is 4711."


def build_senses(seen: list[str]) -> Plugin:
    """Return a plugin that sees a heron in every picture, hears the same words in every recording, and notes both."""

    @model(ModelType.IMAGE_DESCRIPTION)
    async def look(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
        """Describe the test's picture."""
        assert request.image in (PNG, JPEG)
        seen.append(request.content_type)
        return TextResult(f"<response><title>Heron</title><description>{HERON}</description></response>")

    @model(ModelType.TRANSCRIPTION)
    async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
        """Return the words of the test's recording."""
        assert request.audio == WAVE
        seen.append(request.content_type)
        return TextResult("the ferry leaves at nine")

    return Plugin("senses", models=[look, listen])


def find_last_prompt(scripted: ScriptedModel) -> str:
    return scripted.requests_for(Purpose.REPLY)[-1].prompt


def build_snapshot(**fields: Any) -> Json:
    """Return what a forwarding message holds of the forwarded one."""
    sent = {"type": 0, "content": "", "embeds": [], "attachments": [], "mentions": [], "mention_roles": []}
    return {
        "message": {**sent, "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": None, "flags": 0} | fields
    }


STICKER: Json = {"id": "5", "name": "wave", "format_type": 1}
EMBED: Json = {"type": "rich", "title": "Tide table", "description": "Low water at six."}
POLL: Json = {
    "question": {"text": "Tea?"},
    "answers": [{"answer_id": 1, "poll_media": {"text": "Yes"}}],
    "expiry": "2036-01-01T00:00:00+00:00",
    "allow_multiselect": False,
    "layout_type": 1,
}
REFERENCES: dict[str, tuple[Callable[[EmulatedServer], Json], str]] = {
    "picture": (lambda server: {"files": (("a.png", PNG, "image/png"),)}, f"> Kim: [image: {HERON}]"),
    "picture of no type": (
        lambda server: {"files": (("a", PNG, "application/octet-stream"),)},
        f"> Kim: [image: {HERON}]",
    ),
    "voice message": (
        lambda server: {"files": (("v.wav", WAVE, "audio/wav"),)},
        "> Kim: [audio: the ferry leaves at nine]",
    ),
    "file": (lambda server: {"files": (("notes.txt", NOTES, "text/plain"),)}, "The gate code is 4711."),
    "embed": (lambda server: {"embeds": [EMBED]}, r"> Kim: [embed] Tide table\n> Low water at six."),
    "components": (
        lambda server: {
            "flags": 1 << 15,
            "components": [{"type": 17, "components": [{"type": 10, "content": "Fog."}]}],
        },
        "> Kim: Fog.",
    ),
    "sticker": (lambda server: {"sticker_items": [STICKER]}, "> Kim: [sticker: wave]"),
    "forwarded text": (
        lambda server: {"message_snapshots": [build_snapshot(content="Meet at dawn.")]},
        "> Kim: > [forwarded] Meet at dawn.",
    ),
    "forwarded sticker": (
        lambda server: {"message_snapshots": [build_snapshot(sticker_items=[STICKER])]},
        "> Kim: > [forwarded] [sticker: wave]",
    ),
    "poll": (lambda server: {"poll": POLL}, "> Kim: [poll] Tea?: Yes"),
    "long text": (lambda server: {"text": "Rope. " * 100 + "End of it."}, "Rope. End of it."),
    "nothing that can be read": (lambda server: {}, "> Kim: [a message that cannot be read]"),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("kind", REFERENCES)
async def test_the_message_that_is_replied_to_is_read_with_its_files(server: EmulatedServer, kind: str) -> None:
    build_fields, expected = REFERENCES[kind]
    scripted = ScriptedModel(model_answer("I see."))
    async with server.run_bot(scripted, build_senses([])) as (harness, _):
        shown = await server.emulator.people.say(server.lobby, server.kim, **build_fields(server))
        await receipts(harness)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} what is this?", reply_to=shown)
        await server.emulator.recorder.wait_for_texts(1)
    assert expected in find_last_prompt(scripted)
    assert "> Kim:" in find_last_prompt(scripted)


async def test_the_picture_of_an_embed_is_looked_at(server: EmulatedServer) -> None:
    seen: list[str] = []
    scripted = ScriptedModel(model_answer("I see."))
    async with server.run_bot(scripted, build_senses(seen)):
        picture = server.emulator.rest.store_file(server.lobby, "a.png", PNG, "image/png")
        embed = {"type": "image", "url": picture["url"], "thumbnail": {"url": picture["url"]}}
        shown = await server.emulator.people.say(server.lobby, server.kim, "look", embeds=[embed])
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} what is this?", reply_to=shown)
        await server.emulator.recorder.wait_for_texts(1)
    assert seen == ["image/png"]
    assert HERON in find_last_prompt(scripted)


async def test_a_picture_that_was_described_before_is_not_described_again_for_a_reply_to_it(
    server: EmulatedServer,
) -> None:
    seen: list[str] = []
    scripted = ScriptedModel(model_answer("I see."))
    async with server.run_bot(scripted, build_senses(seen)):
        people, file = server.emulator.people, ("a.png", PNG, "image/png")
        shown = await people.say(server.lobby, server.kim, f"{server.call} look", files=(file,))
        await server.emulator.recorder.wait_for_texts(1)
        await people.say(server.lobby, server.robin, f"{server.call} what is this?", reply_to=shown)
        await server.emulator.recorder.wait_for_texts(2)
    assert seen == ["image/png"]
    assert rf"look [image: {HERON}]\n@Ada what is this?" in find_last_prompt(scripted)


@pytest.mark.parametrize(
    ("content_type", "body", "sniffed"),
    [
        ("image/jpg", JPEG, "image/jpeg"),
        ("application/octet-stream", PNG, "image/png"),
        ("application/octet-stream", JPEG, "image/jpeg"),
        ("", PNG, "image/png"),
        ("text/plain", PNG, "image/png"),
        ("application/octet-stream", WAVE, "audio/wav"),
    ],
)
async def test_a_picture_or_recording_of_a_wrong_or_unknown_type_is_read_by_its_bytes(
    server: EmulatedServer, content_type: str, body: bytes, sniffed: str
) -> None:
    seen: list[str] = []
    async with server.run_bot(None, build_senses(seen)):
        direct, file = server.direct(server.kim), ("file", body, content_type)
        await server.emulator.people.say(direct, server.kim, files=(file,))
        await server.emulator.recorder.wait_for_texts(1)
    assert seen == [sniffed]


@pytest.mark.parametrize(
    "fields",
    [
        {"sticker_items": [STICKER]},
        {"poll": POLL},
        {"message_snapshots": [build_snapshot()]},
        {"message_snapshots": [build_snapshot(sticker_items=[STICKER])]},
        {"activity": {"type": 1, "party_id": "x"}},
        {"files": (("a.bin", b"\0\1\2", "application/octet-stream"),)},
        {"files": (("a.mp4", b"\0\0\0\0ftypmp42", "video/mp4"),)},
    ],
)
async def test_a_private_message_without_text_is_answered(server: EmulatedServer, fields: Json) -> None:
    async with server.run_bot():
        await server.emulator.people.say(server.direct(server.kim), server.kim, **fields)
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


# Documents


@action("LOOK", "Look out of the window.", effect=Effect.PURE)
async def look_out(turn: Turn) -> ActionResult:
    """Return the weather."""
    return ActionResult(text="fog")


def build_caller() -> ScriptedModel:
    """Return a model that calls LOOK once, in one answer or as a step, and answers with its result."""
    answers = {
        Purpose.STEP: ["<response><action>LOOK</action><isFinish>true</isFinish></response>"],
        Purpose.REPLY: [model_answer(actions=["LOOK"])],
        Purpose.SUMMARY: ["<response><text>There is fog.</text></response>"],
    }
    return ScriptedModel(lambda request: answers[request.purpose].pop())


@pytest.mark.parametrize("multi_step", ["false", "true"])
async def test_each_prompt_of_an_answer_tells_what_the_files_of_its_message_hold(
    server: EmulatedServer, multi_step: str
) -> None:
    scripted, settings = build_caller(), {"USE_MULTI_STEP": multi_step}
    file = ("notes.txt", NOTES, "text/plain")
    async with server.run_bot(scripted, Plugin("window", actions=[look_out]), settings=settings):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} look", files=(file,))
        assert await server.emulator.recorder.wait_for_texts(1) == ["There is fog."]
    assert ["4711" in request.prompt for request in scripted.requests] == [True, True]


def answer_by_code(request: TextRequest) -> str:
    """Answer with the code where the prompt holds it; else ask for the attachments where they are listed."""
    if "what is the gate code?" not in request.prompt:
        return model_answer("Noted.")
    if "4711" in request.prompt:
        return model_answer("It is 4711.")
    return model_answer("Let me see.", providers=["ATTACHMENTS"] if "- ATTACHMENTS:" in request.prompt else [])


@pytest.mark.parametrize("padding", [b"", b"Paint the boats. " * 150], ids=["short", "long"])
@pytest.mark.parametrize("is_reply", [False, True], ids=["own file", "file of another"])
async def test_a_document_is_known_two_messages_later(server: EmulatedServer, padding: bytes, is_reply: bool) -> None:
    people, recorder = server.emulator.people, server.emulator.recorder
    file = ("notes.txt", padding + NOTES, "text/plain")
    async with server.run_bot(ScriptedModel(answer_by_code)) as (harness, _):
        call = "" if is_reply else server.call
        sent = await people.say(server.lobby, server.kim, call, files=(file,))
        if is_reply:
            await receipts(harness)
            await people.say(server.lobby, server.robin, f"{server.call} keep this", reply_to=sent)
        await recorder.wait_for_texts(1)
        await people.say(server.lobby, server.robin, f"{server.call} nice weather")
        await recorder.wait_for_texts(2)
        await people.say(server.lobby, server.robin, f"{server.call} what is the gate code?")
        assert (await recorder.wait_for_texts(3))[-1] == "It is 4711."


@pytest.mark.long
async def test_a_file_that_was_not_for_the_agent_is_read_when_the_model_asks_for_it(server: EmulatedServer) -> None:
    people, seen = server.emulator.people, list[str]()
    files = (("notes.txt", NOTES, "text/plain"), ("a.png", PNG, "image/png"))
    async with server.run_bot(ScriptedModel(answer_by_code), build_senses(seen)) as (harness, _):
        await people.say(server.lobby, server.kim, "for tomorrow", files=files)
        await receipts(harness)
        assert seen == []
        await people.say(server.lobby, server.robin, f"{server.call} what is the gate code?")
        assert await server.emulator.recorder.wait_for_texts(1) == ["It is 4711."]
    assert seen == ["image/png"]


async def test_attachments_are_not_listed_where_no_recent_message_has_a_file(server: EmulatedServer) -> None:
    scripted = ScriptedModel(model_answer("Aye."))
    async with server.run_bot(scripted):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello")
        await server.emulator.recorder.wait_for_texts(1)
    assert "- ATTACHMENTS:" not in find_last_prompt(scripted)


# Forgetting


async def find_reply(harness: AgentHarness) -> Content:
    *_, receipt = await receipts(harness)
    return (await harness.agent.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content


async def test_files_of_a_person_who_was_forgotten_are_not_kept_with_replies_to_them(server: EmulatedServer) -> None:
    async with server.run_bot(None, build_senses([])) as (harness, _):
        file = ("a.png", PNG, "image/png")
        shown = await server.emulator.people.say(server.lobby, server.kim, files=(file,))
        await receipts(harness)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} nice", reply_to=shown)
        await server.emulator.recorder.wait_for_texts(1)
        assert HERON in (await find_reply(harness)).render_text()
        await harness.agent_runtime.handle.edits.erase_entity(derived_id("discord", "user", server.kim))
        assert (await find_reply(harness)).all_attachments == ()


# The words to which a message replies: who wrote them, and how long they stay.

SECRET = "the treasure lies under the oak"


async def reply_to_a_secret(server: EmulatedServer) -> str:
    """Send a secret of Kim and a question of Robin about it; return the id of Kim's message."""
    people = server.emulator.people
    message_id = await people.say(server.lobby, server.kim, f"{server.call} {SECRET}")
    await server.emulator.recorder.wait_for_texts(1)
    await people.say(server.lobby, server.robin, f"{server.call} is that so?", reply_to=message_id)
    await server.emulator.recorder.wait_for_texts(2)
    return message_id


async def find_quoting_reply(harness: AgentHarness) -> Content:
    """Return what is stored of Robin's message."""
    *_, receipt = await receipts(harness)
    return (await harness.agent.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content


async def test_the_model_reads_whose_words_a_message_replies_to(server: EmulatedServer) -> None:
    model = ScriptedModel(model_answer("Aye."))
    async with server.run_bot(model) as (harness, _):
        await reply_to_a_secret(server)
        content = await find_quoting_reply(harness)
    assert f"> Kim: @Ada {SECRET}\\n@Ada is that so?" in model.requests_for(Purpose.REPLY)[-1].prompt
    assert content.text == "@Ada is that so?"


async def test_a_message_deleted_on_the_platform_is_not_quoted_by_stored_replies(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        message_id = await reply_to_a_secret(server)
        assert SECRET in (await find_quoting_reply(harness)).render_text()
        await server.emulator.people.delete(server.lobby, message_id)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} and now?")
        await server.emulator.recorder.wait_for_texts(3)
        room_id = (await receipts(harness))[-1].room_id
        stored = [message.content for message in await harness.agent.store.memories.recent(room_id)]
    assert "@Ada is that so?" in [content.text for content in stored]
    assert not any(SECRET in content.render_text() for content in stored)


async def test_a_person_who_was_forgotten_is_not_quoted_by_stored_replies(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        await reply_to_a_secret(server)
        await receipts(harness)
        await harness.agent_runtime.handle.edits.erase_entity(derived_id("discord", "user", server.kim))
        content = await find_quoting_reply(harness)
    assert (content.text, content.quotation) == ("@Ada is that so?", None)
