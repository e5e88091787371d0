"""Vectors, pictures and sound, through the real SDK."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.models import (
    ImageDescriptionRequest,
    ImageRequest,
    ModelError,
    ModelRefused,
    ModelType,
    SpeechRequest,
    TranscriptionRequest,
    Usage,
)
from bot.testing import running_agent
from plugins.openai import plugin
from tests.plugins.loopback import Answer, Loopback, loopback
from tests.plugins.openai.wire import KEY, completion, open_harness

PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
NAMED = {
    "OPENAI_EMBEDDING_MODEL": "small-vectors",
    "OPENAI_IMAGE_MODEL": "painter",
    "OPENAI_IMAGE_DESCRIPTION_MODEL": "seer",
    "OPENAI_TRANSCRIPTION_MODEL": "hearer",
    "OPENAI_TTS_MODEL": "speaker",
    "OPENAI_MODERATION_MODEL": "judge",
}
APART = {
    ModelType.TEXT_EMBEDDING: "EMBEDDING",
    ModelType.IMAGE: "IMAGE",
    ModelType.IMAGE_DESCRIPTION: "IMAGE_DESCRIPTION",
    ModelType.TRANSCRIPTION: "TRANSCRIPTION",
    ModelType.TEXT_TO_SPEECH: "TTS",
    ModelType.MODERATION: "MODERATION",
}


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


def vectors(*given: list[float], order: list[int] | None = None) -> Answer:
    numbers = order or list(range(len(given)))
    data = [{"index": at, "embedding": vector} for at, vector in zip(numbers, given, strict=True)]
    return Answer({"data": data, "model": "v", "usage": {"prompt_tokens": 7, "total_tokens": 7}})


async def test_vectors_come_in_the_order_of_their_texts(api: Loopback) -> None:
    api.answers = [vectors([2.0], [1.0], order=[1, 0])]
    async with open_harness(api.url, **NAMED) as harness:
        result = await harness.agent.models.embed(["a", "b"])

    assert result.vectors == ((1.0,), (2.0,))
    assert (result.model, result.usage) == ("small-vectors-1", Usage(7, 0))
    [asked] = api.asked
    assert asked.path == "/v1/embeddings"
    assert asked.json == {"input": ["a", "b"], "model": "small-vectors", "encoding_format": "float"}


@pytest.mark.failure("E-10")
async def test_the_dimension_that_is_set_is_asked_for_and_part_of_the_models_name(api: Loopback) -> None:
    api.answers = [vectors([1.0, 2.0])]
    async with open_harness(api.url, **NAMED, OPENAI_EMBEDDING_DIMENSIONS="2") as harness:
        result = await harness.agent.models.embed(["a"])

    assert api.bodies[0]["dimensions"] == 2
    assert result.model == "small-vectors-2"


@pytest.mark.parametrize(
    "answer",
    [
        vectors([1.0, 2.0, 3.0]),
        vectors(),
        vectors([1.0, 2.0], [1.0, 2.0]),
        vectors([1.0, 2.0], order=[5]),
        Answer({"data": [{"index": 0, "embedding": [None, 1.0]}]}),
        Answer({"data": [{"index": 0, "embedding": "AAAA"}]}),
        Answer({"data": [{"index": 0, "embedding": []}]}),
        Answer('{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'),
        Answer({"data": [{"index": 0, "embedding": [0.0, 0.0]}]}),
        Answer({"data": [{"index": 0, "embedding": [[1.0, 2.0], [1.0, 2.0]]}]}),
        Answer({"error": {"message": "no such thing", "code": 400}}),
    ],
)
async def test_a_vector_that_is_not_what_was_asked_for_is_an_error_and_never_made_up(
    api: Loopback, answer: Answer
) -> None:
    api.answers = [answer]
    async with open_harness(api.url, **NAMED, OPENAI_EMBEDDING_DIMENSIONS="2") as harness:
        with pytest.raises(ModelError):
            await harness.agent.models.embed(["a"])


@pytest.mark.parametrize("kind", list(APART))
async def test_another_server_serves_what_its_models_are_named_for(api: Loopback, kind: ModelType) -> None:
    part = APART[kind]
    async with open_harness(api.url) as harness:
        assert not harness.agent.models.has_handler_for(kind)
    async with open_harness(api.url, **{f"OPENAI_{part}_MODEL": "named"}) as harness:
        assert harness.agent.models.has_handler_for(kind)


@pytest.mark.parametrize("settings", [{}, {"OPENAI_BASE_URL": "https://api.openai.com/v1"}])
async def test_openai_itself_serves_everything(settings: dict[str, str]) -> None:
    async with running_agent(plugin, settings={"OPENAI_API_KEY": KEY, **settings}) as harness:
        kinds = set(ModelType) - {ModelType.TEXT_OFFLINE}  # which is not asked of a server
        assert all(harness.agent.models.has_handler_for(kind) for kind in kinds)


async def test_every_part_may_have_a_server_a_key_and_a_model_of_its_own(api: Loopback) -> None:
    api.answers = [vectors([1.0])]
    async with (
        loopback() as other,
        open_harness(
            other.url,
            OPENAI_EMBEDDING_URL=f"{api.url}/v1",
            OPENAI_EMBEDDING_API_KEY="sk-another-key-of-the-tests",
            OPENAI_EMBEDDING_MODEL="v",
        ) as harness,
    ):
        await harness.agent.models.embed(["a"])
        other.answers = [Answer(completion())]

    assert other.asked == []
    assert api.asked[0].headers["Authorization"] == "Bearer sk-another-key-of-the-tests"


async def test_a_key_that_is_refused_is_named_by_its_variable_and_not_shown(api: Loopback) -> None:
    key = "sk-another-key-of-the-tests"
    api.answers = [Answer({"error": {"message": f"bad key {key} or {KEY}"}}, 403)]
    settings = {"OPENAI_EMBEDDING_API_KEY": key, **NAMED}
    async with open_harness(api.url, **settings) as harness:
        with pytest.raises(ModelRefused) as raised:
            await harness.agent.models.embed(["a"])
        api.answers = [Answer({}, 401)]
        with pytest.raises(ModelRefused, match="OPENAI_EMBEDDING_API_KEY"):
            await harness.agent.models.embed(["a"])

    assert key not in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ({"url": "https://pictures.example/1.png"}, (None, "https://pictures.example/1.png", "image/png")),
        ({"b64_json": base64.b64encode(PNG).decode()}, (PNG, "", "image/png")),
        ({"b64_json": base64.b64encode(b"\xff\xd8\xff").decode()}, (b"\xff\xd8\xff", "", "image/jpeg")),
    ],
)
async def test_a_picture_comes_as_bytes_or_as_an_address(
    api: Loopback, picture: dict[str, str], expected: tuple[Any, ...]
) -> None:
    api.answers = [Answer({"created": 1, "data": [picture]})]
    async with open_harness(api.url, **NAMED) as harness:
        drawn = await harness.agent.models.draw(ImageRequest("a boat", size=(1024, 1536)))

    assert (drawn.data, drawn.url, drawn.content_type) == expected
    [asked] = api.asked
    assert asked.path == "/v1/images/generations"
    assert asked.json == {"model": "painter", "prompt": "a boat", "size": "1024x1536", "n": 1}


@pytest.mark.parametrize("picture", [{}, {"b64_json": "no base64!"}, {"url": 7}, None])
async def test_a_picture_that_is_none_is_an_error(api: Loopback, picture: Any) -> None:
    api.answers = [Answer({"data": [picture]})]
    async with open_harness(api.url, **NAMED) as harness:
        with pytest.raises(ModelError):
            await harness.agent.models.draw(ImageRequest("a boat"))


async def test_a_picture_is_described_by_its_own_model_and_at_most_so_long(api: Loopback) -> None:
    api.answers = [Answer(completion("A boat."))]
    async with open_harness(api.url, **NAMED, OPENAI_IMAGE_DESCRIPTION_MAX_TOKENS="99") as harness:
        description = await harness.agent.models.describe(ImageDescriptionRequest(PNG, "image/png", "What is it?"))

    assert description.text == "A boat."
    [sent] = api.bodies
    assert (sent["model"], sent["max_tokens"]) == ("seer", 99)
    words, seen = sent["messages"][0]["content"]
    assert words["text"] == "What is it?"
    assert seen["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.mark.parametrize(
    ("content_type", "audio", "suffix"),
    [
        ("audio/ogg", b"OggS", ".ogg"),
        ("audio/mpeg", b"ID3", ".mp3"),
        ("audio/mp4; codecs=x", b"x", ".m4a"),
        ("audio/wav", b"RIFF", ".wav"),
        ("audio/x-wav", b"RIFF", ".wav"),
        ("audio/webm;codecs=opus", b"x", ".webm"),
        ("video/webm", b"x", ".webm"),
        ("", b"OggS", ".ogg"),
        ("application/octet-stream", b"RIFF\x04\0\0\0WAVE", ".wav"),
        ("application/octet-stream", b"\x1aE\xdf\xa3", ".webm"),
    ],
)
async def test_a_recording_is_written_down(api: Loopback, content_type: str, audio: bytes, suffix: str) -> None:
    api.answers = [Answer({"text": "Hello.", "usage": {"input_tokens": 4, "output_tokens": 2}})]
    async with open_harness(api.url, **NAMED) as harness:
        heard = await harness.agent.models.transcribe(TranscriptionRequest(audio, content_type))

    assert (heard.text, heard.usage) == ("Hello.", Usage(4, 2))
    [asked] = api.asked
    assert asked.path == "/v1/audio/transcriptions"
    assert asked.form["model"] == "hearer"
    name, data = asked.form["file"]
    assert (name, bytes(data)) == (f"recording{suffix}", audio)


async def test_a_text_is_spoken(api: Loopback) -> None:
    api.answers = [Answer(b"ID3sound", content_type="audio/mpeg")]
    settings = {**NAMED, "OPENAI_TTS_VOICE": "alloy", "OPENAI_TTS_INSTRUCTIONS": "calm"}
    async with open_harness(api.url, **settings) as harness:
        spoken = await harness.agent.models.speak(SpeechRequest("Hello."))
        await harness.agent.models.speak(SpeechRequest("Hello.", voice="nova"))

    assert (spoken.audio, spoken.content_type, spoken.model) == (b"ID3sound", "audio/mpeg", "speaker")
    assert api.asked[0].path == "/v1/audio/speech"
    assert [sent["voice"] for sent in api.bodies] == ["alloy", "nova"]
    assert api.bodies[0]["instructions"] == "calm"


@pytest.mark.parametrize(
    ("wanted", "sent_format", "unnamed"), [("audio/ogg", "opus", "audio/ogg"), ("audio/mpeg", "mp3", "audio/mpeg")]
)
async def test_speech_is_asked_for_in_the_format_that_the_platform_plays(
    api: Loopback, wanted: str, sent_format: str, unnamed: str
) -> None:
    api.answers = [Answer(b"sound", content_type="application/octet-stream")]
    async with open_harness(api.url, **NAMED) as harness:
        spoken = await harness.agent.models.speak(SpeechRequest("Hello.", content_type=wanted))
    assert api.bodies[0]["response_format"] == sent_format
    assert spoken.content_type == unnamed


@pytest.mark.parametrize("answer", [Answer({"oops": 1}), Answer(b"", content_type="audio/mpeg")])
async def test_what_is_no_sound_is_an_error(api: Loopback, answer: Answer) -> None:
    api.answers = [answer]
    async with open_harness(api.url, **NAMED) as harness:
        with pytest.raises(ModelError):
            await harness.agent.models.speak(SpeechRequest("Hello."))
