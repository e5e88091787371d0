"""The session, the agents, their tasks and the settings of worlds over HTTP."""

import base64
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import ClientSession, CookieJar

from adapters.web.config import Limits
from bot import Agent, Plugin, Role, Task, TaskSchedule, TaskTag, derived_id, system_clock, worker
from bot.background.scheduler import Scheduler
from bot.domain.task import merge_schedule
from bot.platform import AccessTokens, TokenScope
from bot.plugin_system import WorldSetting
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory, run_server

PICTURE = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\x00\x80")),
        (b"IEND", b""),
    )
)


@pytest.mark.long
async def test_an_agent_tells_how_to_begin_and_which_models_answer(open_server: Any) -> None:
    suggestions = [" What is new? ", "", "two", "three", "four", "five"]
    async with open_server(character={"suggestions": suggestions}) as web_server:
        [agent] = (await web_server.get("/api/agents"))["agents"]
        assert agent["suggestions"] == ["What is new?", "two", "three", "four"]
        assert (agent["face"], agent["models"]) == (None, ["script"])
        await web_server.send("Hello")
        assert (await web_server.get("/api/session"))["agents"][0]["models"] == ["scripted"]
        await web_server.get("/api/agents/ada/picture", 404)


@pytest.mark.long
async def test_the_picture_of_a_character_is_served_from_its_folder(open_server: Any, tmp_path: Path) -> None:
    (tmp_path / "ada.png").write_bytes(PICTURE)
    async with open_server(character={"picture": "ada.png"}, folder=tmp_path) as web_server:
        [agent] = (await web_server.get("/api/agents"))["agents"]
        assert agent["face"] == f"/api/agents/{agent['id']}/picture"
        answer = await web_server.request("GET", agent["face"], headers=web_server.bearer)
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PICTURE)
        assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_a_picture_in_the_character_file_itself_is_served(open_server: Any) -> None:
    avatar = "data:image/gif;base64," + base64.b64encode(PICTURE).decode()
    async with open_server(character={"settings": {"avatar": avatar}}) as web_server:
        answer = await web_server.request("GET", "/api/agents/ada/picture", headers=web_server.bearer)
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PICTURE)


@pytest.mark.long
async def test_a_file_elsewhere_or_of_another_kind_is_no_picture(open_server: Any, tmp_path: Path) -> None:
    folder = tmp_path / "character"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(PICTURE)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "drawing.png").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (folder / "large.png").write_bytes(PICTURE + bytes(2 * 1024 * 1024))
    names = ("../outside.png", str(tmp_path / "outside.png"), "link.png", "drawing.png", "large.png", "a\0b", ".")
    for name in (*names, "http://127.0.0.1/x.png", "https://127.0.0.1/x.png", "file:///etc/passwd"):
        async with open_server(character={"picture": name}, folder=folder) as web_server:
            await web_server.get("/api/agents/ada/picture", 404)


async def test_commands_that_need_a_role_are_not_listed(web_server: Any) -> None:
    commands = (await web_server.get("/api/agents/ada/commands"))["commands"]
    names = [command["name"] for command in commands]
    assert "help" in names
    assert names == sorted(names)
    [handle] = web_server.runtime.handles
    closed = {item.name for item in handle.commands if item.role is not Role.NONE and not item.is_open_in_direct_chat}
    assert not closed & set(names)
    await web_server.get("/api/agents/nobody/commands", 404)


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


HOURLY = TaskSchedule(timedelta(hours=1)).to_metadata()
REPEATING = frozenset({TaskTag.QUEUE, TaskTag.REPEAT})


