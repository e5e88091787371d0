"""Decisions about drafts of a room that another process of the same database owns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot import ActionResult, Effect, Outcome, Plugin, Turn, action
from bot.outbound.proposals import ProposalDecision
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, model_answer, running_agent
from tests.store.sql.postgres.stores import open_store

SETTINGS = {"APPROVAL": "all"}


@asynccontextmanager
async def running_process(url: str, model: ScriptedModel, *plugins: Plugin) -> AsyncIterator[AgentHarness]:
    """Run the agent as one of the processes that share a database."""
    async with (
        open_store(url) as store,
        running_agent(
            *plugins, model=model, store=store, settings=SETTINGS, adapter=RecordingAdapter(can_edit=True)
        ) as harness,
    ):
        yield harness


async def decide_elsewhere(harness: AgentHarness, draft_id: str) -> None:
    decided = await harness.agent.proposals.decide(draft_id, ProposalDecision.SEND, actor="Bob")
    assert decided is not None
    assert decided.is_done


@pytest.mark.long
async def test_a_draft_that_another_process_sends_leaves_from_the_owner_of_its_room_once(postgres_url: str) -> None:
    model = ScriptedModel(model_answer("It is a fern."))
    async with running_process(postgres_url, model) as owner, running_process(postgres_url, model) as other:
        receipt = await owner.send("What is this?")
        [draft] = await other.agent.proposals.waiting()
        await decide_elsewhere(other, draft.id)
        await owner.adapter.wait_until_sent(1)
        assert (owner.texts, other.texts) == (["It is a fern."], [])
        stored = await other.agent.store.ledger.receipt(receipt.id)
        assert stored is not None
        assert stored.outcome is Outcome.ANSWERED


@pytest.mark.long
async def test_an_action_that_another_process_approves_runs_in_the_owner_of_its_room_once(postgres_url: str) -> None:
    booked: list[bool] = []
    ran = asyncio.Event()

    @action("BOOK", "Book a table.", effect=Effect.UNSAFE)
    async def book(turn: Turn, place: str) -> ActionResult:
        booked.append(turn.agent.outbox.ownership.owns_room(turn.room.id))
        ran.set()
        return ActionResult()

    model = ScriptedModel(model_answer("Booked.", actions=["BOOK"], parameters={"BOOK": {"place": "the garden"}}))
    plugin = Plugin("booking", "Books tables.", actions=[book])
    async with (
        running_process(postgres_url, model, plugin) as owner,
        running_process(postgres_url, model, plugin) as other,
    ):
        receipt = await owner.send("Book the garden")
        [draft] = await other.agent.proposals.waiting()
        calls = len(model.requests)
        await decide_elsewhere(other, draft.id)
        await ran.wait()
        closed = await owner.agent_runtime.inbox.wait_outcome(receipt.id)
        assert (closed.outcome, booked, len(model.requests)) == (Outcome.PARKED, [True], calls)
        [reply] = await other.agent.proposals.waiting()
        assert reply.content.text == "Booked."
