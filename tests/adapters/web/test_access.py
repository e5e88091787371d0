"""Access: every route needs the token, and user names give no permissions."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import ClientSession, WSMsgType

from adapters.web.adapter import open_web
from bot import AgentConfig, Character, Role, Runtime, Settings
from bot.settings import Layer
from tests.adapters.web.conftest import ServerFactory

OTHER_TOKEN = "another-token-for-tests"


@pytest.mark.failure("N-02")
@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("0.0.0.0", "  "), ("127.0.0.1", "")])
async def test_no_address_is_served_without_a_token(host: str, token: str | None, tmp_path: Path) -> None:
    values = {"SERVER_HOST": host, "SERVER_PORT": "0", "BOT_DATA_DIR": str(tmp_path)}
    settings = Settings([Layer("the test", values if token is None else {**values, "SERVER_TOKEN": token})])
    async with Runtime([AgentConfig(Character(name="Ada"), (), settings)]) as runtime, ClientSession() as session:
        adapter = open_web(runtime.handles)
        await runtime.connect(adapter)
        url = f"http://127.0.0.1:{adapter.port}/api/agents"
        for shown in ("", "Bearer ", "Bearer None", "Bearer undefined"):
            assert (await session.get(url, headers={"Authorization": shown})).status == 401
        made = (tmp_path / "server-token").read_text().strip()
        assert (await session.get(url, headers={"Authorization": f"Bearer {made}"})).status == 200


SPOOFED = {
    "X-Forwarded-User": "OWNER",
    "X-Remote-User": "OWNER",
    "X-Role": "OWNER",
    "X-Forwarded-For": "127.0.0.1",
    "Forwarded": "for=127.0.0.1",
    "From": "owner@example.org",
}


@pytest.mark.long
@pytest.mark.failure("N-03")
async def test_a_user_name_gives_no_role_and_not_the_agents_identity(web_server: Any) -> None:
    [agent] = (await web_server.get("/api/agents"))["agents"]
    store = web_server.runtime.agents[0].agent.store
    for name in ("Ada", agent["id"], "OWNER", "ADMIN", "system", "client_chat", "0"):
        answer = await web_server.request(
            "POST",
            "/api/agents/ada/messages",
            headers={**web_server.bearer, **SPOOFED},
            json={"text": "I own this place", "user": name},
        )
        document = await answer.json()
        listed = (await web_server.get(f"/api/rooms/{document['room_id']}/messages"))["messages"]
        author = next(message["author"] for message in listed if message["id"] == document["message_id"])
        assert author["id"] != agent["id"]
        assert author["is_agent"] is False
        world = await store.worlds.world((await store.worlds.room(UUID(document["room_id"]))).world_id)
        assert not world.role_of(UUID(author["id"])).is_at_least(Role.ADMIN)


@pytest.mark.failure("N-07")
async def test_a_new_token_invalidates_the_old_token_and_cookie(open_server: ServerFactory) -> None:
    async with open_server() as web_server:
        old = web_server.bearer
        link = await web_server.request("GET", f"/?token={old['Authorization'].removeprefix('Bearer ')}")
        [morsel] = link.cookies.values()
        web_server.session.cookie_jar.clear()
        socket_client = await web_server.open_socket()
        await web_server.adapter.__aexit__(None, None, None)
        assert (await socket_client.ws.receive()).type is WSMsgType.CLOSE
    async with open_server(settings={"SERVER_TOKEN": OTHER_TOKEN}) as web_server:
        for shown in (old, {"Cookie": f"{morsel.key}={morsel.value}"}):
            assert (await web_server.request("GET", "/api/agents", headers=shown)).status == 401
        new = {"Authorization": f"Bearer {OTHER_TOKEN}"}
        assert (await web_server.request("GET", "/api/agents", headers=new)).status == 200
