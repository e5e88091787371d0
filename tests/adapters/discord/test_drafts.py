"""Replies on Discord that wait for approvers in a channel of theirs."""

from typing import Any

import pytest

from bot import ActionResult, Effect, Plugin, Turn, action
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer

pytestmark = pytest.mark.usefixtures("nothing_held_back")


def texts_in(server: EmulatedServer, channel: str) -> list[str]:
    """Return what the bot has written in a channel, as it is now."""
    messages = server.emulator.state.messages[channel].values()
    return [message["content"] for message in messages if message["author"]["id"] == server.bot]


def buttons_of(message: dict[str, Any]) -> dict[str, str]:
    """Return the values of the buttons of a message by their labels."""
    return {item["label"]: item["custom_id"] for row in message["components"] for item in row["components"]}


async def test_approvers_send_a_draft_with_a_button_once(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    settings = {
        "APPROVAL": "rooms",
        "APPROVAL_ROOMS": f"discord:{server.lobby}",
        "OPERATORS_ROOM": f"discord:{approvers}",
    }
    model = ScriptedModel(model_answer("It is a fern."))
    async with server.run_bot(model, settings=settings) as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} what is this?")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        assert texts_in(server, server.lobby) == []
        [card] = [
            message
            for message in server.emulator.state.messages[approvers].values()
            if message["author"]["id"] == server.bot
        ]
        buttons = buttons_of(card)
        assert list(buttons) == ["Send", "Edit", "Drop", "Take over"]
        await interactions.press_component(server.bot, server.robin, card, buttons["Send"])  # who is no approver
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert texts_in(server, server.lobby) == []
        for count in (2, 3):
            await interactions.press_component(server.bot, server.kim, card, buttons["Send"])
            await recorder.wait_until(lambda count=count: recorder.counts["followed up"] >= count)
        await recorder.wait_until(lambda: "already sent by Kim" in texts_in(server, approvers)[0])
        await harness.agent.outbox.drain(10)
        assert texts_in(server, server.lobby) == ["It is a fern."]
        [card] = [item for item in server.emulator.state.messages[approvers].values() if item["id"] == card["id"]]
        assert not card["components"]


async def test_an_approver_takes_over_instead_of_sending_and_gives_back_with_buttons(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    settings = {"APPROVAL": "all", "OPERATORS_ROOM": f"discord:{approvers}"}
    async with server.run_bot(ScriptedModel(model_answer("It is a fern.")), settings=settings) as (harness, _):
        held = harness.agent.store.take_overs.current
        await people.say(server.lobby, server.robin, f"{server.call} what is this?")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        messages = server.emulator.state.messages[approvers]
        [card] = [message for message in messages.values() if message["author"]["id"] == server.bot]
        await interactions.press_component(server.bot, server.robin, card, buttons_of(card)["Take over"])
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert not held  # Robin is no admin
        pressed = await interactions.press_component(server.bot, server.kim, card, buttons_of(card)["Take over"])
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 1)
        assert [take_over.name for take_over in held.values()] == ["Kim"]
        await recorder.wait_until(lambda: "already dropped by Kim" in texts_in(server, approvers)[0])
        shown = recorder.responses[pressed][-1]
        await interactions.press_component(server.bot, server.kim, card, buttons_of(shown)["Give back"])
        await recorder.wait_until(lambda: not held)
        assert texts_in(server, server.lobby) == []


async def test_an_action_runs_once_an_approver_presses_its_button(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    booked: list[str] = []

    @action("BOOK", "Book a table.", effect=Effect.UNSAFE)
    async def book(turn: Turn, place: str) -> ActionResult:
        booked.append(place)
        return ActionResult()

    settings = {
        "APPROVAL": "rooms",
        "APPROVAL_ROOMS": f"discord:{server.lobby}",
        "OPERATORS_ROOM": f"discord:{approvers}",
    }
    model = ScriptedModel(model_answer("Booked.", actions=["BOOK"], parameters={"BOOK": {"place": "the garden"}}))
    plugin = Plugin("booking", "Books tables.", actions=[book])
    async with server.run_bot(model, plugin, settings=settings) as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} book the garden")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        [card] = [
            message
            for message in server.emulator.state.messages[approvers].values()
            if message["author"]["id"] == server.bot
        ]
        assert card["content"].endswith('BOOK\nplace: "the garden"')
        buttons = buttons_of(card)
        assert list(buttons) == ["Run", "Drop", "Take over"]
        await interactions.press_component(server.bot, server.robin, card, buttons["Run"])  # who is no approver
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert booked == []
        for count in (2, 3):
            await interactions.press_component(server.bot, server.kim, card, buttons["Run"])
            await recorder.wait_until(lambda count=count: recorder.counts["followed up"] >= count)
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 2)  # the reply waits as any other
        await harness.agent.outbox.drain(10)
        assert (booked, texts_in(server, server.lobby)) == (["the garden"], [])
        assert "already approved by Kim" in texts_in(server, approvers)[0]
        assert texts_in(server, approvers)[1].endswith("Booked.")
