"""Tests of action planning; run them with: bot plugin test ./action_planning --trust"""

from contextlib import AbstractAsyncContextManager

from action_planning import Tracker, plugin

from bot.models import Purpose
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, model_answer, running_agent

REQUEST = "File a bug about the login and give it to John"
PARAMETERS = {"CREATE_ISSUE": '{"title": "the login fails"}', "ASSIGN_ISSUE": '{"assignee": "John"}'}


def plan(*actions: str, then: str = "Done.") -> AbstractAsyncContextManager[AgentHarness]:
    """Run an agent whose model plans these actions, then says something about their results."""
    parameters = {name: values for name, values in PARAMETERS.items() if name in actions}
    call = model_answer(actions=actions, parameters=parameters if len(actions) > 1 else {"assignee": "John"})
    return running_agent(plugin, model=ScriptedModel([call, model_answer(then)]))


async def test_each_action_uses_the_result_of_the_action_before() -> None:
    async with plan("CHECK_TRACKER", "CREATE_ISSUE", "ASSIGN_ISSUE", "REPORT_PLAN") as harness:
        await harness.send(REQUEST)
        [issue] = harness.agent.services[Tracker].issues.values()
    assert (issue.id, issue.title, issue.assignee) == ("BUG-1", "the login fails", "John")
    assert harness.texts == [
        "Step 4 of 4\n✓ the tracker can be used\n✓ filed BUG-1: the login fails\n✓ assigned BUG-1 to John"
    ]


async def test_an_action_without_the_result_that_it_needs_fails_and_the_model_reads_why() -> None:
    async with plan("ASSIGN_ISSUE", then="Nothing was filed.") as harness:
        await harness.send("Give it to John")
        [summary] = harness.model.requests_for(Purpose.SUMMARY)
    assert "no issue was filed before" in summary.prompt
    assert harness.texts == ["Nothing was filed."]


async def test_a_failed_step_does_not_end_the_plan() -> None:
    async with plan("CREATE_ISSUE", "ASSIGN_ISSUE", "REPORT_PLAN") as harness:
        harness.agent.services[Tracker].team = ("Mary",)
        await harness.send(REQUEST)
    assert harness.texts[0] == "Step 3 of 3\n✓ filed BUG-1: the login fails\n✗ the team is Mary"


async def test_a_failed_critical_step_ends_the_plan() -> None:
    async with plan("CHECK_TRACKER", "CREATE_ISSUE", "ASSIGN_ISSUE", then="It is closed today.") as harness:
        tracker = harness.agent.services[Tracker]
        tracker.is_open = False
        receipt = await harness.send(REQUEST)
        assert tracker.issues == {}
    assert "CHECK_TRACKER failed and is critical; what came after it was not run" in receipt.notes
    assert harness.texts == ["It is closed today."]


async def test_an_action_that_runs_again_files_no_second_issue() -> None:
    async with running_agent(plugin) as harness:
        tracker = harness.agent.services[Tracker]
        assert tracker.create("turn", "the login fails") is tracker.create("turn", "the login fails")


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
