"""Tokens, cookies, access tokens and their settings."""

import stat
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import ClientSession, WSMsgType, web

from adapters.web.adapter import open_web
from adapters.web.auth import Credential, CredentialKind, Grant, TokenAuth, load_or_create_token
from adapters.web.config import WebSettings
from bot import AgentConfig, Character, Role, Runtime, SettingError, Settings, system_clock
from bot.platform import AccessTokens, TokenScope
from bot.settings import Layer
from tests.adapters.web.conftest import ServerFactory

TOKEN = "a-token-for-tests"


def cookie_of(auth: TokenAuth, text: str = TOKEN) -> tuple[str, str]:
    credential = Credential(CredentialKind.LINK, text)
    grant = auth.find_grant(credential)
    assert grant is not None
    response = web.Response()
    auth.set_cookie(response, grant, credential, {})
    [(name, morsel)] = response.cookies.items()
    return name, morsel.value


def is_valid(auth: TokenAuth, kind: CredentialKind, value: str) -> bool:
    return auth.find_grant(Credential(kind, value)) is not None


def test_the_token_is_valid_as_bearer_and_in_the_link() -> None:
    lock = TokenAuth(TOKEN)
    for kind in (CredentialKind.BEARER, CredentialKind.LINK):
        assert lock.find_grant(Credential(kind, TOKEN)) == Grant(TokenScope.OPERATOR)


@pytest.mark.failure("N-04")
def test_the_cookie_is_valid_only_as_cookie_and_does_not_contain_the_token() -> None:
    lock = TokenAuth(TOKEN)
    _, value = cookie_of(lock)
    assert TOKEN not in value
    assert is_valid(lock, CredentialKind.COOKIE, value)
    assert not is_valid(lock, CredentialKind.BEARER, value)
    assert not is_valid(lock, CredentialKind.COOKIE, TOKEN)


@pytest.mark.failure("N-07")
def test_another_token_changes_name_and_value_of_the_cookie() -> None:
    name, value = cookie_of(TokenAuth(TOKEN))
    other_name, other_value = cookie_of(TokenAuth("another-token"), "another-token")
    assert name != other_name
    assert value != other_value
    assert not is_valid(TokenAuth("another-token"), CredentialKind.COOKIE, value)


@pytest.mark.failure("N-05")
def test_the_cookie_is_same_site_and_http_only() -> None:
    response = web.Response()
    TokenAuth(TOKEN).set_cookie(response, Grant(), Credential(CredentialKind.LINK, TOKEN), {})
    [morsel] = response.cookies.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")


