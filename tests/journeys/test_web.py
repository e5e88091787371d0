"""The web page and the HTTP API from a user's view; only the browser is replaced."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, CookieJar

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot import AgentConfig, Character, Runtime, Settings
from bot.settings import Layer
from bot.store import InMemoryStore
from plugins.bootstrap import plugin as bootstrap
from plugins.offline import plugin as offline


@asynccontextmanager
async def running(folder: Path, **stores: InMemoryStore) -> AsyncIterator[WebAdapter]:
    """Start what `bot run` starts without any token: the page alone, on the offline model."""
    settings = Settings([Layer("the test", {"BOT_DATA_DIR": str(folder), "SERVER_PORT": "0", "AI_NOTICE": "off"})])
    plans = [AgentConfig(Character(name=name), (bootstrap, offline), settings, store) for name, store in stores.items()]
    async with Runtime(plans, [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        yield adapter


def browser() -> ClientSession:
    return ClientSession(cookie_jar=CookieJar(unsafe=True))  # it keeps cookies of 127.0.0.1, as browsers do


async def test_a_visitor_opens_the_link_chats_and_returns_after_a_restart(tmp_path: Path) -> None:
    store = InMemoryStore()
    async with browser() as person:
        async with running(tmp_path, Marlo=store) as adapter:
            home = adapter.url.partition("?")[0]
            page = await person.get(adapter.url)
            assert str(page.url) == home
            for address in re.findall(r'(?:src|href)="(/[^"]+)"', await page.text()):
                assert (await person.get(home.rstrip("/") + address)).status == 200
            async with person.ws_connect(f"{home}api/ws", origin=home.rstrip("/")) as socket:
                await socket.send_json({"type": "hello", "room": "main"})
                assert (await socket.receive_json())["messages"] == []
                await socket.send_json({"type": "message", "text": "2+2?", "client_id": "a"})
                frames = [await socket.receive_json()]
                while frames[-1]["type"] != "outcome":
                    frames.append(await socket.receive_json())
            [reply] = [frame["text"] for frame in frames if frame["type"] == "message"]
            assert "4" in reply
        async with running(tmp_path, Marlo=store) as adapter:
            home = adapter.url.partition("?")[0]
            assert (await person.get(home)).status == 200  # the same token, so the same cookie
            async with person.ws_connect(f"{home}api/ws", origin=home.rstrip("/")) as socket:
                await socket.send_json({"type": "hello", "room": "main"})
                history = (await socket.receive_json())["messages"]
                assert [message["text"] for message in history] == ["2+2?", reply]


async def test_an_api_client_asks_and_can_explain_the_answer(tmp_path: Path) -> None:
    async with running(tmp_path, Marlo=InMemoryStore(), Vesper=InMemoryStore()) as adapter, browser() as program:
        home, _, token = adapter.url.partition("?token=")
        headers = {"Authorization": f"Bearer {token}"}
        assert (await program.get(f"{home}healthz")).status == 200
        agents = (await (await program.get(f"{home}api/agents", headers=headers)).json())["agents"]
        assert [agent["name"] for agent in agents] == ["Marlo", "Vesper"]
        asked = await program.post(
            f"{home}api/agents/vesper/messages", json={"text": "Hello", "user": "Eve"}, headers=headers
        )
        body = await asked.json()
        assert body["outcome"] == "answered"
        assert body["replies"][0]["author"]["name"] == "Vesper"
        receipt = await program.get(f"{home}api/receipts/{body['message_id']}", headers=headers)
        why = await receipt.json()
        assert why["reason"] == body["reason"]
        assert why["deliveries"][0]["state"] == "sent"


async def test_another_user_of_the_machine_has_no_access(tmp_path: Path) -> None:
    async with running(tmp_path, Marlo=InMemoryStore()) as adapter, browser() as stranger:
        home = adapter.url.partition("?")[0]
        for address in ("api/agents", "api/rooms", "api/receipts"):
            answer = await stranger.get(f"{home}{address}")
            assert answer.status == 401
            assert "Marlo" not in await answer.text()
        page = await stranger.get(home)
        assert page.url.path == "/signin"
        assert "Marlo" not in await page.text()
        body = json.dumps({"text": "Hello"})
        assert (await stranger.post(f"{home}api/agents/marlo/messages", data=body)).status == 401
