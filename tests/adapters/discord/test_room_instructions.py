"""An operator's walk on a Discord server: four channels and a thread, each with instructions of its own."""

import pytest

from adapters.discord.emulator.state import THREAD
from bot import Character, Outcome
from bot.models import Purpose
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts

pytestmark = pytest.mark.usefixtures("nothing_held_back")
WORDS = ("harbour", "version", "short", "German", "Latin", "Klingon")


@pytest.mark.long
async def test_each_channel_of_a_server_is_answered_by_its_own_instructions(server: EmulatedServer) -> None:
    state, people, recorder = server.emulator.state, server.emulator.people, server.emulator.recorder
    interactions = server.emulator.interactions
    help_, german, archive = (state.add_channel(server.guild, name) for name in ("help", "deutsch", "archive"))
    model = ScriptedModel(model_answer("Aye."))
    rooms = {"help": {"instructions": "Ask for the version first."}, f"discord:{server.guild}": {"notes": "A harbour."}}
    character = Character.model_validate({"name": "Ada", "rooms": rooms})

    async with server.run_bot(model, character=character) as (harness, _):
        answered = 0

        async def set_(user: str, channel: str, key: str, value: str) -> None:
            nonlocal answered
            answered += 1
            await interactions.run_command(server.bot, user, channel, "room", action="set", key=key, value=value)
            await recorder.wait_until(lambda: recorder.counts["answered"] >= answered)

        async def ask(channel: str, text: str = "") -> set[str]:
            """Return the words of instructions in the system prompt of the answer."""
            count = len(recorder.messages)
            await people.say(channel, server.robin, text or f"{server.call} ahoy")
            await recorder.wait_for_texts(count + 1)
            system = [item.system for item in model.requests if item.purpose is Purpose.REPLY][-1]
            return {word for word in WORDS if word in system}

        await set_(server.robin, server.lobby, "language", "Klingon")  # Robin is no admin
        await set_(server.kim, server.lobby, "world.length", "short")
        await set_(server.kim, german, "language", "German")
        await set_(server.kim, archive, "answer", "listen")
        assert await ask(server.lobby) == {"harbour", "short"}
        assert await ask(help_) == {"harbour", "short", "version"}
        assert await ask(german) == {"harbour", "short", "German"}
        thread = await people.open_channel(server.guild, "Fragen", THREAD, german)
        assert await ask(thread) == {"harbour", "short", "German"}
        in_help = await people.open_channel(server.guild, "crash", THREAD, help_)
        assert await ask(in_help) == {"harbour", "short", "version"}
        await set_(server.kim, thread, "language", "Latin")
        assert await ask(thread) == {"harbour", "short", "Latin"}
        await people.say(archive, server.robin, f"{server.call} ahoy")
        await set_(server.kim, archive, "answer", "always")
        await ask(archive, "It rains.")
        outcomes = [(receipt.outcome, receipt.rule) for receipt in await receipts(harness)][-2:]
    assert outcomes == [(Outcome.IGNORED, "room: answer"), (Outcome.ANSWERED, "room: answer")]
