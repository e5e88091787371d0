"""Failures of the gateway connection."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from adapters.discord import gateway
from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import Limits
from adapters.discord.emulator import Fault
from adapters.discord.emulator.gateway import GUILD_MEMBERS
from adapters.discord.gateway import (
    DELAY_SECONDS,
    HOUR,
    MAX_PER_HOUR,
    RETRY_SECONDS,
    GatewaySession,
    GuildFetcher,
    IdentifyLimiter,
)
from adapters.discord.sharding import WHOLE_ACCOUNT
from bot import Outcome, system_clock
from bot.store import InMemoryStore, StoreUnavailable
from bot.testing import AgentHarness
from tests.adapters.discord.server import LIMITS, EmulatedServer, outcomes, receipts


@pytest.mark.long
@pytest.mark.failure("C-01")
@pytest.mark.parametrize("events", [3, 7])
async def test_a_drop_after_every_nth_event_neither_loses_nor_repeats_messages(
    server: EmulatedServer, events: int
) -> None:
    ledger = server.emulator.recorder
    async with server.run_bot() as (harness, _):
        server.emulator.gateway.closes_after = events
        for number in range(12):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} number {number}")
            await ledger.wait_for_texts(number + 1)
        assert await outcomes(harness) == [Outcome.ANSWERED] * 12
    assert len(ledger.texts()) == 12
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] >= ledger.counts["dropped"] > 0


@pytest.mark.long
@pytest.mark.failure("C-01")
async def test_200_messages_with_a_drop_after_each_are_stored_once(server: EmulatedServer) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot(settings={"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}) as (harness, _):
        for number in range(200):
            await people.say(server.lobby, server.kim, f"number {number}")
            await server.emulator.gateway.drop()
            await ledger.wait_until(lambda count=number: ledger.counts["resume"] > count)
        direct = server.direct(server.kim)
        await people.say(direct, server.kim, "all there?")
        await ledger.wait_for_texts(1)
        all_receipts = await receipts(harness)
    assert (
        [receipt.rule for receipt in all_receipts].count("DISCORD_LISTEN_CHANNEL_IDS") == len(all_receipts) - 1 == 200
    )
    assert ledger.counts["identify"] == 1


@pytest.mark.failure("C-01")
async def test_a_reconnect_request_resumes_the_session(server: EmulatedServer) -> None:
    async with server.run_bot() as (_harness, _):
        await server.emulator.gateway.ask_to_reconnect()
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
    assert server.emulator.recorder.counts["identify"] == 1


@pytest.mark.failure("C-02")
async def test_an_invalid_session_is_replaced_and_the_gap_filled(server: EmulatedServer) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot() as (harness, _):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
        await receipts(harness)
        await people.say(server.lobby, server.kim, f"{server.call} while away", is_announced=False)
        await server.emulator.gateway.invalidate()
        await ledger.wait_for_texts(2)
        assert await outcomes(harness) == [Outcome.ANSWERED] * 2
    assert ledger.counts["identify"] == 2


@pytest.mark.failure("C-03")
async def test_a_connection_without_heartbeat_acks_is_closed_with_4000_and_resumed(server: EmulatedServer) -> None:
    gateway, ledger = server.emulator.gateway, server.emulator.recorder
    gateway.heartbeat_interval = 20
    async with server.run_bot(limits=replace(LIMITS, heartbeat_timeout=0.4)) as (_harness, _):
        gateway.is_mute = True
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello?")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        await gateway.revive()
        assert await ledger.wait_for_texts(1) == ["Aye."]
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] > 0


@pytest.mark.failure("C-07")
async def test_a_dead_connection_is_given_up(server: EmulatedServer) -> None:
    gateway, ledger = server.emulator.gateway, server.emulator.recorder
    async with server.run_bot(limits=replace(LIMITS, heartbeat_timeout=0.3)) as (_harness, _):
        gateway.is_dead = True
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello?")
        await ledger.wait_until(lambda: ledger.counts["unheard"] > 0)  # it has called again
        await gateway.revive()
        assert await ledger.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("C-04")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4010, "shard"),
        (4011, "sharding"),
        (4012, "update discord.py"),
        (4013, "update discord.py"),
        (4014, "Message Content Intent"),
    ],
)
async def test_a_fatal_close_code_stops_the_account_and_names_the_remedy(
    server: EmulatedServer, code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.emulator.gateway.refusal_code = code
    async with server.run_bot(is_awaited=False) as (harness, adapter):
        [account] = adapter.accounts
        async with asyncio.timeout(30):
            await account.is_connected.wait()
        assert words in account.problem
        assert server.emulator.recorder.counts["identify"] == 1
        assert (await harness.send("another platform goes on")).outcome is Outcome.ANSWERED
    assert any(record.levelno == logging.ERROR and words in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("path", ["/users/@me", "/gateway/bot"])
@pytest.mark.parametrize("nonsense", [{}, []])
async def test_an_unreadable_response_at_the_start_is_retried(
    server: EmulatedServer, path: str, nonsense: object
) -> None:
    server.emulator.faults.append(Fault(f"GET .*{path}$", status=200, body=nonsense, times=2))
    async with server.run_bot():
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


async def test_a_store_outage_at_the_start_is_retried(server: EmulatedServer) -> None:
    store = InMemoryStore()
    find, failures = store.ledger.cursor, iter(range(2))

    async def failing(platform: str, account: str, name: str) -> str | None:
        if next(failures, None) is not None:
            raise StoreUnavailable("the disk is full", cause="disk_full")
        return await find(platform, account, name)

    store.ledger.cursor = failing  # type: ignore[method-assign]  # what a full disk would do
    async with server.run_bot(store=store):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("C-04")
async def test_a_missing_intent_is_named_with_the_place_to_switch_it_on(server: EmulatedServer) -> None:
    server.emulator.gateway.allowed_intents &= ~GUILD_MEMBERS
    asked = {"DISCORD_MEMBERS_INTENT": "true"}
    async with server.run_bot(settings=asked, is_awaited=False) as (_, adapter):
        [account] = adapter.accounts
        async with asyncio.timeout(30):
            await account.is_connected.wait()
        assert "Privileged Gateway Intents" in account.problem
        assert "Server Members Intent" in account.problem


@pytest.mark.failure("C-05")
def test_a_day_of_reconnects_starts_fewer_than_a_thousand_sessions() -> None:
    now, begun = 0.0, 0
    budget = IdentifyLimiter(lambda: now)
    while now < 24 * HOUR:
        if wait := budget.wait_seconds():
            now += wait
            continue
        budget.record()
        begun += 1
        now += 2.0
    assert begun < 1000


@pytest.mark.failure("C-05")
def test_at_most_fifty_sessions_start_in_an_hour() -> None:
    budget = IdentifyLimiter(lambda: 1.0)
    for _ in range(MAX_PER_HOUR):
        assert not budget.wait_seconds()
        budget.record()
    assert budget.wait_seconds() == DELAY_SECONDS


@pytest.mark.failure("C-05")
async def test_with_few_sessions_remaining_the_bot_waits_for_the_reset(server: EmulatedServer) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    server.emulator.gateway.remaining_identifies = 3
    async with server.run_bot(limits=replace(LIMITS, sleep=pause)):
        assert 14_400.0 in waits


@pytest.mark.long
@pytest.mark.failure("C-06")
async def test_a_restart_resumes_the_session_and_fetches_its_guilds(server: EmulatedServer) -> None:
    people, ledger, store = server.emulator.people, server.emulator.recorder, InMemoryStore()
    async with server.run_bot(store=store):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
    for number in range(5):
        await people.say(server.lobby, server.kim, f"{server.call} while down {number}")
        async with server.run_bot(store=store) as (harness, _):
            await ledger.wait_for_texts(number + 2)
            all_receipts = await receipts(harness)
    assert [receipt.outcome for receipt in all_receipts] == [Outcome.ANSWERED] * 6
    room = await store.worlds.room(all_receipts[-1].room_id)
    assert room is not None
    assert room.name == "quay"
    assert (ledger.counts["identify"], ledger.counts["resume"]) == (1, 5)


async def test_no_message_is_lost_if_its_guild_cannot_be_fetched(server: EmulatedServer) -> None:
    people, ledger, store = server.emulator.people, server.emulator.recorder, InMemoryStore()
    async with server.run_bot(store=store):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
    server.emulator.faults.append(Fault(r"GET .*/guilds/", 503, times=99))
    await people.say(server.lobby, server.kim, f"{server.call} second")
    async with server.run_bot(store=store):
        assert await ledger.wait_for_texts(2) == ["Aye.", "Aye."]


async def test_an_unknown_guild_is_fetched_again_a_minute_later(server: EmulatedServer) -> None:
    now, fault = 0.0, Fault(r"GET .*/guilds/4711$", 503, times=99)
    server.emulator.faults.append(fault)
    learner, payload = GuildFetcher(lambda: now), {"guild_id": "4711"}
    async with server.run_bot() as (_, adapter):
        [account] = adapter.accounts
        for moment, left in ((0.0, 98), (RETRY_SECONDS / 2, 98), (RETRY_SECONDS, 97)):
            now = moment
            await learner.ensure_guild(account.shards[WHOLE_ACCOUNT].client, "MESSAGE_CREATE", payload)
            assert fault.times == left


@pytest.mark.failure("C-13")
async def test_login_is_retried_until_discord_is_up(server: EmulatedServer) -> None:
    server.emulator.faults.append(Fault(r"GET .*/users/@me$", 503, times=3))
    server.emulator.faults.append(Fault(r"GET .*/gateway/bot", times=2))
    async with server.run_bot():
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", "no json", '{"id": "1"}'])
def test_a_session_that_cannot_be_read_is_none(text: str | None) -> None:
    assert GatewaySession.from_json(text) is None


def test_a_session_is_read_as_it_was_written() -> None:
    session = GatewaySession("abc", "wss://gateway.example", 17)
    assert GatewaySession.from_json(session.to_json()) == session


def test_the_default_limits_detect_a_dead_connection_within_a_minute() -> None:
    assert Limits().heartbeat_timeout <= 60


@pytest.mark.failure("C-16")
async def test_interactions_and_deletions_are_not_replayed_after_a_restart(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    store, interactions, ledger = InMemoryStore(), server.emulator.interactions, server.emulator.recorder
    async with server.run_bot(store=store) as (harness, _):
        for number in range(1, 5):
            await interactions.run_command(server.bot, server.kim, server.lobby, "privacy")
            await ledger.wait_until(lambda count=number: ledger.counts["answered"] >= count)
            await server.emulator.people.delete(server.lobby, "1")
        [session] = server.emulator.gateway.sessions.values()
        await wait_for_position(harness, len(session.sent_events))
    async with server.run_bot(store=store):
        assert ledger.counts["resume"] == 1
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} here?")
        await ledger.wait_for_texts(1)
    assert ledger.counts["answered"] == 4
    assert "acknowledged" not in caplog.text


async def test_an_interaction_that_comes_again_is_no_warning(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot():
        await interactions.run_command(server.bot, server.kim, server.lobby, "privacy")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        [session] = server.emulator.gateway.sessions.values()
        await server.emulator.gateway.dispatch_event("INTERACTION_CREATE", session.sent_events[-1]["d"])
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} here?")
        await ledger.wait_for_texts(1)
    assert ledger.counts["answered"] == 1
    assert "acknowledged" not in caplog.text


async def test_the_latency_is_counted_from_the_heartbeat_that_is_acknowledged(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The library notes a heartbeat's time after sending, when a near server has already answered it."""
    async with server.run_bot() as (_, adapter):
        [account] = adapter.accounts
        socket = account.shards[WHOLE_ACCOUNT].client.ws
        keep_alive = socket._keep_alive
        keep_alive._last_send -= 41.3  # an idle connection: the last heartbeat was one interval ago
        acknowledged = server.emulator.recorder.counts["heartbeat"] + 1
        await socket.send_heartbeat(keep_alive.get_payload())
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["heartbeat"] >= acknowledged)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} here?")
        await server.emulator.recorder.wait_for_texts(1)  # the acknowledgement came before
        assert socket.latency < 10
    assert "behind" not in caplog.text


