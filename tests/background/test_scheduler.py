"""Work for later."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.background import scheduler as scheduler_module
from bot.background.scheduler import MAX_FAILURES, Scheduler
from bot.domain.environment import TakeOver
from bot.domain.ids import derived_id
from bot.domain.task import Task
from bot.plugin_system.components import Worker
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.tasks import SqlTasks
from bot.turn import Agent
from tests.scheduling import DEADLINE, START, a_bench, fail, repeating

ROOM, PERSON = derived_id("room"), derived_id("person")


async def test_a_task_runs_once_when_it_is_due_and_is_gone() -> None:
    async with a_bench() as bench:
        task = await bench.save(next_run=START + timedelta(seconds=1))
        assert await bench.scheduler.run_due() == 0
        bench.clock.advance(seconds=1)

        assert await bench.scheduler.run_due() == 1
        assert await bench.scheduler.run_due() == 0
        assert [run.id for run in bench.runs] == [task.id]
        assert await bench.tasks.tasks(name="POST") == []


async def test_a_repeating_task_is_due_again_after_its_interval() -> None:
    async with a_bench() as bench:
        task = await bench.save(**repeating(), attempts=3, last_error="earlier")
        await bench.scheduler.run_due()
        after = await bench.now(task)

        assert after.next_run == START + timedelta(minutes=1)
        assert (after.attempts, after.last_error, after.leased_until) == (0, "", None)
        bench.clock.advance(hours=8)
        assert await bench.scheduler.run_due() == 1
        assert await bench.scheduler.run_due() == 0


@pytest.mark.parametrize("interval", [0, -5, 1])
async def test_a_repeating_task_never_runs_without_a_pause(interval: int) -> None:
    async with a_bench() as bench:
        task = await bench.save(**repeating(interval))
        await bench.scheduler.run_due()

        assert (await bench.now(task)).next_run == START + timedelta(seconds=1)


@pytest.mark.parametrize("interval", ["soon", None, [1], float("nan"), 1e300])
async def test_an_interval_that_is_no_number_is_a_failure(interval: Any) -> None:
    async with a_bench() as bench:
        task = await bench.save(**repeating(interval))
        await bench.scheduler.run_due()
        after = await bench.now(task)

        assert "updateInterval" in after.last_error
        assert (after.attempts, after.leased_until) == (1, None)
        assert after.next_run > START


@pytest.mark.failure("J-06")
@pytest.mark.parametrize("details", [{}, repeating()], ids=["once", "repeating"])
async def test_a_failing_task_is_tried_again_later_and_later_and_in_the_end_parked(details: Any) -> None:
    async with a_bench(fail) as bench:
        task = await bench.save(**details)
        waits: list[timedelta] = []
        for attempts in range(1, MAX_FAILURES + 1):
            await bench.scheduler.run_due()
            after = await bench.now(task)
            assert (after.attempts, after.last_error) == (attempts, "ValueError: no words")
            waits.append(after.next_run - bench.clock.now)
            bench.clock.now = after.next_run

        assert waits == sorted(waits)
        assert waits[-1] == timedelta(hours=1)
        assert after.is_parked
        bench.clock.advance(days=9)
        assert await bench.scheduler.run_due() == 0
        assert len(bench.runs) == MAX_FAILURES


@pytest.mark.failure("J-06")
async def test_a_parked_task_is_reported_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    async with a_bench(fail) as bench:
        await bench.save(attempts=MAX_FAILURES - 1)
        await bench.scheduler.run_due()

    assert "is parked: ValueError: no words" in caplog.text


async def test_a_task_that_succeeds_at_last_forgets_its_failures() -> None:
    async with a_bench() as bench:
        task = await bench.save(**repeating(), attempts=7, last_error="no words")
        await bench.scheduler.run_due()

        assert ((await bench.now(task)).attempts, (await bench.now(task)).last_error) == (0, "")


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_worker_may_raise_anything(error: BaseException) -> None:
    async def work(agent: Agent, task: Task) -> None:
        raise error

    async with a_bench(work) as bench:
        task = await bench.save()
        await bench.save()
        assert await bench.scheduler.run_due() == 2

        assert (await bench.now(task)).attempts == 1


async def test_a_worker_that_does_not_come_back_is_stopped_within_its_lease() -> None:
    async def work(agent: Agent, task: Task) -> None:
        await asyncio.Event().wait()

    async with a_bench(work) as bench:
        bench.registry = Registry([Plugin("test", workers=[Worker("POST", bench.run, 0)])])
        task = await bench.save()
        await Scheduler(bench.agent, bench.registry).run_due()

        assert "no answer within 0 s" in (await bench.now(task)).last_error


@pytest.mark.failure("J-09")
async def test_a_task_of_another_agents_worker_is_left_alone() -> None:
    async with a_bench() as bench:
        task = await bench.save(name="REMOVED_PLUGIN")

        assert await bench.scheduler.run_due() == 0
        assert await bench.now(task) == task
        assert await Scheduler(bench.agent, Registry([])).run_due() == 0


async def test_a_running_task_is_leased_until_its_own_deadline() -> None:
    async with a_bench() as bench:
        await bench.save()
        await bench.scheduler.run_due()
        [run] = bench.runs

        assert run.leased_until == START + timedelta(seconds=DEADLINE)
        assert run.fencing_token == 1


@pytest.mark.failure("J-08")
async def test_what_another_process_is_running_is_not_run() -> None:
    async with a_bench() as bench:
        task = await bench.save(**repeating())
        await bench.tasks.claim_tasks({"POST": timedelta(minutes=1)}, START)
        assert await bench.scheduler.run_due() == 0
        bench.clock.advance(minutes=1)

        assert await bench.scheduler.run_due() == 1
        assert (await bench.now(task)).next_run == bench.clock.now + timedelta(minutes=1)


@pytest.mark.failure("J-08")
async def test_who_has_lost_the_task_to_another_process_changes_nothing() -> None:
    stolen: list[Task] = []

    async def work(agent: Agent, task: Task) -> None:
        later = START + timedelta(hours=1)
        stolen.extend(await agent.store.tasks.claim_tasks({"POST": timedelta(minutes=1)}, later))

    async with a_bench(work) as bench:
        task = await bench.save(**repeating())
        await bench.scheduler.run_due()

        assert [await bench.now(task)] == stolen


@pytest.mark.failure("J-02")
async def test_a_task_that_outlives_its_lease_is_not_started_a_second_time() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        started.set()
        await go.wait()

    async with a_bench(work) as bench:
        task = await bench.save(**repeating())
        run = asyncio.ensure_future(bench.scheduler.run_due())
        await started.wait()
        bench.clock.advance(hours=8)  # the machine slept
        assert await bench.scheduler.run_due() == 0
        go.set()
        assert await run == 1

        assert len(bench.runs) == 1
        after = await bench.now(task)
        assert (after.next_run, after.leased_until) == (bench.clock.now + timedelta(minutes=1), None)


async def test_what_a_worker_notes_in_its_task_while_it_runs_is_kept() -> None:
    async def work(agent: Agent, task: Task) -> None:
        noted = {**task.metadata, "done": 3, "updateInterval": 120_000}
        await agent.store.tasks.save_task(replace(task, metadata=noted, description="half done"))

    async with a_bench(work) as bench:
        task = await bench.save(**repeating())
        await bench.scheduler.run_due()
        after = await bench.now(task)

        assert after.metadata["done"] == 3
        assert after.description == "half done"
        assert after.next_run == START + timedelta(minutes=2)


async def test_what_a_worker_notes_is_kept_when_it_fails() -> None:
    async def work(agent: Agent, task: Task) -> None:
        await agent.store.tasks.save_task(replace(task, metadata={"done": 3}))
        raise ValueError("no words")

    async with a_bench(work) as bench:
        task = await bench.save()
        await bench.scheduler.run_due()
        after = await bench.now(task)

        assert (after.metadata, after.attempts) == ({"done": 3}, 1)


async def test_a_task_removed_while_it_runs_does_not_come_back() -> None:
    async def work(agent: Agent, task: Task) -> None:
        await agent.store.tasks.delete_task(task.id)

    async with a_bench(work) as bench:
        await bench.save(**repeating())
        await bench.scheduler.run_due()

        assert await bench.tasks.tasks(name="POST") == []


class BrittleTasks(SqlTasks):
    """Tasks whose store fails a few times."""

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store.database, ALL_AGENTS)
        self.claim_faults = self.complete_faults = 0

    async def claim_tasks(self, *arguments: Any) -> list[Task]:
        if self.claim_faults:
            self.claim_faults -= 1
            raise OSError("locked")
        return await super().claim_tasks(*arguments)

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        if self.complete_faults:
            self.complete_faults -= 1
            raise OSError("locked")
        return await super().complete_task(task, replacement)


async def test_a_store_that_fails_at_the_end_of_a_run_disturbs_no_other() -> None:
    store = InMemoryStore()
    tasks = store.tasks = BrittleTasks(store)
    async with a_bench(store=store) as bench:
        for _ in range(3):
            await bench.save()
        tasks.complete_faults = 1
        assert await bench.scheduler.run_due() == 3
        assert len(await bench.tasks.tasks(name="POST")) == 1

        bench.clock.advance(hours=1)  # its lease is over
        assert await bench.scheduler.run_due() == 1
        assert await bench.tasks.tasks(name="POST") == []


async def test_the_scheduler_looks_again_and_again_and_survives_a_failing_store() -> None:
    store = InMemoryStore()
    tasks = store.tasks = BrittleTasks(store)
    done = asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        done.set()

    async with a_bench(work, store) as bench:
        tasks.claim_faults = 3
        async with bench.scheduler:
            await bench.save()
            await done.wait()

        assert len(bench.runs) == 1
        assert tasks.claim_faults == 0


@pytest.mark.failure("J-12")
async def test_stopping_ends_the_lease_of_what_is_under_way_and_nothing_is_left_running() -> None:
    started = asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        started.set()
        await asyncio.Event().wait()

    async with a_bench(work) as bench:
        before = asyncio.all_tasks()
        task = await bench.save(**repeating())
        async with bench.scheduler:
            await started.wait()
        left = await bench.now(task)

        assert left.leased_until is None
        assert asyncio.all_tasks() == before
        [again] = await bench.tasks.claim_tasks({"POST": timedelta(minutes=1)}, START)  # a process started at once
        assert again.attempts == 1
        assert again.run_key == bench.runs[0].run_key


async def test_stopping_while_a_task_is_claimed_ends_its_lease() -> None:
    is_claimed = asyncio.Event()

    class SlowTasks(SqlTasks):
        async def claim_tasks(self, *arguments: Any) -> list[Task]:
            claimed = await super().claim_tasks(*arguments)
            if claimed:
                is_claimed.set()
                for _ in range(5):  # the answer is on its way
                    await asyncio.sleep(0)
            return claimed

    store = InMemoryStore()
    store.tasks = SlowTasks(store.database, ALL_AGENTS)
    async with a_bench(store=store) as bench:
        task = await bench.save()
        async with bench.scheduler:
            await is_claimed.wait()

        assert (await bench.now(task)).leased_until is None
        assert bench.runs == []


async def test_what_a_stopped_worker_has_noted_or_removed_stays_so() -> None:
    started = [asyncio.Event() for _ in range(2)]

    async def work(agent: Agent, task: Task) -> None:
        if task.description:
            await agent.store.tasks.save_task(replace(task, metadata={"done": 3}))
        else:
            await agent.store.tasks.delete_task(task.id)
        started[bool(task.description)].set()
        await asyncio.Event().wait()

    async with a_bench(work) as bench:
        noted = await bench.save(description="Write.")
        await bench.save()
        async with bench.scheduler:
            for event in started:
                await event.wait()

        assert [(task.id, task.metadata) for task in await bench.tasks.tasks()] == [(noted.id, {"done": 3})]


async def test_after_a_crash_a_task_waits_for_the_deadline_of_its_own_worker() -> None:
    async with a_bench() as bench:
        bench.registry = Registry(
            [Plugin("test", workers=[Worker("POST", bench.run, 5), Worker("LONG", bench.run, 600)])]
        )
        short, long = await bench.save(), await bench.save(name="LONG")
        claim = Scheduler(bench.agent, bench.registry)._claim
        await claim(10)  # and the process dies

        assert (await bench.now(short)).leased_until == START + timedelta(seconds=5)
        assert (await bench.now(long)).leased_until == START + timedelta(seconds=600)
        bench.clock.advance(seconds=5)
        assert await Scheduler(bench.agent, bench.registry).run_due() == 1


async def test_stopping_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "CANCEL_GRACE_SECONDS", 0)
    started, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        started.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    async with a_bench(work) as bench:
        await bench.save()
        async with bench.scheduler:
            await started.wait()
        go.set()
        await ended.wait()


@pytest.mark.parametrize("details", [{}, repeating()], ids=["once", "repeating"])
async def test_a_task_of_a_room_that_a_person_has_taken_over_waits_until_it_is_given_back(details: Any) -> None:
    async with a_bench() as bench:
        task = await bench.save(room_id=ROOM, **details)
        take_overs = bench.agent.store.take_overs
        await take_overs.begin(TakeOver(ROOM, "Mia", "a test", START))
        for _ in range(3):
            await bench.scheduler.run_due()
            bench.clock.advance(minutes=1)
        assert bench.runs == []
        waiting = await bench.now(task)
        assert (waiting.attempts, waiting.last_error, waiting.leased_until) == (0, "", None)
        await take_overs.end(ROOM, None, bench.clock.now)
        await bench.scheduler.run_due()
        assert [run.id for run in bench.runs] == [task.id]


async def test_a_task_for_a_person_waits_while_that_person_is_taken_over_and_those_of_others_run() -> None:
    async with a_bench() as bench:
        await bench.agent.store.take_overs.begin(TakeOver(ROOM, "Mia", "a test", START, PERSON))
        await bench.save(room_id=ROOM, entity_id=PERSON)
        other = await bench.save(room_id=ROOM)
        await bench.scheduler.run_due()
        assert [run.id for run in bench.runs] == [other.id]


async def test_a_task_whose_late_runs_are_left_out_skips_its_runs_in_a_taken_over_room() -> None:
    async with a_bench() as bench:
        details = repeating()
        details["metadata"] |= {"missed": "skip"}
        task = await bench.save(room_id=ROOM, **details)
        await bench.agent.store.take_overs.begin(TakeOver(ROOM, "Mia", "a test", START))
        await bench.scheduler.run_due()
        assert (await bench.now(task)).next_run == START + timedelta(minutes=1)
        assert bench.runs == []