class Chores:
    """A plugin whose worker counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []

        @worker("CHORE")
        async def chore(agent: Agent, task: Task) -> None:
            self.runs.append(task.description)
            if "fail" in task.description:
                raise ValueError("out of thread")

        self.plugin = Plugin("chores", workers=[chore])


async def add(server: RunningServer, name: str, hours: float = 1, **fields: Any) -> Task:
    task = Task(derived_id("chore", name), "CHORE", system_clock() + timedelta(hours=hours), name, **fields)
    await server.runtime.agents[0].agent.store.tasks.save_task(task)
    return task


async def run_due(server: RunningServer) -> None:
    runtime = server.runtime.agents[0]
    await Scheduler(runtime.agent, runtime.registry).run_due()


async def decide(server: RunningServer, task: Task, decision: str, status: int = 200) -> Any:
    return await server.post(f"/api/tasks/{task.id}/{decision}", None, status)


async def test_tasks_are_listed_by_their_time_page_by_page(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        outcome = await server.send("hello", user="eve")
        person = (await server.get("/api/people"))["people"][0]["id"]
        await add(server, "mend", 3, tags=REPEATING, metadata=HOURLY)
        await add(server, "sweep", 1, room_id=UUID(outcome["room_id"]), entity_id=UUID(person))
        await add(server, "wait", 2, tags=frozenset({TaskTag.AWAITING_CHOICE}))
        await add(server, "give up", 4, is_parked=True)
        tasks = (await server.get("/api/tasks"))["tasks"]
        assert [task["description"] for task in tasks] == ["sweep", "wait", "mend", "give up"]
        assert [task["state"] for task in tasks] == ["waiting", "asking", "waiting", "failed"]
        assert (tasks[0]["room"], tasks[0]["person"], tasks[0]["every_s"]) == ("api", "eve", None)
        assert (tasks[2]["every_s"], tasks[2]["cron"], tasks[2]["late_s"]) == (3600, "", 0)
        listed, query = [], "limit=3"
        while query:
            page = await server.get(f"/api/tasks?{query}")
            listed += page["tasks"]
            query = page["next"] and f"limit=3&before={page['next']}"
        assert listed == tasks
        assert [task["description"] for task in (await server.get("/api/tasks?state=failed"))["tasks"]] == ["give up"]
        await server.get("/api/tasks?state=lost", 422)


async def test_a_task_runs_now_and_says_when_it_ran_last_and_why_it_failed(open_server: ServerFactory) -> None:
    chores = Chores()
    async with open_server(chores.plugin) as server:
        repair = await add(server, "mend", tags=REPEATING, metadata=HOURLY)
        fail = await add(server, "fail", tags=REPEATING, metadata=HOURLY)
        for task in (repair, fail):
            assert (await decide(server, task, "run"))["state"] == "waiting"
        await run_due(server)
        while len(chores.runs) < 2:
            await run_due(server)
        shown = {task["description"]: task for task in (await server.get("/api/tasks"))["tasks"]}
        assert shown["mend"]["last_at"] is not None
        assert shown["mend"]["problem"] == ""
        assert (shown["fail"]["attempts"], "out of thread" in shown["fail"]["problem"]) == (1, True)


async def test_a_paused_task_stays_paused_when_it_is_scheduled_again(open_server: ServerFactory) -> None:
    chores = Chores()
    async with open_server(chores.plugin) as server:
        repair = await add(server, "mend", 1, tags=REPEATING, metadata=HOURLY)
        assert (await decide(server, repair, "pause"))["state"] == "paused"
        tasks = server.runtime.agents[0].agent.store.tasks
        stored = await tasks.task(repair.id)
        assert stored is not None
        assert merge_schedule(repair, stored).is_paused
        assert (await decide(server, repair, "run", 409))["error"]["message"] == "it is paused: resume it first"
        assert (await decide(server, repair, "resume"))["state"] == "waiting"
        assert (await decide(server, repair, "resume"))["state"] == "waiting"


async def test_a_task_that_runs_or_waits_for_a_choice_is_not_changed(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        asking = await add(server, "ask", tags=frozenset({TaskTag.AWAITING_CHOICE}))
        for decision in ("run", "pause"):
            await decide(server, asking, decision, 409)


async def test_a_deleted_task_is_gone(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        repair = await add(server, "mend")
        path = f"/api/tasks/{repair.id}"
        for status in (200, 404):
            answer = await server.request("DELETE", path, headers=server.bearer)
            await server.check_response("DELETE", path, answer, status)
        assert (await server.get("/api/tasks"))["tasks"] == []
        await decide(server, repair, "run", 404)


SECRET = "tok-4711-very-secret"


def check_number(value: str) -> str:
    return "" if value.isdigit() else "a number"


CARDS = Plugin(
    "cards",
    world_settings=[
        WorldSetting("CARDS_HOUR", "When.", default="9", validation=check_number),
        WorldSetting("CARDS_TOKEN", "The token.", secret=True, required=True),
    ],
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with run_server(CARDS, settings={"BOT_DATA_DIR": str(tmp_path)}) as server:
        await server.send("Hello")
        yield server


async def settings_path(server: RunningServer) -> str:
    [room] = (await server.get("/api/rooms"))["rooms"]
    return f"/api/worlds/{room['world_id']}/settings"


async def test_the_settings_of_a_world_are_listed_set_and_removed(server: RunningServer) -> None:
    path = await settings_path(server)
    hour, token = (await server.get(path))["settings"]
    assert (hour["name"], hour["plugin"], hour["value"], hour["is_set"]) == ("CARDS_HOUR", "cards", "9", False)
    assert (token["is_secret"], token["is_required"], token["is_set"]) == (True, True, False)
    [hour, _] = (await server.post(f"{path}/CARDS_HOUR", {"value": "17"}))["settings"]
    assert (hour["value"], hour["is_set"]) == ("17", True)
    [hour, _] = (await server.post(f"{path}/CARDS_HOUR", {"value": ""}))["settings"]
    assert (hour["value"], hour["is_set"]) == ("9", False)


async def test_a_secret_is_set_and_never_returned(server: RunningServer) -> None:
    path = await settings_path(server)
    body = await server.post(f"{path}/CARDS_TOKEN", {"value": SECRET})
    assert body["settings"][1]["is_set"]
    assert body["settings"][1]["value"] == ""
    assert SECRET not in str(body)
    assert "aes" not in str(await server.get(path))
    [handle] = server.runtime.handles
    world = await handle.conversations.world(UUID(body["world_id"]))
    assert world is not None
    assert SECRET not in str(world)
    assert handle.world_settings.secret(world, "CARDS_TOKEN") is not None


async def test_a_wrong_value_an_unknown_setting_and_an_unknown_world_are_refused(server: RunningServer) -> None:
    path = await settings_path(server)
    refused = await server.post(f"{path}/CARDS_HOUR", {"value": "noon"}, 422)
    assert refused["error"]["message"] == "CARDS_HOUR: a number"
    await server.post(f"{path}/CARDS_HOUR", {"value": "x" * 4001}, 422)
    await server.post(f"{path}/CARDS_HOUR", {}, 422)
    await server.post(f"{path}/CONVERSATION_LENGTH", {"value": "5"}, 404)
    await server.get(f"/api/worlds/{uuid4()}/settings", 404)
    await server.post(f"/api/worlds/{uuid4()}/settings/CARDS_HOUR", {"value": "5"}, 404)
