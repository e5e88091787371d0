"""Voice messages: heard before it is decided whether they are answered, and answered by voice."""

import pytest

from adapters.telegram.emulator import Fault, build_refusal
from bot import Agent, Outcome, Plugin, model, models
from bot.domain.ledger import Rule
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness

SILENCE = "<response><reasoning>not for me</reasoning><action>IGNORE</action></response>"


def build_transcriber(transcript: str) -> Plugin:
    """Return a plugin that hears this sentence in every recording."""

    @model(models.ModelType.TRANSCRIPTION)
    async def listen(agent: Agent, request: models.TranscriptionRequest) -> models.TextResult:
        return models.TextResult(transcript, "ear", models.Usage())

    return Plugin("ear", models=[listen])


def answer(request: models.TextRequest) -> str:
    """Be silent where the small model decides."""
    return SILENCE if request.purpose is models.Purpose.SHOULD_RESPOND else model_answer("I hear you.")


@pytest.mark.failure("B-16")
@pytest.mark.parametrize(
    ("transcript", "outcome", "rule"),
    [
        ("Ada, please call me.", Outcome.ANSWERED, Rule.NAME_CALLED),
        ("Close the window.", Outcome.IGNORED, Rule.DECIDED_IGNORE),
    ],
)
async def test_a_voice_message_in_a_group_is_judged_by_what_is_said(
    open_harness: OpenHarness, transcript: str, outcome: Outcome, rule: Rule
) -> None:
    async with open_harness(answer, plugins=(build_transcriber(transcript),)) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        voice = harness.people.store_file(b"OggS\0 sound", duration=3, mime_type="audio/ogg")
        harness.people.say(group, alice, voice=voice)
        [receipt] = await harness.wait_receipts()
        requests = harness.model.requests
    gate_prompts = [request.prompt for request in requests if request.purpose is models.Purpose.SHOULD_RESPOND]
    assert (receipt.outcome, receipt.rule) == (outcome, rule)
    assert all(transcript in prompt for prompt in gate_prompts)
    assert bool(gate_prompts) is (outcome is Outcome.IGNORED)


def build_speaker(audio: bytes, content_type: str, spoken: list[models.SpeechRequest]) -> Plugin:
    """Return a plugin that speaks every text with this sound, and notes what it was asked for."""

    @model(models.ModelType.TEXT_TO_SPEECH)
    async def speak(agent: Agent, request: models.SpeechRequest) -> models.SpeechResult:
        spoken.append(request)
        return models.SpeechResult(audio, content_type, "voice")

    return Plugin("voice", models=[speak])


def hear_alice(harness: TelegramHarness, text: str = "") -> None:
    """Send a recording or a text of Alice in private."""
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    if text:
        harness.people.say(chat, alice, text)
    else:
        voice = harness.people.store_file(b"OggS\0 sound", duration=3, mime_type="audio/ogg")
        harness.people.say(chat, alice, voice=voice)


@pytest.mark.parametrize(
    ("audio", "content_type", "method", "name"),
    [
        (b"OggS\0 opus", "audio/opus", "sendVoice", "voice.ogg"),
        (b"OggS\0 opus", "audio/ogg", "sendVoice", "voice.ogg"),
        (b"ID3 sound", "audio/mpeg", "sendAudio", "voice.mp3"),
    ],
)
async def test_a_voice_message_is_answered_by_a_voice_message_with_the_words_as_its_caption(
    open_harness: OpenHarness, audio: bytes, content_type: str, method: str, name: str
) -> None:
    spoken: list[models.SpeechRequest] = []
    plugins = (build_transcriber("How are you?"), build_speaker(audio, content_type, spoken))
    async with open_harness(answer, plugins=plugins) as harness:
        hear_alice(harness)
        assert await harness.wait_texts(1) == ["I hear you."]
        [shown] = harness.telegram.recorder.messages
        assert (shown.files, harness.telegram.recorder.counts[method]) == ({name: audio}, 1)
    assert [(request.text, request.content_type) for request in spoken] == [("I hear you.", "audio/ogg")]


async def test_a_long_reply_comes_as_text_before_its_voice(open_harness: OpenHarness) -> None:
    spoken: list[models.SpeechRequest] = []
    text = "word " * 250
    plugins = (build_transcriber("Tell me"), build_speaker(b"OggS\0", "audio/ogg", spoken))
    script = model_answer(text)
    async with open_harness(script, plugins=plugins, settings={"VOICE_MAX_LENGTH": "2000"}) as harness:
        hear_alice(harness)
        assert await harness.wait_texts(2) == [text.strip(), ""]
        assert [bool(shown.files) for shown in harness.telegram.recorder.messages] == [False, True]
        parts = await harness.wait_deliveries()
    assert [part.state for part in parts] == [DeliveryState.SENT] * 2


async def test_a_refused_voice_message_leaves_the_words(open_harness: OpenHarness) -> None:
    plugins = (build_transcriber("How are you?"), build_speaker(b"OggS\0", "audio/ogg", []))
    async with open_harness(answer, plugins=plugins) as harness:
        refusal = build_refusal(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN")
        harness.telegram.faults.append(Fault("sendVoice", 400, refusal))
        hear_alice(harness)
        assert await harness.wait_texts(1) == ["I hear you.\n\n(voice.ogg could not be sent.)"]


async def test_a_written_message_is_answered_in_writing(open_harness: OpenHarness) -> None:
    spoken: list[models.SpeechRequest] = []
    async with open_harness(answer, plugins=(build_speaker(b"OggS\0", "audio/ogg", spoken),)) as harness:
        hear_alice(harness, "How are you?")
        assert await harness.wait_texts(1) == ["I hear you."]
        [shown] = harness.telegram.recorder.messages
        assert (shown.files, harness.telegram.recorder.counts["sendMessage"], spoken) == ({}, 1, [])
