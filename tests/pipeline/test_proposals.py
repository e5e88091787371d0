"""Replies that wait for a person: what is proposed, and what becomes of it."""

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot import ActionResult, ChannelType, Effect, Outcome, Plugin, Receipt, Turn, action, derived_id
from bot.domain.environment import TakeOver
from bot.domain.ledger import Rule
from bot.domain.proposal import Proposal, ProposalState
from bot.event_bus import EventBus
from bot.operate.operations import Operations
from bot.operate.people import write_person_archive
from bot.outbound.outbox import Outbox
from bot.outbound.proposals import DecidedProposal, ProposalDecision, Proposals
from bot.testing import AgentHarness, ManualClock, RecordingAdapter, ScriptedModel, model_answer, running_agent
from bot.user_texts import user_text

SETTINGS = {"APPROVAL": "rooms", "APPROVAL_ROOMS": "test:lobby", "OPERATORS_ROOM": "test:approvers"}


@asynccontextmanager
async def proposing(
    *answers: str, plugins: tuple[Plugin, ...] = (), clock: ManualClock | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    """Run an agent whose replies in the lobby wait for approvers, whose room it knows."""
    model = ScriptedModel(*answers) if answers else None
    adapter, clock = RecordingAdapter(can_edit=True, stream_interval=0.01), clock or ManualClock()
    async with running_agent(
        *plugins, model=model, adapter=adapter, clock=clock.now, settings={**SETTINGS, **settings}
    ) as harness:
        await harness.send("nothing to say here", room="approvers", kind=ChannelType.GROUP)
        yield harness


def sent_in(harness: AgentHarness, room: str) -> list[str]:
    """Return the texts that were sent to a room."""
    return [delivery.content.text for delivery in harness.adapter.sent if delivery.target == room]


async def only_waiting(harness: AgentHarness) -> Proposal:
    """Return the proposal that waits alone."""
    [proposal] = await harness.agent.proposals.waiting()
    return proposal


async def decide(
    harness: AgentHarness, proposal: Proposal, decision: ProposalDecision, actor: str = "Bob", **details: Any
) -> DecidedProposal:
    """Decide about a proposal, and wait until what that sends is sent."""
    decided = await harness.agent.proposals.decide(proposal.id, decision, actor=actor, **details)
    assert decided is not None
    await harness.agent.outbox.drain(5.0)
    return decided


async def reread(harness: AgentHarness, receipt: Receipt) -> Receipt:
    """Return a receipt as it is stored now."""
    stored = await harness.agent.store.ledger.receipt(receipt.id)
    assert stored is not None
    return stored


async def test_a_reply_waits_and_leaves_only_once_it_is_sent() -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        assert (receipt.outcome, receipt.rule) == (Outcome.PARKED, Rule.DRAFT)
        assert sent_in(harness, "lobby") == []
        proposal = await only_waiting(harness)
        card = sent_in(harness, "approvers")[-1]
        assert "> Alice: What is this?\nIt is a fern." in card
        assert (await decide(harness, proposal, ProposalDecision.SEND)).is_done
        assert sent_in(harness, "lobby") == ["It is a fern."]
        answered = await reread(harness, receipt)
        assert (answered.outcome, answered.reason) == (Outcome.ANSWERED, f"Bob sent draft {proposal.id}")
        [shown] = harness.adapter.edited
        assert "was already sent by Bob" in shown.content.text


async def test_a_second_decision_is_refused_with_the_name_of_the_first_person() -> None:
    async with proposing() as harness:
        await harness.send("What is this?")
        proposal = await only_waiting(harness)
        await decide(harness, proposal, ProposalDecision.DROP)
        again = await decide(harness, proposal, ProposalDecision.SEND, actor="Carol")
        assert (again.is_done, again.note) == (False, f"Draft {proposal.id} was already dropped by Bob.")
        assert sent_in(harness, "lobby") == []


async def test_an_edit_keeps_both_texts_and_fences_decisions_about_the_first() -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        proposal = await only_waiting(harness)
        await decide(harness, proposal, ProposalDecision.EDIT, text="It is a moss.")
        edited = await only_waiting(harness)
        assert (edited.content.text, edited.proposed.text) == ("It is a moss.", "It is a fern.")
        late = await decide(harness, proposal, ProposalDecision.SEND, revision=proposal.revision)
        assert not late.is_done
        assert late.note.endswith("\nIt is a moss.")
        assert (await decide(harness, proposal, ProposalDecision.SEND, revision=edited.revision)).is_done
        assert sent_in(harness, "lobby") == ["It is a moss."]
        assert (await reread(harness, receipt)).reason.endswith(", with another text")


async def test_the_answer_to_a_newer_message_replaces_a_proposal_unless_it_is_edited() -> None:
    async with proposing() as harness:
        first_receipt = await harness.send("One?")
        first = await only_waiting(harness)
        second_receipt = await harness.send("Two?")
        second = await only_waiting(harness)
        assert (second.receipt_id, second.revision) == (second_receipt.id, 2)
        superseded = await reread(harness, first_receipt)
        assert (superseded.outcome, superseded.superseded_by) == (Outcome.SUPERSEDED, second_receipt.memory_id)
        refused = await decide(harness, first, ProposalDecision.SEND)
        assert (refused.is_done, refused.proposal.id) == (False, second.id)
        assert second.content.text in refused.note
        await decide(harness, second, ProposalDecision.EDIT)
        await harness.send("Three?")
        assert [item.revision for item in await harness.agent.proposals.waiting()] == [2, 1]
        await decide(harness, second, ProposalDecision.EDIT, text="A person's answer.")
        await harness.send("Four?")
        waiting = await harness.agent.proposals.waiting()
        assert [item.revision for item in waiting] == [3, 2]  # what a person has written stays
        assert waiting[0].content.text == "A person's answer."
        assert sent_in(harness, "lobby") == []


async def test_what_another_person_edits_cannot_be_decided_about() -> None:
    async with proposing() as harness:
        await harness.send("One?")
        proposal = await only_waiting(harness)
        await decide(harness, proposal, ProposalDecision.EDIT, actor="Bob")
        assert not (await decide(harness, proposal, ProposalDecision.SEND, actor="Carol")).is_done
        assert (await decide(harness, proposal, ProposalDecision.SEND, actor="Bob")).is_done


async def test_a_proposal_without_a_decision_expires() -> None:
    clock = ManualClock()
    async with proposing(clock=clock, APPROVAL_TIMEOUT="60") as harness:
        receipt = await harness.send("One?")
        proposal = await only_waiting(harness)
        clock.advance(61)
        assert await harness.agent.proposals.expire() == 1
        expired = await reread(harness, receipt)
        assert (expired.outcome, expired.rule) == (Outcome.EXPIRED, Rule.APPROVAL_TIMEOUT)
        assert not (await decide(harness, proposal, ProposalDecision.SEND)).is_done
        assert sent_in(harness, "lobby") == []


async def test_what_is_sent_late_says_so() -> None:
    clock = ManualClock()
    async with proposing(model_answer("It is a fern."), clock=clock) as harness:
        await harness.send("What is this?")
        proposal = await only_waiting(harness)
        clock.advance(timedelta(minutes=16).total_seconds())
        await decide(harness, proposal, ProposalDecision.SEND)
        assert sent_in(harness, "lobby") == [f"{user_text('notices.late')}It is a fern."]


async def test_replies_of_actions_wait_with_the_answer() -> None:
    @action("LOOK", "Look something up.", effect=Effect.PURE)
    async def look(turn: Turn) -> ActionResult:
        await turn.reply("I looked.")
        return ActionResult(text="found")

    plugin = Plugin("looking", "Looks.", actions=[look])
    async with proposing(model_answer("Here it is.", actions=["LOOK", "REPLY"]), plugins=(plugin,)) as harness:
        receipt = await harness.send("Please look")
        assert receipt.outcome is Outcome.PARKED
        assert sent_in(harness, "lobby") == []
        assert "I looked." in (await only_waiting(harness)).content.text


async def test_a_turn_with_a_reason_to_hold_waits_whatever_is_configured() -> None:
    @action("HOLD", "Hold.")
    async def hold(turn: Turn) -> bool:
        turn.hold_reason = "it names a price"
        return True

    answer, plugin = (
        model_answer("Five dollars.", actions=["HOLD", "REPLY"]),
        Plugin("holding", "Holds.", actions=[hold]),
    )
    async with proposing(answer, plugins=(plugin,), APPROVAL="off") as harness:
        await harness.send("What does it cost?")
        assert (await only_waiting(harness)).reason == "it names a price"
        assert sent_in(harness, "lobby") == []


@pytest.mark.parametrize(("mode", "waits"), [("posts", True), ("all", True), ("rooms", False), ("off", False)])
async def test_posts_wait_where_they_are_to_be_approved(mode: str, waits: bool) -> None:
    async with proposing(APPROVAL=mode, OPERATORS_ROOM="") as harness:
        room = (await harness.agent.store.worlds.rooms())[0]
        for _ in range(2):
            await harness.agent.say(room, "Good morning.", key="morning")
        await harness.agent.outbox.drain(5.0)
        waiting = [item for item in await harness.agent.proposals.waiting() if item.receipt_id is None]
        assert [item.content.text for item in waiting] == (["Good morning."] if waits else [])
        for proposal in waiting:
            await decide(harness, proposal, ProposalDecision.SEND)
        assert harness.texts.count("Good morning.") == 1


async def test_a_deleted_message_withdraws_the_answer_and_its_card_says_so() -> None:
    async with proposing() as harness:
        receipt = await harness.send("What is this?")
        await harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, [receipt.key.message_id])
        await harness.agent.outbox.drain(5.0)
        [withdrawn] = await harness.agent.store.ledger.proposals()
        assert withdrawn.state is ProposalState.WITHDRAWN
        assert harness.adapter.edited[-1].content.text.endswith("the message it answers is gone.")


