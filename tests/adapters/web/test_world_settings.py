"""Rules of settings of worlds over HTTP: an operator sets them, and no secret comes back."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from bot import Plugin
from bot.plugin_system import WorldSetting
from tests.adapters.web.conftest import RunningServer, run_server

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
