"""The chat page of emulators: content, actions and refused requests."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from aiohttp import ClientSession, WSMsgType, web
from yarl import URL

from bot import Outcome
from bot.inbound.agent_handle import EmulatedOutcome
from bot.testing import (
    Ability,
    ActionRefused,
    EmulatorActions,
    EmulatorMessage,
    EmulatorPage,
    EmulatorRoom,
    EmulatorUser,
    EmulatorView,
    FileContent,
    loopback_only,
)

KIM = EmulatorUser("1", "Kim")


class FakeView:
    """A room with one user and one without; records the actions."""

    platform = "The Inn"
    max_length = 20

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def rooms(self) -> Sequence[EmulatorRoom]:
        return [EmulatorRoom("bar", "the bar", (KIM,), "Say hello."), EmulatorRoom("cellar", "the cellar", ())]

    def bots(self) -> Sequence[EmulatorUser]:
        return [EmulatorUser("@ada", "Ada")]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        return [EmulatorMessage("7", "Ada", f"in {room_id}", is_bot=True, buttons=(("yes", "Yes"),))]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        self.calls.append((room_id, user_id, text, reply_to))
        return "the bar is closed" if text == "beer" else ""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        self.calls.append((room_id, user_id, message_id, button_id))


@asynccontextmanager
async def serve(page: EmulatorPage) -> AsyncIterator[ClientSession]:
    app = web.Application(middlewares=[loopback_only()])
    app.add_routes(page.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        async with ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await page.close()
        await runner.cleanup()


@asynccontextmanager
async def open_page(view: EmulatorView) -> AsyncIterator[ClientSession]:
    async with serve(EmulatorPage(view)) as session:
        yield session


async def test_the_page_loads_files_of_its_own_server_and_runs_no_inline_code() -> None:
    async with open_page(FakeView()) as session:
        async with session.get("/") as answer:
            text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        assert "<title>The Inn emulator</title>" in text
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert not re.findall(r"https?://|\son\w+=|<script>|<style>", text)
        for path in re.findall(r'(?:href|src)="(pages/[^"]+)"', text):
            async with session.get(f"/{path}") as answer:
                assert answer.status == 200, path


@pytest.mark.parametrize(
    "path", ["../adapter.py", "%2e%2e/adapter.py", "js/../../adapter.py", "emulated.html", "js", "none.js"]
)
async def test_only_files_of_the_web_app_are_served(path: str) -> None:
    async with open_page(FakeView()) as session, session.get(URL(f"/pages/{path}", encoded=True)) as answer:
        assert answer.status == 404


async def test_the_state_is_that_of_the_requested_room() -> None:
    async with open_page(FakeView()) as session:
        for asked, place in (("", "bar"), ("?place=cellar", "cellar"), ("?place=attic", "bar")):
            async with session.get(f"/page/shown{asked}") as answer:
                document = await answer.json()
            assert (document["place"], document["said"][0]["text"]) == (place, f"in {place}")


async def test_room_and_user_default_to_the_first_ones() -> None:
    inn = FakeView()
    async with open_page(inn) as session:
        async with session.post("/page/say", json={"text": " hello ", "answers": "7"}) as answer:
            assert answer.status == 200
        async with session.post("/page/press", json={"message": "7", "button": "yes"}) as answer:
            assert answer.status == 200
    assert inn.calls == [("bar", "1", "hello", "7"), ("bar", "1", "7", "yes")]


async def test_a_refusal_of_the_platform_is_returned() -> None:
    async with open_page(FakeView()) as session, session.post("/page/say", json={"text": "beer"}) as answer:
        assert (answer.status, await answer.json()) == (400, {"problem": "the bar is closed"})


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("say", {"data": '{"text": "x"}'}, 403),
        ("say", {"json": {"text": "x"}, "headers": {"Sec-Fetch-Site": "cross-site"}}, 403),
        ("say", {"json": {"text": "x"}, "headers": {"Sec-Fetch-Site": "same-site"}}, 403),
        ("say", {"data": "{", "headers": {"Content-Type": "application/json"}}, 400),
        ("say", {"json": ["x"]}, 400),
        ("say", {"json": {"text": " "}}, 400),
        ("say", {"json": {"text": "x", "person": "2"}}, 400),
        ("say", {"json": {"text": "x", "place": "attic"}}, 400),
        ("say", {"json": {"text": "x", "place": "cellar"}}, 400),
        ("press", {"json": {"message": "7", "button": "no"}}, 400),
        ("press", {"json": {"message": "8", "button": "yes"}}, 400),
    ],
)
async def test_impossible_actions_are_refused(path: str, form: dict[str, Any], status: int) -> None:
    inn = FakeView()
    async with open_page(inn) as session, session.post(f"/page/{path}", **form) as answer:
        assert answer.status == status
    assert inn.calls == []


class RecordingView(FakeView, EmulatorActions):
    """A platform on which people can do everything."""

    abilities = frozenset(Ability)
    room_kinds = (("hall", "Hall"),)

    def __init__(self) -> None:
        super().__init__()
        self.stored = [
            EmulatorMessage("1", "Kim", "hello", user_id="1"),
            EmulatorMessage("2", "Ada", "hi", is_bot=True),
        ]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        return self.stored if room_id == "bar" else []

    def read_file(self, file_id: str) -> FileContent | None:
        contents = {
            "page": FileContent("a.html", "text/html", b"<script>"),
            "face": FileContent("ä.png", "image/png", b"x"),
        }
        return contents.get(file_id)

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        if not text:
            raise ActionRefused("say what it is")
        self.calls.append((user_id, text, *(f"{file.name} {file.content_type} {file.data!r}" for file in files)))

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        self.stored[0] = replace(self.stored[0], text=text, is_edited=True)

    async def delete_message(self, room_id: str, message_id: str) -> None:
        self.stored.pop(0)

    async def add_room(self, kind: str, name: str, near: str) -> str:
        return f"{kind} {name} near {near}"


async def act(session: ClientSession, path: str, **body: str) -> tuple[int, Any]:
    async with session.post(f"/page/{path}", json=body) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else None


async def test_files_are_stored_and_then_sent_with_a_message() -> None:
    view = RecordingView()
    async with open_page(view) as session:
        headers = {
            "Content-Type": "application/octet-stream",
            "X-File-Name": "n%C3%B6te.txt",
            "X-File-Type": "text/plain",
        }
        async with session.post("/page/files", data=b"oil", headers=headers) as answer:
            file_id = (await answer.json())["id"]
        assert await act(session, "say", files=file_id) == (400, {"problem": "say what it is"})
        assert (await act(session, "say", text="read", files=file_id))[0] == 200
        assert (await act(session, "say", text="read", files="unknown"))[0] == 400
        async with session.post("/page/files", data={"file": "x"}) as answer:  # as a form of another site would
            assert answer.status == 403
    assert view.calls == [("1", "read", "nöte.txt text/plain b'oil'")]


async def test_only_pictures_and_recordings_are_shown_in_place() -> None:
    async with open_page(RecordingView()) as session:
        for file_id, content_type, disposition in (
            ("page", "application/octet-stream", "attachment; filename*=UTF-8''a.html"),
            ("face", "image/png", "inline; filename*=UTF-8''%C3%A4.png"),
        ):
            async with session.get("/page/file", params={"id": file_id}) as answer:
                assert answer.headers["Content-Type"] == content_type
                assert answer.headers["Content-Disposition"] == disposition
                assert "sandbox" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_people_change_only_messages_of_their_own_and_what_the_platform_has() -> None:
    async with open_page(RecordingView()) as session:
        assert (await act(session, "edit", message="2", text="x"))[0] == 400
        assert (await act(session, "edit", message="1", text="x"))[0] == 200
        assert (await act(session, "react", message="1", emoji="<b>"))[0] == 400
        assert await act(session, "rooms", kind="hall", name="big", place="bar") == (200, {"id": "hall big near bar"})
        assert (await act(session, "rooms", kind="castle", name="big"))[0] == 400
    async with open_page(FakeView()) as session:
        for path in ("edit", "delete", "react", "people"):
            assert (await act(session, path, message="7", text="x", name="x"))[0] == 404


async def test_an_open_page_receives_its_room_and_then_only_what_has_changed() -> None:
    view = RecordingView()
    async with open_page(view) as session, session.ws_connect("/page/live") as socket:
        platform, room = await socket.receive_json(), await socket.receive_json()
        assert (platform["type"], [place["id"] for place in platform["places"]]) == ("platform", ["bar", "cellar"])
        assert (room["type"], [message["id"] for message in room["messages"]]) == ("room", ["1", "2"])
        await act(session, "edit", message="1", text="hello there")
        changed = await socket.receive_json()
        assert (changed["type"], [message["text"] for message in changed["messages"]]) == ("changed", ["hello there"])
        await act(session, "delete", message="1")
        assert (await socket.receive_json())["gone"] == ["1"]
        await socket.send_json({"place": "cellar"})
        other = await socket.receive_json()
        assert (other["place"], other["messages"]) == ("cellar", [])


async def test_an_outcome_is_shown_with_its_message() -> None:
    view = RecordingView()
    page = EmulatorPage(view)
    outcome = EmulatedOutcome("bar", "1", "Ada", "Answered", Outcome.ANSWERED, UUID(int=1), 5, None)
    async with serve(page) as session, session.ws_connect("/page/live") as socket:
        await socket.receive_json()
        await socket.receive_json()
        page.show_outcome(outcome)
        [message] = (await socket.receive_json())["messages"]
    assert [(item["agent"], item["headline"], item["took_ms"]) for item in message["outcomes"]] == [
        ("Ada", "Answered", 5)
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"place": 1}', "[" * 5000])
async def test_a_frame_that_no_page_sends_ends_the_connection(text: str) -> None:
    async with open_page(RecordingView()) as session, session.ws_connect("/page/live") as socket:
        await socket.send_str(text)
        while (await socket.receive()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSED):
            pass


async def test_receipts_are_those_that_the_web_page_shows_to_the_same_browser() -> None:
    async def show(request: web.Request) -> web.Response:
        is_signed_in = request.cookies.get("greenroom") == "kim"
        return web.json_response({"path": request.path}, status=200 if is_signed_in else 401)

    app = web.Application()
    app.router.add_get("/{path:.*}", show)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    page = EmulatorPage(RecordingView())
    async with serve(page) as session:
        async with session.get("/api/receipts/1") as answer:
            assert answer.status == 404  # the web page is off
        page.connect_web(f"http://127.0.0.1:{runner.addresses[0][1]}")
        async with session.get("/api/receipts/1") as answer:
            assert (answer.status, "bot run prints" in await answer.text()) == (403, True)
        async with session.get("/api/receipts/1/prompts", headers={"Cookie": "greenroom=kim"}) as answer:
            assert await answer.json() == {"path": "/api/receipts/1/prompts"}
        async with session.get("/api/rooms", headers={"Cookie": "greenroom=kim"}) as answer:
            assert answer.status == 404
        async with session.get("/api/receipts/..%2Frooms", headers={"Cookie": "greenroom=kim"}) as answer:
            assert answer.status == 404
    await runner.cleanup()