async def test_the_position_after_an_answer_is_stored_with_the_next_event_that_changes_something(
    server: EmulatedServer,
) -> None:
    async with server.run_bot() as (harness, adapter):
        [account] = adapter.accounts
        shard = account.shards[WHOLE_ACCOUNT]
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        [session] = server.emulator.gateway.sessions.values()
        async with asyncio.timeout(10):
            while True:
                if shard.client.ws.sequence >= len(session.sent_events) and not len(shard.receivers[0].queue):
                    break
                await asyncio.sleep(0)
        answer = len(session.sent_events)
        assert session.sent_events[-1]["d"]["author"]["id"] == server.bot
        assert await read_position(harness) == answer - 1
        await server.emulator.people.delete(server.lobby, "1")
        await wait_for_position(harness, answer + 1)


async def wait_for_position(harness: AgentHarness, seq: int) -> None:
    """Wait until the stored position of the session is that of an event."""
    async with asyncio.timeout(10):
        while True:
            if await read_position(harness) >= seq:
                return
            await asyncio.sleep(0)


async def read_position(harness: AgentHarness) -> int:
    """Return the stored position of the session; 0 if there is none."""
    stored = await harness.agent.store.ledger.cursor("discord", str(harness.agent.id), "gateway")
    session = GatewaySession.from_json(stored)
    return session.seq if session is not None else 0


