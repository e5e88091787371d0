"""Reactions of the bot on Discord: emoji of Discord and of the server, replaced, removed, refused."""

import asyncio

import pytest

from bot import Outcome
from bot.models import TextRequest
from bot.platform import DeliveryState
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


@pytest.mark.parametrize("emoji", ["👍", "❤️", ":party_cat:"])
async def test_the_bot_reacts_with_an_emoji_of_discord_or_of_the_server(server: EmulatedServer, emoji: str) -> None:
    emulator = server.emulator
    custom = emulator.state.add_emoji(server.guild, "party_cat")
    async with server.run_bot(ScriptedModel(react(emoji))) as (harness, _):
        message_id = await emulator.people.say(server.lobby, server.kim, f"{server.call} thank you")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["reacted"] == 1, 10)
        [receipt] = await receipts(harness)
    assert receipt.outcome is Outcome.ANSWERED
    shown = custom if emoji.startswith(":") else emoji
    assert emulator.state.reactions[message_id] == {shown: (server.bot,)}
    assert emulator.recorder.texts() == []


async def test_prompts_name_the_emoji_of_the_server(server: EmulatedServer) -> None:
    server.emulator.state.add_emoji(server.guild, "party_cat")
    prompts: asyncio.Queue[str] = asyncio.Queue()

    async def decide(request: TextRequest) -> str:
        prompts.put_nowait(request.prompt)
        return "<response><action>IGNORE</action></response>"

    async with server.run_bot(ScriptedModel(decide)):
        await server.emulator.people.say(server.lobby, server.kim, "good news")
        assert "any emoji, or of this server :party_cat:" in await asyncio.wait_for(prompts.get(), 10)


@pytest.mark.usefixtures("immediate_edits")
@pytest.mark.parametrize(("second", "expected"), [("🔥", {"👍": (), "🔥": 1}), ("", {"👍": ()})])
async def test_the_answer_to_an_edit_replaces_or_removes_the_reaction(
    server: EmulatedServer, second: str, expected: dict[str, object]
) -> None:
    emulator = server.emulator
    model = ScriptedModel([react("👍"), react(second) if second else model_answer("Oh no.")])
    async with server.run_bot(model, settings={"ON_EDIT": "rerun"}) as (harness, _):
        message_id = await emulator.people.say(server.lobby, server.kim, f"{server.call} it works")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["reacted"] == 1, 10)
        await emulator.people.edit(server.lobby, message_id, f"{server.call} it does not work")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["unreacted"] == 1, 10)
        await receipts(harness)
    shown = {emoji: (server.bot,) if users else () for emoji, users in expected.items()}
    assert emulator.state.reactions[message_id] == shown
    assert emulator.recorder.texts() == ([] if second else ["Oh no."])


@pytest.mark.parametrize(
    ("is_gone", "state"), [(False, DeliveryState.FAILED), (True, DeliveryState.CANCELLED)], ids=["refused", "gone"]
)
async def test_a_reaction_that_discord_refuses_is_recorded_and_nothing_is_said(
    server: EmulatedServer, is_gone: bool, state: DeliveryState
) -> None:
    emulator, asked = server.emulator, asyncio.Event()
    emulator.rest.denied[server.lobby].add("ADD_REACTIONS")

    async def answer(request: TextRequest) -> str:
        if is_gone:
            emulator.state.messages[server.lobby].clear()
        asked.set()
        return react("👍")

    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        await emulator.people.say(server.lobby, server.kim, f"{server.call} thank you")
        await asyncio.wait_for(asked.wait(), 10)
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(10)
        assert receipt.turn_id is not None
        [delivery] = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
    assert delivery.state is state
    assert emulator.recorder.texts() == []
