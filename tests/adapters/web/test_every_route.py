"""Rules for every route of the server: needs the token, hides unknown ids, shows no secret."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientResponse
from yarl import URL

from adapters.web.config import Limits
from bot import Agent, Plugin, RouteRequest, RouteResponse, route
from bot.store import InMemoryStore
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory
from tests.adapters.web.test_middleware import OPEN, PAGE, ROUTES, SHUT, SIGN_IN

CANARY = "sk-canary-0123456789"
IDS = (
    *(str(uuid4()), "0", "-1", "1%20OR%201=1", "%27%20OR%20%271%27=%271", "%25", "_", "*", "%22NEAR%22"),
    *("%00", "a%00b", "%0d%0aX:%20y", "%ff%fe", "%ED%A0%80", "%F0%9F%92%A3", "%D9%A1%D9%A2", "a" * 4000),
    *("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "..%5c..", "%252e%252e", "%7B%7B7*7%7D%7D", "%3Cscript%3E"),
)

Check = Callable[[RunningServer, str, str], Awaitable[None]]


@route("POST", "/hook", public=True)
async def hook(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text=f"{request.body!r} and {CANARY}")


@route("GET", "/state")
async def state(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json={"key": CANARY, "headers": dict(request.headers)})


@route("POST", "/change")
async def change(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text="changed")


TICK = Plugin("tick", routes=[hook, state, change])


def classify(path: str) -> str:
    return ROUTES.get("/pages/{name}" if path.startswith("/pages/") else path, SHUT)


def list_routes(web_server: RunningServer) -> Iterator[tuple[str, str]]:
    """Return all routes with their methods."""
    for served in web_server.adapter.app.router.routes():
        assert served.resource is not None
        yield served.method, served.resource.canonical


async def send_request(
    web_server: RunningServer, method: str, path: str, *, shown: str = "", body: object = None
) -> ClientResponse:
    """Request an unmodified path with these credentials."""
    headers = {"Authorization": shown} if shown else {}
    url = URL(web_server.origin + path, encoded=True)
    sent = {"text": "Hello"} if method == "POST" and body is None else body
    return await web_server.session.request(method, url, headers=headers, json=sent, allow_redirects=False)


def fill_path(path: str, name: str, agent: str = "ada") -> str:
    return path.replace("{agent}", agent).replace("{id}", name)


async def n01_check_token_required(web_server: RunningServer, method: str, path: str) -> None:
    if classify(path) == OPEN or (method, path) == SIGN_IN:
        return
    for shown in ("", "Bearer ", "Bearer wrong-token", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN):
        answer = await send_request(web_server, method, fill_path(path, str(uuid4())), shown=shown)
        if classify(path) == PAGE and not shown:
            assert answer.status == 303, (method, path)
            continue
        assert answer.status == 401, (method, path, shown)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "Ada" not in await answer.text()


async def n11_check_unknown_id(web_server: RunningServer, method: str, path: str) -> None:
    if "{" not in path or classify(path) == PAGE:
        return
    for name in IDS:
        answer = await send_request(web_server, method, fill_path(path, name, name), shown=f"Bearer {TOKEN}")
        assert answer.status == 404, (method, path, name)
        if method != "HEAD":
            assert json.loads(await answer.text())["error"]["code"] == "not_found"


async def n13_check_no_secret(web_server: RunningServer, method: str, path: str, outcome: dict[str, str]) -> None:
    for name in (outcome["message_id"], outcome["room_id"], "nothing"):
        answer = await send_request(web_server, method, fill_path(path, name), shown=f"Bearer {TOKEN}")
        for text in (await answer.text(), str(answer.headers)):
            assert CANARY not in text, (method, path)
            assert TOKEN not in text, (method, path)
    assert (await send_request(web_server, method, fill_path(path, name))).status in {200, 303, 401} or (
        method,
        path,
    ) == SIGN_IN


@pytest.mark.long
@pytest.mark.failure("N-01", "N-11", "N-13")
@pytest.mark.parametrize("check", [n01_check_token_required, n11_check_unknown_id, n13_check_no_secret])
async def test_every_route_is_guarded(open_server: ServerFactory, check: Any) -> None:
    settings = {"OPENAI_API_KEY": CANARY, "LOG_LEVEL": "DEBUG"}
    async with open_server(
        TICK, settings=settings, limits=Limits(max_guesses=100_000, max_total_guesses=100_000)
    ) as web_server:
        web_server.script.reply = f"{CANARY} and {TOKEN}: {{}}"
        web_server.script.refusal = f"the key {CANARY} is wrong"
        outcome = await web_server.send(f"is it {CANARY}?", user=CANARY[:60], room=CANARY)
        await web_server.send("refuse", room=CANARY)
        found = list(list_routes(web_server))
        assert len(found) > len(ROUTES)
        if check is n13_check_no_secret:
            check = partial(check, outcome=outcome)
        for method, path in found:
            await check(web_server, method, path)


@pytest.mark.failure("N-11")
async def test_every_query_answers_the_same_for_an_unknown_id(web_server: RunningServer) -> None:
    asked = []
    for path, operations in (await web_server.get("/api/openapi.json"))["paths"].items():
        parameters = operations.get("get", {}).get("parameters", ())
        names = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
        for name in {"agent", "room"} & names:
            asked.append((path, name))
            error = (await web_server.get(f"{path.replace('{id}', '0')}?{name}={uuid4()}", 404))["error"]
            assert error["code"] == "not_found"
    assert len(asked) >= 8


class Broken:
    """Replaces a part of the store; every method raises."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*args: Any, **details: Any) -> Any:
            raise RuntimeError(f"/secret/path: SELECT {CANARY} FROM vault")

        return fail


@pytest.mark.failure("N-18")
async def test_an_error_behind_any_route_shows_no_details(open_server: ServerFactory) -> None:
    store = InMemoryStore()
    async with open_server(TICK, stores={"Ada": store}, settings={"OPENAI_API_KEY": CANARY}) as web_server:
        whole = store.worlds, store.ledger, store.memories, store.lists
        failed = set()
        try:
            store.worlds = store.ledger = store.memories = store.lists = Broken()  # type: ignore[assignment]
            for method, path in list_routes(web_server):
                if path.startswith("/pages/"):  # files: a highlighter knows the words of SQL
                    continue
                answer = await send_request(web_server, method, fill_path(path, str(uuid4())), shown=f"Bearer {TOKEN}")
                text = await answer.text()
                assert not any(word in text for word in (CANARY, "/secret", "SELECT", "Traceback", "RuntimeError"))
                if answer.status >= 500 and method != "HEAD":
                    error = json.loads(text)["error"]
                    assert (error["code"], error["request_id"]) == ("internal_error", answer.headers["X-Request-Id"])
                    failed.add(path)
        finally:
            store.worlds, store.ledger, store.memories, store.lists = whole
        assert {"/api/rooms", "/api/receipts", "/api/receipts/{id}", "/api/rooms/{id}/messages"} <= failed