# The event queue during a store outage.

ROOM = 5
FEW = replace(LIMITS, max_queued_events=ROOM, queue_full_timeout=0.05)


class Failing:
    """A store that fails while `is_down`."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.is_down = False
        self._receive = self.store.ledger.receive
        self.store.ledger.receive = self._failing  # type: ignore[method-assign]  # what a full disk would do

    async def _failing(self, *args: Any) -> Any:
        if self.is_down:
            raise StoreUnavailable("the disk is full", cause="disk_full")
        return await self._receive(*args)


@pytest.mark.long
@pytest.mark.failure("I-02")
async def test_during_a_store_outage_reading_stops_at_the_queue_limit_and_nothing_is_lost(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    people, ledger, failing = server.emulator.people, server.emulator.recorder, Failing()
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(store=failing.store, settings=listen, limits=FEW) as (harness, adapter):
        [account] = adapter.accounts
        failing.is_down = True
        for number in range(60):
            await people.say(server.lobby, server.kim, f"number {number}")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        for number in range(60, 80):
            await people.say(server.lobby, server.kim, f"number {number}")
        assert len(account.shards[WHOLE_ACCOUNT].receivers[0].queue) <= ROOM
        assert ledger.counts["resume"] == 0
        failing.is_down = False
        await people.say(server.direct(server.kim), server.kim, "all there?")
        await ledger.wait_for_texts(1)
        all_receipts = await receipts(harness)
    room_id = all_receipts[0].room_id
    kept = await failing.store.memories.recent(room_id, 100)
    assert [memory.content.text for memory in kept] == [f"number {number}" for number in range(80)]
    assert len(all_receipts) == 81
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] > 0
    warnings_logged = [record.getMessage() for record in caplog.records if record.name == gateway.__name__]
    assert warnings_logged[0].endswith("cannot be stored: reading pauses until they are")
    assert warnings_logged[1] == "all queued Discord events are stored: reading continues"


@pytest.mark.failure("I-02")
async def test_if_the_session_is_lost_meanwhile_unread_messages_are_fetched(server: EmulatedServer) -> None:
    people, ledger, failing = server.emulator.people, server.emulator.recorder, Failing()
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(store=failing.store, settings=listen, limits=FEW) as (harness, _):
        direct = server.direct(server.kim)
        await people.say(direct, server.kim, "first")
        await ledger.wait_for_texts(1)
        failing.is_down = True
        for number in range(ROOM + 5):
            await people.say(server.lobby, server.kim, f"number {number}")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        server.emulator.gateway.sessions.clear()
        await people.say(direct, server.kim, "all there?", is_announced=False)
        failing.is_down = False
        await ledger.wait_for_texts(2)
        assert await outcomes(harness) == [Outcome.ANSWERED, *[Outcome.IGNORED] * (ROOM + 5), Outcome.ANSWERED]
    assert ledger.counts["identify"] == 2


# The probe of the gateway: a socket that lives and brings nothing is found out.


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
