"""The token check of `bot doctor`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from adapters.discord import spec
from adapters.discord.adapter import REQUIRED_PERMISSIONS, invite_link
from adapters.discord.emulator import Fault
from adapters.discord.emulator.gateway import MESSAGE_CONTENT
from bot import SettingError, Settings, TemporaryError
from bot.settings import Layer
from bot.store import CheckReport
from tests.adapters.discord.server import TOKEN, EmulatedServer


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
