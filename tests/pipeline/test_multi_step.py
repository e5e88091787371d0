"""Multi-step mode: one action per step, none twice, a limit, and one summary."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from bot.domain.ledger import ActionResult, ProviderResult, StepStatus
from bot.errors import ModelUnavailable, NoAnswer
from bot.models.types import Purpose, TextRequest
from bot.pipeline.compose import Composer
from bot.pipeline.run_actions import ActionRunner, MultiStep
from bot.plugin_system.components import Action, action, provider
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.testing import AgentHarness, ScriptedModel, make_turn, running_agent
from bot.turn import Turn

SUMMARY = "<response><thought>t</thought><text>So it went.</text></response>"


def step(action: str = "", parameters: str = "{}", *, providers: str = "", finish: bool = False) -> str:
    return (
        f"<response><thought>t</thought><action>{action}</action><parameters>{parameters}</parameters>"
        f"<providers>{providers}</providers><isFinish>{str(finish).lower()}</isFinish></response>"
    )


@action("FIND", "Find something.")
async def find(turn: Turn, what: str = "") -> ActionResult:
    turn.state.data.setdefault("found", []).append(what)
    return ActionResult(text=f"found {what}", authors=())


@action("COUNT", "Count.")
async def count(turn: Turn, times: int, where: str = "here") -> None:
    turn.state.data.setdefault("counted", []).append(times)


@action("BREAK", "Breaks.", critical=True)
async def broken(turn: Turn) -> ActionResult:
    return ActionResult(False, error="broken", authors=())


@action("IGNORE", "Nothing.", similes=["STOP_TALKING"])
async def ignore(turn: Turn) -> None:
    raise AssertionError("silence is no step")


@provider("MOON", "The moon.", dynamic=True)
async def moon(turn: Turn) -> ProviderResult:
    return ProviderResult("The moon is full.")


async def run_once(turn: Turn, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask without a step of DEGRADE."""
    return await ask()


def make(*more: Action[Any], most_rounds: int = 6) -> MultiStep:
    registry = Registry([Plugin("some", actions=[find, count, broken, ignore, *more], providers=[moon])])
    composer = Composer(registry)
    return MultiStep(registry, composer, ActionRunner(composer), max_steps=most_rounds)


async def work(
    *steps: str, summary: str = SUMMARY, repaired: str = "{}", most_rounds: int = 6
) -> tuple[str, Turn, list[TextRequest]]:
    left = iter(steps)

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.REPAIR:
            return repaired
        return summary if request.purpose is Purpose.SUMMARY else next(left, steps[-1])

    async with running_agent(model=ScriptedModel(script)) as harness:
        turn = make_turn(harness.agent, "Find it")
        text = await make(most_rounds=most_rounds).run(turn, run_once)
        return text, turn, harness.model.requests


async def test_the_loop_ends_when_the_model_finishes() -> None:
    text, turn, requests = await work(step("FIND", '{"what": "a"}', finish=True))
    assert text == "So it went."
    assert turn.state.data["found"] == ["a"]
    assert [request.purpose for request in requests] == [Purpose.STEP, Purpose.SUMMARY]
    assert "- FIND: ok: found a" in requests[-1].prompt
    assert "The request was: Find it" in requests[-1].prompt


async def test_a_step_may_be_a_call_in_the_text_with_positional_arguments() -> None:
    _, turn, _ = await work('<tool_call>find("a")</tool_call>', step(finish=True))
    assert turn.state.data["found"] == ["a"]


@pytest.mark.failure("F-19")
async def test_the_loop_ends_after_the_maximum_number_of_steps() -> None:
    rounds = [step("FIND", f'{{"what": "{number}"}}') for number in range(50)]
    _, turn, requests = await work(*rounds, most_rounds=4)
    assert turn.state.data["found"] == ["0", "1", "2", "3"]
    assert len(requests) == 5


