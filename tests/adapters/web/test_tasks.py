"""Rules of scheduled tasks over HTTP: listed by their time, run now, paused, resumed, deleted."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from bot import Agent, Plugin, Task, TaskSchedule, TaskTag, derived_id, system_clock, worker
from bot.background.scheduler import Scheduler
from bot.domain.task import merge_schedule
from tests.adapters.web.conftest import RunningServer, ServerFactory

HOURLY = TaskSchedule(timedelta(hours=1)).to_metadata()
REPEATING = frozenset({TaskTag.QUEUE, TaskTag.REPEAT})


class Chores:
    """A plugin whose worker counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []

        @worker("CHORE")
        async def chore(agent: Agent, task: Task) -> None:
            self.runs.append(task.description)
            if "fail" in task.description:
                raise ValueError("out of thread")

        self.plugin = Plugin("chores", workers=[chore])


async def add(server: RunningServer, name: str, hours: float = 1, **fields: Any) -> Task:
    task = Task(derived_id("chore", name), "CHORE", system_clock() + timedelta(hours=hours), name, **fields)
    await server.runtime.agents[0].agent.store.tasks.save_task(task)
    return task


async def run_due(server: RunningServer) -> None:
    runtime = server.runtime.agents[0]
    await Scheduler(runtime.agent, runtime.registry).run_due()


async def decide(server: RunningServer, task: Task, decision: str, status: int = 200) -> Any:
    return await server.post(f"/api/tasks/{task.id}/{decision}", None, status)


async def test_tasks_are_listed_by_their_time_page_by_page(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        outcome = await server.send("hello", user="eve")
        person = (await server.get("/api/people"))["people"][0]["id"]
        await add(server, "mend", 3, tags=REPEATING, metadata=HOURLY)
        await add(server, "sweep", 1, room_id=UUID(outcome["room_id"]), entity_id=UUID(person))
        await add(server, "wait", 2, tags=frozenset({TaskTag.AWAITING_CHOICE}))
        await add(server, "give up", 4, is_parked=True)
        tasks = (await server.get("/api/tasks"))["tasks"]
        assert [task["description"] for task in tasks] == ["sweep", "wait", "mend", "give up"]
        assert [task["state"] for task in tasks] == ["waiting", "asking", "waiting", "failed"]
        assert (tasks[0]["room"], tasks[0]["person"], tasks[0]["every_s"]) == ("api", "eve", None)
        assert (tasks[2]["every_s"], tasks[2]["cron"], tasks[2]["late_s"]) == (3600, "", 0)
        listed, query = [], "limit=3"
        while query:
            page = await server.get(f"/api/tasks?{query}")
            listed += page["tasks"]
            query = page["next"] and f"limit=3&before={page['next']}"
        assert listed == tasks
        assert [task["description"] for task in (await server.get("/api/tasks?state=failed"))["tasks"]] == ["give up"]
        await server.get("/api/tasks?state=lost", 422)


async def test_a_task_runs_now_and_says_when_it_ran_last_and_why_it_failed(open_server: ServerFactory) -> None:
    chores = Chores()
    async with open_server(chores.plugin) as server:
        repair = await add(server, "mend", tags=REPEATING, metadata=HOURLY)
        fail = await add(server, "fail", tags=REPEATING, metadata=HOURLY)
        for task in (repair, fail):
            assert (await decide(server, task, "run"))["state"] == "waiting"
        await run_due(server)
        while len(chores.runs) < 2:
            await run_due(server)
        shown = {task["description"]: task for task in (await server.get("/api/tasks"))["tasks"]}
        assert shown["mend"]["last_at"] is not None
        assert shown["mend"]["problem"] == ""
        assert (shown["fail"]["attempts"], "out of thread" in shown["fail"]["problem"]) == (1, True)


async def test_a_paused_task_stays_paused_when_it_is_scheduled_again(open_server: ServerFactory) -> None:
    chores = Chores()
    async with open_server(chores.plugin) as server:
        repair = await add(server, "mend", 1, tags=REPEATING, metadata=HOURLY)
        assert (await decide(server, repair, "pause"))["state"] == "paused"
        tasks = server.runtime.agents[0].agent.store.tasks
        stored = await tasks.task(repair.id)
        assert stored is not None
        assert merge_schedule(repair, stored).is_paused
        assert (await decide(server, repair, "run", 409))["error"]["message"] == "it is paused: resume it first"
        assert (await decide(server, repair, "resume"))["state"] == "waiting"
        assert (await decide(server, repair, "resume"))["state"] == "waiting"


async def test_a_task_that_runs_or_waits_for_a_choice_is_not_changed(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        asking = await add(server, "ask", tags=frozenset({TaskTag.AWAITING_CHOICE}))
        for decision in ("run", "pause"):
            await decide(server, asking, decision, 409)


async def test_a_deleted_task_is_gone(open_server: ServerFactory) -> None:
    async with open_server(Chores().plugin) as server:
        repair = await add(server, "mend")
        path = f"/api/tasks/{repair.id}"
        for status in (200, 404):
            answer = await server.request("DELETE", path, headers=server.bearer)
            await server.check_response("DELETE", path, answer, status)
        assert (await server.get("/api/tasks"))["tasks"] == []
        await decide(server, repair, "run", 404)