@pytest.mark.usefixtures("immediate_edits")
async def test_an_edited_message_gets_another_proposal() -> None:
    async with proposing() as harness:
        receipt = await harness.send("What is this?")
        inbound = await harness.agent.store.ledger.inbound_message(receipt)
        assert inbound is not None
        first = await only_waiting(harness)
        message = replace(inbound.message, content=replace(inbound.message.content, text="What is that?"))
        key = replace(inbound.key, event_id="edited", revision=1)
        edited = await harness.agent_runtime.handle.edits.submit_edit(replace(inbound, key=key, message=message))
        closed = await harness.agent_runtime.inbox.wait_outcome(edited.id)
        assert closed.outcome is Outcome.PARKED
        assert (await only_waiting(harness)).id != first.id


async def test_what_is_said_in_a_room_of_the_list_without_being_asked_waits_too() -> None:
    async with proposing() as harness:
        receipt = await harness.send("What is this?")
        room = await harness.agent.store.worlds.room(receipt.room_id)
        assert room is not None
        assert await harness.agent.say(room, "Good morning.") is None
        assert await harness.agent.say(room, "Good evening.", is_approved=True) is not None
        await harness.agent.outbox.drain(5.0)
        assert sent_in(harness, "lobby") == ["Good evening."]


async def test_a_draft_whose_turn_a_person_stops_is_none() -> None:
    @action("LOOK", "Look something up.", effect=Effect.PURE)
    async def look(turn: Turn) -> ActionResult:
        await turn.reply("I looked.")
        harness.agent_runtime.handle.edits.stop_room(turn.room.id)
        await asyncio.sleep(0)
        return ActionResult(text="found")

    answer = model_answer("Here it is.", actions=["LOOK", "REPLY"])
    async with proposing(answer, plugins=(Plugin("looking", "Looks.", actions=[look]),)) as harness:
        receipt = await harness.send("Please look")
        assert receipt.outcome is Outcome.CANCELLED
        assert await harness.agent.proposals.waiting() == []


