"""The variables of Discord, and which characters have an account."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapters.discord import spec
from adapters.discord.adapter import REQUIRED_PERMISSIONS, build_http, invite_link, open_discord
from adapters.discord.config import DiscordSettings, Limits, find_trusted_origin, read_settings
from adapters.discord.emulator import Fault
from adapters.discord.emulator.gateway import MESSAGE_CONTENT
from bot import Character, ConfigError, SettingError, Settings, TemporaryError
from bot.settings import CHARACTER_FILE, Layer
from bot.store import CheckReport
from bot.testing import running_agent
from tests.adapters.discord.server import TOKEN, EmulatedServer
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, trusted


def chosen(values: Mapping[str, str]) -> DiscordSettings:
    return Settings([Layer("the test", values)]).load(DiscordSettings)


def test_the_token_alone_enables_the_adapter() -> None:
    assert spec.needs == ("DISCORD_API_TOKEN",)
    assert spec.extra == "discord"
    assert chosen({}).discord_api_base_url == "https://discord.com"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CHANNEL_IDS", "general", "Copy Channel ID"),
        ("DISCORD_LISTEN_CHANNEL_IDS", "1,#x", "Copy Channel ID"),
        ("DISCORD_API_TOKEN", "your_token", "placeholder"),
        ("DISCORD_API_BASE_URL", "discord.com", "https://"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_expected(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        chosen({name: value})
    assert name in str(caught.value)


async def test_two_characters_with_the_same_token_are_refused_and_other_platforms_are_left_out() -> None:
    settings = {"DISCORD_API_TOKEN": TOKEN}
    shy = Character(name="Shy", adapters=("web",))
    async with (
        running_agent(settings=settings) as ada,
        running_agent(settings=settings, character=Character(name="Bo")) as bo,
        running_agent(settings=settings, character=shy) as third,
    ):
        handles = [bot.agent_runtime.handle for bot in (ada, bo, third)]
        with pytest.raises(ConfigError, match="Ada and Bo have the same DISCORD_API_TOKEN") as caught:
            open_discord(handles)
        open_discord([handles[0], handles[2]])
        with pytest.raises(ConfigError):
            open_discord([handles[2]])
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "discord.com"}, None),
    ],
)
async def test_the_operators_proxy_is_used_unless_discord_is_excepted(
    environment: Mapping[str, str], proxy: str | None
) -> None:
    http = build_http(chosen({}), Limits(), environment)
    assert http.proxy == proxy


def test_a_character_file_cannot_redirect_the_operators_token() -> None:
    lent = Layer(f"{CHARACTER_FILE} settings", {"DISCORD_API_BASE_URL": "https://elsewhere.example"}, is_operator=False)
    own = Layer("the environment", {"DISCORD_API_TOKEN": TOKEN})
    found = read_settings(Settings([lent, own]))
    assert found.is_default("discord_api_base_url")
    assert found.discord_api_token is not None


@pytest.mark.parametrize(("is_operator", "expected"), [(True, "http://127.0.0.1:8123"), (False, "")])
def test_only_a_server_that_the_operator_named_is_trusted_with_files(is_operator: bool, expected: str) -> None:
    layer = Layer("a place", {"DISCORD_API_BASE_URL": "http://127.0.0.1:8123"}, is_operator=is_operator)
    assert find_trusted_origin(Settings([layer])) == expected
    assert find_trusted_origin(Settings([])) == ""


# The token check of `bot doctor`.


async def nothing_kept(platform: str, account: str, name: str) -> str | None:
    """Return no cursor."""
    return None


async def looked(server: EmulatedServer, more: Mapping[str, str] | None = None) -> CheckReport:
    """Run the check against the emulated Discord."""
    values = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": server.emulator.url, **(more or {})}
    assert spec.check is not None
    return await spec.check(Settings([Layer("the test", values)]), nothing_kept)


async def test_a_valid_token_is_reported_with_invitation_and_servers(server: EmulatedServer) -> None:
    found = await looked(server)
    assert (found.location, found.exists, list(found.problems)) == ("discord: ada", True, [])
    assert found.facts["invitation"] == invite_link(server.bot)
    assert found.facts["permissions"] == REQUIRED_PERMISSIONS.value
    assert "Harbour" in str(found.facts["servers"])
    assert TOKEN not in repr(found)


def test_the_invitation_asks_for_no_permission_to_react_as_the_bot_never_reacts() -> None:
    assert not REQUIRED_PERMISSIONS.add_reactions
    assert str(REQUIRED_PERMISSIONS.value) in Path("docs/discord.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("has_user_install", [True, False])
async def test_user_install_must_be_on_at_discord_too(server: EmulatedServer, *, has_user_install: bool) -> None:
    server.emulator.rest.has_user_install = has_user_install
    found = await looked(server, {"DISCORD_USER_INSTALL": "on"})
    assert any("User Install is off" in problem for problem in found.problems) is not has_user_install
    assert "integration_type=1" in str(found.facts["for people to install"])


async def test_an_invalid_token_is_reported_with_where_to_get_a_token(server: EmulatedServer) -> None:
    with pytest.raises(SettingError, match="Reset Token"):
        await looked(server, {"DISCORD_API_TOKEN": "no-such-token"})


async def test_a_missing_intent_is_reported_with_where_to_switch_it_on(server: EmulatedServer) -> None:
    server.emulator.gateway.allowed_intents &= ~MESSAGE_CONTENT
    [problem] = (await looked(server)).problems
    assert "Message Content Intent is off" in problem
    assert "Privileged Gateway Intents" in problem


@pytest.mark.parametrize(("status", "body"), [(503, {}), (401, "<html>log in</html>"), (403, "<html>denied</html>")])
async def test_an_outage_of_discord_or_an_answer_of_a_proxy_is_a_temporary_error(
    server: EmulatedServer, status: int, body: object
) -> None:
    server.emulator.faults.append(Fault("GET", status, body, times=9))
    with pytest.raises(TemporaryError):
        await looked(server)


async def test_an_unknown_channel_id_is_reported(server: EmulatedServer) -> None:
    [problem] = (await looked(server, {"CHANNEL_IDS": f"{server.lobby},42"})).problems
    assert "CHANNEL_IDS contains 42" in problem


async def test_the_check_uses_the_operators_proxy(server: EmulatedServer) -> None:
    proxied = {"DISCORD_API_BASE_URL": "http://discord.test", "HTTP_PROXY": server.emulator.url}
    assert (await looked(server, proxied)).location == "discord: ada"


async def test_the_proxy_password_is_not_in_the_error(server: EmulatedServer) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as listener:
        port = listener.sockets[0].getsockname()[1]
        through = f"http://ada:fake-password@127.0.0.1:{port}"
        with pytest.raises(TemporaryError) as caught:
            await looked(server, {"DISCORD_API_BASE_URL": "https://discord.test", "HTTPS_PROXY": through})
    assert "fake-password" not in str(caught.value)


# C-14: Discord behind TLS and the operator's proxy.


def port_of(server: EmulatedServer) -> int:
    return urlsplit(server.emulator.url).port or 0


@pytest.mark.failure("C-14")
@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "of another host"],
)
async def test_an_invalid_certificate_is_rejected(
    certificate: str, believed: str, host: str, server: EmulatedServer, tmp_path: Path
) -> None:
    async with behind_tls(port_of(server), tmp_path, certificate) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{host}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, believed),
        }
        with pytest.raises(TemporaryError, match="certificate"):
            await looked(server, settings)
        assert set(way.asked) == {f"{host}:443"}
        assert server.emulator.recorder.requests == []


@pytest.mark.failure("C-14")
async def test_messages_pass_the_operators_proxy_with_its_certificates(server: EmulatedServer, tmp_path: Path) -> None:
    async with behind_tls(port_of(server), tmp_path) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{HOST}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, GOOD),
        }
        server.emulator.gateway.url = f"wss://{HOST}/gateway/"
        async with server.run_bot(settings=settings):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello")
            assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
        assert set(way.asked) == {f"{HOST}:443"}
