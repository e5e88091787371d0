import base64
import io
import json
from itertools import chain, product
from typing import Any
from uuid import UUID, uuid4

import pytest
from yarl import URL

from adapters.web.config import Limits
from bot import Agent, Plugin, Room, RouteRequest, RouteResponse, route
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.worlds import SqlWorlds

TOKEN = "a-token-for-tests"
OPEN, SHUT, PAGE = "open", "shut", "page"  # a page leads to the sign-in page
# The routes that are open, or pages; every other one needs the token.
ROUTES = {
    "/healthz": OPEN,
    "/": PAGE,
    "/c/{id}": PAGE,
    "/console": PAGE,
    "/console/{tail}": PAGE,
    "/signin": OPEN,
    "/pages/{name}": OPEN,
    "/plugins/tick/hook": OPEN,
}
SIGN_IN = ("POST", "/api/session")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MANY = Limits(max_guesses=100_000, max_total_guesses=100_000)


@route("POST", "/hook", public=True)
async def hook(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(text="ok")


@route("GET", "/state")
async def state(agent: Agent, request: RouteRequest) -> RouteResponse:
    return RouteResponse(json={"state": "ok"})


TICK = Plugin("tick", routes=[hook, state])


def list_addresses(web_server: Any) -> list[tuple[str, str]]:
    """Return the paths of all routes with their class."""
    paths = []
    for resource in web_server.adapter.app.router.resources():
        path = resource.canonical
        name = "/pages/{name}" if path.startswith("/pages/") else path
        filled = path.replace("{agent}", "ada").replace("{id}", str(uuid4())).replace("{tail}", "rooms")
        paths.append((filled, ROUTES.get(name, SHUT)))
    assert len(paths) > len(ROUTES)
    return [*paths, ("/nothing/here", SHUT)]


async def cookie(web_server: Any) -> str:
    answer = await web_server.request("GET", f"/?token={TOKEN}")
    assert answer.status == 303
    assert answer.headers["Location"] == "./"
    [morsel] = answer.cookies.values()
    web_server.session.cookie_jar.clear()
    return f"{morsel.key}={morsel.value}"


@pytest.mark.failure("N-01")
@pytest.mark.parametrize("all_combinations", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_without_the_token_only_public_routes_respond(open_server: Any, all_combinations: bool) -> None:
    async with open_server(TICK, limits=MANY) as web_server:
        right_cookie = await cookie(web_server)
        basic = base64.b64encode(f"x:{TOKEN}".encode()).decode()
        wrong: list[dict[str, str]] = [
            {},
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer wrong-token"},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": f"Bearer {TOKEN[:-1]}"},
            {"Authorization": f"Basic {basic}"},
            {"Authorization": "Bearer \u00fcml\u00e4ut"},
            {"Cookie": right_cookie[:-1]},
            {"Cookie": f"{right_cookie.partition('=')[0]}={TOKEN}"},
            {"Authorization": "Bearer wrong-token", "Cookie": right_cookie},
        ]
        addresses = list_addresses(web_server)
        requests = product(addresses, METHODS, wrong)
        if not all_combinations:  # every address by every method, and every wrong token at an address of each kind
            each_kind = {kind: (path, kind) for path, kind in addresses}.values()
            requests = chain(product(addresses, METHODS, wrong[:1]), product(each_kind, METHODS, wrong))
        for (path, kind), method, headers in requests:
            answer = await web_server.request(method, path, headers=headers)
            is_get = method in {"GET", "HEAD"}
            is_served = method == "POST" if path.startswith("/plugins/") else is_get
            is_open = kind is OPEN and (path == "/healthz" or is_served)
            expected = {200, 405} if is_open else {401}
            if (method, path) == SIGN_IN:
                expected = {415}
            if kind is PAGE and is_get and not headers.get("Authorization"):
                expected = {303}
            assert answer.status in expected, (method, path, headers)
        for path, kind in list_addresses(web_server):
            answer = await web_server.request("GET", f"{path}?token=wrong-token")
            is_open = kind is OPEN and not path.startswith("/plugins/")
            assert answer.status == (200 if is_open else 303 if kind is PAGE else 401), path


@pytest.mark.long
@pytest.mark.failure("N-01")
async def test_with_the_token_every_route_responds(open_server: Any) -> None:
    async with open_server(TICK) as web_server:
        for headers in (web_server.bearer, {"Cookie": await cookie(web_server)}):
            for path, _ in list_addresses(web_server):
                answer = await web_server.request("GET", path, headers=headers)
                assert answer.status in {200, 404, 405, 426}, path


@pytest.mark.long
@pytest.mark.failure("N-05", "N-15")
async def test_every_response_has_the_security_headers(open_server: Any) -> None:
    async with open_server(TICK) as web_server:
        for headers, method in product(({}, web_server.bearer), ("GET", "POST")):
            for path, _ in list_addresses(web_server):
                answer = await web_server.request(method, path, headers=headers)
                answer_headers = answer.headers
                policy = answer_headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert answer_headers["X-Content-Type-Options"] == "nosniff"
                assert answer_headers["X-Frame-Options"] == "DENY"
                assert answer_headers["Referrer-Policy"] == "no-referrer"
                assert answer_headers["Server"] == "greenroom"
                assert answer_headers["Cross-Origin-Resource-Policy"] == "same-origin"
                assert not [name for name in answer_headers if name.startswith("Access-Control-")]
                is_file = path.startswith("/pages/") and answer.status == 200
                assert answer_headers["Cache-Control"] == ("private, no-cache" if is_file else "no-store")


@pytest.mark.failure("N-18")
async def test_an_error_has_a_code_and_the_request_id(web_server: Any) -> None:
    answer = await web_server.request("GET", "/api/nothing", headers=web_server.bearer)
    error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (404, "not_found")
    assert error["request_id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("/", "./signin"),
        ("/c/1?why=2", "../signin?next=c%2F1%3Fwhy%3D2"),
        ("/console/rooms/1", "../../signin?next=console%2Frooms%2F1"),
        ("/console?token=wrong-token&range=day", "./signin?next=console%3Frange%3Dday&problem=unauthorized"),
        ("//evil.example/..%2f", None),
    ],
)
async def test_a_page_without_the_token_leads_to_the_sign_in_page_and_back(
    web_server: Any, address: str, location: str | None
) -> None:
    answer = await web_server.session.get(URL(web_server.origin + address, encoded=True), allow_redirects=False)
    assert (answer.status, answer.headers.get("Location")) == (303 if location else 401, location)


