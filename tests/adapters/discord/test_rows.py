"""What Discord says twice, late or otherwise than before, and what does not concern it: FAILURES B and C."""

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
from tests.adapters.discord.harbour import LIMITS, Harbour, outcomes, receipts


async def test_b01_a_message_that_is_told_twice_is_answered_once(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        said = await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await tell(harbour, said)
        await harbour.emulator.recorder.wait_for_texts(1)
        await harbour.emulator.people.say(harbour.quay, harbour.robin, f"{harbour.call} ahoy")
        assert await harbour.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        assert len(await receipts(stage)) == 2


async def test_b02_a_message_that_is_told_again_after_29_days_is_known(harbour: Harbour) -> None:
    late = [timedelta()]

    def clock() -> datetime:
        return system_clock() + late[-1]

    store = InMemoryStore(clock)
    async with harbour.bot_on(store=store, clock=clock):
        said = await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(1)
    late.append(timedelta(days=29))
    async with harbour.bot_on(store=store, clock=clock) as (stage, _):
        await tell(harbour, said)
        direct = harbour.direct(harbour.robin)
        await harbour.emulator.people.say(direct, harbour.robin, "and you?")
        await harbour.emulator.recorder.wait_for_texts(1, direct)
        assert len(await receipts(stage)) == 2
        assert harbour.emulator.recorder.texts(harbour.quay) == ["Aye."]


async def test_b04_two_messages_that_come_in_reverse_are_remembered_in_their_order(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        people = harbour.emulator.people
        begun = system_clock() - timedelta(seconds=9)
        first, second = [
            await people.say(
                harbour.quay,
                harbour.kim,
                f"{harbour.call} ahoy",
                timestamp=begun + timedelta(seconds=late),
                is_announced=False,
            )
            for late in (1, 2)
        ]
        await tell(harbour, second)
        await tell(harbour, first)
        await harbour.emulator.recorder.wait_for_texts(1)
        told = await receipts(stage)
        kept = await stage.agent.store.memories.recent(told[0].room_id, 10)
        assert [one.external_id for one in kept if one.entity_id != stage.agent.id] == [first, second]
        assert {str(one) for one in await outcomes(stage)} <= {"answered", "superseded"}


async def test_b07_a_message_that_is_edited_on_and_on_has_one_answer_to_how_it_reads_at_last(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.set()
        if "have they all come?" in request.prompt:
            go.set()
        await go.wait()
        return model_answer("The last." if "version 20" in request.prompt else "An earlier one.")

    async with harbour.bot_on(ScriptedModel(script)) as (stage, _):
        people = harbour.emulator.people
        said = await people.say(harbour.quay, harbour.kim, f"{harbour.call} version 0")
        await asked.wait()
        for number in range(1, 21):
            harbour.emulator.state.clock = partial(_later, seconds=number)
            await people.edit(harbour.quay, said, f"{harbour.call} version {number}")
        direct = harbour.direct(harbour.robin)
        await people.say(direct, harbour.robin, "have they all come?")
        await harbour.emulator.recorder.wait_for_texts(1, harbour.quay)
        await receipts(stage)
        assert harbour.emulator.recorder.texts(harbour.quay) == ["The last."]


async def test_b09_what_is_removed_after_its_answer_is_forgotten(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        said = await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(1)
        [receipt] = await receipts(stage)
        await harbour.emulator.people.delete(harbour.quay, said)
        await harbour.emulator.people.say(harbour.quay, harbour.robin, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(2)
        assert await stage.agent.store.memories.memories([receipt.memory_id]) == {}


async def test_b11_a_server_that_puts_it_out_and_lets_it_in_again_is_answered_again_and_remembered(
    harbour: Harbour,
) -> None:
    people, ledger = harbour.emulator.people, harbour.emulator.recorder
    async with harbour.bot_on() as (stage, _):
        await people.say(harbour.quay, harbour.kim, f"{harbour.call} before")
        await ledger.wait_for_texts(1)
        [before] = await receipts(stage)
        await people.expel(harbour.guild, harbour.bot)
        await people.invite(harbour.guild, harbour.bot)
        await people.say(harbour.quay, harbour.kim, f"{harbour.call} again")
        await ledger.wait_for_texts(2)
        *_, again = await receipts(stage)
        assert again.room_id == before.room_id
        kept = await stage.agent.store.memories.recent(again.room_id, 10)
        assert {"@Ada before", "@Ada again"} <= {one.content.text for one in kept}


async def test_o05_another_bot_that_answers_every_word_is_answered_five_times_in_a_row(
    harbour: Harbour,
) -> None:
    people, ledger = harbour.emulator.people, harbour.emulator.recorder
    echo = harbour.emulator.state.add_user("Echo", is_bot=True)
    said = (model_answer(f"Aye, {number}.") for number in count(1))
    model = ScriptedModel(lambda request: next(said))
    async with harbour.bot_on(model, settings={"RESPOND_TO_BOTS": "true"}) as (stage, _):
        for number in range(1, 6):
            await people.say(harbour.quay, echo, f"{harbour.call} I heard you {number} times")
            await ledger.wait_for_texts(number)
        for number in range(6, 9):
            await people.say(harbour.quay, echo, f"{harbour.call} I heard you {number} times")
        await people.say(harbour.quay, harbour.kim, f"{harbour.call} enough?")
        await ledger.wait_for_texts(6)
        told = await receipts(stage)
    assert [one.rule for one in told].count("RESPOND_TO_BOTS") == 3
    assert len(ledger.texts()) == 6


async def test_b14_whoever_is_renamed_is_the_same_person(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(1)
        harbour.emulator.state.users[harbour.kim]["global_name"] = "Captain Kim"
        await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(2)
        [author] = {one.author_id for one in await receipts(stage)}
        known = await stage.agent.store.entities.entities([author])
        assert "Captain Kim" in known[author].names


async def test_c15_one_account_that_is_cut_off_does_not_concern_another(harbour: Harbour) -> None:
    asked = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1") as silent:
        nowhere = {"DISCORD_API_BASE_URL": f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"}
        limits = replace(LIMITS, request_timeout=600.0)
        async with harbour.bot_on(settings=nowhere, limits=limits, is_awaited=False), harbour.bot_on():
            await asked.wait()
            await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
            assert await harbour.emulator.recorder.wait_for_texts(1) == ["Aye."]


def _later(seconds: int) -> datetime:
    return system_clock() + timedelta(seconds=seconds)


async def tell(harbour: Harbour, message_id: str) -> None:
    """Have a message of the quay told once more."""
    message = harbour.emulator.state.messages[harbour.quay][message_id]
    await harbour.emulator.gateway.dispatch_event("MESSAGE_CREATE", message)
