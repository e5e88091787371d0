"""What people on Discord see of an action that takes long, and how they end it."""

import asyncio

import pytest

from bot import ActionResult, Effect, Outcome, Plugin, Turn, action
from bot.models import Purpose, TextRequest
from bot.pipeline import run_actions
from bot.testing import ScriptedModel, model_answer
from bot.user_texts import user_text
from tests.adapters.discord.server import EmulatedServer, receipts

ON_IT = user_text("actions.under_way")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report at once that an action is in progress."""
    monkeypatch.setattr(run_actions, "ACKNOWLEDGE_SECONDS", 0.0)
    monkeypatch.setattr(run_actions, "EDIT_SECONDS", 0.0)


class Export:
    """An action that goes on as the test says."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[str] = asyncio.Queue()
        self.is_cancelled = asyncio.Event()

        @action("EXPORT", "Export everything.", effect=Effect.UNSAFE, deadline=600)
        async def export(turn: Turn) -> ActionResult:
            try:
                while step := await self.steps.get():
                    turn.report_progress(step)
            except asyncio.CancelledError:
                self.is_cancelled.set()
                raise
            return ActionResult(text="512 files exported", authors=())

        self.plugin = Plugin("exports", "Exports.", actions=[export])


def script(request: TextRequest) -> str:
    if request.purpose is Purpose.SUMMARY:
        return model_answer("All 512 files are there.")
    return model_answer("I do that.", actions=["REPLY", "EXPORT"])


async def test_a_long_action_is_acknowledged_its_progress_are_edits_and_its_result_is_reported(
    server: EmulatedServer,
) -> None:
    export, ledger = Export(), server.emulator.recorder
    async with server.run_bot(ScriptedModel(script), export.plugin) as (harness, _):
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} export it")
        assert await ledger.wait_for_texts(1, server.lobby) == [ON_IT]
        await harness.agent.outbox.drain(10)
        for shown in ("100 of 512 files", "200 of 512 files", "300 of 512 files"):
            export.steps.put_nowait(shown)
            await ledger.wait_until(lambda shown=shown: ledger.texts() == [shown])
            await harness.agent.outbox.drain(10)
        export.steps.put_nowait("")
        assert await ledger.wait_for_texts(2, server.lobby) == ["300 of 512 files", "All 512 files are there."]
        assert [receipt.outcome for receipt in await receipts(harness)] == [Outcome.ANSWERED]


async def test_stop_ends_the_long_action_of_its_author_alone_and_says_that_it_may_have_been_done(
    server: EmulatedServer,
) -> None:
    export, ledger, interactions = Export(), server.emulator.recorder, server.emulator.interactions
    sam = server.emulator.state.add_user("Sam")
    async with server.run_bot(ScriptedModel(script), export.plugin) as (harness, _):
        await server.emulator.people.join(server.guild, sam)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} export it")
        await ledger.wait_for_texts(1, server.lobby)
        refused = await interactions.run_command(server.bot, sam, server.lobby, "stop")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        assert not export.is_cancelled.is_set()
        done = await interactions.run_command(server.bot, server.robin, server.lobby, "stop")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 1)
        [receipt] = await receipts(harness)
    assert ledger.responses[refused][0]["content"] == user_text("commands.stop.nothing")
    assert ledger.responses[done][0]["content"] == user_text("commands.stop.under_way", actions="EXPORT")
    assert (receipt.outcome, export.is_cancelled.is_set()) == (Outcome.CANCELLED, True)
    assert ledger.texts() == [ON_IT]


async def test_deleting_the_message_ends_its_long_action(server: EmulatedServer) -> None:
    export, ledger = Export(), server.emulator.recorder
    async with server.run_bot(ScriptedModel(script), export.plugin) as (harness, _):
        message = await server.emulator.people.say(server.lobby, server.robin, f"{server.call} export it")
        await ledger.wait_for_texts(1, server.lobby)
        await server.emulator.people.delete(server.lobby, message)
        async with asyncio.timeout(10):
            await export.is_cancelled.wait()
        assert [receipt.outcome for receipt in await receipts(harness)] == [Outcome.CANCELLED]
