"""Voice messages in a channel: heard before it is decided whether they are answered, and answered by voice.

The platform is the emulator, the models are a loopback server behind the real plugin.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bot import Outcome, Receipt
from bot.domain.ledger import Rule
from bot.pipeline.attachments import MAX_UNDECIDED_BYTES
from bot.testing import AgentHarness, model_answer
from plugins.openai import plugin
from tests.adapters.discord.server import EmulatedServer, receipts
from tests.plugins.loopback import Answer, Asked, Loopback, loopback
from tests.plugins.openai.wire import KEY, completion

SOUND = b"ID3 a voice"
WAVE = b"RIFF\x04\0\0\0WAVE\0\0\0\0"
SILENCE = "<response><reasoning>not for me</reasoning><action>IGNORE</action></response>"
MODELS = {"OPENAI_LARGE_MODEL": "large", "OPENAI_SMALL_MODEL": "small", "OPENAI_TRANSCRIPTION_MODEL": "hearer"}


class Models:
    """The loopback server: it hears one sentence, and decides by the small model to be silent."""

    def __init__(self, api: Loopback, transcript: str) -> None:
        self.api, self._transcript = api, transcript
        api.answers = self._answer

    def _answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/transcriptions"):
            return Answer({"text": self._transcript})
        if asked.path.endswith("/speech"):
            return Answer(SOUND, content_type="audio/mpeg")
        return Answer(completion(SILENCE if asked.json["model"] == "small" else model_answer("I will call.")))

    @property
    def transcription_count(self) -> int:
        """How many recordings were transcribed."""
        return sum(asked.path.endswith("/transcriptions") for asked in self.api.asked)

    @property
    def speech_requests(self) -> list[dict[str, Any]]:
        """What was asked to be spoken."""
        return [asked.json for asked in self.api.asked if asked.path.endswith("/speech")]

    def prompts(self, model: str) -> Sequence[str]:
        """Return what a text model was asked, as text."""
        return [str(asked.json["messages"]) for asked in self.api.asked if asked.json and asked.json["model"] == model]


@asynccontextmanager
async def run_hearing(
    server: EmulatedServer, transcript: str, **others: str
) -> AsyncIterator[tuple[AgentHarness, Models]]:
    """Run the bot with models that hear this sentence in every recording."""
    async with loopback() as api:
        settings = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1", **MODELS, **others}
        models = Models(api, transcript)
        async with server.run_bot(None, plugin, settings=settings) as (harness, _):
            yield harness, models


async def say_recording(server: EmulatedServer, audio: bytes = WAVE) -> None:
    """Send a voice message without a mention."""
    await server.emulator.people.say(server.lobby, server.kim, files=(("v.wav", audio, "audio/wav"),))


async def wait_for_outcomes(server: EmulatedServer, harness: AgentHarness) -> list[Receipt]:
    """Wait until a later message is answered, and return the receipts of all before it."""
    count = len(server.emulator.recorder.texts())
    await server.emulator.people.say(server.direct(server.robin), server.robin, "ahoy")
    await server.emulator.recorder.wait_for_texts(count + 1)
    return (await receipts(harness))[:-1]


@pytest.mark.long
@pytest.mark.failure("B-16")
async def test_a_voice_message_that_calls_the_bot_by_name_is_answered(server: EmulatedServer) -> None:
    async with run_hearing(server, "Ada, please call me.") as (harness, models):
        await say_recording(server)
        assert await server.emulator.recorder.wait_for_texts(1) == ["I will call."]
        [receipt] = await receipts(harness)
    assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, Rule.NAME_CALLED)
    assert models.transcription_count == 1
    assert models.prompts("small") == []


@pytest.mark.long
async def test_the_small_model_and_later_prompts_see_what_was_said(server: EmulatedServer) -> None:
    async with run_hearing(server, "Somebody should close the window.") as (harness, models):
        await say_recording(server)
        [receipt] = await wait_for_outcomes(server, harness)
        assert receipt.outcome is Outcome.IGNORED
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} what did I say?")
        await server.emulator.recorder.wait_for_texts(1, server.lobby)
    for prompt in (models.prompts("small")[0], models.prompts("large")[-1]):
        assert "[audio: Somebody should close the window.]" in prompt
        assert "[audio: v.wav]" not in prompt
    assert models.transcription_count == 1


@pytest.mark.long
async def test_a_large_recording_is_not_transcribed_without_being_asked(server: EmulatedServer) -> None:
    async with run_hearing(server, "Ada, please call me.") as (harness, models):
        await say_recording(server, WAVE + bytes(MAX_UNDECIDED_BYTES))
        [receipt] = await wait_for_outcomes(server, harness)
    assert receipt.outcome is Outcome.IGNORED
    assert models.transcription_count == 0


async def test_a_recording_where_answers_are_forbidden_is_not_transcribed(server: EmulatedServer) -> None:
    forbidden = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with run_hearing(server, "Ada, please call me.", **forbidden) as (harness, models):
        await say_recording(server)
        [receipt] = await wait_for_outcomes(server, harness)
    assert receipt.rule == "DISCORD_LISTEN_CHANNEL_IDS"
    assert models.transcription_count == 0


async def test_a_recording_is_not_transcribed_once_the_budget_is_used_up(server: EmulatedServer) -> None:
    async with run_hearing(server, "Ada, please call me.", BUDGET_TOKENS_PER_PERSON="1") as (harness, models):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello")
        await server.emulator.recorder.wait_for_texts(1)
        await receipts(harness)
        await say_recording(server)
        [_, receipt] = await wait_for_outcomes(server, harness)
    assert receipt.rule == "BUDGET_TOKENS_PER_PERSON"
    assert models.transcription_count == 0


async def test_a_voice_message_is_answered_with_words_and_a_recording(server: EmulatedServer) -> None:
    async with run_hearing(server, "Ada, please call me.", OPENAI_TTS_MODEL="speaker") as (harness, models):
        await say_recording(server)
        assert await server.emulator.recorder.wait_for_texts(1) == ["I will call."]
        [receipt] = await receipts(harness)
        [shown] = server.emulator.recorder.messages
    assert shown.files == {"voice.mp3": SOUND}
    [asked] = models.speech_requests
    assert (asked["input"], asked["response_format"]) == ("I will call.", "mp3")
    [call] = [call for call in receipt.model_calls if call.type == "TEXT_TO_SPEECH"]
    assert (call.model, call.error) == ("speaker", "")


async def test_a_written_message_is_answered_in_writing_and_no_speech_is_asked_for(server: EmulatedServer) -> None:
    async with run_hearing(server, "", OPENAI_TTS_MODEL="speaker") as (_, models):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} please call me")
        assert await server.emulator.recorder.wait_for_texts(1) == ["I will call."]
        [shown] = server.emulator.recorder.messages
    assert (shown.files, models.speech_requests) == ({}, [])