@pytest.mark.failure("N-05")
async def test_the_link_opens_any_page_and_keeps_the_rest_of_its_address(web_server: Any) -> None:
    for address, location in (
        ("/console/rooms?a=b&token={}", "./rooms?a=b"),
        ("/c/javascript:alert(1)?token={}", "./javascript:alert(1)"),
    ):
        answer = await web_server.request("GET", address.format(TOKEN))
        assert (answer.status, answer.headers["Location"]) == (303, location)
        web_server.session.cookie_jar.clear()


@pytest.mark.failure("N-05")
async def test_the_link_sets_a_cookie_and_redirects_to_a_url_without_token(web_server: Any) -> None:
    answer = await web_server.request("GET", f"/?token={TOKEN}")
    [set_cookie] = answer.headers.getall("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in set_cookie.split(";")}
    assert TOKEN not in set_cookie
    assert TOKEN not in answer.headers["Location"]


WRONG = {"Authorization": "Bearer wrong-token"}


@pytest.mark.failure("N-08")
async def test_after_ten_wrong_guesses_the_right_token_still_passes(web_server: Any) -> None:
    answers = [await web_server.request("GET", "/api/agents", headers=WRONG) for _ in range(12)]
    assert [answer.status for answer in answers] == [401] * 10 + [429] * 2
    assert 290 <= int(answers[-1].headers["Retry-After"]) <= 300
    await web_server.get("/api/agents")
    assert (await web_server.request("GET", "/api/agents", headers={"Cookie": await cookie(web_server)})).status == 200
    assert (await web_server.request("GET", "/healthz")).status == 200


@pytest.mark.failure("N-08")
async def test_wrong_guesses_are_limited_for_each_client_of_a_trusted_proxy(open_server: Any) -> None:
    limits = Limits(max_guesses=3)
    first, second = ({**WRONG, "X-Forwarded-For": f"203.0.113.{number}"} for number in (1, 2))
    async with open_server(settings={"SERVER_TRUSTED_PROXIES": "127.0.0.0/8, ::1"}, limits=limits) as web_server:
        asked = [*[first] * 4, second]
        statuses = [(await web_server.request("GET", "/api/agents", headers=headers)).status for headers in asked]
        assert statuses == [401, 401, 401, 429, 401]
    async with open_server(limits=limits) as web_server:
        statuses = [(await web_server.request("GET", "/api/agents", headers=headers)).status for headers in asked]
        assert statuses == [401, 401, 401, 429, 429]


@pytest.mark.failure("N-08")
async def test_wrong_guesses_are_limited_in_total(open_server: Any) -> None:
    limits = Limits(max_guesses=3, max_total_guesses=5)
    async with open_server(settings={"SERVER_TRUSTED_PROXIES": "127.0.0.1"}, limits=limits) as web_server:
        addresses = [{**WRONG, "X-Forwarded-For": f"203.0.113.{number}"} for number in range(7)]
        statuses = [(await web_server.request("GET", "/api/agents", headers=headers)).status for headers in addresses]
        assert statuses == [401] * 5 + [429] * 2
        await web_server.get("/api/agents")


@pytest.mark.failure("N-08")
async def test_a_cross_site_page_cannot_block_the_operator(web_server: Any) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    for _ in range(20):
        await web_server.request("GET", "/?token=wrong-token", headers=foreign)
    assert await cookie(web_server)


@pytest.mark.failure("N-08")
async def test_a_request_without_a_token_is_not_a_guess(web_server: Any) -> None:
    for _ in range(20):
        assert (await web_server.request("GET", "/api/agents")).status == 401
    await web_server.get("/api/agents")


@pytest.mark.failure("N-06")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:3000", 200),
        ("[::1]:3000", 200),
        ("bot.example.org", 200),
        ("192.168.1.5", 421),
        ("0.0.0.0", 421),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.nip.io", 421),
        ("bot.example.org.", 421),
        ("user@localhost", 421),
        ("", 421),
    ],
)
async def test_unknown_host_names_are_refused(open_server: Any, host: str, status: int) -> None:
    async with open_server(settings={"SERVER_ALLOWED_HOSTS": "bot.example.org"}) as web_server:
        for path in ("/healthz", "/api/agents"):
            answer = await web_server.request("GET", path, headers={**web_server.bearer, "Host": host})
            assert answer.status == status
            if status == 421:
                assert (await answer.json())["error"]["code"] == "unknown_host"


