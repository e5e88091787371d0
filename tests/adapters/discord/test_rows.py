"""Repeated, late and changed events of Discord: FAILURES B and C."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count

import pytest

from bot import system_clock
from bot.models import TextRequest
from bot.pipeline import process_message
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import LIMITS, EmulatedServer, outcomes, receipts


@pytest.mark.failure("B-01")
async def test_a_message_received_twice_is_answered_once(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        message_id = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await tell(server, message_id)
        await server.emulator.recorder.wait_for_texts(1)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        assert len(await receipts(harness)) == 2


@pytest.mark.failure("B-02")
async def test_a_message_repeated_after_29_days_is_recognised(server: EmulatedServer) -> None:
    late = [timedelta()]

    def clock() -> datetime:
        return system_clock() + late[-1]

    store = InMemoryStore(clock)
    async with server.run_bot(store=store, clock=clock):
        message_id = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
    late.append(timedelta(days=29))
    async with server.run_bot(store=store, clock=clock) as (harness, _):
        await tell(server, message_id)
        direct = server.direct(server.robin)
        await server.emulator.people.say(direct, server.robin, "and you?")
        await server.emulator.recorder.wait_for_texts(1, direct)
        assert len(await receipts(harness)) == 2
        assert server.emulator.recorder.texts(server.lobby) == ["Aye."]


@pytest.mark.failure("B-04")
async def test_messages_received_in_reverse_are_stored_as_they_arrived_and_answered(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        people = server.emulator.people
        begun = system_clock() - timedelta(seconds=9)
        first, second = [
            await people.say(
                server.lobby,
                server.kim,
                f"{server.call} ahoy",
                timestamp=begun + timedelta(seconds=late),
                is_announced=False,
            )
            for late in (1, 2)
        ]
        await tell(server, second)
        await tell(server, first)
        await server.emulator.recorder.wait_for_texts(1)
        all_receipts = await receipts(harness)
        kept = await harness.agent.store.memories.recent(all_receipts[0].room_id, 10)
        assert [memory.external_id for memory in kept if memory.entity_id != harness.agent.id] == [second, first]
        assert {str(outcome) for outcome in await outcomes(harness)} <= {"answered", "superseded"}


@pytest.mark.long
@pytest.mark.failure("B-07")
async def test_a_repeatedly_edited_message_has_a_single_answer_to_its_last_text(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.set()
        if "have they all come?" in request.prompt:
            go.set()
        await go.wait()
        return model_answer("The last." if "version 20" in request.prompt else "An earlier one.")

    async with server.run_bot(ScriptedModel(script)) as (harness, _):
        people = server.emulator.people
        message_id = await people.say(server.lobby, server.kim, f"{server.call} version 0")
        await asked.wait()
        for number in range(1, 21):
            server.emulator.state.clock = partial(_later, seconds=number)
            await people.edit(server.lobby, message_id, f"{server.call} version {number}")
        direct = server.direct(server.robin)
        await people.say(direct, server.robin, "have they all come?")
        await server.emulator.recorder.wait_for_texts(1, server.lobby)
        await receipts(harness)
        assert server.emulator.recorder.texts(server.lobby) == ["The last."]


@pytest.mark.failure("B-09")
async def test_a_message_deleted_after_its_answer_is_erased(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        message_id = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        [receipt] = await receipts(harness)
        await server.emulator.people.delete(server.lobby, message_id)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        assert await harness.agent.store.memories.memories([receipt.memory_id]) == {}


@pytest.mark.failure("B-11")
async def test_a_guild_that_readmits_the_bot_is_answered_and_keeps_its_history(server: EmulatedServer) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot() as (harness, _):
        await people.say(server.lobby, server.kim, f"{server.call} before")
        await ledger.wait_for_texts(1)
        [before] = await receipts(harness)
        await people.expel(server.guild, server.bot)
        await people.invite(server.guild, server.bot)
        await people.say(server.lobby, server.kim, f"{server.call} again")
        await ledger.wait_for_texts(2)
        *_, again = await receipts(harness)
        assert again.room_id == before.room_id
        kept = await harness.agent.store.memories.recent(again.room_id, 10)
        assert {"@Ada before", "@Ada again"} <= {memory.content.text for memory in kept}


@pytest.mark.failure("O-05")
async def test_a_bot_that_always_replies_is_answered_five_times_in_a_row(server: EmulatedServer) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    echo = server.emulator.state.add_user("Echo", is_bot=True)
    answers = (model_answer(f"Aye, {number}.") for number in count(1))
    model = ScriptedModel(lambda request: next(answers))
    async with server.run_bot(model, settings={"RESPOND_TO_BOTS": "true"}) as (harness, _):
        for number in range(1, 6):
            await people.say(server.lobby, echo, f"{server.call} I heard you {number} times")
            await ledger.wait_for_texts(number)
        for number in range(6, 9):
            await people.say(server.lobby, echo, f"{server.call} I heard you {number} times")
        await people.say(server.lobby, server.kim, f"{server.call} enough?")
        await ledger.wait_for_texts(6)
        all_receipts = await receipts(harness)
    assert [receipt.rule for receipt in all_receipts].count("RESPOND_TO_BOTS") == 3
    assert len(ledger.texts()) == 6


@pytest.mark.failure("B-14")
async def test_a_renamed_user_is_the_same_entity(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        server.emulator.state.users[server.kim]["global_name"] = "Captain Kim"
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        [author] = {receipt.author_id for receipt in await receipts(harness)}
        known = await harness.agent.store.entities.entities([author])
        assert "Captain Kim" in known[author].names


@pytest.mark.long
@pytest.mark.failure("C-15")
async def test_an_account_that_is_cut_off_does_not_affect_others(server: EmulatedServer) -> None:
    asked = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1") as silent:
        nowhere = {"DISCORD_API_BASE_URL": f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"}
        limits = replace(LIMITS, request_timeout=600.0)
        async with server.run_bot(settings=nowhere, limits=limits, is_awaited=False), server.run_bot():
            await asked.wait()
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
            assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


def _later(seconds: int) -> datetime:
    return system_clock() + timedelta(seconds=seconds)


async def tell(server: EmulatedServer, message_id: str) -> None:
    """Send the event of a message again."""
    message = server.emulator.state.messages[server.lobby][message_id]
    await server.emulator.gateway.dispatch_event("MESSAGE_CREATE", message)