async def test_a_step_with_the_same_parameters_runs_once() -> None:
    _, turn, requests = await work(step("FIND", '{"what": "a"}'))
    assert turn.state.data["found"] == ["a"]
    assert [request.purpose for request in requests] == [Purpose.STEP] * 3 + [Purpose.SUMMARY]
    assert turn.notes == ["FIND was asked for twice with the same parameters"] * 2


async def test_a_model_that_repeats_a_step_is_notified_and_may_continue() -> None:
    again = step("FIND", '{"what": "a"}')
    _, turn, requests = await work(again, again, step("FIND", '{"what": "b"}', finish=True))
    assert turn.state.data["found"] == ["a", "b"]
    assert "FIND was done with these parameters before; it was not repeated." in requests[2].prompt
    assert "not repeated" not in requests[1].prompt + requests[3].prompt


@pytest.mark.parametrize("same", ['{"times": "2"}', '{"times": 2, "where": "here"}', '{"times": 2.0}'])
async def test_parameters_are_compared_after_normalization(same: str) -> None:
    _, turn, _ = await work(step("COUNT", '{"times": 2}'), step("COUNT", same), step(finish=True))
    assert turn.state.data["counted"] == [2]


@pytest.mark.parametrize("first_is_wrong", [True, False])
async def test_a_corrected_step_equal_to_an_earlier_step_does_not_run(first_is_wrong: bool) -> None:
    right, wrong = step("COUNT", '{"times": 2}'), step("COUNT", '{"times": "twice"}')
    steps = [wrong, right] if first_is_wrong else [right, wrong]
    _, turn, requests = await work(*steps, step(finish=True), repaired='{"times": 2}')
    assert turn.state.data["counted"] == [2]
    assert [request.purpose for request in requests].count(Purpose.REPAIR) == 1


async def test_each_step_sees_the_results_of_earlier_steps() -> None:
    _, _, requests = await work(step("FIND", '{"what": "a"}'), step("FIND", '{"what": "b"}'), step(finish=True))
    assert "Steps so far (0 of at most 6):\nnone" in requests[0].prompt
    assert "Steps so far (1 of at most 6):\n- FIND: ok: found a" in requests[1].prompt
    assert "Steps so far (2 of at most 6):\n- FIND: ok: found a\n- FIND: ok: found b" in requests[2].prompt


async def test_each_step_is_added_to_the_plan() -> None:
    _, turn, _ = await work(step("FIND"), step("BREAK"))
    plan = turn.state.data["actionPlan"]
    assert [(step.action, step.status, step.error) for step in plan.steps] == [
        ("FIND", StepStatus.COMPLETED, ""),
        ("BREAK", StepStatus.FAILED, "broken"),
    ]
    assert (plan.current_step, plan.total_steps, plan.thought) == (1, 2, "t")


@pytest.mark.failure("F-19")
async def test_after_a_model_error_the_finished_steps_are_summarized() -> None:
    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return SUMMARY
        if "found a" in request.prompt:
            raise ModelUnavailable("gone")
        return step("FIND", '{"what": "a"}')

    async with running_agent(model=ScriptedModel(script)) as harness:
        turn = make_turn(harness.agent, "Find it")
        assert await make().run(turn, run_once) == "So it went."
        assert "no model could choose the next step; what was done until then is told" in turn.notes


async def test_without_any_model_there_is_no_answer() -> None:
    def script(request: TextRequest) -> str:
        raise ModelUnavailable("gone")

    async with running_agent(model=ScriptedModel(script)) as harness:
        with pytest.raises(ModelUnavailable):
            await make().run(make_turn(harness.agent, "Find it"), run_once)


@pytest.mark.parametrize("name", ["", "REPLY", "IGNORE", "NONE", "STOP_TALKING", "stop talking"])
async def test_reply_and_silence_do_not_count_as_steps(name: str) -> None:
    _, turn, requests = await work(step(name))
    assert [request.purpose for request in requests] == [Purpose.STEP, Purpose.SUMMARY]
    assert turn.notes == []


async def test_the_model_is_notified_of_an_unknown_action() -> None:
    _, turn, requests = await work(step("FLY"))
    assert "- FLY: failed: there is no action of this name" in requests[-1].prompt
    assert turn.notes == ["action 'FLY' is not known; it was not run"] * 2