SAY = "/api/agents/ada/messages"
OWN, EVIL = "own", "http://evil.example"


@pytest.mark.matrix(3)
@pytest.mark.failure("N-05")
@pytest.mark.parametrize(
    ("by", "headers", "status"),
    [
        ("bearer", {}, 200),
        ("bearer", {"Origin": OWN}, 200),
        ("bearer", {"Origin": EVIL}, 403),
        ("bearer", {"Origin": "null"}, 403),
        ("bearer", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("bearer", {"Sec-Fetch-Site": "same-site"}, 403),
        ("bearer", {"Sec-Fetch-Site": "none"}, 200),
        ("cookie", {}, 403),
        ("cookie", {"Origin": OWN}, 200),
        ("cookie", {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, 200),
        ("cookie", {"Origin": OWN, "Sec-Fetch-Site": "same-site"}, 403),
        ("cookie", {"Origin": EVIL}, 403),
        ("cookie", {"Origin": "null"}, 403),
        ("cookie", {"Sec-Fetch-Site": "same-origin"}, 403),
        ("cookie", {"Referer": OWN}, 403),
        ("none", {"Origin": OWN}, 401),
    ],
)
async def test_changes_need_the_own_page_or_a_bearer_token(
    web_server: Any, by: str, headers: dict[str, str], status: int
) -> None:
    own = {name: web_server.origin if value == OWN else value for name, value in headers.items()}
    credential = {"bearer": web_server.bearer, "cookie": {"Cookie": await cookie(web_server)}, "none": {}}[by]
    answer = await web_server.request("POST", SAY, headers={**credential, **own}, json={"text": "Hello"})
    assert answer.status == status, await answer.text()
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }
    answer = await web_server.request("GET", "/api/ws", headers={**credential, **own, **handshake})
    assert answer.status == (101 if status == 200 else status)
    answer.close()


@pytest.mark.failure("N-10")
@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("text/plain", b'{"text":"x"}', 415),
        ("application/x-www-form-urlencoded", b"text=x", 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("application/json; charset=utf-8", b'{"text":"x"}', 200),
        ("application/json", b"", 400),
        ("application/json", b"{", 400),
        ("application/json", b"[" * 200_000, 400),
        ("application/json", b'{"text":' + b"9" * 100_000 + b"}", 400),
        ("application/json", b'{"text":"\xff"}', 400),
        ("application/json", b"[]", 422),
        ("application/json", b'{"text":"x","half a character \\ud800":1}', 422),
        ("application/json", json.dumps({"text": "x" * (1024 * 1024)}).encode(), 413),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_body_is_json_of_bounded_size(web_server: Any, content_type: str, body: bytes, status: int) -> None:
    headers = {**web_server.bearer, "Content-Type": content_type}
    answer = await web_server.request("POST", SAY, headers=headers, data=io.BytesIO(body))
    text = await answer.text()
    assert answer.status == status, text
    assert "Traceback" not in text
    if status != 200:
        assert set(json.loads(text)["error"]) == {"code", "message", "request_id"}


@pytest.mark.failure("N-09")
async def test_a_compressed_body_is_refused_without_decompression(web_server: Any) -> None:
    headers = {**web_server.bearer, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert (await web_server.request("POST", SAY, headers=headers, data=b"x")).status == 415


class BrokenWorlds(SqlWorlds):
    """A store of worlds that always fails."""

    async def room(self, room_id: UUID) -> Room | None:
        raise RuntimeError("/secret/path is gone")


@pytest.mark.failure("N-18")
async def test_an_internal_error_shows_no_details(open_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryStore()
    store.worlds = BrokenWorlds(store.database, ALL_AGENTS)
    async with open_server(stores={"Ada": store}) as web_server:
        path = f"/api/rooms/{uuid4()}/messages"
        answer = await web_server.request("GET", path, headers=web_server.bearer)
        text = await answer.text()
    assert answer.status == 500
    assert json.loads(text)["error"]["code"] == "internal_error"
    assert "secret" not in text
    assert answer.headers["X-Request-Id"] in caplog.text
