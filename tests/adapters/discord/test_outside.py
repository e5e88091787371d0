"""Questions from outside: where the bot is no member, or about a message; the answer is for the asker only."""

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.discord.emulator import Emulator
from adapters.discord.emulator.server import Fault, too_many_requests
from adapters.discord.outside import DUPLICATE_NOTICE
from bot import ActionResult, ChannelType, Outcome, Plugin, Turn, action
from bot.platform import DeliveryState
from bot.prompts import Authority
from bot.testing import ScriptedModel, model_answer
from bot.testing.manual_clock import ManualClock
from tests.adapters.discord.server import LIMITS, EmulatedServer, outcomes, receipts

ON = {"DISCORD_USER_INSTALL": "on"}
MENU = "Ask Ada about this"


@pytest.fixture
def elsewhere(server: EmulatedServer) -> str:
    """A channel of a server in which the bot is no member."""
    state = server.emulator.state
    return state.add_channel(state.add_guild("Elsewhere", server.kim, [server.robin]), "market")


async def ask(server: EmulatedServer, channel: str, question: str = "Tide?") -> list[dict[str, Any]]:
    """Ask as Robin, wait for the first part of the answer, and return all responses."""
    recorder = server.emulator.recorder
    answered = recorder.counts["answered"]
    asked = await server.emulator.interactions.run_command(server.bot, server.robin, channel, "ask", question=question)
    await recorder.wait_until(lambda: recorder.counts["answered"] > answered)
    return recorder.responses[asked]


async def test_a_question_where_the_bot_is_no_member_is_answered_to_the_asker_only(
    server: EmulatedServer, elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with server.run_bot(settings=ON) as (harness, _):
        [shown] = await ask(server, elsewhere)
        [receipt] = await receipts(harness)
        room = await harness.agent.store.worlds.room(receipt.room_id)
        await harness.agent.outbox.drain(10)
        [delivery] = await harness.agent.store.ledger.deliveries(room_id=receipt.room_id)
        assert room is not None
    assert (shown["type"], shown["flags"], shown["content"]) == (5, 64, "Aye.")
    assert (receipt.outcome, room.type) == (Outcome.ANSWERED, ChannelType.GROUP)
    assert delivery.external_id == shown["message_id"]
    paths = [path for _, path, _ in server.emulator.recorder.requests]
    [token] = {path.split("/")[5] for path in paths if path.endswith("/callback")}
    assert not [path for path in paths if elsewhere in path or path.endswith("/typing")], "nothing is read there"
    assert not any(path.endswith(server.emulator.state.channels[elsewhere]["guild_id"]) for path in paths)
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("discord.")]
    assert token not in f"{receipt} {room} {delivery} {logged}"


async def test_a_message_that_is_asked_about_is_a_quotation_of_its_author(
    server: EmulatedServer, elsewhere: str
) -> None:
    model, recorder = ScriptedModel(model_answer("A trick.")), server.emulator.recorder
    message = await server.emulator.people.say(elsewhere, server.kim, "Free boats, ask me")
    async with server.run_bot(model, settings=ON) as (harness, _):
        asked = await server.emulator.interactions.ask_about(server.bot, server.robin, elsewhere, message, MENU)
        await recorder.wait_until(lambda: recorder.counts["answered"] > 0)
        [receipt] = await receipts(harness)
        [stored] = await harness.agent.store.memories.memories([receipt.memory_id])
        question = (await harness.agent.store.memories.memories([receipt.memory_id]))[stored]
    assert recorder.responses[asked][0]["content"] == "A trick."
    quotation = question.content.quotation
    assert quotation is not None
    assert (question.content.text, quotation.text, quotation.author_name) == (
        "What do you think of this message?",
        "Free boats, ask me",
        "Kim",
    )
    assert receipt.author_id != quotation.author_id


async def test_what_is_asked_in_a_server_of_the_bot_by_a_command_is_answered_there(server: EmulatedServer) -> None:
    async with server.run_bot(settings=ON):
        await server.emulator.interactions.run_command(server.bot, server.robin, server.lobby, "ask", question="Tide?")
        assert await server.emulator.recorder.wait_for_texts(1, server.lobby) == ["Aye."]


@pytest.mark.parametrize("is_on", [True, False])
async def test_only_the_switch_registers_the_commands_for_people_who_install_the_bot(
    server: EmulatedServer, *, is_on: bool
) -> None:
    recorder = server.emulator.recorder
    async with server.run_bot(settings=ON if is_on else None):
        await recorder.wait_until(lambda: recorder.counts["commands"] > 0)
    everywhere = [item["name"] for item in recorder.commands if 1 in item["integration_types"]]
    assert everywhere == (["ask", MENU] if is_on else [])
    assert [item["name"] for item in recorder.commands if item["type"] == 3] == everywhere[1:]


async def test_without_the_switch_a_question_from_outside_is_refused_and_not_stored(
    server: EmulatedServer, elsewhere: str
) -> None:
    async with server.run_bot() as (harness, _):
        [shown] = await ask(server, elsewhere)
        assert await receipts(harness) == []
    assert "has not enabled" in shown["content"]
    assert shown["flags"] == 64


