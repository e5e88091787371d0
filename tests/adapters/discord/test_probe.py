"""The probe of the gateway: a socket that lives and brings nothing is found out."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.emulator import Fault
from adapters.discord.sharding import WHOLE_ACCOUNT
from bot import system_clock
from bot.store import InMemoryStore
from tests.adapters.discord.server import LIMITS, EmulatedServer


class LaterClock:
    """The time, and what a test adds to it."""

    later = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.later


async def unheard(adapter: DiscordAdapter) -> datetime | None:
    [account] = adapter.accounts
    await account.shards[WHOLE_ACCOUNT].probe.check()
    return account.status.unheard_since


async def talk(server: EmulatedServer) -> None:
    """Write to the bot, and wait for its answer, which the gateway brings too."""
    count = len(server.emulator.recorder.messages)
    await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello")
    async with asyncio.timeout(10):
        await server.emulator.recorder.wait_until(lambda: len(server.emulator.recorder.messages) > count)


@pytest.mark.parametrize("has_heard", [True, False])
async def test_messages_that_a_living_gateway_does_not_bring_are_found(server: EmulatedServer, has_heard: bool) -> None:
    clock, store = LaterClock(), InMemoryStore()
    async with server.run_bot(store=store, clock=clock):
        await talk(server)
    async with server.run_bot(store=store, clock=clock) as (_harness, adapter):
        if has_heard:
            await talk(server)
        assert await unheard(adapter) is None
        server.emulator.gateway.is_deaf = True
        await server.emulator.people.say(server.lobby, server.kim, "Is anybody there?")
        assert await unheard(adapter) is None  # it may still come
        clock.later = timedelta(seconds=20)
        assert await unheard(adapter) is not None
        server.emulator.gateway.is_deaf = False
        await talk(server)
        assert await unheard(adapter) is None


async def test_a_channel_that_cannot_be_read_is_no_sign(server: EmulatedServer) -> None:
    clock = LaterClock()
    async with server.run_bot(clock=clock) as (_harness, adapter):
        await talk(server)
        server.emulator.gateway.is_deaf = True
        await server.emulator.people.say(server.lobby, server.kim, "Is anybody there?")
        clock.later = timedelta(minutes=1)
        server.emulator.faults.append(Fault("GET .*/messages", 503))
        assert await unheard(adapter) is None
        assert await unheard(adapter) is not None


async def test_a_gateway_that_lives_and_brings_nothing_is_replaced_and_what_was_missed_is_answered(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock, recorder = LaterClock(), server.emulator.recorder
    async with server.run_bot(clock=clock) as (_harness, adapter):
        await talk(server)
        assert await unheard(adapter) is None
        server.emulator.gateway.is_deaf = True
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} Is anybody there?")
        clock.later = timedelta(seconds=20)
        assert await unheard(adapter) is not None
        server.emulator.gateway.is_deaf = False
        assert await recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        await talk(server)
        assert await unheard(adapter) is None
    assert recorder.counts["identify"] == 2
    assert len([line for line in caplog.messages if "has brought nothing" in line]) == 1


async def test_a_connection_that_brings_no_first_event_is_replaced(server: EmulatedServer) -> None:
    recorder = server.emulator.recorder
    server.emulator.gateway.is_deaf = True
    limits = replace(LIMITS, first_event_timeout=0.2)
    async with server.run_bot(limits=limits, is_awaited=False):
        await recorder.wait_until(lambda: recorder.counts["identify"] >= 2)
        server.emulator.gateway.is_deaf = False
        await recorder.wait_until(lambda: recorder.counts["identify"] >= 3)
        await talk(server)
