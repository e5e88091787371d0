"""/drafts and the buttons of the room of the approvers: who may decide, and about what."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bot import ChannelType, Content, Outcome, Role
from bot.domain.content import Quotation
from bot.domain.inbound import CommandInvocation
from bot.outbound.proposals import build_choices
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from tests.commands.asking import give, press

SETTINGS = {"APPROVAL": "rooms", "APPROVAL_ROOMS": "test:lobby", "OPERATORS_ROOM": "test:approvers"}


@asynccontextmanager
async def proposing() -> AsyncIterator[AgentHarness]:
    """Run an agent whose answer to Alice waits for approvers."""
    model = ScriptedModel(model_answer("It is a fern."))
    async with running_agent(model=model, adapter=RecordingAdapter(can_edit=True), settings=SETTINGS) as harness:
        await harness.send("Hello", room="approvers", kind=ChannelType.GROUP)
        await harness.send("What is this?")
        yield harness


async def settle(harness: AgentHarness) -> list[str]:
    """Return what was sent to the lobby, once nothing is to be sent any more."""
    await harness.agent.outbox.drain(5.0)
    return [delivery.content.text for delivery in harness.adapter.sent if delivery.target == "lobby"]


async def test_the_button_of_an_approver_sends_a_draft() -> None:
    async with proposing() as harness:
        [proposal] = await harness.agent.proposals.waiting()
        send = build_choices(proposal)[0].value
        response = await press(harness, send, author="Bob", role=Role.ADMIN, room="approvers")
        assert response.text == f"Draft {proposal.id} is sent."
        assert await settle(harness) == ["It is a fern."]
        again = await press(harness, send, author="Carol", role=Role.ADMIN, room="approvers")
        assert again.text == f"Draft {proposal.id} was already sent by Bob."
        assert await settle(harness) == ["It is a fern."]


async def test_the_button_of_an_earlier_text_shows_the_new_text() -> None:
    async with proposing() as harness:
        [proposal] = await harness.agent.proposals.waiting()
        send = build_choices(proposal)[0].value
        await give(harness, "drafts", role=Role.ADMIN, text=f"edit {proposal.id} It is a moss, I think.")
        response = await press(harness, send, role=Role.ADMIN, room="approvers")
        assert response.text.endswith("\nIt is a moss, I think.")
        assert await settle(harness) == []


@pytest.mark.parametrize("decision", ["send", "edit", "drop", "list"])
async def test_a_member_decides_nothing(decision: str) -> None:
    async with proposing() as harness:
        [proposal] = await harness.agent.proposals.waiting()
        response = await press(harness, f"/drafts {decision} {proposal.id}.1", room="approvers")
        assert response.text == "Here, only people with the role ADMIN can use /drafts."
        assert await harness.agent.proposals.waiting() == [proposal]


async def test_drafts_of_other_worlds_are_decided_about_in_the_room_of_the_approvers_only() -> None:
    async with proposing() as harness:
        [proposal] = await harness.agent.proposals.waiting()
        place = make_message("", sent_at=harness.agent.clock(), author="Mallory", platform="test", role=Role.OWNER)
        world = replace(place.world, id=place.author.id, external_id="another")
        room = replace(place.room, id=place.message.id, world_id=world.id, external_id="elsewhere")
        await harness.agent.store.worlds.save_world(world, [room])
        handle = harness.agent_runtime.handle
        for number, text in enumerate(["list", f"send {proposal.id}"]):
            asked = CommandInvocation(
                "drafts", world, room, place.author, f"event-{number}", harness.agent.clock(), text=text
            )
            response = await handle.run_command(asked)
            assert "fern" not in response.text
        assert await harness.agent.proposals.waiting() == [proposal]


async def test_a_reply_of_an_approver_to_the_message_of_a_draft_is_its_text() -> None:
    async with proposing() as harness:
        [proposal] = await harness.agent.proposals.waiting()
        card = next(item for item in harness.adapter.sent if proposal.id in item.content.text)
        quotation = Quotation(card.content.text, "Ada", harness.agent.id, "sent-2")
        for role, text in ((Role.MEMBER, "It is a fern."), (Role.ADMIN, "It is a moss.")):
            content = Content("It is a moss.", source="test", quotation=quotation)
            receipt = await harness.send(content, room="approvers", kind=ChannelType.GROUP, role=role)
            [waiting] = await harness.agent.proposals.waiting()
            assert waiting.content.text == text
        assert (receipt.outcome, receipt.reason) == (Outcome.IGNORED, "it is the new text of a draft")
        assert await settle(harness) == []
