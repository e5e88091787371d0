"""N-05 and N-06 for `bot run --emulate`: no page of another site drives what is up for a trial."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from adapters.discord.emulator.server import start_emulator as discord
from adapters.farcaster.emulator import start_emulator as farcaster
from adapters.mastodon.emulator import start_emulator as mastodon
from adapters.matrix.emulator import start_emulator as matrix
from adapters.telegram.emulator.server import start_emulator as telegram
from adapters.x.emulator.server import start_emulator as x
from bot.platform import EmulatedPlatform

Emulated = Callable[[Sequence[str]], AbstractAsyncContextManager[EmulatedPlatform]]
EMULATORS = {
    "discord": discord,
    "farcaster": farcaster,
    "mastodon": mastodon,
    "matrix": matrix,
    "telegram": telegram,
    "x": x,
}
EVERY = pytest.mark.parametrize("emulated", EMULATORS.values(), ids=EMULATORS)
PATHS = (
    ("GET", "/"),
    ("GET", "/page/shown"),
    ("POST", "/page/say"),
    ("POST", "/page/press"),
    ("GET", "/bot1000001:emulated-token/getUpdates"),
    ("POST", "/bot1000001:emulated-token/sendMessage"),
    ("POST", "/api/v10/channels/1/messages"),
    ("GET", "/gateway/"),
    ("POST", "/api/v1/statuses"),
    ("POST", "/2/tweets"),
    ("GET", "/_matrix/client/v3/sync"),
)


@pytest.mark.failure("N-06")
@EVERY
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]", ""])
async def test_a_name_of_another_site_that_leads_here_opens_nothing(emulated: Emulated, host: str) -> None:
    async with emulated(["Ada"]) as trial, ClientSession(trial.url) as session:
        for method, path in PATHS:
            headers = {"Host": f"{host}:{urlsplit(trial.url).port}" if host else ""}
            async with session.request(method, path, json={}, headers=headers) as answer:
                assert answer.status == 421, path


@pytest.mark.failure("N-06")
@EVERY
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
async def test_any_user_of_the_machine_sees_the_page(emulated: Emulated, name: str) -> None:
    async with emulated(["Ada"]) as trial, ClientSession(trial.url) as session:
        headers = {"Host": f"{name}:{urlsplit(trial.url).port}"}
        async with session.get("/", headers=headers) as answer:
            assert answer.status == 200


@pytest.mark.failure("N-05")
@EVERY
@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_what_another_sites_page_has_a_browser_send_does_nothing(
    emulated: Emulated, headers: dict[str, str]
) -> None:
    async with emulated(["Ada"]) as trial, ClientSession(trial.url) as session:
        for method, path in PATHS:
            async with session.request(method, path, json={}, headers=headers) as answer:
                assert answer.status == 403, path


BODIES = {
    "deep": b"[" * 100_000,
    "deep in a field": b'{"text":' + b"[" * 100_000,
    "half": b"{",
    "no utf-8": b'{"text":"\xff"}',
    "a list": b"[]",
    "a number": b"1",
    "a field of another type": b'{"text":"x","place":{"a":1}}',
    "half a character": b'{"text":"\\ud800"}',
}


@pytest.mark.failure("N-10")
@EVERY
@pytest.mark.parametrize("path", ["/page/say", "/page/press"])
async def test_a_body_that_no_page_sends_is_refused(emulated: Emulated, path: str) -> None:
    async with emulated(["Ada"]) as trial, ClientSession(trial.url) as session:
        for name, body in BODIES.items():
            async with session.post(path, data=body, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == 400, name


@pytest.mark.failure("N-10")
@EVERY
async def test_a_nested_body_is_no_error_of_the_emulated_api(emulated: Emulated) -> None:
    async with emulated(["Ada"]) as trial, ClientSession(trial.url) as session:
        for path in ("/bot1000001:emulated-token/sendMessage", "/api/v10/channels/1/messages", "/2/tweets"):
            headers = {"Content-Type": "application/json"}
            async with session.post(path, data=BODIES["deep"], headers=headers) as answer:
                assert 400 <= answer.status < 500, path
