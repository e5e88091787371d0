"""Files on a server that the operator named: the real fetcher, the real plugin, and a loopback model."""

from bot import Agent, Plugin, model
from bot.models import ModelType, TextRequest, TextResult, TranscriptionRequest, Usage
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer

WAVE = b"RIFF\x04\0\0\0WAVE\0\0\0\0"


@model(ModelType.TRANSCRIPTION)
async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the words of the test's recording."""
    assert request.audio == WAVE
    return TextResult("please call me", "ear", Usage())


def answer(request: TextRequest) -> str:
    """Answer by whether the prompt holds the transcript."""
    return model_answer("I will call." if "please call me" in request.prompt else "Pardon?")


async def test_a_recording_on_a_server_of_the_operator_is_read(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot(ScriptedModel(answer), Plugin("ear", models=[listen])):
        await people.say(server.lobby, server.kim, server.call, files=(("v.wav", WAVE, "audio/wav"),))
        assert await server.emulator.recorder.wait_for_texts(1) == ["I will call."]
