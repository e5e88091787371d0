"""Tokens with a scope: what each may do, on every operation, route and frame; revoking them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import WSCloseCode, WSMsgType

from adapters.web.config import Limits
from bot import system_clock
from bot.models.router import MAX_CONCURRENT_CALLS
from bot.platform import AccessTokens, TokenScope
from tests.adapters.web.conftest import RunningServer, SocketClient, run_server
from tests.adapters.web.test_every_route import TICK

OPERATOR, READ_ONLY, CHAT = "operator", "read_only", "chat"
EVERYBODY, READERS, TALKERS, ONLY = {OPERATOR, READ_ONLY, CHAT}, {OPERATOR, READ_ONLY}, {OPERATOR, CHAT}, {OPERATOR}
OTHER_ROUTES = [
    ("GET", "/", EVERYBODY),
    ("GET", "/console/rooms", EVERYBODY),
    ("GET", "/signin", EVERYBODY),
    ("GET", "/pages/js/api.js", EVERYBODY),
    ("GET", "/plugins/tick/state", READERS),
    ("POST", "/plugins/tick/change", ONLY),
    ("POST", "/plugins/tick/hook", EVERYBODY),
    ("GET", "/nothing", ONLY),
    ("POST", "/api/rooms", ONLY),
]


class Scoped:
    """A server with one token of each scope."""

    def __init__(self, server: RunningServer, tokens: AccessTokens) -> None:
        self.server, self.tokens = server, tokens
        self.texts = {scope: tokens.create(scope, TokenScope(scope), system_clock())[1] for scope in sorted(EVERYBODY)}

    def bearer(self, scope: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.texts[scope]}"}

    async def request(self, scope: str, method: str, path: str, **details: Any) -> tuple[int, Any]:
        answer = await self.server.request(method, path, headers=self.bearer(scope), **details)
        return answer.status, await answer.json() if answer.content_type == "application/json" else None

    async def say(self, scope: str, text: str, **fields: str) -> Any:
        status, body = await self.request(scope, "POST", "/api/agents/ada/messages", json={"text": text, **fields})
        assert status == 200, body
        return body

    async def open_socket(self, scope: str, **hello: str) -> SocketClient:
        origin = self.server.origin
        client = SocketClient(await self.server.session.ws_connect(f"{origin}/api/ws", headers=self.bearer(scope)))
        await client.send(type="hello", **hello)
        client.ready = await client.wait_for("ready")
        return client


@pytest.fixture
async def scoped(tmp_path: Path) -> AsyncIterator[Scoped]:
    tokens = AccessTokens(tmp_path)
    limits = Limits(revocation_seconds=0.01)
    async with run_server(TICK, access_tokens=tokens, limits=limits) as server:
        yield Scoped(server, tokens)


@pytest.mark.long
async def test_messages_of_a_token_leave_model_calls_for_those_of_others(tmp_path: Path) -> None:
    tokens, limits = AccessTokens(tmp_path), Limits(max_open_messages=300)
    async with run_server(access_tokens=tokens, limits=limits) as server:
        scoped = Scoped(server, tokens)
        client = await scoped.open_socket(CHAT)
        for number in range(300):
            await client.send(type="hello", room=f"room {number}")
            await client.send(type="message", text="hold", client_id=f"c{number}")
            await client.wait_for("ack")
        for _ in range(MAX_CONCURRENT_CALLS // 2):
            await server.script.requested.acquire()
        async with asyncio.timeout(20):
            answered = await scoped.say(OPERATOR, "Hello", room="den", user="operator")
        assert answered["outcome"] == "answered"
        server.script.released.set()


async def test_a_token_with_too_many_open_messages_is_refused_until_a_message_has_its_outcome(tmp_path: Path) -> None:
    tokens, limits = AccessTokens(tmp_path), Limits(max_open_messages=10)
    async with run_server(access_tokens=tokens, limits=limits) as server:
        scoped = Scoped(server, tokens)
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(scoped.say(CHAT, "hold", room=f"room {number}")) for number in range(10)]
            for _ in sent:
                await server.script.requested.acquire()
            client = await scoped.open_socket(CHAT)
            for kind, fields in {"message": {"text": "Hello"}, "command": {"text": "/help"}}.items():
                await client.send(type=kind, client_id=kind, **fields)
                refused = await client.wait_for("error")
                assert (refused["code"], refused["client_id"]) == ("too_many_messages", kind)
            for fields in ({"text": "Hello"}, {"text": "Hello", "stream": True}, {"text": "/help"}):
                answer = await server.request(
                    "POST", "/api/agents/ada/messages", headers=scoped.bearer(CHAT), json=fields
                )
                assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
                assert (await answer.json())["error"]["code"] == "too_many_messages"
            assert (await scoped.say(OPERATOR, "Hello", room="den", user="operator"))["outcome"] == "answered"
            server.script.released.set()
        assert {task.result()["outcome"] for task in sent} == {"answered"}
        assert (await scoped.say(CHAT, "Hello"))["outcome"] == "answered"


@pytest.mark.long
@pytest.mark.failure("N-04")
async def test_every_operation_allows_the_scopes_that_it_declares(scoped: Scoped) -> None:
    document = await scoped.server.get("/api/openapi.json")
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith(("/api/", "/healthz"))
    ]
    for method, path, operation in operations:
        allowed = set(operation["x-scopes"])  # as tests/contracts/snapshots/openapi.json records them
        assert OPERATOR in allowed
        for scope in EVERYBODY:
            filled = path.replace("{agent}", "ada").replace("{id}", str(uuid4()))
            body = {"json": {"text": "Hello"}} if method == "POST" else {}
            status, answer = await scoped.request(scope, method, filled, **body)
            assert (status == 403) is (scope not in allowed), (scope, method, path, status)
            if status == 403:
                assert answer["error"]["code"] == "forbidden"
            if method == "GET":
                assert ((await scoped.request(scope, "HEAD", filled))[0] == 403) is (scope not in allowed)


@pytest.mark.failure("N-04")
async def test_pages_plugin_routes_and_unknown_addresses_have_scopes_too(scoped: Scoped) -> None:
    for method, path, allowed in OTHER_ROUTES:
        for scope in EVERYBODY:
            status, _ = await scoped.request(scope, method, path)
            assert (status == 403) is (scope not in allowed), (scope, method, path, status)


@pytest.mark.failure("N-04")
async def test_a_read_only_token_watches_a_room_and_changes_nothing(scoped: Scoped) -> None:
    await scoped.say(OPERATOR, "hi", room="den", user="eve")
    watcher = await scoped.open_socket(READ_ONLY, room="den", user="eve")
    assert [message["text"] for message in watcher.ready["messages"]] == ["hi", "You said: hi"]
    for frame in (
        {"type": "message", "text": "and I"},
        {"type": "command", "text": "/forget-me"},
        {"type": "press", "value": "yes"},
    ):
        await watcher.send(**frame, client_id="1")
        error = await watcher.wait_for("error")
        assert (error["code"], error["client_id"]) == ("forbidden", "1")
    await scoped.say(OPERATOR, "again", room="den", user="eve")
    assert (await watcher.wait_for("message"))["text"] == "again"
    assert (await watcher.wait_for("message"))["text"] == "You said: again"


@pytest.mark.failure("N-03", "N-11")
async def test_a_chat_token_has_its_own_user_and_rooms(scoped: Scoped) -> None:
    operators = await scoped.say(OPERATOR, "our secret", room="den", user="chat", idempotency_key="k")
    store = scoped.server.runtime.agents[0].agent.store
    own = await scoped.say(CHAT, "our secret", room="den", user="chat", idempotency_key="k")
    again = await scoped.say(CHAT, "our secret", room=own["room"], user="eve", idempotency_key="k")
    assert again["message_id"] == own["message_id"] != operators["message_id"]
    friend = await scoped.open_socket(CHAT, room="den", user="eve")
    assert friend.ready["user"]["name"] == "chat"
    assert friend.ready["room_id"] == own["room_id"] != operators["room_id"]
    assert {message["id"] for message in friend.ready["messages"]} & {operators["message_id"]} == set()
    frames = await friend.send_message("hello", "k")
    assert frames[-1]["type"] == "outcome"
    for room in (operators["room_id"], own["room"].replace("token:", "token:x")):
        elsewhere = await scoped.open_socket(CHAT, room=room)
        assert elsewhere.ready["messages"] == []
    listed = [
        (await scoped.server.get(f"/api/rooms/{body['room_id']}/messages"))["messages"] for body in (operators, own)
    ]
    theirs, friends = (messages[0]["author"] for messages in listed)
    assert theirs["id"] != friends["id"]
    assert (theirs["name"], friends["name"]) == ("chat", "chat")
    worlds = {(await store.worlds.room(UUID(body["room_id"]))).world_id for body in (operators, own)}
    assert len(worlds) == 2


@pytest.mark.failure("N-07")
async def test_a_revoked_token_stops_at_once(scoped: Scoped) -> None:
    link = await scoped.server.request("GET", f"/?token={scoped.texts[CHAT]}")
    [morsel] = link.cookies.values()
    assert scoped.texts[CHAT] not in morsel.value
    scoped.server.session.cookie_jar.clear()
    cookie = {"Cookie": f"{morsel.key}={morsel.value}"}
    assert (await scoped.server.request("GET", "/api/agents", headers=cookie)).status == 200
    friend = await scoped.open_socket(CHAT)
    waiting = asyncio.create_task(
        scoped.request(CHAT, "POST", "/api/agents/ada/messages", json={"text": "hold on", "room": "den"})
    )
    streaming = await scoped.server.request(
        "POST", "/api/agents/ada/messages", headers=scoped.bearer(CHAT), json={"text": "hold it", "stream": True}
    )
    await scoped.server.script.requested.acquire()
    await scoped.server.script.requested.acquire()
    scoped.tokens.revoke(CHAT)
    async with asyncio.timeout(30):
        while (message := await friend.ws.receive()).type is WSMsgType.TEXT:
            pass
    assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.POLICY_VIOLATION)
    scoped.server.script.released.set()
    status, body = await waiting
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    streamed = await streaming.text()
    assert "the token was revoked" in streamed
    assert "You said" not in streamed
    for headers in (cookie, scoped.bearer(CHAT)):
        assert (await scoped.server.request("GET", "/api/agents", headers=headers)).status == 401
    assert (await scoped.request(READ_ONLY, "GET", "/api/rooms"))[0] == 200
