"""The openai and anthropic plugins, against a server that others have written.

It is `@copilotkit/aimock` from npm. Where that is not installed these tests are skipped; they find it after
`npm install --prefix .peers @copilotkit/aimock`.
"""

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from bot import Outcome, Plugin
from bot.models import (
    ImageDescriptionRequest,
    ImageRequest,
    ModelBusy,
    ModelRefused,
    ModelType,
    SpeechRequest,
    TextRequest,
    Tool,
    ToolCall,
    TranscriptionRequest,
    Usage,
)
from bot.plugin_system.components import Model
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from plugins.anthropic import plugin as anthropic
from plugins.anthropic.client import large as claude
from plugins.openai import large as gpt
from plugins.openai import plugin as openai
from tests.plugins.loopback import Sink

PEERS = Path(__file__).parents[2] / ".peers"
SERVER = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
READY = "listening on "
GREETING = "Hello from the other side of the wire."
ROLL = Tool("ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
PICTURE = b"\x89PNG\r\n\x1a\n"
SPOKEN = b"OggS\0 voice"
FIXTURES = [
    {"match": {"userMessage": "lighthouse-7"}, "response": {"content": model_answer("The lamp is lit.")}},
    {
        "match": {"userMessage": "please greet"},
        "response": {"content": GREETING, "usage": {"input_tokens": 12, "output_tokens": 8}},
    },
    {"match": {"userMessage": "please name"}, "response": {"content": '{"name": "Tern Rock"}'}},
    {"match": {"userMessage": "please look"}, "response": {"content": "A lighthouse."}},
    {
        "match": {"userMessage": "please roll", "toolName": "ROLL"},
        "response": {"toolCalls": [{"name": "ROLL", "arguments": {"sides": 6}}]},
    },
    {
        "match": {"userMessage": "please hurry"},
        "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429},
    },
    {
        "match": {"userMessage": "please open"},
        "response": {"error": {"message": "no such key", "type": "authentication_error"}, "status": 401},
    },
    {
        "match": {"userMessage": "please fail"},
        "response": {"error": {"message": "out of order", "type": "server_error"}, "status": 500},
    },
    {"match": {"userMessage": "please break off"}, "response": {"content": GREETING}, "truncateAfterChunks": 3},
    {"match": {"endpoint": "image"}, "response": {"image": {"b64Json": b64encode(PICTURE).decode()}}},
    {
        "match": {"endpoint": "speech"},
        "response": {"audio": b64encode(SPOKEN).decode(), "contentType": "audio/ogg", "format": "opus"},
    },
    {"match": {"endpoint": "transcription"}, "response": {"transcription": {"text": "The sea is calm."}}},
    {"match": {"endpoint": "embedding"}, "response": {"embedding": [0.5, -0.5, 0.25]}},
]


class Place(BaseModel):
    """What is asked for by its shape."""

    name: str


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the server, and give its address."""
    node = shutil.which("node")
    if node is None or not SERVER.is_file():
        pytest.skip("needs node and `npm install --prefix .peers @copilotkit/aimock`")
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    command = [node, str(SERVER), "--port", "0", "--strict", "--chunk-size", "7", "--fixtures", str(fixtures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        texts = []
        for line in process.stdout:
            texts.append(line)
            if READY in line:
                break
        try:
            if process.poll() is not None or READY not in texts[-1]:
                pytest.skip(f"aimock does not start here: {''.join(texts)[:300]}")
            yield texts[-1].partition(READY)[2].strip()
        finally:
            process.terminate()


@pytest.fixture(params=["openai", "anthropic"])
async def speaking(request: pytest.FixtureRequest, peer: str) -> AsyncIterator[tuple[AgentHarness, Model]]:
    """Run an agent with one of the plugins, and give the large model of it."""
    plugin: Plugin = {"openai": openai, "anthropic": anthropic}[request.param]
    settings = {
        "OPENAI_API_KEY": "sk-a-key-of-the-tests",
        "OPENAI_BASE_URL": f"{peer}/v1",
        "OPENAI_LARGE_MODEL": "gpt-4o",
        "OPENAI_SMALL_MODEL": "gpt-4o",
        "OPENAI_TOOLS": "true",
        "OPENAI_IMAGE_DESCRIPTION_MODEL": "gpt-4o-mini",
        "OPENAI_EMBEDDING_MODEL": "vectors",
        "OPENAI_IMAGE_MODEL": "gpt-image-1",
        "OPENAI_TTS_MODEL": "tts-1",
        "OPENAI_TRANSCRIPTION_MODEL": "whisper-1",
        "ANTHROPIC_API_KEY": "sk-ant-a-key-of-the-tests",
        "ANTHROPIC_BASE_URL": peer,
    }
    async with running_agent(plugin, model=ScriptedModel("unasked"), settings=settings) as harness:
        yield harness, {"openai": gpt, "anthropic": claude}[request.param]


@pytest.mark.long
async def test_a_text_comes_with_its_tokens(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    result = await harness.agent.models.text(TextRequest("please greet", system="You are Ada."))
    assert (result.text, result.is_truncated, result.tool_calls) == (GREETING, False, ())
    assert result.usage == Usage(12, 8)


async def test_a_text_is_shown_while_it_is_written(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    sink = Sink()
    result = await harness.agent.models.text(TextRequest("please greet", sink=sink))
    assert result.text == GREETING
    assert "".join(filter(None, sink.seen)) == GREETING
    assert len(sink.seen) > 1


@pytest.mark.parametrize("is_shown", [False, True])
async def test_functions_are_called(speaking: tuple[AgentHarness, Model], is_shown: bool) -> None:
    harness, _ = speaking
    sink = Sink() if is_shown else None
    result = await harness.agent.models.text(TextRequest("please roll", tools=(ROLL,), sink=sink))
    assert result.tool_calls == (ToolCall("ROLL", {"sides": 6}),)


async def test_an_object_has_the_shape_that_was_asked_for(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    assert await harness.agent.models.object(Place, TextRequest("please name")) == Place(name="Tern Rock")


@pytest.mark.failure("E-01")
async def test_a_busy_server_may_be_asked_again(speaking: tuple[AgentHarness, Model]) -> None:
    harness, large = speaking
    with pytest.raises(ModelBusy, match="slow down"):
        await large(harness.agent, TextRequest("please hurry"))


@pytest.mark.failure("E-02")
async def test_a_server_with_an_error_may_be_asked_again(speaking: tuple[AgentHarness, Model]) -> None:
    harness, large = speaking
    with pytest.raises(ModelBusy, match="out of order"):
        await large(harness.agent, TextRequest("please fail"))


@pytest.mark.failure("E-03")
async def test_a_stream_that_is_cut_is_no_answer(speaking: tuple[AgentHarness, Model]) -> None:
    harness, large = speaking
    sink = Sink()
    with pytest.raises(ModelBusy):
        await large(harness.agent, TextRequest("please break off", sink=sink))
    assert GREETING.startswith("".join(filter(None, sink.seen)))


@pytest.mark.failure("E-06")
async def test_a_refused_key_is_reported_as_refused(speaking: tuple[AgentHarness, Model]) -> None:
    harness, large = speaking
    with pytest.raises(ModelRefused, match="_API_KEY"):
        await large(harness.agent, TextRequest("please open"))


async def test_a_picture_is_looked_at(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    seen = await harness.agent.models.describe(ImageDescriptionRequest(PICTURE, "image/png", "please look"))
    assert seen.text == "A lighthouse."


async def test_a_message_is_answered(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    receipt = await harness.send("is the lamp of lighthouse-7 lit?")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["The lamp is lit."]


async def test_texts_become_vectors(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    if not harness.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
        return  # Anthropic makes none
    given = await harness.agent.models.embed(["the sea", "the sea again"])
    assert given.vectors == ((0.5, -0.5, 0.25),) * 2
    assert given.model == "vectors-3"


async def test_a_picture_is_drawn(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    if harness.agent.models.has_handler_for(ModelType.IMAGE):
        assert (await harness.agent.models.draw(ImageRequest("a lighthouse"))).data == PICTURE


async def test_a_text_is_spoken(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    if harness.agent.models.has_handler_for(ModelType.TEXT_TO_SPEECH):
        assert (await harness.agent.models.speak(SpeechRequest("The sea is calm."))).audio == SPOKEN


async def test_a_recording_is_written_down(speaking: tuple[AgentHarness, Model]) -> None:
    harness, _ = speaking
    if harness.agent.models.has_handler_for(ModelType.TRANSCRIPTION):
        heard = await harness.agent.models.transcribe(TranscriptionRequest(SPOKEN, "audio/ogg"))
        assert heard.text == "The sea is calm."
