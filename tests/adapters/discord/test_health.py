"""The connection status of a Discord account."""

import asyncio
import logging
import re
from dataclasses import dataclass, field, replace

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.emulator import Fault
from bot.platform import ConnectionSnapshot, ConnectionState, DisconnectCause
from tests.adapters.discord.server import LIMITS, TYPING, EmulatedServer, no_sleep


@dataclass
class Gate:
    """Blocks retries until it is opened."""

    resting: asyncio.Event = field(default_factory=asyncio.Event)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        if seconds == LIMITS.identify_interval:
            return
        self.resting.set()
        await (asyncio.Event() if seconds == TYPING else self.is_open).wait()
        await asyncio.sleep(0)

    async def until_resting(self) -> None:
        async with asyncio.timeout(60):
            await self.resting.wait()


def state_of(adapter: DiscordAdapter) -> ConnectionSnapshot:
    [link] = adapter.connections
    return link.snapshot


async def standing(adapter: DiscordAdapter) -> None:
    async with asyncio.timeout(60):
        while state_of(adapter).state is not ConnectionState.CONNECTED:
            await no_sleep(0)


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.failure("C-15")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(r"GET .*/users/@me$", times=3), DisconnectCause.UNREACHABLE),
        (Fault(r"GET .*/users/@me$", 503, times=3), DisconnectCause.PLATFORM),
        (Fault(r"GET .*/users/@me$", 200, "<html>", times=3), DisconnectCause.PLATFORM),
        (Fault(r"GET .*/gateway/bot$", times=3), DisconnectCause.UNREACHABLE),
    ],
)
async def test_an_account_that_cannot_connect_is_degraded_until_it_does(
    server: EmulatedServer, fault: Fault, cause: DisconnectCause, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    server.emulator.faults.append(fault)
    limits = replace(LIMITS, sleep=gate.pause)
    async with server.run_bot(limits=limits, is_awaited=False) as (_harness, adapter):
        await gate.until_resting()
        assert (state_of(adapter).state, state_of(adapter).cause) == (ConnectionState.DEGRADED, cause)
        gate.is_open.set()
        await standing(adapter)
        assert state_of(adapter).cause is None
    assert len(logged_warnings(caplog)) == 2, logged_warnings(caplog)
    assert logged_warnings(caplog)[0].startswith(f"Ada is cut off from discord ({cause})")
    assert logged_warnings(caplog)[1].startswith("Ada is on discord again")


@pytest.mark.failure("C-13")
async def test_an_unresolvable_host_is_named(server: EmulatedServer) -> None:
    gate = Gate()
    limits = replace(LIMITS, sleep=gate.pause)
    nowhere = {"DISCORD_API_BASE_URL": "http://nowhere.invalid"}
    async with server.run_bot(settings=nowhere, limits=limits, is_awaited=False) as (_harness, adapter):
        await gate.until_resting()
        assert state_of(adapter).cause is DisconnectCause.DNS


@pytest.mark.failure("C-15")
async def test_a_lost_gateway_is_logged_once_and_once_when_it_is_back(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with server.run_bot(limits=replace(LIMITS, sleep=gate.pause)) as (_harness, adapter):
        await standing(adapter)
        server.emulator.faults.append(Fault(r"GET .*/gateway/bot$", times=3))
        await server.emulator.gateway.invalidate()
        await gate.until_resting()
        assert state_of(adapter).state is ConnectionState.CONNECTING
        gate.is_open.set()
        await server.emulator.recorder.wait_until(lambda: not server.emulator.faults[0].times)
        await standing(adapter)
    assert [line.split(" after")[0].split(" (")[0] for line in logged_warnings(caplog)] == [
        "Ada is cut off from discord",
        "Ada is on discord again,",
    ]


@pytest.mark.failure("C-05")
async def test_connections_replaced_at_once_are_no_outage(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = server.emulator.recorder
    async with server.run_bot() as (_harness, adapter):
        for number in range(10):
            await standing(adapter)
            await server.emulator.gateway.drop()
            await ledger.wait_until(lambda count=number: ledger.counts["resume"] > count)
        await standing(adapter)
    assert logged_warnings(caplog) == []


async def test_the_log_says_once_as_whom_and_in_how_many_servers_a_bot_is_connected(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with server.run_bot() as (_harness, adapter):
        await standing(adapter)
        await server.emulator.gateway.drop()
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["resume"] > 0)
        await standing(adapter)
    lines = [line for line in caplog.messages if line.startswith("connected to Discord")]
    assert len(lines) == 1
    assert re.fullmatch(r"connected to Discord as @\w+ \(servers: [1-9]\)", lines[0])


async def test_an_account_whose_token_is_refused_is_off(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {"DISCORD_API_TOKEN": "another-one-only-for-tests"}
    async with server.run_bot(settings=refused, is_awaited=False) as (_harness, adapter):
        [account] = adapter.accounts
        async with asyncio.timeout(60):
            await account.is_connected.wait()
        assert (state_of(adapter).state, state_of(adapter).cause) == (ConnectionState.OFF, DisconnectCause.REFUSED)
    assert len(logged_warnings(caplog)) == 1
    assert "another-one" not in caplog.text