@pytest.mark.failure("N-04")
def test_what_is_stored_of_an_access_token_is_no_credential(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    token, text = tokens.create("kim", TokenScope.CHAT, system_clock())
    auth = TokenAuth(TOKEN, tokens)
    _, cookie = cookie_of(auth, text)
    assert auth.find_grant(Credential(CredentialKind.COOKIE, cookie)) == Grant(TokenScope.CHAT, token.id, "kim", tokens)
    [file] = (tmp_path / "access-tokens").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    stored = file.read_text()
    assert text not in stored
    assert cookie not in stored
    for value in (token.id, token.token_hash, token.cookie_hash, f"{token.id}.{token.cookie_hash}", "kim"):
        assert not any(is_valid(auth, kind, value) for kind in CredentialKind)


@pytest.mark.parametrize("value", ["", ".", "../server-token", "..%2f", "0" * 16, "\ud800", "\x00" * 16, "a" * 100_000])
def test_no_text_reaches_another_file(tmp_path: Path, value: str) -> None:
    tokens = AccessTokens(tmp_path)
    tokens.create("", TokenScope.OPERATOR, system_clock())
    assert not any(is_valid(TokenAuth(TOKEN, tokens), kind, value) for kind in CredentialKind)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id": 1}', "\udcff"])
def test_a_damaged_file_is_no_token(tmp_path: Path, content: str) -> None:
    tokens = AccessTokens(tmp_path)
    token, text = tokens.create("", TokenScope.OPERATOR, system_clock())
    path = tmp_path / "access-tokens" / f"{token.id}.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert not is_valid(TokenAuth(TOKEN, tokens), CredentialKind.BEARER, text)
    assert tokens.list() == []


def test_opening_the_link_of_another_token_removes_the_first_ones_cookie(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("", TokenScope.CHAT, system_clock())
    auth = TokenAuth(TOKEN, tokens)
    name, value = cookie_of(auth)
    credential = Credential(CredentialKind.LINK, text)
    grant = auth.find_grant(credential)
    assert grant is not None
    response = web.Response()
    auth.set_cookie(response, grant, credential, {name: value, "greenroom-other-bot": "x", "foreign": "y"})
    assert {cookie: int(morsel["max-age"]) for cookie, morsel in response.cookies.items()} == {
        name: 0,
        f"greenroom-{grant.token_id}": 30 * 24 * 3600,
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_creates_a_private_token_file(tmp_path: Path) -> None:
    token = load_or_create_token(tmp_path / "deep" / "data")
    path = tmp_path / "deep" / "data" / "server-token"
    assert len(token) >= 40
    assert path.read_text().strip() == token
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["server-token"]


def test_later_starts_reuse_the_token(tmp_path: Path) -> None:
    assert load_or_create_token(tmp_path) == load_or_create_token(tmp_path)


def test_a_readable_token_file_is_made_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = load_or_create_token(tmp_path)
    path = tmp_path / "server-token"
    path.chmod(0o644)
    assert load_or_create_token(tmp_path) == token
    assert mode(path) == 0o600
    assert "was readable by others" in caplog.text


def test_an_empty_token_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "server-token").touch(mode=0o600)
    assert len(load_or_create_token(tmp_path)) >= 40


def test_a_file_without_a_usable_token_is_reported(tmp_path: Path) -> None:
    (tmp_path / "server-token").write_text("two words")
    with pytest.raises(SettingError, match="server-token contains no usable token"):
        load_or_create_token(tmp_path)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("somebody-elses-secret")
    (tmp_path / "server-token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingError, match="BOT_DATA_DIR"):
        load_or_create_token(tmp_path)


def test_a_data_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(SettingError, match="choose another folder, or set SERVER_TOKEN"):
        load_or_create_token(tmp_path / "data")


async def test_the_adapter_stores_its_token_in_the_data_folder(tmp_path: Path) -> None:
    settings = Settings([Layer("the test", {"BOT_DATA_DIR": str(tmp_path), "SERVER_PORT": "0"})])
    async with Runtime([AgentConfig(Character(name="Ada"), (), settings)]) as runtime:
        adapter = open_web(runtime.handles)
        await runtime.connect(adapter)
        assert adapter.url == f"http://127.0.0.1:{adapter.port}/?token={load_or_create_token(tmp_path)}"


async def test_different_server_settings_are_refused() -> None:
    plans = [
        AgentConfig(Character(name=name), (), Settings([Layer("the test", {"SERVER_PORT": port})]))
        for name, port in (("Ada", "3001"), ("Bea", "3002"))
    ]
    async with Runtime(plans) as runtime:
        with pytest.raises(SettingError, match="differ"):
            open_web(runtime.handles)


def load(**values: str) -> WebSettings:
    return Settings([Layer("the test", values)]).load(WebSettings)


def test_the_default_host_is_loopback() -> None:
    settings = load()
    assert (settings.server_host, settings.server_port) == ("127.0.0.1", 3000)
    assert settings.server_token is None
    assert settings.server_allowed_hosts == ()


def test_hosts_are_a_list() -> None:
    assert load(SERVER_ALLOWED_HOSTS="bot.example.org, bot.local").server_allowed_hosts == (
        "bot.example.org",
        "bot.local",
    )


@pytest.mark.parametrize("token", ["short", "with a space", "tökens-must-be-ascii", "changeme"])
def test_an_invalid_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(SettingError, match="SERVER_TOKEN") as raised:
        load(SERVER_TOKEN=token)
    assert token not in str(raised.value)


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_an_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(SettingError, match="SERVER_PORT"):
        load(SERVER_PORT=port)


def test_every_variable_has_a_description() -> None:
    assert all(field.description for field in WebSettings.model_fields.values())


def test_an_invalid_proxy_is_refused() -> None:
    assert load(SERVER_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8").server_trusted_proxies == ("127.0.0.1", "10.0.0.0/8")
    with pytest.raises(SettingError, match=r"SERVER_TRUSTED_PROXIES.*neither an address nor a network"):
        load(SERVER_TRUSTED_PROXIES="proxy.example")


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
