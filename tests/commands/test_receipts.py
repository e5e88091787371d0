"""Rules of the receipts of commands and presses: each is run once, and its response is sent once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bot.commands.dispatcher import CommandEvent
from bot.domain.content import Content
from bot.domain.events import InteractionReceived
from bot.domain.ids import new_id
from bot.domain.inbound import ChoiceSelection, CommandInvocation, CommandResponse, ResponseTarget
from bot.domain.ledger import DeliveryState, Outcome, Receipt, Rule
from bot.models.types import TextRequest
from bot.plugin_system.components import CommandContext, command
from bot.plugin_system.plugin import Plugin
from bot.store import InMemoryStore
from bot.testing import AgentHarness, make_message, running_agent
from tests.commands.asking import give

RUNS: list[str] = []


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


@command("count", "Count.")
async def count(context: CommandContext) -> str:
    RUNS.append(context.invocation.event_id)
    return f"This is run {len(RUNS)}."


@command("poem", "Write a poem.")
async def poem(context: CommandContext) -> str:
    return (await context.agent.models.text(TextRequest("Write a poem."))).text


PLUGIN = Plugin("counting", commands=[count, poem])


def split(response: CommandResponse) -> Sequence[Content]:
    return [Content(text=word) for word in response.text.split(" ", 1)]


TARGET = ResponseTarget("token", split, "7")


async def send(
    harness: AgentHarness, name: str, target: ResponseTarget | None = TARGET, event_id: str = "e1"
) -> CommandResponse:
    place = make_message("", sent_at=harness.agent.clock())
    now = harness.agent.clock()
    invocation = CommandInvocation(name, place.world, place.room, place.author, event_id, now)
    return await harness.agent_runtime.handle.run_command(invocation, target)


async def only_receipt(harness: AgentHarness) -> Receipt:
    [receipt] = await harness.agent.store.ledger.receipts()
    return receipt


async def store_interrupted(harness: AgentHarness, name: str) -> None:
    """Store what is left of a command whose process died while it ran."""
    place, now = make_message("", sent_at=harness.agent.clock()), harness.agent.clock()
    event = CommandEvent(f"/{name}", place.world, place.room, place.author, "e1")
    receipt = Receipt(
        new_id(),
        event.key,
        place.room.id,
        place.author.id,
        new_id(),
        received_at=now,
        outcome=Outcome.CLAIMED,
        reason=event.label,
        rule=Rule.COMMAND,
        turn_id=new_id(),
        attempts=1,
        claimed_at=now,
    )
    await harness.agent.store.ledger.receive_command(receipt, place.world, place.room, place.author)


async def test_a_commands_receipt_says_who_gave_it_what_came_of_it_and_what_it_cost() -> None:
    async with running_agent(PLUGIN) as harness:
        await give(harness, "poem", author="Bob")
        receipt = await only_receipt(harness)
        author = (await harness.agent.store.entities.entities([receipt.author_id]))[receipt.author_id]
        answer = (await give(harness, "why", author="Bob")).text
    assert (author.name, receipt.outcome, receipt.rule, receipt.reason) == ("Bob", Outcome.ANSWERED, "command", "/poem")
    assert [call.type for call in receipt.model_calls] == ["TEXT_LARGE"]
    assert answer.startswith("Executed: /poem. Models used: ")
    assert str(receipt.id) in answer


async def test_a_command_and_its_response_are_no_messages_of_the_conversation() -> None:
    async with running_agent(PLUGIN) as harness:
        await send(harness, "count")
        await harness.adapter.wait_until_sent(2)
        room = make_message("", sent_at=harness.agent.clock()).room
        assert await harness.agent.store.memories.recent(room.id) == []
        assert await harness.agent.store.ledger.last_message_ids([room.id]) == {}


async def test_a_response_with_a_target_is_sent_in_parts_by_the_outbox_and_once() -> None:
    store = InMemoryStore()
    async with running_agent(PLUGIN, store=store) as harness:
        assert await send(harness, "count") == CommandResponse()
        assert await harness.adapter.wait_until_sent(2) == ["This", "is run 1."]
        assert [(part.target, part.reply_to) for part in harness.adapter.sent] == [("token", "7"), ("token", "")]
        assert (await send(harness, "count")).is_repeat
    async with running_agent(PLUGIN, store=store) as harness:
        assert (await send(harness, "count")).is_repeat
        await harness.agent.outbox.drain(5)
        assert harness.adapter.sent == []
        assert [part.state for part in await store.ledger.deliveries()] == [DeliveryState.SENT] * 2
    assert RUNS == ["e1"]


async def test_a_caller_that_shows_the_response_itself_gets_it_again_after_a_restart() -> None:
    store = InMemoryStore()
    for _ in range(2):
        async with running_agent(PLUGIN, store=store) as harness:
            assert (await send(harness, "count", None)).text == "This is run 1."
    assert RUNS == ["e1"]


@pytest.mark.parametrize("is_closed_at_start", [True, False])
async def test_a_command_whose_process_died_is_not_run_again_and_its_sender_is_notified(
    is_closed_at_start: bool,
) -> None:
    store = InMemoryStore()
    async with running_agent(PLUGIN, store=store) as harness:
        await store_interrupted(harness, "count")
    async with running_agent(PLUGIN, store=store) as harness:
        if is_closed_at_start:
            receipt = await harness.agent_runtime.inbox.wait_outcome((await only_receipt(harness)).id)
            assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, Rule.COMMAND_INTERRUPTED)
        for _ in range(2):
            await send(harness, "count")
        await harness.adapter.wait_until_sent(2)
        await harness.agent.outbox.drain(5)
        assert " ".join(harness.texts).startswith("/count was interrupted")
        assert harness.texts.count("/count") == 1
        receipt = await only_receipt(harness)
        answer = (await give(harness, "why")).text
    assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, Rule.COMMAND_INTERRUPTED)
    assert answer.startswith("Interrupted and not repeated: /count.")
    assert RUNS == []


async def test_a_press_that_is_delivered_again_after_a_restart_is_not_reported_again() -> None:
    store, pressed = InMemoryStore(), list[str]()

    async def note(event: InteractionReceived) -> None:
        pressed.append(event.choice)

    for number in range(2):
        async with running_agent(store=store) as harness:
            harness.agent.events.subscribe(InteractionReceived, note)
            place = make_message("", sent_at=harness.agent.clock())
            selection = ChoiceSelection(place.world, place.room, place.author, "tea", "p1", harness.agent.clock())
            response = await harness.agent_runtime.handle.select_choice(selection, replace(TARGET, split=lambda _: ()))
            assert response.is_repeat is bool(number)
            receipt = await only_receipt(harness)
    assert (receipt.outcome, receipt.reason) == (Outcome.ANSWERED, "a button")
    assert pressed == ["tea"]