@pytest.mark.parametrize(("is_for_person", "waiting"), [(False, 0), (True, 1)], ids=["the room", "a person"])
async def test_what_waits_is_dropped_where_a_person_takes_over(*, is_for_person: bool, waiting: int) -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        await decide(harness, await only_waiting(harness), ProposalDecision.EDIT)  # Bob is writing a new text
        person = derived_id("test", "Carol") if is_for_person else None
        take_over = TakeOver(receipt.room_id, "Mia", "/take-over", harness.agent.clock(), person)
        await harness.agent_runtime.handle.operations.begin_take_over(take_over)
        assert len(await harness.agent.proposals.waiting()) == waiting
        assert sent_in(harness, "lobby") == []


async def test_the_notice_before_a_text_that_a_person_has_changed_does_not_say_that_no_human_writes() -> None:
    async with proposing(model_answer("It is a fern."), AI_NOTICE="first") as harness:
        await harness.send("What is this?", author="Robin")
        proposal = await only_waiting(harness)
        await decide(harness, proposal, ProposalDecision.EDIT, text="It is a moss.")
        await decide(harness, proposal, ProposalDecision.SEND)
        notice, text = sent_in(harness, "lobby")
        assert (user_text("notices.ai_edited") in notice, text) == (True, "It is a moss.")


