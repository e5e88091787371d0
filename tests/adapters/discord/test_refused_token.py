"""A refused token is confirmed before anything stops, and a stopped account is tried again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from adapters.discord.adapter import DiscordAccount
from adapters.discord.emulator import Fault
from bot import system_clock
from bot.platform import ConnectionState, DisconnectCause, NotSent
from tests.adapters.discord.server import LIMITS, TOKEN, EmulatedServer, no_sleep
from tests.adapters.discord.test_errors import SAY, failed, part

UNAUTHORIZED = {"message": "401: Unauthorized", "code": 0}
LOBBY_MESSAGES = r".*/channels/\d+/messages"


class Pauses:
    """The pauses of a rejected account, each of which lasts until `end` is called; others last no time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._has_begun, self._is_over = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds < 10 or seconds == LIMITS.max_retry_delay:
            await no_sleep(seconds)
            return
        self.seconds.append(seconds)
        self._has_begun.set()
        self._is_over.clear()
        await self._is_over.wait()

    async def next(self) -> None:
        """Wait until a pause has begun."""
        async with asyncio.timeout(10):
            await self._has_begun.wait()
        self._has_begun.clear()

    def end(self) -> None:
        self._is_over.set()


@asynccontextmanager
async def refused_at_once(server: EmulatedServer, pauses: Pauses) -> AsyncIterator[DiscordAccount]:
    """Run a bot that Discord rejects from the start, until its first pause."""
    limits = replace(LIMITS, sleep=pauses.sleep)
    async with server.run_bot(limits=limits, is_awaited=False) as (_, adapter):
        [account] = adapter.accounts
        await pauses.next()
        yield account


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("match", "body"),
    [
        (f"POST {LOBBY_MESSAGES}$", UNAUTHORIZED),
        (f"POST {LOBBY_MESSAGES}$", {"message": "Unauthorized", "code": 40001}),
        (f"POST {LOBBY_MESSAGES}$", {"message": "Invalid Webhook Token", "code": 50027}),
        (f"POST {LOBBY_MESSAGES}$", {"message": "Invalid OAuth2 access token provided", "code": 50025}),
        (f"POST {LOBBY_MESSAGES}$", {"error": "unauthorized"}),
        (f"POST {LOBBY_MESSAGES}$", "<html>401</html>"),
        ("POST .*/typing$", UNAUTHORIZED),
        ("GET .*/users/@me$", UNAUTHORIZED),
        ("GET .*/oauth2/applications/@me$", UNAUTHORIZED),
        ("GET .*/gateway/bot$", UNAUTHORIZED),
        ("PUT .*/commands$", UNAUTHORIZED),
    ],
)
async def test_a_single_401_on_any_route_loses_no_answer_and_stops_nothing(
    server: EmulatedServer, match: str, body: object
) -> None:
    server.emulator.faults.append(Fault(match, 401, body))
    async with server.run_bot() as (_, adapter):
        for count in (1, 2):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
            await server.emulator.recorder.wait_for_texts(count)
        [account] = adapter.accounts
        assert account.status.snapshot.state is ConnectionState.CONNECTED
    assert server.emulator.recorder.texts() == ["Aye.", "Aye."]


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("code", [50027, 0])
async def test_an_interaction_that_has_expired_says_nothing_about_the_token(
    server: EmulatedServer, method: str, code: int
) -> None:
    fault = Fault(f"{method} .*/(webhooks|interactions)/", 401, {"message": "Invalid Webhook Token", "code": code})
    fault.times = 100
    server.emulator.faults.append(fault)
    async with server.run_bot() as (_, adapter):
        checks = server.emulator.recorder.requests.count(("GET", "/api/v10/users/@me", f"Bot {TOKEN}"))
        for command in ("privacy", "mute"):
            await server.emulator.interactions.run_command(server.bot, server.kim, server.lobby, command)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
        [account] = adapter.accounts
        assert not account.problem
        assert server.emulator.recorder.requests.count(("GET", "/api/v10/users/@me", f"Bot {TOKEN}")) == checks


