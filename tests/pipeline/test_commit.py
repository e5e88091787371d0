"""Commit of a turn: replies, deliveries and receipts are stored in one transaction."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.content import Content
from bot.domain.ledger import ModelCall, Outcome, ProviderFailure, Receipt
from bot.models.types import TextResult
from bot.pipeline.commit import close_turn, record_cancelled_calls, save_response
from bot.store import InMemoryStore
from bot.store.ledger import TurnCommit
from bot.testing import AgentHarness, make_message, make_turn, running_agent
from bot.turn import Turn


async def begin(stage: AgentHarness, *texts: str, told: list[Receipt] | None = None) -> Turn:
    """Return a turn about stored messages."""
    turns = []
    for text in texts:
        turn = make_turn(stage.agent, text)
        arrival = make_message(text, sent_at=stage.agent.clock())
        receipt = (await stage.agent.store.ledger.receive([arrival], stage.agent.clock()))[0].receipt
        turn.inputs[0].receipt = receipt
        turn.inputs[0].message = arrival.message
        if told is not None:
            turn.inputs[0].resolve = told.append
        turns.append(turn)
    turns[-1].inputs = [one for turn in turns for one in turn.inputs]
    return turns[-1]


async def stored(stage: AgentHarness, turn: Turn) -> list[Receipt | None]:
    return [await stage.agent.store.ledger.receipt(one.receipt.id) for one in turn.inputs]


async def test_the_newest_message_gets_the_outcome_and_earlier_ones_are_superseded(agent_harness: AgentHarness) -> None:
    told: list[Receipt] = []
    turn = await begin(agent_harness, "one", "two", "three", told=told)
    assert (
        await close_turn(turn, Outcome.ANSWERED, "why", "rule", [turn.build_reply(Content(text="Hi"))])
        is Outcome.ANSWERED
    )
    first, second, third = receipts = [one.receipt for one in turn.inputs]
    assert [one.outcome for one in receipts] == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert first.superseded_by == second.superseded_by == turn.message.id
    assert (third.reason, third.rule, third.superseded_by) == ("why", "rule", None)
    assert {one.turn_id for one in receipts} == {turn.id}
    assert all(one.closed_at for one in receipts)
    assert await stored(agent_harness, turn) == receipts == told
    assert [memory.content.text for memory in turn.replies] == ["Hi"]


async def test_each_receipt_has_the_model_calls_of_its_message(agent_harness: AgentHarness) -> None:
    turn = await begin(agent_harness, "one", "two")
    for number, one in enumerate(turn.inputs):
        one.calls.append(ModelCall("TEXT_LARGE", "reply", f"m{number}"))
    await close_turn(turn, Outcome.IGNORED, "", "")
    assert [[call.model for call in one.receipt.model_calls] for one in turn.inputs] == [["m0"], ["m1"]]


async def test_calls_that_a_receipt_has_are_not_added_to_another_one_when_its_turn_is_cancelled(
    agent_harness: AgentHarness,
) -> None:
    turn = await begin(agent_harness, "one", "two")
    for number, one in enumerate(turn.inputs):
        one.calls.append(ModelCall("TEXT_LARGE", "reply", f"m{number}"))
    await save_response(turn, "answer", TextResult("Hello."))  # closes the first one
    removed = replace(turn.inputs[-1].receipt, outcome=Outcome.CANCELLED)
    await agent_harness.agent.store.ledger.save_receipts([removed])
    await record_cancelled_calls(turn)
    receipts = await stored(agent_harness, turn)
    assert [[call.model for call in one.model_calls] for one in receipts if one is not None] == [["m0"], ["m1"]]


async def test_notes_and_failures_are_recorded_once_each(agent_harness: AgentHarness) -> None:
    turn = await begin(agent_harness, "one", "two")
    turn.notes += ["a", "b", "a"]
    turn.state.failures += [ProviderFailure("X", "slow"), ProviderFailure("X", "slow")]
    await close_turn(turn, Outcome.IGNORED, "", "")
    assert turn.inputs[-1].receipt.notes == ("a", "b", "provider X: slow")
    assert turn.inputs[0].receipt.notes == ()


class Failing(InMemoryStore):
    """A store whose next commit fails or is stopped halfway."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.errors = [error]
        self._commit = self.ledger.commit
        self.ledger.commit = self._fail_once  # type: ignore[method-assign]  # the fault

    async def _fail_once(self, commitment: TurnCommit) -> Any:
        if self.errors:
            raise self.errors.pop()
        return await self._commit(commitment)


@pytest.mark.parametrize("error", [OSError("disk full"), asyncio.CancelledError()])
async def test_a_failed_commit_changes_nothing_and_can_be_repeated(error: BaseException) -> None:
    told: list[Receipt] = []
    async with running_agent(store=Failing(error)) as stage:
        turn = await begin(stage, "one", "two", told=told)
        turn.inputs[-1].calls.append(ModelCall("TEXT_LARGE", "reply", "m"))
        outgoing = [turn.build_reply(Content(text="Hi"))]
        with pytest.raises(type(error)):
            await close_turn(turn, Outcome.ANSWERED, "", "", outgoing)
        assert {one.receipt.outcome for one in turn.inputs} == {Outcome.CLAIMED}
        assert turn.replies == told == []
        await close_turn(turn, Outcome.ANSWERED, "", "", outgoing)
        assert len(turn.inputs[-1].receipt.model_calls) == 1
        assert len(told) == 2
        assert await stage.adapter.wait_until_sent(1) == ["Hi"]


async def test_a_final_receipt_is_not_changed(agent_harness: AgentHarness) -> None:
    turn = await begin(agent_harness, "one")
    await close_turn(turn, Outcome.ANSWERED, "first", "")
    await close_turn(turn, Outcome.FAILED, "second", "")
    [receipt] = await stored(agent_harness, turn)
    assert receipt is not None
    assert (receipt.outcome, receipt.reason) == (Outcome.ANSWERED, "first")
