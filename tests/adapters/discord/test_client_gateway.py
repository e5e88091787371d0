"""What may happen to the connection with the gateway, and what must come of it."""

import asyncio
import logging
from dataclasses import replace

import pytest

from adapters.discord.client import GatewaySession
from adapters.discord.config import Limits
from adapters.discord.emulator.gateway import GUILD_MEMBERS
from adapters.discord.emulator.server import Fault
from adapters.discord.membership import RETRY_SECONDS, GuildFetcher
from adapters.discord.rate_limits import DELAY_SECONDS, HOUR, MAX_PER_HOUR, IdentifyLimiter
from bot import Outcome
from bot.store import InMemoryStore, StoreUnavailable
from tests.adapters.discord.server import LIMITS, EmulatedServer, outcomes, receipts


@pytest.mark.parametrize("events", [3, 7])
async def test_c01_a_drop_after_every_nth_event_loses_nothing_and_doubles_nothing(
    server: EmulatedServer, events: int
) -> None:
    ledger = server.emulator.recorder
    async with server.run_bot() as (stage, _):
        server.emulator.gateway.closes_after = events
        for number in range(12):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} number {number}")
            await ledger.wait_for_texts(number + 1)
        assert await outcomes(stage) == [Outcome.ANSWERED] * 12
    assert len(ledger.texts()) == 12
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] >= ledger.counts["dropped"] > 0


