"""Routes of plugins under /plugins."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData
from yarl import URL

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from bot import (
    Agent,
    AgentConfig,
    Character,
    Plugin,
    PluginError,
    RouteRequest,
    RouteResponse,
    Runtime,
    Settings,
    route,
    system_clock,
)
from bot.platform import AccessTokens, RouteEvent, TokenScope
from bot.plugin_system import WebhookSignature, static_folder
from bot.plugin_system.components import Route
from tests.adapters.web.conftest import RunningServer, run_server


@route("GET", "/name")
async def name(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json={"name": agent.name, "query": dict(request.query)})


@route("POST", "/hook", public=True)
async def public_hook(agent: Agent, request: RouteRequest) -> RouteResponse:
    kept = {key: request.headers.get(key) for key in ("x-signature", "Authorization", "Cookie")}
    return RouteResponse(status=202, json={"path": request.path, "body": request.body.decode(), **kept})


@route("POST", "/private")
async def private(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json=sorted({"authorization", "cookie"} & {header.lower() for header in request.headers}))


@route("GET", "/broken")
async def broken(agent: Agent, request: RouteRequest) -> RouteResponse:
    raise RuntimeError("/secret/path")


@route("GET", "/strange")
async def strange(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json=object())


@route("GET", "/returns/{kind}")
async def returns(agent: Agent, request: RouteRequest) -> Any:
    return {
        "status": RouteResponse(99_999, text="x"),
        "words": RouteResponse("200", text="x"),  # type: ignore[arg-type]
        "header": RouteResponse(text="x", content_type="text/plain\r\nX-Evil: 1"),
        "set": RouteResponse(json={1, 2}),
        "dict": {"ok": True},
        "nothing": None,
    }[request.parameters["kind"]]


@route("GET", "/slow")
async def slow(agent: Agent, request: RouteRequest) -> RouteResponse:
    raise TimeoutError


@route("GET", "/never")
async def never(agent: Agent, request: RouteRequest) -> RouteResponse:
    await asyncio.Event().wait()
    return RouteResponse()


@route("GET", "/page")
async def page(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text="<b>hi</b>", content_type="text/html")


@route("GET", "/api/agents", public=True)
async def shadow(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text="not the API")


TICK = Plugin("tick", routes=[name, public_hook, private, broken, strange, returns, slow, never, page, shadow])


@pytest.fixture
async def web_server(open_server: Any) -> Any:
    async with open_server(TICK) as server:
        yield server


async def test_a_route_is_served_under_its_plugins_name(web_server: Any) -> None:
    assert await web_server.get("/plugins/tick/name?a=1") == {"name": "Ada", "query": {"a": "1"}}


@pytest.mark.failure("N-17")
async def test_a_public_route_needs_no_token_and_sees_its_own(web_server: Any) -> None:
    headers = {"X-Signature": "s", "Authorization": "Hook x", "Cookie": "a=b", "Content-Type": "text/plain"}
    answer = await web_server.request("POST", "/plugins/tick/hook", headers=headers, data=b"raw \xc3\xbc")
    assert answer.status == 202
    assert await answer.json() == {
        "path": "/plugins/tick/hook",
        "body": "raw ü",
        "x-signature": "s",
        "Authorization": "Hook x",
        "Cookie": None,
    }


@pytest.mark.failure("N-17")
async def test_other_routes_need_the_token_and_do_not_see_it(web_server: Any) -> None:
    assert (await web_server.request("POST", "/plugins/tick/private")).status == 401
    assert await web_server.post("/plugins/tick/private", {}) == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("broken", 500, "plugin_failed"),
        ("strange", 500, "plugin_failed"),
        ("slow", 500, "plugin_failed"),  # its own timeout was shorter than the server's
        ("nothing", 404, "not_found"),
        ("hook", 405, "method_not_allowed"),
    ],
)
async def test_a_failing_route_affects_only_its_request(web_server: Any, path: str, status: int, code: str) -> None:
    error = (await web_server.get(f"/plugins/tick/{path}", status))["error"]
    assert error["code"] == code
    assert "secret" not in error["message"]
    await web_server.get("/plugins/tick/name")


@pytest.mark.parametrize("kind", ["status", "words", "header", "set", "dict", "nothing"])
async def test_an_invalid_response_is_an_error_that_names_the_route_in_the_log(
    web_server: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    error = (await web_server.get(f"/plugins/tick/returns/{kind}", 500))["error"]
    assert error["code"] == "plugin_failed"
    [record] = [record for record in caplog.records if record.name == "adapters.web.plugin_routes"]
    assert record.getMessage().startswith("GET /plugins/tick/returns/{kind} returned an invalid response: ")
    assert record.levelname == "WARNING", "without a traceback, since callers can repeat it"


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_a_failing_route_is_logged_with_its_plugin_and_the_line_of_its_code(
    open_server: Any, caplog: pytest.LogCaptureFixture, is_trusted: bool
) -> None:
    async with open_server(replace(TICK, is_trusted=is_trusted)) as web_server:
        await web_server.get("/plugins/tick/broken", 500)
    [record] = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.name == "adapters.web.plugin_routes"
    line = broken.handler.__code__.co_firstlineno + 2  # type: ignore[attr-defined]
    failure = f"GET /broken of plugin tick failed at {__file__}:{line}: RuntimeError: /secret/path"
    assert record.getMessage() == f"GET /plugins/tick/broken failed: {failure}"
    assert record.exc_info is not None
    assert f'File "{__file__}", line {line}, in broken' in logging.Formatter().formatException(record.exc_info)


async def test_a_route_that_never_answers_times_out(open_server: Any) -> None:
    async with open_server(TICK, limits=Limits(plugin_seconds=0.02)) as web_server:
        await web_server.get("/plugins/tick/never", 504)


async def test_a_route_chooses_its_content_type_but_not_the_headers(web_server: Any) -> None:
    answer = await web_server.request("GET", "/plugins/tick/page", headers=web_server.bearer)
    assert (answer.content_type, await answer.text()) == ("text/html", "<b>hi</b>")
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


@pytest.mark.failure("N-17")
async def test_a_route_cannot_replace_the_api(web_server: Any) -> None:
    assert (await web_server.request("GET", "/plugins/tick/api/agents")).status == 200
    assert (await web_server.request("GET", "/api/agents")).status == 401


async def test_the_body_is_bounded(web_server: Any) -> None:
    body = b"x" * (1024 * 1024 + 1)
    answer = await web_server.request("POST", "/plugins/tick/hook", data=iter_bytes(body))
    assert answer.status == 413


async def iter_bytes(body: bytes) -> Any:
    yield body


async def test_the_query_selects_an_agent_of_several(open_server: Any) -> None:
    async with open_server(TICK, names=("Ada", "Bea")) as web_server:
        assert (await web_server.get("/plugins/tick/name"))["name"] == "Ada"
        assert await web_server.get("/plugins/tick/name?agent=bea&x=1") == {"name": "Bea", "query": {"x": "1"}}
        await web_server.get("/plugins/tick/name?agent=cleo", 404)


@route("GET", "/{rest:.*}", public=True)
async def everything(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text="everything")


@pytest.mark.failure("N-17")
async def test_a_catch_all_route_stays_in_its_plugin_and_is_logged(
    open_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    greedy, other = Plugin("tick", routes=[everything, private]), Plugin("tick2", routes=[name])
    async with open_server(greedy, other) as web_server:
        for path, status in (
            *(("/plugins/tick/", 200), ("/plugins/tick/a/b", 200), ("/plugins/tick/private", 200)),
            *(("/plugins/tick2/name", 401), ("/plugins/tick2/nothing", 401), ("/plugins/tick", 401)),
            *(("/api/agents", 401), ("/plugins", 401), ("/", 303), ("/plugins/tick/%2e%2e/%2e%2e/api/agents", 200)),
        ):
            answer = await web_server.session.get(URL(web_server.origin + path, encoded=True), allow_redirects=False)
            assert (answer.status, "Ada" in await answer.text()) == (status, False), path
        assert (await web_server.request("POST", "/plugins/tick/private")).status == 401
    [warning] = [message for message in caplog.messages if "needs no token" in message]
    assert warning == "GET /plugins/tick/{rest:.*} of plugin 'tick' needs no token"


@pytest.mark.failure("N-17")
@pytest.mark.parametrize("path", ["/{", "2/name", ""])
async def test_an_invalid_path_is_reported_at_the_start(path: str) -> None:
    async def nothing(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse()

    bad = Plugin("bad", routes=[Route("GET", path, nothing)])
    async with Runtime([AgentConfig(Character(name="Ada"), (bad,), Settings())]) as runtime:
        with pytest.raises(PluginError, match="'bad'"):
            WebAdapter(runtime.handles, WebSettings(), "a-token-for-tests")


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
