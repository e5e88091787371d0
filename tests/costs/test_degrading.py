"""How answers degrade while little is left of a budget."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from bot import Outcome, Plugin, SettingError, Turn, derived_id, evaluator, model, system_clock
from bot.costs.budget import Budget, BudgetSettings, build_limits, parse_degrade
from bot.domain.ledger import DegradeStep, LimitScope
from bot.events import AnswerDegraded
from bot.models import ModelType, Purpose, TextRequest, TextResult, Usage
from bot.receipts import TRACE_KEY, read_steps
from bot.settings import Layer, Settings
from bot.store import CostEntry, InMemoryStore, ReceiptQuery, Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, running_agent
from bot.turn import Agent
from bot.user_texts import user_text
from tests.clocks import ManualClock

LADDER = "80:history,90:small,95:offline,99:silent"
PRICES = "large=10/10,small=1/1"
NOTICE = user_text("notices.degraded")


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


class Writers:
    """A large and a small model that say which of them writes, and keep what they were asked."""

    def __init__(self, small_tokens: int = 10, large_tokens: int = 10) -> None:
        self.requests: list[tuple[str, TextRequest]] = []
        self.learned = 0

        @model(ModelType.TEXT_LARGE)
        async def write_large(agent: Agent, request: TextRequest) -> TextResult:
            return self._answer("large", request, large_tokens)

        @model(ModelType.TEXT_SMALL)
        async def write_small(agent: Agent, request: TextRequest) -> TextResult:
            return self._answer("small", request, small_tokens)

        @evaluator("LEARN", "Learns.", always_run=True)
        async def learn(turn: Turn) -> None:
            self.learned += 1

        self.plugin = Plugin("writers", "Two models.", models=[write_large, write_small], evaluators=[learn])

    def _answer(self, name: str, request: TextRequest, tokens: int) -> TextResult:
        self.requests.append((name, request))
        usage = Usage(10, min(tokens, request.max_tokens or tokens))
        return TextResult(f"<response><text>The {name} one.</text></response>", name, usage)

    @property
    def names(self) -> list[str]:
        """Which models wrote replies."""
        return [name for name, request in self.requests if request.purpose is Purpose.REPLY]


@asynccontextmanager
async def degrading(
    writers: Writers, store: Store | None = None, *, clock: ManualClock | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    """Run an agent whose answers degrade, by default with a limit of a dollar in all."""
    values = {"BUDGET_USD": "1", "DEGRADE": LADDER, "MODEL_PRICES": PRICES, **settings}
    async with running_agent(
        writers.plugin, settings=values, store=store, clock=clock or ManualClock(system_clock())
    ) as harness:
        yield harness


async def spend(harness: AgentHarness, dollars: float, room: UUID | None = None, person: UUID | None = None) -> None:
    """Count costs of today, as those of an earlier process are."""
    store, day = harness.agent.store, harness.agent.clock().date()
    await store.costs.add([CostEntry(day, "large", room, person, 1, cost=dollars)])
    await harness.agent_runtime.handle.limits.change({}, source="the test")  # which loads the costs


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("off", ()),
        ("80:history", ((0.8, DegradeStep.HISTORY),)),
        (" 1 : small , 100:silent ", ((0.01, DegradeStep.SMALL), (1.0, DegradeStep.SILENT))),
        ("50:history,60:small,70:offline,80:silent", tuple(zip((0.5, 0.6, 0.7, 0.8), DegradeStep, strict=True))),
    ],
)
def test_steps_are_read_with_their_shares(value: str, steps: tuple[tuple[float, DegradeStep], ...]) -> None:
    assert parse_degrade(value) == steps


@pytest.mark.parametrize(
    "value",
    [
        *("history", "80", "80:", "80:brief", "0:history", "101:silent", "80.5:history", "80:history,", "off,80:small"),
        *("80:history,80:small", "90:history,80:small", "80:small,90:history", "80:small,90:small", "٨٠:history"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_the_variable(value: str) -> None:
    with pytest.raises(SettingError, match="DEGRADE"):
        Settings([Layer("the test", {"DEGRADE": value})]).load(BudgetSettings)


def test_a_character_sets_how_it_degrades_but_no_limit() -> None:
    assert {"DEGRADE"} == BudgetSettings.CHARACTER_SETTINGS


@pytest.mark.parametrize(
    ("used", "step"),
    [(0.799, None), (0.8, "history"), (0.899, "history"), (0.9, "small"), (0.95, "offline"), (0.99, "silent")],
)
def test_a_step_is_in_effect_from_its_share_on(used: float, step: str | None) -> None:
    budget = _budget(BUDGET_USD="1")
    budget.record(_entry(cost=used))
    found = budget.find_degradation(None, None)
    assert (found and found.step) == step


def test_the_limit_of_which_most_is_used_decides_in_money_or_tokens() -> None:
    budget = _budget(BUDGET_USD="1", BUDGET_TOKENS="1000", BUDGET_USD_PER_PERSON="1")
    room, ann, bo = derived_id("room"), derived_id("Ann"), derived_id("Bo")
    budget.record(_entry(cost=0.85, tokens=910, room=room, person=ann))
    found = budget.find_degradation(room, bo)
    assert found is not None
    assert str(found) == "91 % of BUDGET_TOKENS used: the small model and a shorter history"
    budget.record(_entry(cost=0.1, person=ann))
    assert {key[0]: item.step for key, item in budget.find_degradations().items()} == {
        LimitScope.ALL: "offline",
        LimitScope.PERSON: "offline",
    }


def test_the_limits_of_a_room_and_a_person_degrade_their_answers_only() -> None:
    budget = _budget(BUDGET_USD_PER_ROOM="1", BUDGET_TOKENS_PER_PERSON="100")
    here, there, ann, bo = (derived_id(name) for name in ("here", "there", "Ann", "Bo"))
    budget.record(_entry(cost=0.8, tokens=90, room=here, person=ann))
    steps = {
        (room, person): found.step if (found := budget.find_degradation(room, person)) else None
        for room in (here, there)
        for person in (ann, bo)
    }
    assert steps == {(here, ann): "small", (there, ann): "small", (here, bo): "history", (there, bo): None}


def test_without_steps_or_limits_nothing_degrades() -> None:
    for budget in (_budget(), _budget(BUDGET_USD="1")):
        budget.steps = () if budget.limits else budget.steps
        budget.record(_entry(cost=5))
        assert (budget.find_degradation(None, None), budget.find_degradations()) == (None, {})


def _budget(**limits: str) -> Budget:
    budget = Budget(build_limits(Settings([Layer("the test", limits)]).load(BudgetSettings)), noon)
    budget.steps = parse_degrade(LADDER)
    return budget


def _entry(cost: float = 0, tokens: int = 0, room: UUID | None = None, person: UUID | None = None) -> CostEntry:
    return CostEntry(noon().date(), "m", room, person, 1, tokens_in=tokens, cost=cost)


@pytest.mark.long
async def test_each_step_changes_the_answer_from_its_share_on_and_is_in_the_receipt(tmp_path: Path) -> None:
    path, agent_id = tmp_path / "greenroom.db", derived_id("agent", "Ada")
    writers, heard = Writers(), list[AnswerDegraded]()
    async with OpenFiles().open_store(path, agent_id) as store, degrading(writers, store) as harness:
        harness.agent.events.subscribe(AnswerDegraded, heard.append, at_once=True)
        first = await harness.send("Hello")
        assert (writers.names, first.notes) == (["large"], ())
        await spend(harness, 0.81)
        second = await harness.send("Hello again")
        assert (writers.names[1:], second.notes) == (["large"], ("81 % of BUDGET_USD used: a shorter history",))
    async with OpenFiles().open_store(path, agent_id) as store, degrading(writers, store) as harness:
        harness.agent.events.subscribe(AnswerDegraded, heard.append, at_once=True)
        again = await harness.send("After a restart")
        assert again.notes == second.notes
        await spend(harness, 0.1)
        third = await harness.send("And more")
        assert writers.names[3:] == ["small"]
        assert third.notes == ("91 % of BUDGET_USD used: the small model and a shorter history",)
        await spend(harness, 0.05)
        fourth = await harness.send("My garden is full of snails, Ada.")
        assert (writers.names[4:], fourth.outcome) == ([], Outcome.ANSWERED)
        assert fourth.notes == ("96 % of BUDGET_USD used: phrases without a model",)
        assert harness.texts[-1] not in ("", NOTICE)
        await spend(harness, 0.035)
        fifth = await harness.send("And the end")
        assert (fifth.outcome, fifth.rule) == (Outcome.IGNORED, "BUDGET_USD")
        assert fifth.reason == "99 % of BUDGET_USD used: no answer"
    assert [event.degradation.step for event in heard] == ["history", "history", "small", "offline"]


async def test_phrases_without_a_model_are_written_when_nothing_is_left() -> None:
    writers = Writers()
    async with degrading(writers, DEGRADE="80:history,100:offline") as harness:
        await spend(harness, 1.5)
        receipt = await harness.send("My garden is full of snails, Ada.")
        assert (receipt.outcome, writers.names) == (Outcome.ANSWERED, [])
        assert receipt.notes == ("150 % of BUDGET_USD used: phrases without a model",)
        unclear = await harness.send("Snails, again", room="group", author="Bo", kind="GROUP")
        assert unclear.outcome is not Outcome.FAILED
        assert writers.requests == []


async def test_a_plugin_may_bring_other_phrases() -> None:
    @model(ModelType.TEXT_OFFLINE)
    async def write_phrase(agent: Agent, request: TextRequest) -> TextResult:
        return TextResult("<response><text>Later, please.</text></response>", "phrases", Usage())

    settings = {"BUDGET_USD": "1", "DEGRADE": "80:offline"}
    async with running_agent(Plugin("phrases", "Has phrases.", models=[write_phrase]), settings=settings) as harness:
        await spend(harness, 1.5)
        await harness.send("Hello")
        assert harness.texts == ["Later, please.", NOTICE]


@pytest.mark.parametrize("form", ["text", "json", "tags"])
async def test_phrases_are_read_in_any_form_of_answers(form: str) -> None:
    async with degrading(Writers(), DEGRADE="80:offline", MODEL_ANSWER_FORM=form) as harness:
        await spend(harness, 0.9)
        await harness.send("My garden is full of snails, Ada.")
        [phrase, notice] = harness.texts
    assert notice == NOTICE
    assert "response" not in phrase
    assert "<" not in phrase


async def test_a_person_in_distress_does_not_read_that_answers_degrade() -> None:
    async with degrading(Writers()) as harness:
        await spend(harness, 0.81)
        await harness.send("I want to kill myself")
        assert "The large one." in harness.texts
        assert NOTICE not in harness.texts


async def test_a_prompt_shows_less_of_the_conversation() -> None:
    writers = Writers()
    async with degrading(writers, CONVERSATION_LENGTH="40") as harness:
        for number in range(12):
            await harness.send(f"Line {number} of the talk")
        long = writers.requests[-1][1].prompt
        await spend(harness, 0.8)
        await harness.send("Line 12 of the talk")
        short = writers.requests[-1][1].prompt
    assert [f"Line {number} of" in long for number in (0, 11)] == [True, True]
    assert [f"Line {number} of" in short for number in (0, 6, 12)] == [False, False, True]


async def test_with_off_answers_are_as_usual_until_the_limit() -> None:
    writers = Writers()
    async with degrading(writers, DEGRADE="off") as harness:
        await spend(harness, 0.97)
        receipt = await harness.send("Hello")
        assert (receipt.notes, writers.names, harness.texts) == ((), ["large"], ["The large one."])
        await spend(harness, 0.1)
        assert (await harness.send("Hello again")).rule == "BUDGET_USD"


async def test_a_room_gets_the_notice_once_a_day_also_after_a_restart() -> None:
    writers, clock, store, notices = Writers(), ManualClock(system_clock()), InMemoryStore(), list[list[bool]]()
    for dollars, days in ((0.81, 0), (0.01, 0), (0.81, 1)):
        clock.now += timedelta(days=days)
        async with degrading(writers, store, clock=clock) as harness:
            await spend(harness, dollars)
            for room in ("one", "two", "one"):
                await harness.send("Hello", room=room)
            notices.append([text == NOTICE for text in harness.texts])
    assert notices == [[False, True, False, True, False], [False] * 3, [False, True, False, True, False]]


async def test_evaluators_are_left_out_from_the_small_model_on() -> None:
    store, learned = InMemoryStore(), []
    for dollars in (0.81, 0.1):
        writers = Writers()
        async with degrading(writers, store) as harness:
            await spend(harness, dollars)
            await harness.send("Hello")
        learned.append(writers.learned)
    assert learned == [1, 0]


async def test_a_limit_of_a_person_degrades_the_answers_to_them_in_any_room() -> None:
    writers = Writers()
    async with degrading(writers, BUDGET_USD="0", BUDGET_USD_PER_PERSON="1") as harness:
        ann = (await harness.send("Hello", author="Ann", room="one")).author_id
        await spend(harness, 0.9, person=ann)
        receipts = [await harness.send("Hi", author=author, room="two") for author in ("Ann", "Bo")]
    assert writers.names == ["large", "small", "large"]
    assert [receipt.notes for receipt in receipts] == [
        ("90 % of BUDGET_USD_PER_PERSON used: the small model and a shorter history",),
        (),
    ]


async def test_the_next_step_answers_where_the_rest_does_not_pay_for_more() -> None:
    writers = Writers()
    async with degrading(writers, BUDGET_USD="0.01", DEGRADE="90:small,99:silent") as harness:
        receipts = [await harness.send("Hello", room=f"room {number}") for number in range(3)]
        spent = sum(call.cost or 0 for receipt in receipts for call in receipt.model_calls)
    assert {receipt.outcome for receipt in receipts} == {Outcome.ANSWERED}
    assert writers.names[-1] == "small"
    assert (
        receipts[-1]
        .notes[-1]
        .endswith("% of BUDGET_USD used, and the rest did not pay for more: the small model and a shorter history")
    )
    assert all(len([note for note in receipt.notes if "BUDGET_USD" in note]) <= 1 for receipt in receipts)
    assert spent <= 0.01


async def test_a_message_that_no_step_could_answer_is_not_listed_as_a_degraded_answer() -> None:
    writers = Writers()
    limits = {"BUDGET_USD": "0", "BUDGET_USD_PER_PERSON": "0.0001"}  # spent before the price of a model is known
    async with degrading(writers, DEGRADE="90:small,99:silent", **limits) as harness:
        receipts = [await harness.send("Hello", author=author) for author in ("Ann", "Bo", "Cleo")]
        degraded = await harness.agent.store.ledger.search_receipts(ReceiptQuery(is_degraded=True))
    assert writers.names == ["large", "small"]
    assert (receipts[-1].outcome, receipts[-1].rule) == (Outcome.IGNORED, "BUDGET_USD_PER_PERSON")
    assert receipts[-1].notes == ()
    assert [listed.receipt.id for listed in degraded] == [receipts[1].id]


async def test_the_next_step_goes_on_with_an_answer_of_several_steps() -> None:
    writers = Writers()
    async with degrading(writers, BUDGET_USD="0.01", DEGRADE="90:small,99:silent", USE_MULTI_STEP="true") as harness:
        receipts = [await harness.send("Hello", room=f"room {number}") for number in range(3)]
    assert {receipt.outcome for receipt in receipts} == {Outcome.ANSWERED}
    assert writers.requests[-1][0] == "small"
    assert any("the rest did not pay for more" in note for note in receipts[-1].notes)


@pytest.mark.long
async def test_messages_at_once_get_more_answers_by_a_cheaper_model_and_exceed_no_limit() -> None:
    answered, spent = dict[str, int](), dict[str, float]()
    for degrade in ("off", "80:history,95:small,100:silent", "80:history,95:small,100:offline"):
        writers = Writers(small_tokens=200, large_tokens=2000)
        async with degrading(writers, BUDGET_USD="0.05", DEGRADE=degrade) as harness:
            messages = (harness.send("Hello", room=f"{number}", author=f"{number}") for number in range(20))
            receipts = await asyncio.gather(*messages)
        answered[degrade] = sum(receipt.outcome is Outcome.ANSWERED for receipt in receipts)
        spent[degrade] = sum(call.cost or 0 for receipt in receipts for call in receipt.model_calls)
    without, small, offline = answered.values()
    assert without < small <= offline == 20
    assert max(spent.values()) <= 0.05


async def test_the_step_is_in_the_trace() -> None:
    store = InMemoryStore()
    async with degrading(Writers(), store) as harness:
        await spend(harness, 0.81)
        receipt = await harness.send("Hello")
    assert receipt.turn_id is not None
    trace = (await store.ledger.steps(receipt.turn_id))[TRACE_KEY].result
    names = [step.name for step in read_steps(trace, receipt.received_at)]
    assert names.index("Gate") < names.index("81 % of BUDGET_USD used: a shorter history") < names.index("reply")