async def test_c01_of_200_messages_with_a_drop_after_each_every_one_is_kept_once(
    server: EmulatedServer,
) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot(settings={"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}) as (stage, _):
        for number in range(200):
            await people.say(server.lobby, server.kim, f"number {number}")
            await server.emulator.gateway.drop()
            await ledger.wait_until(lambda count=number: ledger.counts["resume"] > count)
        direct = server.direct(server.kim)
        await people.say(direct, server.kim, "all there?")
        await ledger.wait_for_texts(1)
        told = await receipts(stage)
    assert [one.rule for one in told].count("DISCORD_LISTEN_CHANNEL_IDS") == len(told) - 1 == 200
    assert ledger.counts["identify"] == 1


async def test_c01_a_request_to_reconnect_goes_on_with_the_session(server: EmulatedServer) -> None:
    async with server.run_bot() as (_stage, _):
        await server.emulator.gateway.ask_to_reconnect()
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
    assert server.emulator.recorder.counts["identify"] == 1


async def test_c02_after_an_invalid_session_a_new_one_is_begun_and_the_gap_is_filled(
    server: EmulatedServer,
) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot() as (stage, _):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
        await receipts(stage)
        await people.say(server.lobby, server.kim, f"{server.call} while away", is_announced=False)
        await server.emulator.gateway.invalidate()
        await ledger.wait_for_texts(2)
        assert await outcomes(stage) == [Outcome.ANSWERED] * 2
    assert ledger.counts["identify"] == 2


async def test_c03_a_connection_that_answers_no_heartbeat_is_closed_with_4000_and_gone_on_with(
    server: EmulatedServer,
) -> None:
    gateway, ledger = server.emulator.gateway, server.emulator.recorder
    gateway.heartbeat_interval = 20
    async with server.run_bot(limits=replace(LIMITS, heartbeat_timeout=0.4)) as (_stage, _):
        gateway.is_mute = True
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello?")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        await gateway.revive()
        assert await ledger.wait_for_texts(1) == ["Aye."]
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] > 0


async def test_c07_a_connection_that_is_gone_without_a_word_is_given_up(server: EmulatedServer) -> None:
    gateway, ledger = server.emulator.gateway, server.emulator.recorder
    async with server.run_bot(limits=replace(LIMITS, heartbeat_timeout=0.3)) as (_stage, _):
        gateway.is_dead = True
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello?")
        await ledger.wait_until(lambda: ledger.counts["unheard"] > 0)  # it has called again
        await gateway.revive()
        assert await ledger.wait_for_texts(1) == ["Aye."]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4004, "DISCORD_API_TOKEN"),
        (4010, "shard"),
        (4011, "sharding"),
        (4012, "update discord.py"),
        (4013, "update discord.py"),
        (4014, "Message Content Intent"),
    ],
)
async def test_c04_a_fatal_close_ends_the_adapter_and_says_what_to_do(
    server: EmulatedServer, code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.emulator.gateway.refusal_code = code
    async with server.run_bot(is_awaited=False) as (stage, adapter):
        [account] = adapter.accounts.values()
        async with asyncio.timeout(30):
            await account.is_connected.wait()
        assert words in account.problem
        assert server.emulator.recorder.counts["identify"] == 1
        assert (await stage.send("another platform goes on")).outcome is Outcome.ANSWERED
    assert any(one.levelno == logging.ERROR and words in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize("path", ["/users/@me", "/gateway/bot"])
@pytest.mark.parametrize("nonsense", [{}, []])
async def test_an_answer_that_makes_no_sense_does_not_keep_the_bot_off_for_good(
    server: EmulatedServer, path: str, nonsense: object
) -> None:
    server.emulator.faults.append(Fault(f"GET .*{path}$", status=200, body=nonsense, times=2))
    async with server.run_bot():
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


async def test_an_outage_of_the_store_at_the_start_does_not_keep_the_bot_off_for_good(
    server: EmulatedServer,
) -> None:
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


async def test_c04_an_intent_that_is_not_switched_on_is_named_with_the_place_to_switch_it_on(
    server: EmulatedServer,
) -> None:
    server.emulator.gateway.allowed_intents &= ~GUILD_MEMBERS
    asked = {"DISCORD_MEMBERS_INTENT": "true"}
    async with server.run_bot(settings=asked, is_awaited=False) as (_, adapter):
        [account] = adapter.accounts.values()
        async with asyncio.timeout(30):
            await account.is_connected.wait()
        assert "Privileged Gateway Intents" in account.problem
        assert "Server Members Intent" in account.problem


def test_c05_a_day_of_flapping_begins_fewer_than_a_thousand_sessions() -> None:
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


def test_c05_at_most_fifty_sessions_are_begun_in_an_hour() -> None:
    budget = IdentifyLimiter(lambda: 1.0)
    for _ in range(MAX_PER_HOUR):
        assert not budget.wait_seconds()
        budget.record()
    assert budget.wait_seconds() == DELAY_SECONDS


async def test_c05_where_discord_has_few_sessions_left_the_bot_waits_as_long_as_it_says(
    server: EmulatedServer,
) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    server.emulator.gateway.remaining_identifies = 3
    async with server.run_bot(limits=replace(LIMITS, sleep=pause)):
        assert 14_400.0 in waits


async def test_c06_a_restart_goes_on_with_the_session_and_knows_its_servers_again(
    server: EmulatedServer,
) -> None:
    people, ledger, store = server.emulator.people, server.emulator.recorder, InMemoryStore()
    async with server.run_bot(store=store):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
    for number in range(5):
        await people.say(server.lobby, server.kim, f"{server.call} while down {number}")
        async with server.run_bot(store=store) as (stage, _):
            await ledger.wait_for_texts(number + 2)
            told = await receipts(stage)
    assert [one.outcome for one in told] == [Outcome.ANSWERED] * 6
    room = await store.worlds.room(told[-1].room_id)
    assert room is not None
    assert room.name == "quay"
    assert (ledger.counts["identify"], ledger.counts["resume"]) == (1, 5)


async def test_a_server_that_cannot_be_learnt_of_costs_no_message(server: EmulatedServer) -> None:
    people, ledger, store = server.emulator.people, server.emulator.recorder, InMemoryStore()
    async with server.run_bot(store=store):
        await people.say(server.lobby, server.kim, f"{server.call} first")
        await ledger.wait_for_texts(1)
    server.emulator.faults.append(Fault(r"GET .*/guilds/", 503, times=99))
    await people.say(server.lobby, server.kim, f"{server.call} second")
    async with server.run_bot(store=store):
        assert await ledger.wait_for_texts(2) == ["Aye.", "Aye."]


async def test_a_server_that_could_not_be_learnt_of_is_asked_for_again_a_minute_later(
    server: EmulatedServer,
) -> None:
    now, fault = 0.0, Fault(r"GET .*/guilds/4711$", 503, times=99)
    server.emulator.faults.append(fault)
    learner, said = GuildFetcher(lambda: now), {"guild_id": "4711"}
    async with server.run_bot() as (_, adapter):
        [account] = adapter.accounts.values()
        for moment, left in ((0.0, 98), (RETRY_SECONDS / 2, 98), (RETRY_SECONDS, 97)):
            now = moment
            await learner.ensure_guild(account._client, "MESSAGE_CREATE", said)
            assert fault.times == left


async def test_c13_discord_that_is_down_at_the_start_is_asked_until_it_is_up(server: EmulatedServer) -> None:
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


def test_the_limits_of_the_product_detect_a_dead_connection_within_a_minute() -> None:
    assert Limits().heartbeat_timeout <= 60
