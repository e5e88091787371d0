"""Spoken replies: when, what of a text, within which limits, and that no failure costs the reply."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot import Agent, Attachment, Content, MediaKind, Outcome, Plugin, SettingsModel, model, on
from bot.errors import NotSent
from bot.events import MessageSent, VoiceMessageSent
from bot.models import ModelRefused, ModelType, SpeechRequest, SpeechResult
from bot.outbound.outbox import MAX_AUDIO_BYTES, to_spoken_text
from bot.settings import CoreSettings, load_settings
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, model_answer, running_agent
from plugins.sql import plugin as sql

OGG = b"OggS\0 a voice"
SPOKEN = Content(attachments=(Attachment("1", MediaKind.AUDIO, content_type="audio/ogg", text="How are you?"),))


class Keys(SettingsModel):
    """Settings with a secret."""

    openai_api_key: SecretStr | None = None


class VoiceAdapter(RecordingAdapter):
    """A platform that plays recordings next to a text."""

    voice_type = "audio/ogg"

    def split_content(self, content: Content) -> list[Content]:
        return [content]


class Speaker:
    """A model that speaks; it keeps the requests."""

    def __init__(self, audio: bytes = OGG, error: Exception | None = None) -> None:
        self.requests: list[SpeechRequest] = []
        self.events: list[MessageSent] = []
        self._audio, self._error = audio, error

        @on(MessageSent)
        def note(agent: Agent, event: MessageSent) -> None:
            self.events.append(event)

        self.plugin = Plugin("speaker", models=[model(ModelType.TEXT_TO_SPEECH)(self._speak)], listeners=[note])

    async def _speak(self, agent: Agent, request: SpeechRequest) -> SpeechResult:
        self.requests.append(request)
        if self._error is not None:
            raise self._error
        return SpeechResult(self._audio, "audio/ogg", "gpt-4o-mini-tts")


@asynccontextmanager
async def speaking_agent(
    speaker: Speaker,
    answer: str = "I am **well**.",
    *,
    adapter: RecordingAdapter | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[AgentHarness]:
    plugins = [speaker.plugin]
    adapter = adapter or VoiceAdapter()
    answers = ScriptedModel(model_answer(answer))
    async with running_agent(*plugins, model=answers, adapter=adapter, settings=settings) as harness:
        yield harness


def recordings(harness: AgentHarness) -> list[tuple[str, ...]]:
    """Return the names of the files of every sent part."""
    return [tuple(file.name for file in part.content.attachments) for part in harness.adapter.sent]


async def test_a_voice_message_gets_a_spoken_reply_that_is_written_too() -> None:
    speaker = Speaker()
    async with speaking_agent(speaker) as harness:
        receipt = await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        await harness.agent.events.flush()
        [part] = harness.adapter.sent
        [reply] = await harness.agent.store.memories.by_turn(receipt.turn_id)
    assert part.content.text == "I am **well**."
    [speech] = part.content.attachments
    assert (speech.kind, speech.content_type, speech.name, speech.data) == (
        MediaKind.AUDIO,
        "audio/ogg",
        "voice.ogg",
        OGG,
    )
    assert reply.content.attachments == (speech,)
    assert [(request.text, request.content_type) for request in speaker.requests] == [("I am well.", "audio/ogg")]
    [event] = speaker.events
    assert isinstance(event, VoiceMessageSent)
    assert (event.message_id, event.room_id, event.turn_id) == (reply.id, reply.room_id, receipt.turn_id)


async def test_a_written_message_gets_no_recording_and_pays_nothing() -> None:
    speaker = Speaker()
    async with speaking_agent(speaker) as harness:
        receipt = await harness.send("How are you?")
        await harness.agent.outbox.drain(5)
        assert recordings(harness) == [()]
    assert speaker.requests == []
    assert {call.type for call in receipt.model_calls}.isdisjoint({ModelType.TEXT_TO_SPEECH})


@pytest.mark.parametrize(
    ("mode", "content", "is_spoken"),
    [
        ("always", Content("How are you?"), True),
        ("always", SPOKEN, True),
        ("never", SPOKEN, False),
        ("voice", Content("Hear this", attachments=SPOKEN.attachments), False),
        ("voice", Content(attachments=(Attachment("1", MediaKind.AUDIO, problem="no model here can listen"),)), False),
    ],
)
async def test_the_setting_decides_which_replies_are_spoken(mode: str, content: Content, is_spoken: bool) -> None:
    speaker = Speaker()
    async with speaking_agent(speaker, settings={"VOICE_REPLIES": mode}) as harness:
        await harness.send(content)
        await harness.agent.outbox.drain(5)
        assert recordings(harness) == [("voice.ogg",) if is_spoken else ()]
    assert bool(speaker.requests) is is_spoken


def test_a_characters_file_may_have_replies_spoken_but_not_raise_their_length() -> None:
    settings = load_settings({"VOICE_REPLIES": "always", "VOICE_MAX_LENGTH": "4000"}, environment={}).load(CoreSettings)
    assert (settings.voice_replies, settings.voice_max_length) == ("always", 1000)


async def test_nothing_is_spoken_where_the_platform_plays_no_recordings() -> None:
    speaker = Speaker()
    async with speaking_agent(speaker, adapter=RecordingAdapter(), settings={"VOICE_REPLIES": "always"}) as harness:
        await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        assert harness.adapter.texts == ["I am **well**."]
    assert speaker.requests == []


@pytest.mark.parametrize(
    ("speaker", "answer", "note"),
    [
        (Speaker(error=ModelRefused("no voice today")), "I am well.", "no voice today"),
        (Speaker(error=RuntimeError("broken")), "I am well.", "broken"),
        (Speaker(audio=b""), "I am well.", "empty audio"),
        (Speaker(audio=bytes(MAX_AUDIO_BYTES + 1)), "I am well.", "larger than 8 MiB"),
        (Speaker(), "Well. " * 200, "more than 1000 characters (VOICE_MAX_LENGTH)"),
    ],
    ids=["refused", "broken", "empty", "large", "long"],
)
async def test_a_reply_that_cannot_be_spoken_is_written(
    speaker: Speaker, answer: str, note: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with speaking_agent(speaker, answer) as harness:
        receipt = await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        assert recordings(harness) == [()]
        assert harness.adapter.texts == [answer.strip()]
    assert receipt.outcome is Outcome.ANSWERED
    assert note in " ".join(receipt.notes)
    if speaker.requests:
        assert "is only written" in caplog.text


async def test_a_reply_with_nothing_to_say_aloud_is_written() -> None:
    speaker = Speaker()
    async with speaking_agent(speaker, "```py\nprint(1)\n```") as harness:
        await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        assert recordings(harness) == [()]
    assert speaker.requests == []


async def test_the_costs_of_speech_stand_in_the_receipt_and_count_for_the_budget() -> None:
    speaker = Speaker()
    settings = {"MODEL_PRICES": "gpt-4o-mini-tts=1/call, *=0", "BUDGET_USD": "2"}
    async with speaking_agent(speaker, settings=settings) as harness:
        receipts = [await harness.send(SPOKEN) for _ in range(3)]
        await harness.agent.outbox.drain(5)
    costs = [
        [call.cost for call in receipt.model_calls if call.type == ModelType.TEXT_TO_SPEECH] for receipt in receipts
    ]
    assert costs == [[1.0], [1.0], []]
    assert len(speaker.requests) == 2
    assert receipts[-1].outcome is Outcome.IGNORED  # nothing is answered any more


async def test_a_budget_that_ends_before_the_speech_leaves_the_text() -> None:
    speaker = Speaker()
    settings = {"MODEL_PRICES": "*=0.6/call", "BUDGET_USD": "1"}
    async with speaking_agent(speaker, settings=settings) as harness:
        receipt = await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        assert harness.adapter.texts == ["I am **well**."]
    assert (receipt.outcome, speaker.requests) == (Outcome.ANSWERED, [])
    assert "BUDGET_USD" in " ".join(receipt.notes)


async def test_a_secret_is_neither_written_nor_spoken() -> None:
    speaker = Speaker()
    settings = {"OPENAI_API_KEY": "sk-very-secret-key-of-the-operator", "VOICE_REPLIES": "always"}
    secret = settings["OPENAI_API_KEY"]
    character_plugin = Plugin("keys", settings=Keys)
    answers = ScriptedModel(model_answer(f"It is {secret} and ends with s"))
    plugins = (speaker.plugin, character_plugin)
    async with running_agent(*plugins, model=answers, adapter=VoiceAdapter(), settings=settings) as harness:
        await harness.send("Tell me")
        await harness.agent.outbox.drain(5)
        [text] = harness.adapter.texts
    [request] = speaker.requests
    assert secret not in text + request.text
    assert request.text.endswith("ends with s")


@pytest.mark.long
async def test_the_recording_is_stored_before_it_is_sent_and_not_made_again_after_a_crash(tmp_path: Path) -> None:
    speaker = Speaker()
    settings = {"BOT_DATA_DIR": str(tmp_path)}
    answers = ScriptedModel(model_answer("I am well."))
    refusing = VoiceAdapter(faults=[NotSent("the platform is away", retry_after=600)])
    async with running_agent(speaker.plugin, sql, model=answers, adapter=refusing, settings=settings) as harness:
        await harness.send(SPOKEN)
        await refusing.wait_until_attempted(1)
    assert (refusing.sent, len(speaker.requests)) == ([], 1)
    adapter = VoiceAdapter()
    async with running_agent(speaker.plugin, sql, model=answers, adapter=adapter, settings=settings):
        await adapter.wait_until_sent(1)
    [part] = adapter.sent
    assert [file.data for file in part.content.attachments] == [OGG]
    assert len(speaker.requests) == 1


async def test_a_spoken_reply_is_not_shown_while_it_is_written() -> None:
    speaker = Speaker()
    adapter = VoiceAdapter(can_edit=True, stream_interval=0.0)
    async with speaking_agent(speaker, adapter=adapter) as harness:
        await harness.send(SPOKEN)
        await harness.agent.outbox.drain(5)
        assert (recordings(harness), adapter.edited) == ([("voice.ogg",)], [])


async def test_later_prompts_show_the_words_of_a_spoken_reply_once() -> None:
    speaker = Speaker()
    async with speaking_agent(speaker) as harness:
        await harness.send(SPOKEN)
        await harness.send(Content("And now?", attachments=SPOKEN.attachments))
        prompt = harness.model.requests[-1].prompt
    assert "I am **well**." in prompt
    assert "voice.ogg" not in prompt


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("# Tides\n\n- *low* at **six**\n- high at `noon`", "Tides\n\nlow at six\nhigh at noon"),
        ("See [the table](https://example.org/t) or https://example.org/u?x=1 now", "See the table or  now"),
        ("Run:\n```sh\nmake\n```\nDone", "Run:\n\nDone"),
        ("```unclosed", ""),
        ("snake_case and _stress_ stay", "snake_case and stress stay"),
        ("2 * 3 is 6; 5 > 4", "2  3 is 6; 5 > 4"),
    ],
)
def test_what_is_spoken_are_the_words(text: str, spoken: str) -> None:
    assert to_spoken_text(text) == spoken
