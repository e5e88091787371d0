"""The emulated Discord enforces Discord's rules."""

import zlib
from typing import Any

from aiohttp import ClientSession

from adapters.discord.emulator import Emulator, start_emulator
from adapters.discord.emulator.fixtures import discord_emulator
from adapters.discord.emulator.gateway import Session
from bot import Plugin, Rule, derived_id
from bot.plugin_system import WorldSetting
from tests.adapters.discord.server import TOKEN, EmulatedServer

OWN = {"Authorization": f"Bot {TOKEN}"}


async def ask(server: EmulatedServer, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    """Send a message by a plain HTTP request."""
    url = f"{server.emulator.url}/api/v10/channels/{server.lobby}/messages"
    async with ClientSession(headers={**OWN, **headers}) as http, http.post(url, json=body) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return answer.status, await answer.json()


async def test_it_refuses_what_discord_refuses(server: EmulatedServer) -> None:
    assert (await ask(server, {"content": "x" * 2001}))[0] == 400
    assert (await ask(server, {"content": " "}))[1]["code"] == 50006
    assert (await ask(server, {"content": "x", "nonce": "n" * 26}))[0] == 400
    assert (await ask(server, {"content": "x"}, Authorization="Bot wrong"))[0] == 401


async def test_the_same_nonce_of_the_same_author_is_the_same_message(server: EmulatedServer) -> None:
    body = {"content": "once", "nonce": "abc", "enforce_nonce": True, "allowed_mentions": {"parse": []}}
    first, second = await ask(server, body), await ask(server, body)
    assert first[1]["id"] == second[1]["id"]
    assert server.emulator.recorder.texts() == ["once"]


async def test_a_message_without_allowed_mentions_tells_everybody_it_names(server: EmulatedServer) -> None:
    await ask(server, {"content": f"@everyone <@{server.kim}> <@&123>"})
    assert server.emulator.recorder.messages[0].notified == {"everyone", server.kim, "role:123"}


async def test_every_compressed_gateway_frame_can_be_decoded(server: EmulatedServer) -> None:
    url = f"{server.emulator.gateway.url}?compress=zlib-stream"
    async with ClientSession() as http, http.ws_connect(url) as socket:
        frame = await socket.receive_bytes()
    assert frame.endswith(b"\x00\x00\xff\xff")
    assert b"heartbeat_interval" in zlib.decompressobj().decompress(frame)


async def test_a_character_can_be_tried_out_on_a_page(server: EmulatedServer) -> None:
    page = f"{server.emulator.url}/page"
    body = {"person": server.kim, "text": "@Ada ahoy"}
    async with ClientSession() as http:
        async with http.get(server.emulator.url) as answer:
            assert "Discord emulator" in await answer.text()
        async with http.post(f"{page}/say", json=body) as answer:
            assert "Ada is not connected yet" in (await answer.json())["problem"]
        async with server.run_bot():
            async with http.post(f"{page}/say", json=body) as answer:
                assert answer.status == 200
            await server.emulator.recorder.wait_for_texts(1, server.lobby)
        async with http.get(f"{page}/shown") as answer:
            shown = (await answer.json())["said"]
    assert [(entry["by"], entry["text"]) for entry in shown][:1] == [("Kim", "@Ada ahoy")]
    assert (shown[1]["is_bot"], shown[1]["note"]) == (True, "in answer to Kim")


async def test_an_emulated_run_has_a_token_per_character_and_no_real_channels() -> None:
    async with start_emulator(["Ada", "Bo"]) as trial:
        assert len({settings["DISCORD_API_TOKEN"] for settings in trial.settings.values()}) == 2
        assert {settings["CHANNEL_IDS"] for settings in trial.settings.values()} == {""}
        assert all(settings["DISCORD_API_BASE_URL"] in trial.url for settings in trial.settings.values())


async def test_a_direct_message_is_sent_to_its_bot_only() -> None:
    async with Emulator() as emulator:
        bots = [emulator.add_bot(name, f"token-of-{name}") for name in ("Ada", "Bo")]
        sessions = {bot: Session(bot, bot, intents=0) for bot in bots}
        emulator.gateway.sessions.update(sessions)
        kim = emulator.state.add_user("Kim")
        direct = emulator.state.add_channel(None, "", 1)
        emulator.state.direct_bots[direct] = bots[1]
        await emulator.people.say(direct, kim, "hello")
    assert [len(session.sent_events) for session in sessions.values()] == [0, 1]


def test_the_fixture_for_plugin_authors_is_registered() -> None:
    assert discord_emulator.__name__ == "discord_emulator"


async def test_commands_and_buttons_work_on_the_page(server: EmulatedServer) -> None:
    page = f"{server.emulator.url}/page"
    who = {"person": server.kim, "place": server.lobby}
    ledger = server.emulator.recorder

    async with ClientSession() as http, server.run_bot() as (harness, _):

        async def shown(word: str) -> dict[str, Any]:
            async with http.get(f"{page}/shown", params={"place": server.lobby}) as answer:
                return next(entry for entry in (await answer.json())["said"] if word in entry["text"])

        await ledger.wait_until(lambda: ledger.counts["commands"] > 0)
        await http.post(f"{page}/say", json={**who, "text": "/forget-me"})
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        asked = await shown("cannot be undone")
        assert asked["is_bot"]
        button, _ = asked["buttons"][0]
        await http.post(f"{page}/press", json={**who, "message": asked["id"], "button": button})
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
        assert (await shown("Deleted: "))["is_bot"]
        assert {receipt.rule for receipt in await harness.agent.store.ledger.receipts()} <= {Rule.COMMAND, Rule.ERASED}


async def test_an_argument_of_a_command_on_the_page_may_have_any_name(server: EmulatedServer) -> None:
    who = {"person": server.kim, "place": server.lobby}
    ledger = server.emulator.recorder
    plugin = Plugin("digest", world_settings=[WorldSetting("DIGEST_HOUR", "When it is posted.", default="9")])
    async with ClientSession() as http, server.run_bot(None, plugin) as (harness, _):
        await ledger.wait_until(lambda: ledger.counts["commands"] > 0)
        async with http.post(
            f"{server.emulator.url}/page/say", json={**who, "text": "/settings DIGEST_HOUR 7"}
        ) as answer:
            assert answer.status == 200
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        world = await harness.agent.store.worlds.world(derived_id(harness.agent.id, "discord", "world", server.guild))
        assert world is not None
        assert harness.agent.world_settings.value(world, "DIGEST_HOUR") == "7"