async def test_after_an_unknown_action_the_model_may_choose_another() -> None:
    _, turn, _ = await work(step("FLY"), step("FIND", '{"what": "a"}', finish=True))
    assert turn.state.data["found"] == ["a"]


async def test_after_a_truncated_step_the_model_may_choose_again() -> None:
    _, turn, requests = await work("<response><action>FIND</action><parameters>{", step("FIND", finish=True))
    assert turn.state.data["found"] == [""]
    assert "The last step broke off." in requests[1].prompt


async def test_a_step_may_ask_for_providers() -> None:
    _, _, requests = await work(step(providers="moon"), step(finish=True))
    assert "The moon is full." not in requests[0].prompt
    assert "The moon is full." in requests[1].prompt
    assert len(requests) == 3


async def test_requesting_composed_or_unknown_providers_is_not_a_step() -> None:
    _, _, requests = await work(step(providers="NOT_THERE"))
    assert len(requests) == 2
    _, _, requests = await work(step(providers="MOON"))
    assert len(requests) == 3


async def test_a_failed_critical_step_ends_the_loop() -> None:
    _, turn, requests = await work(step("BREAK"), step("FIND"))
    assert "found" not in turn.state.data
    assert "- BREAK: failed: broken" in requests[-1].prompt


async def test_a_truncated_step_does_not_run() -> None:
    _, turn, _ = await work("<response><action>FIND</action><parameters>{")
    assert "found" not in turn.state.data


@pytest.mark.parametrize(
    "summary", ["Plain words.", "<text>Plain words.</text>", SUMMARY.replace("So it went", "Plain words")]
)
async def test_the_summary_is_read_with_or_without_tags(summary: str) -> None:
    text, _, _ = await work(step(finish=True), summary=summary)
    assert text == "Plain words."


async def test_an_empty_summary_is_not_an_answer() -> None:
    with pytest.raises(NoAnswer):
        await work(step(finish=True), summary="<response></response>")


async def test_steps_and_summary_are_journalled_and_paid_for_once(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "Find it")
    made = ScriptedModel([step("FIND", '{"what": "a"}', finish=True), SUMMARY])
    async with running_agent(model=made, store=agent_harness.agent.store) as other:
        turn.agent = other.agent
        await make().run(turn, run_once)
        again = make_turn(other.agent, "Find it")
        again.id = turn.id
        assert await make().run(again, run_once) == "So it went."
    assert len(made.requests) == 2
    assert again.results == turn.results
    assert "found" not in again.state.data


HOSTILE = (
    step("COUNT", '{"times": 1}'),
    step("count", '{"times": "1"}'),
    step("C_O_U_N_T", '{"times": 2, "where": "here"}'),
    step("COUNT", '{"times": [], "more": {}}'),
    step("COUNT", "null", providers="MOON,MOON,NOTHING"),
    step("BREAK", finish=True),
    step("REPLY"),
    step("DROP TABLE", '{"times": 1}'),
    "COUNT COUNT COUNT",
    "<response><action>COUNT</action><action>FIND</action><parameters>{{{",
    "",
    SUMMARY,
)


@pytest.mark.matrix(3)
@pytest.mark.failure("F-19")
@pytest.mark.parametrize("seed", range(25))
async def test_any_model_output_ends_the_loop_and_runs_nothing_twice(seed: int) -> None:
    chance = Random(seed)

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.REPAIR:
            return chance.choice(['{"times": 1}', '{"times": 2}', "{}", "no"])
        return chance.choice(HOSTILE)

    async with running_agent(model=ScriptedModel(script)) as harness:
        turn = make_turn(harness.agent, "Count")
        with suppress(NoAnswer):
            assert (await make().run(turn, run_once)).strip()
        counted = turn.state.data.get("counted", [])
        assert len(counted) == len(set(counted))
        assert len(harness.model.requests_for(Purpose.STEP)) <= 6
        assert len(harness.model.requests_for(Purpose.SUMMARY)) <= 3
