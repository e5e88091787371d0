"""Signing in and out of a browser, and what its session may do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar

from adapters.web.config import Limits
from bot import system_clock
from bot.platform import AccessTokens, TokenScope
from tests.adapters.web.conftest import TOKEN, RunningServer, run_server

PATH = "/api/session"


@asynccontextmanager
async def open_browser(**details: Any) -> AsyncIterator[RunningServer]:
    """Run a server, with a client that stores cookies as a browser does."""
    async with run_server(**details) as server, ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        yield RunningServer(server.runtime, server.adapter, server.script, session)


@pytest.fixture
async def browser() -> AsyncIterator[RunningServer]:
    async with open_browser() as server:
        yield server


async def sign_in(browser: RunningServer, token: str = TOKEN, **headers: str) -> Any:
    return await browser.request("POST", PATH, json={"token": token}, headers={"Origin": browser.origin, **headers})


@pytest.mark.failure("N-05")
async def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(browser: RunningServer) -> None:
    answer = await sign_in(browser, f" {TOKEN} ")
    body = await browser.check_response("POST", PATH, answer, 200)
    [set_cookie] = answer.headers.getall("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in set_cookie.split(";")}
    assert TOKEN not in set_cookie + str(body)
    assert (body["role"], body["agents"][0]["name"], body["limits"]["files"]) == ("operator", "Ada", 10)
    shown = await browser.request("GET", PATH)  # by the cookie
    assert await browser.check_response("GET", PATH, shown, 200) == body


@pytest.mark.failure("N-05")
async def test_signing_out_removes_the_cookie_and_leaves_the_token(browser: RunningServer) -> None:
    await sign_in(browser)
    answer = await browser.request("DELETE", PATH, headers={"Origin": browser.origin})
    assert await browser.check_response("DELETE", PATH, answer, 200) == {"is_signed_in": False}
    assert (await browser.request("GET", PATH)).status == 401
    await browser.get(PATH)


@pytest.mark.failure("N-05")
async def test_a_page_of_another_site_signs_no_user_in_or_out(browser: RunningServer) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await browser.request("POST", PATH, json={"token": TOKEN}, headers=headers)
        assert (answer.status, answer.headers.get("Set-Cookie")) == (403, None)
    await sign_in(browser)
    assert (await browser.request("DELETE", PATH)).status == 403
    assert (await browser.request("GET", PATH)).status == 200


@pytest.mark.failure("N-08")
async def test_wrong_tokens_are_limited_and_the_right_token_still_signs_in() -> None:
    async with open_browser(limits=Limits(max_guesses=3)) as browser:
        answers = [await sign_in(browser, f"wrong-{number}") for number in range(4)]
        assert [answer.status for answer in answers] == [401, 401, 401, 429]
        assert all("Set-Cookie" not in answer.headers for answer in answers)
        assert (await browser.request("GET", "/api/agents", headers={"Authorization": "Bearer x"})).status == 429
        assert (await sign_in(browser)).status == 200


@pytest.mark.parametrize("scope", list(TokenScope))
async def test_a_session_has_the_scope_of_its_token_until_it_is_revoked(tmp_path: Path, scope: TokenScope) -> None:
    tokens = AccessTokens(tmp_path)
    access_token, text = tokens.create("friend", scope, system_clock())
    async with open_browser(access_tokens=tokens) as browser:
        answer = await sign_in(browser, text)
        body = await browser.check_response("POST", PATH, answer, 200)
        assert (body["role"], body["name"]) == (scope.value, "friend")
        is_reader = scope is not TokenScope.CHAT
        assert (await browser.request("GET", "/api/rooms")).status == (200 if is_reader else 403)
        tokens.revoke(access_token.id)
        assert (await browser.request("GET", PATH)).status == 401


async def test_signing_in_with_another_token_ends_the_session_before(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("viewer", TokenScope.READ_ONLY, system_clock())
    async with open_browser(access_tokens=tokens) as browser:
        await sign_in(browser)
        await sign_in(browser, text)
        assert (await (await browser.request("GET", PATH)).json())["role"] == "read_only"


@pytest.mark.matrix(3)
@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 5}, {"token": "x" * 501}, {"token": "x", "more": 1}])
async def test_a_request_without_a_usable_token_is_no_guess(browser: RunningServer, body: dict[str, Any]) -> None:
    for _ in range(12):
        assert (await browser.request("POST", PATH, json=body)).status == 422
    assert (await sign_in(browser)).status == 200
