"""Emulators for bots of any kind, and the document of what they cover."""

import os
import runpy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.errors import PluginError
from bot.testing import ActionRefused, EmulatedChat, running_emulator

ROOT = Path(__file__).parents[2]
PLATFORMS = ("discord", "mastodon", "matrix", "telegram", "x")


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "describe_emulators.py"))


def test_the_document_lists_every_endpoint_of_every_emulator(tables: dict[str, Any]) -> None:
    lines = (ROOT / "docs" / "testing-other-bots.md").read_text(encoding="utf-8").splitlines()
    listed = [line.split("`")[1] for line in lines if line.startswith("| `") and line.count("`") > 1]
    for endpoints in tables["ENDPOINTS"].values():
        assert [endpoint for endpoint in endpoints if endpoint not in listed] == []


def test_the_tables_are_as_the_descriptions_and_the_emulators(tables: dict[str, Any]) -> None:
    if not set(tables["VARIABLES"].values()) <= os.environ.keys():
        pytest.skip("the descriptions of the platforms are not here")
    document = (ROOT / "docs" / "testing-other-bots.md").read_text(encoding="utf-8")
    assert tables["describe"](document) == document, "run `python .ci/describe_emulators.py`"


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_each_platform_has_a_bot_to_mention_and_a_room_in_which_people_write(
    platform: str, start_emulator: Callable[..., Awaitable[EmulatedChat]]
) -> None:
    chat = await start_emulator(platform, "Ada")
    assert any("TOKEN" in name for name in chat.settings)
    assert chat.mention.startswith("@")
    assert chat.url.startswith("http://127.0.0.1:")
    assert not chat.url.endswith("/")
    if platform != "discord":  # there a bot must be connected
        await chat.say(f"{chat.mention} hello")
        assert "hello" in chat.messages()[-1].text


async def test_what_a_bot_that_is_not_connected_would_miss_is_refused_at_the_end() -> None:
    async with running_emulator("discord") as chat:
        with pytest.raises(ActionRefused, match="Ada is not connected yet"):
            await chat.say("hello", timeout=0)


@pytest.mark.parametrize(
    ("platform", "text"), [("irc", "no adapter 'irc': choose one of .*discord"), ("console", "console has no emulator")]
)
async def test_a_platform_without_an_emulator_is_named(platform: str, text: str) -> None:
    with pytest.raises(PluginError, match=text):
        async with running_emulator(platform):
            raise AssertionError("it started")


async def test_a_room_or_button_that_does_not_exist_is_named_with_the_rooms() -> None:
    async with running_emulator("discord") as chat:
        with pytest.raises(PluginError, match=r"no room 'lobby': choose one of .*#general"):
            chat.messages("lobby")
        with pytest.raises(PluginError, match="has a button 'Yes'"):
            await chat.press("Yes", room="#general")
