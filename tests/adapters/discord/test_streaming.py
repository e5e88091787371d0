"""Streamed replies on Discord."""

import asyncio
from datetime import datetime, timedelta

import pytest

from adapters.discord import adapter
from bot import Outcome, Plugin, ProviderResult, Turn, provider, system_clock
from bot.platform import DeliveryState
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, StreamedText
from tests.adapters.discord.server import EmulatedServer, receipts

pytestmark = pytest.mark.usefixtures("nothing_held_back")

LIVE = {"STREAMING": "true"}
HEAD = "<response><thought>hm</thought><actions>REPLY</actions><text>"
TAIL = "</text></response>"
FIRST, WHOLE = "Once upon a time", "Once upon a time there was a bot."


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the interval between two edits of a draft."""
    monkeypatch.setattr(adapter, "DRAFT_INTERVAL_SECONDS", 0.0)


def story(gate: asyncio.Event, rest: str = WHOLE.removeprefix(FIRST)) -> ScriptedModel:
    """Return a reply whose second half waits for the test."""
    return ScriptedModel([StreamedText(HEAD, FIRST, gate, rest + TAIL)])


async def begun(server: EmulatedServer) -> str:
    """Ask the bot, wait for the start of its answer, and return the question's id."""
    asked = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} tell me a story")
    assert await server.emulator.recorder.wait_for_texts(1) == [FIRST]
    return asked


def seen(server: EmulatedServer) -> list[str]:
    return [message.text for message in server.emulator.recorder.messages if not message.is_gone]


async def until_seen(server: EmulatedServer, *texts: str) -> None:
    await server.emulator.recorder.wait_until(lambda: seen(server) == [*texts])


async def test_a_reply_is_streamed_by_editing_its_message(server: EmulatedServer) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE):
        await begun(server)
        gate.set()
        await until_seen(server, WHOLE)


@pytest.mark.failure("B-08")
async def test_a_streamed_answer_is_removed_when_its_question_is_deleted(server: EmulatedServer) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE) as (harness, _):
        asked = await begun(server)
        await server.emulator.people.delete(server.lobby, asked)
        await until_seen(server)
        gate.set()
        [receipt] = await receipts(harness)
        assert receipt.outcome is Outcome.CANCELLED
        await harness.agent.outbox.drain(30.0)
        assert seen(server) == []


async def test_a_draft_deleted_by_a_moderator_is_not_sent_again_and_the_cause_is_stored(server: EmulatedServer) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate, " word" * 800), settings=LIVE) as (harness, _):
        await begun(server)
        [shown] = server.emulator.recorder.messages
        shown.is_gone = True
        await server.emulator.people.delete(server.lobby, shown.id)
        gate.set()
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(30.0)
        assert seen(server) == []
        parts = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
        causes = {part.cause for part in parts if part.state is DeliveryState.CANCELLED}
        assert causes == {"the message was deleted in the channel: it is not sent again"}
        assert [part.state for part in parts].count(DeliveryState.CANCELLED) == len(parts) - 1 > 1


@pytest.mark.failure("A-08")
async def test_a_draft_that_no_process_can_finish_is_removed_after_a_restart(server: EmulatedServer) -> None:
    store, passed, never = InMemoryStore(), [timedelta()], asyncio.Event()

    def clock() -> datetime:
        return system_clock() + passed[-1]

    @provider("SLOW", "Takes its time, so that what is seen is younger than the question.")
    async def slow(turn: Turn) -> ProviderResult:
        passed.append(timedelta(minutes=8))
        return ProviderResult()

    plugin = Plugin("slow", providers=[slow])
    async with server.run_bot(story(never), plugin, settings=LIVE, store=store, clock=clock) as (harness, _):
        await begun(server)
        await harness.agent_runtime.inbox.processor.release()
    passed.append(timedelta(minutes=16))
    async with server.run_bot(settings=LIVE, store=store, clock=clock) as (harness, _):
        await harness.agent_runtime.inbox.processor.resume_all()  # as for each platform that is connected
        await until_seen(server)
        [receipt] = await receipts(harness)
        assert receipt.outcome is Outcome.EXPIRED
