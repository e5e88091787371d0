"""Routes of plugins: path parameters, scopes, uploads, server-sent events, static folders, signed webhooks."""

import asyncio
import json
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData
from yarl import URL

from adapters.web.config import Limits
from bot import Agent, Plugin, RouteRequest, RouteResponse, route, system_clock
from bot.platform import AccessTokens, RouteEvent, TokenScope
from bot.plugin_system import WebhookSignature, static_folder
from tests.adapters.web.conftest import RunningServer, run_server

MIB = 1024 * 1024
SECRET = "a-secret-of-the-webhook"
SIGNATURE = WebhookSignature("HOOK_SECRET", "X-Hub-Signature-256", prefix="sha256=")
TIMED = WebhookSignature("HOOK_SECRET", timestamp_header="X-Timestamp")


@route("GET", "/builds/{id}/{rest:.*}", scope="chat")
async def show_build(agent: Agent, request: RouteRequest) -> RouteResponse:
    caller = request.caller
    assert caller is not None
    return RouteResponse(json={**request.parameters, "scope": caller.scope, "name": caller.name})


@route("POST", "/read", scope="read_only")
async def read_only(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse()


@route("POST", "/files", files=True, max_body_bytes=3 * MIB)
async def upload(agent: Agent, request: RouteRequest) -> RouteResponse:
    files = [(file.field_name, file.name, file.content_type, len(file.data)) for file in request.files]
    return RouteResponse(json={"form": dict(request.form), "files": files, "body": len(request.body)})


@route("GET", "/picture", public=True)
async def picture(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(body=b"\x89PNG\0\xff", content_type="image/png")


@route("POST", "/hook", signature=SIGNATURE)
async def hook(agent: Agent, request: RouteRequest) -> RouteResponse:
    assert request.caller is None
    return RouteResponse(202, json=json.loads(request.body))


@route("POST", "/timed", signature=TIMED)
async def timed(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(202)


KINDS = Plugin("kinds", routes=[show_build, read_only, upload, picture, hook, timed])


@pytest.fixture
async def kinds() -> Any:
    async with run_server(KINDS, settings={"HOOK_SECRET": SECRET}) as server:
        yield server


async def post(server: RunningServer, path: str, data: Any, **headers: str) -> Any:
    return await server.request("POST", f"/plugins/kinds{path}", headers={**server.bearer, **headers}, data=data)


async def test_a_path_has_parameters_and_the_caller_is_named(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    texts = {scope: tokens.create(scope.value, scope, system_clock())[1] for scope in TokenScope}
    async with run_server(KINDS, access_tokens=tokens) as server:
        assert await server.get("/plugins/kinds/builds/a%20b/c/d") == {
            **{"id": "a b", "rest": "c/d"},
            **{"scope": "operator", "name": ""},
        }
        for scope, status in ((TokenScope.CHAT, 200), (TokenScope.OPERATOR, 200), (TokenScope.READ_ONLY, 403)):
            bearer = {"Authorization": f"Bearer {texts[scope]}"}
            answer = await server.request("GET", "/plugins/kinds/builds/1/", headers=bearer)
            assert answer.status == status
            if status == 200:
                assert (await answer.json())["name"] == scope.value
            answer = await server.request("POST", "/plugins/kinds/read", headers=bearer)
            assert answer.status == (403 if scope is TokenScope.CHAT else 200)
        assert (await server.request("GET", "/plugins/kinds/builds/1/")).status == 401


async def test_a_form_is_read_into_fields_and_files(kinds: RunningServer) -> None:
    form = FormData({"title": "Ümlaut"}, quote_fields=False)
    form.add_field(
        "file", BytesIO(b"x" * (2 * MIB)), filename="../a b.bin", content_type="application/x-thing; charset=x"
    )
    form.add_field("file", b"", filename="empty.txt", content_type="text/plain")
    answer = await post(kinds, "/files", form)
    files = [["file", "../a b.bin", "application/x-thing", 2 * MIB], ["file", "empty.txt", "text/plain", 0]]
    assert await answer.json() == {"form": {"title": "Ümlaut"}, "files": files, "body": 0}
    answer = await post(kinds, "/files", BytesIO(b"y" * (2 * MIB)))
    assert (await answer.json())["body"] == 2 * MIB


async def send_pieces(size: int, start: bytes = b"") -> AsyncIterator[bytes]:
    yield start
    for _ in range(size // 1024):
        yield b"z" * 1024


@pytest.mark.failure("N-17")
@pytest.mark.parametrize("kind", ["length", "pieces", "form", "form in pieces"])
async def test_an_upload_is_bounded(kinds: RunningServer, kind: str) -> None:
    form = FormData()
    form.add_field("file", BytesIO(b"x" * (4 * MIB)), filename="a")
    part = b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
    data: Any = {
        "length": BytesIO(b"x" * (4 * MIB)),
        "pieces": send_pieces(4 * MIB),
        "form": form,
        "form in pieces": send_pieces(4 * MIB, part),
    }[kind]
    headers = {"Content-Type": "multipart/form-data; boundary=b"} if kind == "form in pieces" else {}
    answer = await post(kinds, "/files", data, **headers)
    assert (answer.status, (await answer.json())["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"no boundary"),
        ("multipart/form-data; boundary=b", b"no part"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nno name\r\n--b--\r\n"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--b--\r\n',
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n'
            b"--c\r\n\r\nx\r\n--c--\r\n--b--\r\n",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 51 + b"--b--\r\n",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n\r\n' * 51 + b"--b--\r\n",
        ),
    ],
)
async def test_an_invalid_form_is_refused(kinds: RunningServer, content_type: str, body: bytes) -> None:
    answer = await post(kinds, "/files", body, **{"Content-Type": content_type})
    answer_body = await answer.json()
    assert (answer.status, answer_body["error"]["code"]) == (400, "invalid_form"), answer_body


async def test_a_route_returns_bytes(kinds: RunningServer) -> None:
    answer = await kinds.request("GET", "/plugins/kinds/picture")
    assert (answer.content_type, await answer.read()) == ("image/png", b"\x89PNG\0\xff")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_signed_webhook_refuses_what_is_not_signed(kinds: RunningServer) -> None:
    body = b'{"ok": true}'
    signed = SIGNATURE.sign(SECRET, body)
    for signature, sent, status in (
        (signed, body, 202),
        (signed, body + b" ", 401),
        (SIGNATURE.sign("another", body), body, 401),
        (signed.removeprefix("sha256="), body, 401),
        ("", body, 401),
        ("é", body, 401),
    ):
        headers = {"X-Hub-Signature-256": signature}
        answer = await kinds.request("POST", "/plugins/kinds/hook", headers=headers, data=sent)
        assert answer.status == status, signature


async def test_a_signed_webhook_with_a_timestamp_cannot_be_repeated_later(kinds: RunningServer) -> None:
    now = int(system_clock().timestamp())
    for timestamp, status in ((str(now), 202), (str(now - 400), 401), (str(now + 400), 401), ("", 401), ("٣", 401)):
        headers = {"X-Timestamp": timestamp, "X-Signature": TIMED.sign(SECRET, b"x", timestamp)}
        answer = await kinds.request("POST", "/plugins/kinds/timed", headers=headers, data=b"x")
        assert answer.status == status, timestamp
    headers = {"X-Timestamp": str(now - 1), "X-Signature": TIMED.sign(SECRET, b"x", str(now))}
    assert (await kinds.request("POST", "/plugins/kinds/timed", headers=headers, data=b"x")).status == 401


async def test_a_signed_webhook_without_a_secret_refuses_everything(caplog: pytest.LogCaptureFixture) -> None:
    async with run_server(KINDS) as server:
        answer = await server.request("POST", "/plugins/kinds/hook", data=b"{}")
        assert answer.status == 503
    assert "set HOOK_SECRET" in caplog.text


class Ticker:
    """A plugin with a stream of events; `closed` is set once the stream has ended."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def tick(self) -> AsyncIterator[RouteEvent]:
        try:
            yield RouteEvent({"n": 1}, "tick", "1")
            yield RouteEvent("two\nlines\rand\r\nmore a-token-for-tests")
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    @property
    def plugin(self) -> Plugin:
        @route("GET", "/ticks")
        async def ticks(agent: Agent, request: RouteRequest) -> RouteResponse:
            return RouteResponse(events=self.tick())

        @route("GET", "/broken")
        async def broken(agent: Agent, request: RouteRequest) -> RouteResponse:
            async def fail() -> AsyncIterator[RouteEvent]:
                yield RouteEvent("first")
                raise RuntimeError("/secret/path")

            return RouteResponse(events=fail())

        return Plugin("ticker", routes=[ticks, broken])


async def test_events_are_sent_as_they_come_until_the_client_leaves() -> None:
    ticker = Ticker()
    async with run_server(ticker.plugin, limits=Limits(keep_alive_seconds=0.01)) as server:
        answer = await server.request("GET", "/plugins/ticker/ticks", headers=server.bearer)
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readuntil(b"\n\n") == b'event: tick\nid: 1\ndata: {"n": 1}\n\n'
        lines = await answer.content.readuntil(b"\n\n")
        assert lines == b"data: two\ndata: lines\ndata: and\ndata: more [redacted]\n\n"
        assert await answer.content.readuntil(b"\n\n") == b": still here\n\n"
        answer.close()
        async with asyncio.timeout(30):
            await ticker.closed.wait()


async def test_a_revoked_token_ends_the_events(tmp_path: Path) -> None:
    ticker, tokens = Ticker(), AccessTokens(tmp_path)
    _, text = tokens.create("reader", TokenScope.READ_ONLY, system_clock())
    limits = Limits(keep_alive_seconds=0.01)
    async with run_server(ticker.plugin, access_tokens=tokens, limits=limits) as server:
        bearer = {"Authorization": f"Bearer {text}"}
        answer = await server.request("GET", "/plugins/ticker/ticks", headers=bearer)
        await answer.content.readuntil(b"\n\n")
        tokens.revoke("reader")
        async with asyncio.timeout(30):
            await answer.read()
            await ticker.closed.wait()


async def test_events_that_fail_end_with_an_error_that_shows_nothing() -> None:
    async with run_server(Ticker().plugin) as server:
        answer = await server.request("GET", "/plugins/ticker/broken", headers=server.bearer)
        assert await answer.text() == 'data: first\n\nevent: error\ndata: {"code": "plugin_failed"}\n\n'


@pytest.mark.failure("M-06")
async def test_a_static_folder_serves_its_files_and_no_other(tmp_path: Path) -> None:
    root = tmp_path / "pages"
    (root / "sub").mkdir(parents=True)
    (root / "index.html").write_text("<h1>Grüße</h1>", encoding="utf-8")
    (root / "sub" / "app.js").write_text("let a;")
    (root / ".env").write_text("KEY=hidden")
    (tmp_path / "secret.txt").write_text("hidden")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    plugin = Plugin("site", routes=[static_folder("/app", root, scope="public")])
    async with run_server(plugin) as server:
        for path, content_type, text in (
            ("", "text/html", "<h1>Grüße</h1>"),
            ("index.html", "text/html", "<h1>Grüße</h1>"),
            ("sub/app.js", "text/javascript", "let a;"),
        ):
            answer = await server.request("GET", f"/plugins/site/app/{path}")
            assert (answer.status, answer.content_type, await answer.text()) == (200, content_type, text)
        for path in (
            "sub",
            "sub/",
            "nothing",
            ".env",
            "link.txt",
            "%2e%2e/secret.txt",
            "..%2fsecret.txt",
            "%00",
            "..%5csecret.txt",
            "%2fetc%2fpasswd",
            "sub/%2e%2e/%2e%2e/secret.txt",
            "a" * 3000,
        ):
            url = URL(f"{server.origin}/plugins/site/app/{path}", encoded=True)
            answer = await server.session.get(url)
            assert answer.status == 404, path
            assert "hidden" not in await answer.text()


async def test_the_routes_of_plugins_are_described(kinds: RunningServer) -> None:
    paths = (await kinds.get("/api/openapi.json"))["paths"]
    build = paths["/plugins/kinds/builds/{id}/{rest}"]["get"]
    assert build["x-scopes"] == ["operator", "chat"]
    assert [parameter["name"] for parameter in build["parameters"]] == ["id", "rest"]
    form = paths["/plugins/kinds/files"]["post"]
    assert (list(form["requestBody"]["content"]), form["x-max-body-bytes"]) == (["multipart/form-data"], 3 * MIB)
    assert paths["/plugins/kinds/hook"]["post"]["security"] == []
