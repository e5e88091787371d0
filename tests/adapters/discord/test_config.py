"""The variables of Discord, and which characters have an account."""

from collections.abc import Mapping

import pytest

from adapters.discord import spec
from adapters.discord.adapter import build_http, open_discord
from adapters.discord.config import DiscordSettings, Limits, find_trusted_origin, read_settings
from bot import Character, ConfigError, SettingError, Settings
from bot.settings import CHARACTER_FILE, Layer
from bot.testing import running_agent
from tests.adapters.discord.server import TOKEN


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