async def test_a_late_draft_that_is_sent_while_the_bot_is_off_says_so_when_it_arrives() -> None:
    clock = ManualClock()
    async with proposing(model_answer("It is a fern."), clock=clock) as harness:
        await harness.send("What is this?")
        proposal = await only_waiting(harness)
        clock.advance(timedelta(minutes=16).total_seconds())
        stopped = Outbox(harness.agent.store.ledger, EventBus(), harness.agent.id, clock=clock.now)
        proposals = Proposals(harness.agent.id, harness.agent.store, stopped, _clock=clock.now)
        decided = await proposals.decide(proposal.id, ProposalDecision.SEND, actor="Bob")
        assert decided is not None
        assert decided.is_done
        await harness.agent.outbox.send_pending(proposal.turn_id)
        await harness.agent.outbox.drain(5.0)
        assert sent_in(harness, "lobby") == [f"{user_text('notices.late')}It is a fern."]


async def test_the_archive_of_a_person_has_the_drafts_that_answer_them_without_who_decided() -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        await decide(harness, await only_waiting(harness), ProposalDecision.DROP)
        store, file = harness.agent.store, io.BytesIO()
        person = (await store.entities.entities([receipt.author_id]))[receipt.author_id]
        await write_person_archive(store, person, file, agent_name="Ada", redact=str)
        with zipfile.ZipFile(file) as archive:
            drafts = [json.loads(line) for line in archive.read("drafts.jsonl").splitlines()]
        assert [(draft["text"], draft["state"]) for draft in drafts] == [("It is a fern.", "dropped")]
        assert "Bob" not in str(drafts)


async def test_a_take_over_by_a_command_without_the_running_bot_drops_what_waits_too() -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        operations = Operations.on_store(harness.agent.id, harness.agent.store)
        await operations.take_over(receipt.room_id, source="the test")
        assert await harness.agent.proposals.waiting() == []


async def test_what_a_take_over_did_not_drop_before_the_process_died_is_dropped_later() -> None:
    async with proposing(model_answer("It is a fern.")) as harness:
        receipt = await harness.send("What is this?")
        await harness.agent.store.take_overs.begin(
            TakeOver(receipt.room_id, "Mia", "/take-over", harness.agent.clock())
        )
        await harness.agent.proposals.expire()
        assert (await reread(harness, receipt)).outcome is Outcome.IGNORED
