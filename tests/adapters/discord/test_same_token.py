"""Two programs with one token and different data answer twice: each of them says so."""

import asyncio

import pytest

from adapters.discord.adapter import DiscordAdapter
from bot.platform import ConnectionState, DisconnectCause
from bot.testing import AgentHarness
from tests.adapters.discord.server import EmulatedServer, receipts
from tests.adapters.discord.test_errors import part


def cause_of(adapter: DiscordAdapter) -> DisconnectCause | None:
    [status] = adapter.connections
    return status.snapshot.cause


async def test_two_programs_with_the_same_token_report_each_other(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.discord.adapter.CONTESTED_SECONDS", 8.0)  # for which the tests' clock does not move
    async with server.run_bot() as (first, adapter), server.run_bot() as (second, other):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        for harness in (first, second):
            await receipts(harness)
        await wait_for_report(first, adapter)
        await wait_for_report(second, other)
    warnings_logged = [line for line in caplog.messages if "another program uses the token" in line]
    assert len(warnings_logged) == 2
    assert all(server.lobby in line and "stop it" in line for line in warnings_logged)


async def wait_for_report(harness: AgentHarness, adapter: DiscordAdapter) -> None:
    async with asyncio.timeout(10):
        while cause_of(adapter) is not DisconnectCause.CONTESTED:  # noqa: ASYNC110  # the status has no event
            await asyncio.sleep(0)


async def test_what_the_bot_itself_or_a_process_with_its_data_has_sent_is_no_sign(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        await receipts(harness)
        sent_elsewhere = part(harness, server.lobby, "From another process.")
        await harness.agent.store.ledger.save_delivery(sent_elsewhere)
        message = server.emulator.state.add_message(
            server.lobby, server.bot, "From another process.", nonce=sent_elsewhere.id
        )
        await server.emulator.gateway.dispatch_event("MESSAGE_CREATE", message)
        await server.emulator.interactions.run_command(server.bot, server.kim, server.lobby, "privacy")
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} again")
        await server.emulator.recorder.wait_for_texts(2)
        [status] = adapter.connections
        assert status.snapshot.state is ConnectionState.CONNECTED
