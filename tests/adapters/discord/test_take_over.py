"""A moderator takes a Discord channel over, is shown the button that gives it back, and gives it back."""

import asyncio

import pytest

from bot.domain.ledger import Rule
from bot.events import RunEnded
from tests.adapters.discord.server import EmulatedServer, receipts

pytestmark = pytest.mark.usefixtures("nothing_held_back")


async def test_a_moderator_takes_a_channel_over_and_gives_it_back(server: EmulatedServer) -> None:
    interactions, recorder, people = server.emulator.interactions, server.emulator.recorder, server.emulator.people
    async with server.run_bot() as (harness, _):
        await interactions.run_command(server.bot, server.robin, server.lobby, "take-over")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 0)
        assert not harness.agent.store.take_overs.current  # Robin may not manage the server
        asked = await interactions.run_command(server.bot, server.kim, server.lobby, "take-over")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 1)
        has_ended = asyncio.Event()
        harness.agent.events.subscribe(RunEnded, lambda event: has_ended.set(), at_once=True)
        await people.say(server.lobby, server.robin, f"{server.call} hello?")
        await has_ended.wait()
        [silent] = await receipts(harness)
        assert silent.rule == Rule.TAKEN_OVER
        [shown] = recorder.responses[asked]
        [row] = shown["components"]
        [button] = row["components"]
        assert button["label"] == "Give back"
        await interactions.run_command(server.bot, server.kim, server.lobby, "give-back")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 2)
        await people.say(server.lobby, server.robin, f"{server.call} and now?")
        assert await recorder.wait_for_texts(1) == ["Aye."]