async def test_an_asker_without_an_answer_is_shown_the_reason(server: EmulatedServer, elsewhere: str) -> None:
    async with server.run_bot(settings={**ON, "CHANNEL_IDS": "1"}) as (harness, _):
        [shown] = await ask(server, elsewhere)
        assert await outcomes(harness) == [Outcome.IGNORED]
    assert "CHANNEL_IDS" in shown["content"] or "channel" in shown["content"]


async def test_a_person_over_the_limit_is_shown_that_and_no_model_is_asked(
    server: EmulatedServer, elsewhere: str
) -> None:
    model = ScriptedModel(model_answer("Aye."))
    async with server.run_bot(model, settings={**ON, "MESSAGES_PER_PERSON": "1"}) as (harness, _):
        shown = [(await ask(server, elsewhere))[0]["content"] for _ in range(3)]
        assert (await outcomes(harness)).count(Outcome.ANSWERED) == 2
    assert shown[:2] == ["Aye.", "Aye."]
    assert shown[2] != "Aye."
    assert len(model.requests) == 2


async def test_a_long_answer_follows_in_further_messages_to_the_asker_up_to_the_limit_of_discord(
    server: EmulatedServer, elsewhere: str
) -> None:
    words = "\n\n".join(f"{number} " + "tide " * 350 for number in range(8))
    async with server.run_bot(ScriptedModel(model_answer(words)), settings=ON) as (harness, _):
        shown = await ask(server, elsewhere)
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(10)
        deliveries = await harness.agent.store.ledger.deliveries(room_id=receipt.room_id)
    assert [delivery.state for delivery in deliveries] == [*[DeliveryState.SENT] * 6, *[DeliveryState.FAILED] * 2]
    assert "maximum number of follow up messages" in deliveries[-1].cause
    assert [item["content"][0] for item in shown] == list("012345")
    assert {item["flags"] for item in shown} == {64}


async def test_what_is_late_for_the_interaction_fails_with_the_reason() -> None:
    clock = ManualClock(datetime(2026, 11, 28, tzinfo=UTC))

    async def answer_late(request: object) -> Any:
        clock.advance(15 * 60)
        return model_answer("Aye.")

    async with Emulator(clock=clock.now) as emulator:
        server = EmulatedServer(emulator)
        state = emulator.state
        channel = state.add_channel(state.add_guild("Elsewhere", server.kim, [server.robin]), "market")
        async with server.run_bot(ScriptedModel(answer_late), settings=ON, clock=clock.now) as (harness, _):
            await emulator.interactions.run_command(server.bot, server.robin, channel, "ask", question="Tide?")
            await emulator.recorder.wait_until(lambda: emulator.recorder.counts["acknowledged"] > 0)
            [receipt] = await receipts(harness)
            await harness.agent.outbox.drain(10)
            [delivery] = await harness.agent.store.ledger.deliveries(room_id=receipt.room_id)
    assert delivery.state is DeliveryState.FAILED
    assert "fifteen minutes" in delivery.cause


@pytest.mark.parametrize("path", ["messages/@original", "[^/]+$"])
async def test_a_part_of_which_it_is_unknown_whether_it_arrived_is_repeated_only_with_a_mark(
    server: EmulatedServer, elsewhere: str, path: str
) -> None:
    words = "one " + "tide " * 300 + "\n\n" + "two " + "tide " * 300
    server.emulator.faults.append(Fault(f"(PATCH|POST) .*/webhooks/[^/]+/{path}", 500, {"code": 0}, is_late=True))
    async with server.run_bot(ScriptedModel(model_answer(words)), settings=ON) as (harness, _):
        shown = await ask(server, elsewhere)
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(10)
        deliveries = await harness.agent.store.ledger.deliveries(room_id=receipt.room_id)
    assert {delivery.state for delivery in deliveries} == {DeliveryState.SENT}
    texts = [item["content"] for item in shown]
    assert len([text for text in texts if not text.startswith(DUPLICATE_NOTICE)]) == 2
    assert len(texts) == (2 if "original" in path else 3)


async def test_an_answer_waits_until_the_interaction_is_acknowledged(server: EmulatedServer, elsewhere: str) -> None:
    server.emulator.faults.append(too_many_requests("POST .*/callback", 0.01))
    limits = replace(LIMITS, sleep=lambda seconds: asyncio.sleep(min(seconds, 0.02)))
    async with server.run_bot(settings=ON, limits=limits):
        [shown] = await ask(server, elsewhere)
    assert (shown["content"], shown["flags"]) == ("Aye.", 64)


async def test_a_button_of_an_answer_belongs_to_the_question(server: EmulatedServer, elsewhere: str) -> None:
    ran: list[str] = []

    @action("BUY", "Buy something.", authority=Authority.confirmed())
    async def buy(turn: Turn) -> ActionResult:
        ran.append("BUY")
        return ActionResult(text="Bought.")

    recorder, interactions = server.emulator.recorder, server.emulator.interactions
    model = ScriptedModel(model_answer("", actions=["BUY"]))
    async with server.run_bot(model, Plugin("shop", actions=[buy]), settings=ON):
        await ask(server, elsewhere, "Buy a boat")
        messages = interactions.visible_messages(elsewhere).values()
        card = next(item for item in messages if item["components"])
        button = card["components"][0]["components"][0]
        await interactions.press_component(server.bot, server.robin, card, button["custom_id"])
        await recorder.wait_until(lambda: bool(ran))
