"""The cost of a message, and what happens when a budget is spent."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from bot import Outcome, Plugin, ProviderResult, Turn, evaluator, provider
from bot.domain.events import ModelUsed
from bot.models import ModelUnavailable, Purpose, TextRequest
from bot.plugin_system.components import Evaluator
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer, running_agent

PRICES = "scripted=1000/2000"  # so that a short prompt costs something that one can see


def dear(**more: str) -> Mapping[str, str]:
    return {"MODEL_PRICES": PRICES, **{name.upper(): value for name, value in more.items()}}


async def test_the_receipt_and_the_event_have_the_cost_of_a_call() -> None:
    heard = []

    async def listen(event: ModelUsed) -> None:
        heard.append(event.call)

    async with running_agent(settings=dear()) as harness:
        harness.agent.events.subscribe(ModelUsed, listen)
        receipt = await harness.send("Hello")
        await harness.agent.events.wait_idle()
    [call] = receipt.model_calls
    assert call.cost == pytest.approx((call.tokens_in * 1000 + call.tokens_out * 2000) / 1_000_000)
    assert call in heard


async def test_a_call_of_a_model_without_price_is_recorded_without_cost() -> None:
    async with running_agent() as harness:
        [call] = (await harness.send("Hello")).model_calls
    assert (call.cost, call.tokens_in > 0) == (None, True)


async def test_costs_can_be_summed_by_room_and_person() -> None:
    store = InMemoryStore()
    async with running_agent(settings=dear(), store=store) as harness:
        receipts = [await harness.send("Hello", room=room, author="Ann") for room in ("one", "two", "two")]
        day = harness.agent.clock().date()
    booked = sum(call.cost or 0 for receipt in receipts for call in receipt.model_calls)
    lines = await store.costs.costs_between(day, day)
    assert {(line.room_id, line.person_id) for line in lines} >= {
        (receipt.room_id, receipt.author_id) for receipt in receipts
    }
    assert sum(line.cost for line in lines) >= booked > 0


@pytest.mark.failure("O-02")
async def test_over_the_budget_no_model_is_called_and_the_receipt_names_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_agent(
        learning(), settings=dear(budget_usd="0.000001"), model=ScriptedModel(can_embed=True)
    ) as harness:
        first = await harness.send("Hello")
        assert first.outcome is Outcome.ANSWERED
        asked = len(harness.model.requests)
        with caplog.at_level(logging.WARNING):
            silent = [await harness.send(f"And now? {number}", room=f"room {number}") for number in range(3)]
        assert len(harness.model.requests) == asked
    assert {(receipt.outcome, receipt.rule) for receipt in silent} == {(Outcome.IGNORED, "BUDGET_USD")}
    assert silent[0].reason == "the budget is used up: $1e-06 a day in all"
    assert [receipt for receipt in caplog.messages if "BUDGET_USD" in receipt] == [
        "BUDGET_USD is spent, $1e-06 a day in all: no more answers until midnight UTC"
    ]


@pytest.mark.failure("O-02")
async def test_over_the_budget_background_work_waits_until_the_next_day() -> None:
    async with running_agent(settings=dear(budget_usd="0.000001")) as harness:
        assert (await harness.send("Hello")).outcome is Outcome.ANSWERED
        asked = len(harness.model.requests)
        with pytest.raises(ModelUnavailable, match="BUDGET_USD"):
            await harness.agent.models.text(TextRequest("A post, please.", purpose=Purpose.POST))
        assert len(harness.model.requests) == asked


def learning() -> Plugin:
    """A plugin whose evaluator asks the model about everything that is said."""

    @evaluator("PONDER", "Ponders.", always_run=True)
    async def ponder(turn: Turn) -> None:
        await turn.agent.models.text(TextRequest("What was that?", purpose=Purpose.OTHER))

    assert isinstance(ponder, Evaluator)
    return Plugin("learning", "Learns.", evaluators=[ponder])


@pytest.mark.failure("O-02")
async def test_the_budget_of_a_person_does_not_affect_others() -> None:
    async with running_agent(settings=dear(budget_tokens_per_person="10")) as harness:
        assert (await harness.send("Hello", author="Ann")).outcome is Outcome.ANSWERED
        assert (await harness.send("Again", author="Ann")).rule == "BUDGET_TOKENS_PER_PERSON"
        assert (await harness.send("Hello", author="Bo")).outcome is Outcome.ANSWERED


async def test_gs10_a_flood_spends_at_most_the_budget_and_the_calls_in_progress() -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        asked.set()
        await gate.wait()
        return model_answer("Hello.")

    async with running_agent(settings=dear(budget_tokens="10"), model=ScriptedModel(slow)) as harness:
        first = await harness.submit("Hello", room="first")
        async with asyncio.timeout(30):
            await asked.wait()
        gate.set()
        await harness.agent_runtime.inbox.wait_outcome(first.id)
        flood = [await harness.send("Hello", room=f"room {number}") for number in range(20)]
        assert len(harness.model.requests_for(Purpose.REPLY)) == 1
    assert {receipt.rule for receipt in flood} == {"BUDGET_TOKENS"}


@pytest.mark.long
@pytest.mark.failure("O-02")
async def test_simultaneous_messages_spend_no_more_than_sequential_ones() -> None:
    asked, gate = asyncio.Semaphore(0), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        asked.release()
        await gate.wait()
        return model_answer("Hello.")

    async with running_agent() as harness:
        [call] = (await harness.send("Hello", room="one")).model_calls
    most = 3 * (call.prompt_bytes // 3 + 1100)  # three of them at once, and more when those are settled
    async with running_agent(settings={"BUDGET_TOKENS": str(most)}, model=ScriptedModel(slow)) as harness:
        flood = [await harness.submit("Hello", room=f"room {number}") for number in range(20)]
        async with asyncio.timeout(60):
            await asked.acquire()
        assert len(harness.model.requests_for(Purpose.REPLY)) <= 3
        gate.set()
        settled = [await harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in flood]
        spent = sum(receipt.tokens_in + receipt.tokens_out for each in settled for receipt in each.model_calls)
    outcomes_and_rules = {
        (receipt.outcome, receipt.rule) for receipt in settled if receipt.outcome is not Outcome.ANSWERED
    }
    assert outcomes_and_rules == {(Outcome.IGNORED, "BUDGET_TOKENS")}
    assert most / 2 < spent < most + call.tokens_in + call.tokens_out + 20


@pytest.mark.failure("O-02")
async def test_a_message_waiting_while_the_budget_is_spent_gets_the_notice_too() -> None:
    asked, judged, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @provider("WATCH", "Sees that a message is past the gate.")
    async def watch(turn: Turn) -> ProviderResult:
        if turn.message.content.text == "And me?":
            judged.set()
        return ProviderResult()

    async def slow(request: TextRequest) -> str:
        asked.set()
        await gate.wait()
        return model_answer("Hello.")

    watching, settings = Plugin("watching", providers=[watch]), dear(budget_tokens="10")
    async with running_agent(watching, settings=settings, model=ScriptedModel(slow)) as harness:
        first = await harness.submit("Hello", room="first")
        async with asyncio.timeout(60):
            await asked.wait()
            second = await harness.submit("And me?", room="second")
            await judged.wait()
        gate.set()
        outcomes = [(await harness.agent_runtime.inbox.wait_outcome(receipt.id)).outcome for receipt in (first, second)]
    assert outcomes == [Outcome.ANSWERED, Outcome.IGNORED]
    assert sorted(harness.texts) == ["Hello.", "I have reached my limit for today. Please come back tomorrow."]
