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


async def begin(harness: AgentHarness, *texts: str, settled: list[Receipt] | None = None) -> Turn:
    """Return a turn about stored messages."""
    turns = []
    for text in texts:
        turn = make_turn(harness.agent, text)
        arrival = make_message(text, sent_at=harness.agent.clock())
        receipt = (await harness.agent.store.ledger.receive([arrival], harness.agent.clock()))[0].receipt
        turn.inputs[0].receipt = receipt
        turn.inputs[0].message = arrival.message
        if settled is not None:
            turn.inputs[0].resolve = settled.append
        turns.append(turn)
    turns[-1].inputs = [turn_input for turn in turns for turn_input in turn.inputs]
    return turns[-1]


async def stored(harness: AgentHarness, turn: Turn) -> list[Receipt | None]:
    return [await harness.agent.store.ledger.receipt(turn_input.receipt.id) for turn_input in turn.inputs]


async def test_the_newest_message_gets_the_outcome_and_earlier_ones_are_superseded(agent_harness: AgentHarness) -> None:
    settled: list[Receipt] = []
    turn = await begin(agent_harness, "one", "two", "three", settled=settled)
    assert (
        await close_turn(turn, Outcome.ANSWERED, "why", "rule", [turn.build_reply(Content(text="Hi"))])
        is Outcome.ANSWERED
    )
    first, second, third = receipts = [turn_input.receipt for turn_input in turn.inputs]
    assert [receipt.outcome for receipt in receipts] == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
    assert first.superseded_by == second.superseded_by == turn.message.id
    assert (third.reason, third.rule, third.superseded_by) == ("why", "rule", None)
    assert {receipt.turn_id for receipt in receipts} == {turn.id}
    assert all(receipt.closed_at for receipt in receipts)
    assert await stored(agent_harness, turn) == receipts == settled
    assert [memory.content.text for memory in turn.replies] == ["Hi"]


async def test_each_receipt_has_the_model_calls_of_its_message(agent_harness: AgentHarness) -> None:
    turn = await begin(agent_harness, "one", "two")
    for number, turn_input in enumerate(turn.inputs):
        turn_input.calls.append(ModelCall("TEXT_LARGE", "reply", f"m{number}"))
    await close_turn(turn, Outcome.IGNORED, "", "")
    assert [[call.model for call in turn_input.receipt.model_calls] for turn_input in turn.inputs] == [["m0"], ["m1"]]


async def test_calls_of_a_receipt_are_not_added_to_another_receipt_when_its_turn_is_cancelled(
    agent_harness: AgentHarness,
) -> None:
    turn = await begin(agent_harness, "one", "two")
    for number, turn_input in enumerate(turn.inputs):
        turn_input.calls.append(ModelCall("TEXT_LARGE", "reply", f"m{number}"))
    await save_response(turn, "answer", TextResult("Hello."))  # closes the first one
    removed = replace(turn.inputs[-1].receipt, outcome=Outcome.CANCELLED)
    await agent_harness.agent.store.ledger.save_receipts([removed])
    await record_cancelled_calls(turn)
    receipts = await stored(agent_harness, turn)
    assert [[call.model for call in receipt.model_calls] for receipt in receipts if receipt is not None] == [
        ["m0"],
        ["m1"],
    ]


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
    settled: list[Receipt] = []
    async with running_agent(store=Failing(error)) as harness:
        turn = await begin(harness, "one", "two", settled=settled)
        turn.inputs[-1].calls.append(ModelCall("TEXT_LARGE", "reply", "m"))
        outgoing = [turn.build_reply(Content(text="Hi"))]
        with pytest.raises(type(error)):
            await close_turn(turn, Outcome.ANSWERED, "", "", outgoing)
        assert {turn_input.receipt.outcome for turn_input in turn.inputs} == {Outcome.CLAIMED}
        assert turn.replies == settled == []
        await close_turn(turn, Outcome.ANSWERED, "", "", outgoing)
        assert len(turn.inputs[-1].receipt.model_calls) == 1
        assert len(settled) == 2
        assert await harness.adapter.wait_until_sent(1) == ["Hi"]


async def test_a_final_receipt_is_not_changed(agent_harness: AgentHarness) -> None:
    turn = await begin(agent_harness, "one")
    await close_turn(turn, Outcome.ANSWERED, "first", "")
    await close_turn(turn, Outcome.FAILED, "second", "")
    [receipt] = await stored(agent_harness, turn)
    assert receipt is not None
    assert (receipt.outcome, receipt.reason) == (Outcome.ANSWERED, "first")
