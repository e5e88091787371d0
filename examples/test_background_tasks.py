"""Tests of the background tasks; run them with: bot plugin test ./background_tasks --trust"""

from datetime import timedelta

from background_tasks import has_reminders, plugin, send_reminder, summarize

from bot import Task, derived_id
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ManualClock, ScriptedModel, check_plugin_contract, model_answer, running_agent

CALL = model_answer(actions=["REMIND_ME"], parameters={"about": "the kettle", "minutes": 5})
MODEL = [CALL, model_answer("I will.")]


async def ask(harness: AgentHarness) -> Task:
    """Ask for a reminder; return its task."""
    await harness.send("Remind me of the kettle in 5 minutes", author="Kim")
    [task] = await harness.agent.store.tasks.tasks(name=send_reminder.name)
    return task


async def find_summary(harness: AgentHarness) -> Task:
    """Return the task of the summary."""
    task = await harness.agent.store.tasks.task(derived_id(harness.agent.id, "background_tasks", "summary"))
    assert task is not None
    return task


async def test_a_reminder_is_a_stored_task_that_is_due_once() -> None:
    clock = ManualClock()
    async with running_agent(plugin, model=ScriptedModel(MODEL), clock=clock.now) as harness:
        task = await ask(harness)
    assert task.next_run == clock.now() + timedelta(minutes=5)
    assert not task.is_repeating


async def test_a_reminder_is_sent_once_however_often_its_task_runs() -> None:
    async with running_agent(plugin, model=ScriptedModel(MODEL)) as harness:
        task = await ask(harness)
        for _ in range(2):
            await send_reminder(harness.agent, task)
        await harness.adapter.wait_until_sent(2)
        await harness.agent.outbox.drain(5.0)
    assert harness.texts == ["I will.", "Kim, you wanted to hear of: the kettle"]


async def test_a_reminder_and_the_summary_survive_a_restart() -> None:
    clock, store = ManualClock(), InMemoryStore()
    async with running_agent(plugin, model=ScriptedModel(MODEL), store=store, clock=clock.now) as harness:
        before = {(await ask(harness)).id, (await find_summary(harness)).id}
        next_run = (await find_summary(harness)).next_run
    async with running_agent(plugin, store=store, clock=clock.now) as harness:
        tasks = await harness.agent.store.tasks.tasks()
        assert (await find_summary(harness)).next_run == next_run
    assert before <= {task.id for task in tasks}


async def test_the_summary_is_due_every_morning() -> None:
    clock = ManualClock()
    async with running_agent(plugin, clock=clock.now) as harness:
        task = await find_summary(harness)
    assert task.is_repeating
    assert (task.next_run.hour, task.next_run.minute) == (8, 0)
    assert timedelta() < task.next_run - clock.now() <= timedelta(days=1)


async def test_the_summary_runs_only_where_there_is_something_to_tell() -> None:
    async with running_agent(plugin, model=ScriptedModel(MODEL)) as harness:
        task = await find_summary(harness)
        assert not await has_reminders(harness.agent, task)
        await ask(harness)
        assert await has_reminders(harness.agent, task)
        await summarize(harness.agent, task)
        await harness.adapter.wait_until_sent(2)
    assert harness.texts[-1] == "Reminders to come: 1."


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