@pytest.mark.failure("D-10")
async def test_a_revoked_token_stops_the_account_until_it_is_accepted_again(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, now = Pauses(), system_clock()
    limits = replace(LIMITS, sleep=pauses.sleep)
    async with server.run_bot(limits=limits, clock=lambda: now) as (harness, adapter):
        [account] = adapter.accounts
        tokens = dict(server.emulator.state.tokens)
        server.emulator.state.tokens.clear()
        assert isinstance(await failed(adapter, part(harness, server.lobby)), NotSent)
        await pauses.next()
        asked = len(server.emulator.recorder.requests)
        for _ in range(20):
            refused = await failed(adapter, part(harness, server.lobby))
            assert isinstance(refused, NotSent)
            assert refused.retry_after == pytest.approx(pauses.seconds[0] + 1.0, abs=5)  # until the next question
        assert len(server.emulator.recorder.requests) == asked
        assert "DISCORD_API_TOKEN" in account.problem
        assert (account.status.snapshot.state, account.status.snapshot.cause) == (
            ConnectionState.OFF,
            DisconnectCause.REFUSED,
        )
        pauses.end()
        await pauses.next()
        assert pauses.seconds[1] > pauses.seconds[0]
        assert account.status.snapshot.state is ConnectionState.OFF
        server.emulator.state.tokens.update(tokens)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} back again")
        pauses.end()
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
        assert not account.problem
        assert account.status.snapshot.state is ConnectionState.CONNECTED
    warnings_logged = [item.getMessage() for item in caplog.records if item.levelno >= logging.WARNING]
    assert len([line for line in warnings_logged if "DISCORD_API_TOKEN" in line]) == 1
    assert len([line for line in warnings_logged if "is on discord again" in line]) == 1


@pytest.mark.failure("C-04")
async def test_a_token_that_only_the_gateway_refuses_is_tried_again(server: EmulatedServer) -> None:
    server.emulator.gateway.refusal_code = 4004
    async with server.run_bot(is_awaited=False) as (_, adapter):
        [account] = adapter.accounts
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["identify"] >= 2)
        assert not account.problem
        server.emulator.gateway.refusal_code = 0
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["ready"] > 0)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("C-04")
async def test_intents_that_are_switched_on_later_are_used_without_a_restart(server: EmulatedServer) -> None:
    pauses, allowed = Pauses(), server.emulator.gateway.allowed_intents
    server.emulator.gateway.allowed_intents = 0
    async with refused_at_once(server, pauses) as account:
        assert "Message Content Intent" in account.problem
        assert account.status.snapshot.cause is DisconnectCause.FORBIDDEN
        server.emulator.gateway.allowed_intents = allowed
        pauses.end()
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["ready"] > 0)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
        assert account.status.snapshot.state is ConnectionState.CONNECTED


async def test_a_token_that_is_refused_at_the_start_is_tried_again(server: EmulatedServer) -> None:
    pauses, tokens = Pauses(), dict(server.emulator.state.tokens)
    server.emulator.state.tokens.clear()
    async with refused_at_once(server, pauses) as account:
        assert "DISCORD_API_TOKEN" in account.problem
        server.emulator.state.tokens.update(tokens)
        pauses.end()
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["ready"] > 0)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("status", [400, 403, 404, 407, 429, 451, 502, 503, 520])
@pytest.mark.parametrize("body", ["<html>Access denied</html>", {"message": "Forbidden"}])
async def test_an_answer_of_a_proxy_in_front_of_discord_is_no_final_failure(
    server: EmulatedServer, status: int, body: object
) -> None:
    server.emulator.faults.append(Fault(SAY, status, body, {"Retry-After": "0"}))
    async with server.run_bot():
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("status", [403, 404, 429, 503])
@pytest.mark.parametrize(
    "match",
    [
        "GET .*/users/@me$",
        "GET .*/gateway/bot$",
        "PUT .*/commands$",
        "PATCH .*/webhooks/",
        "POST .*/callback$",
        "GET .*/guilds/",
        f"GET {LOBBY_MESSAGES}",
    ],
)
async def test_no_route_takes_an_answer_of_a_proxy_as_final(server: EmulatedServer, match: str, status: int) -> None:
    if (match, status) == ("POST .*/callback$", 503):
        pytest.skip("Discord may have it")
    recorder = server.emulator.recorder
    server.emulator.faults.append(Fault(match, status, "<html>busy</html>", {"Retry-After": "0"}, times=2))
    async with server.run_bot():
        await recorder.wait_until(lambda: bool(recorder.commands))
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await recorder.wait_for_texts(1)
        await server.emulator.interactions.run_command(server.bot, server.kim, server.lobby, "privacy")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 0)
