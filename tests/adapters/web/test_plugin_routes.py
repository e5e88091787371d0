import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
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
)
from bot.plugin_system.components import Route


@route("GET", "/name")
async def name(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json={"name": agent.name, "query": dict(request.query)})


@route("POST", "/hook", public=True)
async def hook(agent: Agent, request: RouteRequest) -> RouteResponse:
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


TICK = Plugin("tick", routes=[name, hook, private, broken, strange, returns, slow, never, page, shadow])


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
    [record] = [record for record in caplog.records if record.name == "adapters.web.plugin_routes"]
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
