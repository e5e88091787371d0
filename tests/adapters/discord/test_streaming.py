"""A reply on Discord that is seen while it is written, and what may happen to it meanwhile."""

import asyncio
from datetime import datetime, timedelta

import pytest

from adapters.discord import adapter
from bot import Outcome, Plugin, ProviderResult, Turn, provider, system_clock
from bot.platform import DeliveryState
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, StreamedText
from tests.adapters.discord.server import EmulatedServer, receipts

LIVE = {"STREAMING": "true"}
HEAD = "<response><thought>hm</thought><actions>REPLY</actions><text>"
TAIL = "</text></response>"
FIRST, WHOLE = "Once upon a time", "Once upon a time there was a bot."


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test wait for the pace at which a reply is shown."""
    monkeypatch.setattr(adapter, "DRAFT_INTERVAL_SECONDS", 0.0)


def story(gate: asyncio.Event, rest: str = WHOLE.removeprefix(FIRST)) -> ScriptedModel:
    """Write the beginning, and the rest when the test wants it."""
    return ScriptedModel([StreamedText(HEAD, FIRST, gate, rest + TAIL)])


async def begun(server: EmulatedServer) -> str:
    """Have the bot asked something, and the beginning of its answer seen; gives the question's id."""
    asked = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} tell me a story")
    assert await server.emulator.recorder.wait_for_texts(1) == [FIRST]
    return asked


def seen(server: EmulatedServer) -> list[str]:
    return [one.text for one in server.emulator.recorder.messages if not one.is_gone]


async def until_seen(server: EmulatedServer, *texts: str) -> None:
    await server.emulator.recorder.wait_until(lambda: seen(server) == [*texts])


async def test_a_reply_is_seen_while_it_is_written_and_edited_into_the_whole(server: EmulatedServer) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE):
        await begun(server)
        gate.set()
        await until_seen(server, WHOLE)


async def test_b08_what_is_seen_of_an_answer_goes_as_soon_as_its_question_is_taken_back(
    server: EmulatedServer,
) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE) as (stage, _):
        asked = await begun(server)
        await server.emulator.people.delete(server.lobby, asked)
        await until_seen(server)
        gate.set()
        [receipt] = await receipts(stage)
        assert receipt.outcome is Outcome.CANCELLED
        await stage.agent.outbox.drain(30.0)
        assert seen(server) == []


async def test_what_a_moderator_has_removed_half_written_is_not_said_again_and_the_books_say_why(
    server: EmulatedServer,
) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate, " word" * 800), settings=LIVE) as (stage, _):
        await begun(server)
        [shown] = server.emulator.recorder.messages
        shown.is_gone = True
        await server.emulator.people.delete(server.lobby, shown.id)
        gate.set()
        [receipt] = await receipts(stage)
        await stage.agent.outbox.drain(30.0)
        assert seen(server) == []
        parts = await stage.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
        causes = {one.cause for one in parts if one.state is DeliveryState.CANCELLED}
        assert causes == {"the message was deleted in the channel: it is not sent again"}
        assert [one.state for one in parts].count(DeliveryState.CANCELLED) == len(parts) - 1 > 1


async def test_a08_a_half_written_answer_that_nobody_may_finish_after_a_restart_is_taken_away(
    server: EmulatedServer,
) -> None:
    store, passed, never = InMemoryStore(), [timedelta()], asyncio.Event()

    def clock() -> datetime:
        return system_clock() + passed[-1]

    @provider("SLOW", "Takes its time, so that what is seen is younger than the question.")
    async def slow(turn: Turn) -> ProviderResult:
        passed.append(timedelta(minutes=8))
        return ProviderResult()

    plugin = Plugin("slow", providers=[slow])
    async with server.run_bot(story(never), plugin, settings=LIVE, store=store, clock=clock) as (stage, _):
        await begun(server)
        await stage.agent_runtime.inbox.processor.release()
    passed.append(timedelta(minutes=16))
    async with server.run_bot(settings=LIVE, store=store, clock=clock) as (stage, _):
        await stage.agent_runtime.inbox.processor.resume_all()  # as for each platform that is connected
        await until_seen(server)
        [receipt] = await receipts(stage)
        assert receipt.outcome is Outcome.EXPIRED
