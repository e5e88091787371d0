"""The chat page of emulators: content, actions and refused requests."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bot.testing import EmulatorMessage, EmulatorPage, EmulatorRoom, EmulatorUser, EmulatorView, loopback_only

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
async def open_page(view: EmulatorView) -> AsyncIterator[ClientSession]:
    app = web.Application(middlewares=[loopback_only()])
    app.add_routes(EmulatorPage(view).routes())
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        async with ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await runner.cleanup()


async def test_the_page_may_run_its_own_script_and_load_nothing_from_elsewhere() -> None:
    async with open_page(FakeView()) as session, session.get("/") as answer:
        text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
    assert "<title>The Inn emulator</title>" in text
    for kind in ("script", "style"):
        [content] = re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert f"{kind}-src 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert not re.findall(r"https?://|\son\w+=|innerHTML", text)


async def test_the_state_is_that_of_the_requested_room() -> None:
    async with open_page(FakeView()) as session:
        for asked, place in (("", "bar"), ("?place=cellar", "cellar"), ("?place=attic", "bar")):
            async with session.get(f"/page/shown{asked}") as answer:
                told = await answer.json()
            assert (told["place"], told["said"][0]["text"]) == (place, f"in {place}")


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
