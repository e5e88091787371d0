"""What wakes the scheduler, and what becomes of tasks as clocks, processes and workers fail."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.background.scheduler import MAX_CONCURRENT_TASKS, MAX_FAILURES, MAX_SLEEP_SECONDS, RECHECK_INTERVAL, Scheduler
from bot.domain.ids import derived_id
from bot.domain.task import Task, TaskTag
from bot.plugin_system.components import Worker
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.store import InMemoryStore
from bot.store.protocols import Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import running_agent
from bot.turn import Agent
from tests.scheduling import START, a_bench, fail, repeating


@pytest.fixture
def store() -> InMemoryStore:
    """Return a store."""
    return InMemoryStore()


@pytest.mark.failure("J-01")
@pytest.mark.parametrize("jump", [-2, 2, -24], ids="{:+} h".format)
async def test_a_clock_that_is_set_doubles_no_run(jump: int) -> None:
    async def work(agent: Agent, task: Task) -> None:
        if len(bench.runs) == 1:
            bench.clock.advance(hours=jump)
            assert await bench.scheduler.run_due() == 0  # it runs already

    async with a_bench(work) as bench:
        once, again = await bench.save(), await bench.save(**repeating(), next_run=START)
        ran = 0
        for _ in range(10):
            ran += await bench.scheduler.run_due()

        assert ran == len(bench.runs) == 2
        assert {run.id for run in bench.runs} == {once.id, again.id}


@pytest.mark.failure("J-02")
async def test_a_task_that_skips_runs_at_its_next_time_only() -> None:
    async with a_bench() as bench:
        task = await bench.save(
            tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), metadata={"updateInterval": 3_600_000, "missed": "skip"}
        )
        late = await bench.save(metadata={"missed": "skip"})
        bench.clock.advance(hours=8, minutes=30)
        await bench.scheduler.run_due()

        assert bench.runs == []
        assert (await bench.now(task)).next_run == START + timedelta(hours=9)
        assert await bench.tasks.task(late.id) is None
        bench.clock.advance(minutes=30)
        await bench.scheduler.run_due()
        assert [run.id for run in bench.runs] == [task.id]


@pytest.mark.failure("J-02")
async def test_a_task_that_catches_up_runs_once_for_every_missed_time() -> None:
    async with a_bench() as bench:
        await bench.save(
            tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), metadata={"updateInterval": 3_600_000, "missed": "all"}
        )
        bench.clock.advance(hours=8)
        while await bench.scheduler.run_due():
            pass

        assert [run.next_run - START for run in bench.runs] == [timedelta(hours=hour) for hour in range(9)]
        assert len({run.run_key for run in bench.runs}) == 9


@pytest.mark.failure("J-04")
async def test_a_run_longer_than_its_interval_overlaps_nothing_and_what_it_skips_is_counted() -> None:
    async def work(agent: Agent, task: Task) -> None:
        bench.clock.advance(seconds=210)
        assert await bench.scheduler.run_due() == 0

    async with a_bench(work) as bench:
        task = await bench.save(**repeating())
        for _ in range(2):
            await bench.scheduler.run_due()
            after = await bench.now(task)
            bench.clock.now = after.next_run

        assert len(bench.runs) == 2
        assert after.metadata["skipped"] == 6
        assert after.next_run == START + timedelta(minutes=8)


@pytest.mark.failure("J-05")
async def test_a_task_slower_than_many_looks_runs_once() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        started.set()
        await go.wait()

    async with a_bench(work) as bench:
        await bench.save()
        async with bench.scheduler:
            await started.wait()
            for _ in range(5):
                await bench.nights.asked.get()
                bench.nights.end()
            go.set()
            await bench.until_gone()

        assert len(bench.runs) == 1


@pytest.mark.failure("J-07")
async def test_all_attempts_of_a_run_have_the_same_key_and_the_next_run_has_another(store: Store) -> None:
    async def work(agent: Agent, task: Task) -> None:
        if len(bench.runs) == 2:
            raise OSError("no network")

    async with a_bench(work, store) as bench:
        task = await bench.save(**repeating())
        await bench.tasks.claim_tasks({"POST": timedelta(minutes=1)}, START)  # and it is killed
        for _ in range(3):
            bench.clock.advance(minutes=1)
            await bench.scheduler.run_due()
        kept = await bench.now(task)

        assert [run.attempts for run in bench.runs] == [1, 0, 1]
        first, second, third = (run.run_key for run in bench.runs)
        assert second == third != first
        assert kept.attempts == 0


@pytest.mark.failure("J-07")
async def test_a_task_that_ends_its_process_every_time_is_parked_and_not_run_again() -> None:
    async with a_bench() as bench:
        task = await bench.save(attempts=MAX_FAILURES - 1)
        await bench.tasks.claim_tasks({"POST": timedelta()}, START)
        await bench.scheduler.run_due()
        after = await bench.now(task)

        assert bench.runs == []
        assert after.is_parked
        assert "its process ended while it ran" in after.last_error


@pytest.mark.failure("J-08")
async def test_of_several_schedulers_a_single_scheduler_runs_a_task(store: Store) -> None:
    async with a_bench(store=store) as bench:
        for _ in range(8):
            await bench.save(**repeating())
        others = [Scheduler(bench.agent, bench.registry) for _ in range(4)]
        assert sum(await asyncio.gather(*(scheduler.run_due() for scheduler in others))) == 8

        assert len({run.id for run in bench.runs}) == len(bench.runs) == 8


@pytest.mark.failure("J-09")
async def test_tasks_whose_worker_is_gone_are_kept_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with a_bench() as bench:
        task = await bench.save(name="REMOVED_PLUGIN")
        await bench.save(is_parked=True)
        for registry in (bench.registry, Registry([])):
            caplog.clear()
            async with Scheduler(bench.agent, registry, sleep=bench.nights):
                for _ in range(5):
                    await asyncio.sleep(0)
            assert "1 tasks of REMOVED_PLUGIN wait: no plugin has a worker" in caplog.text
            assert ("1 tasks of POST are parked" in caplog.text) is bool(registry.workers)

        assert await bench.now(task) == task


@pytest.mark.long
@pytest.mark.failure("J-10")
async def test_much_that_is_due_at_once_is_done_a_few_at_a_time() -> None:
    running = most = 0

    async def work(agent: Agent, task: Task) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    async with a_bench(work) as bench:
        for _ in range(200):
            await bench.save()
        async with bench.scheduler:
            await bench.until_gone()

        assert len(bench.runs) == 200
        assert most == MAX_CONCURRENT_TASKS


async def test_it_sleeps_until_the_next_task_is_due_and_looks_at_the_clock_now_and_then() -> None:
    async with a_bench() as bench, bench.scheduler:
        assert await bench.nights.asked.get() == MAX_SLEEP_SECONDS
        await bench.save(next_run=START + timedelta(hours=5))
        assert await bench.nights.asked.get() == MAX_SLEEP_SECONDS
        bench.clock.advance(hours=4, minutes=59, seconds=57)
        bench.nights.end()
        assert await bench.nights.asked.get() == 3.0
        bench.clock.advance(seconds=3)
        bench.nights.end()
        await bench.until_gone()
        assert len(bench.runs) == 1


async def test_a_new_task_wakes_the_scheduler_and_a_task_may_begin_the_next(store: Store) -> None:
    done = asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        step = task.metadata["step"]
        if step == 3:
            done.set()
        else:
            following = derived_id(task.run_key, "next")
            await agent.schedule(Task(following, "POST", agent.clock(), metadata={"step": step + 1}))

    async with a_bench(work, store) as bench:
        async with bench.scheduler:
            await bench.nights.asked.get()
            await bench.save(metadata={"step": 1})
            await done.wait()
        assert [run.metadata["step"] for run in bench.runs] == [1, 2, 3]


@pytest.mark.parametrize("details", [{}, repeating(120_000)], ids=["once", "repeating"])
async def test_what_its_worker_does_not_want_now_is_asked_about_later(details: dict[str, Any]) -> None:
    answers = [False, True]

    async def validate(agent: Agent, task: Task) -> bool:
        return answers.pop(0)

    async with a_bench(validate=validate) as bench:
        task = await bench.save(**details)
        await bench.scheduler.run_due()
        after = await bench.now(task)
        assert (bench.runs, after.attempts, after.last_error) == ([], 0, "")
        assert after.next_run == START + (timedelta(minutes=2) if details else RECHECK_INTERVAL)

        bench.clock.now = after.next_run
        await bench.scheduler.run_due()
        assert len(bench.runs) == 1


async def test_a_question_that_fails_is_a_failed_run() -> None:
    async def validate(agent: Agent, task: Task) -> bool:
        raise OSError("who knows")

    async with a_bench(validate=validate) as bench:
        task = await bench.save()
        await bench.scheduler.run_due()
        assert (await bench.now(task)).last_error == "OSError: who knows"
        assert bench.runs == []


async def test_with_times_that_make_no_sense_nothing_is_begun() -> None:
    async with a_bench() as bench:
        task = await bench.save(tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), metadata={"cron": "at nine"})
        await bench.scheduler.run_due()
        assert "its cron is no cron expression" in (await bench.now(task)).last_error
        assert bench.runs == []


async def test_a_task_created_again_at_every_start_keeps_its_time_and_its_notes(store: Store) -> None:
    async with a_bench(store=store) as bench:
        daily = Task(
            derived_id("daily"),
            "POST",
            START,
            tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}),
            metadata={"cron": "0 18 * * *", "timezone": "Europe/Berlin"},
        )
        left = await bench.agent.schedule(daily)
        assert left.next_run == START + timedelta(hours=4)
        await bench.tasks.save_task(replace(left, metadata={**left.metadata, "posted": 3}, attempts=2))

        bench.clock.advance(hours=12)
        again = await bench.agent.schedule(replace(daily, next_run=bench.clock.now, description="Posts."))
        assert (again.next_run, again.attempts, again.description) == (left.next_run, 2, "Posts.")
        assert again.metadata["posted"] == 3
        assert await bench.now(again) == again
        assert await bench.scheduler.run_due() == 1


async def test_a_task_created_at_other_times_or_after_it_was_parked_begins_again() -> None:
    async with a_bench(fail) as bench:
        task = Task(derived_id("daily"), "POST", START, **repeating())
        await bench.agent.schedule(task)
        other = await bench.agent.schedule(replace(task, metadata={"cron": "0 18 * * *"}))
        assert (other.next_run, dict(other.metadata)) == (START + timedelta(hours=6), {"cron": "0 18 * * *"})

        await bench.tasks.save_task(replace(other, is_parked=True, attempts=MAX_FAILURES, last_error="x"))
        freed = await bench.agent.schedule(replace(task, metadata={"cron": "0 18 * * *"}))
        assert (freed.is_parked, freed.attempts, freed.last_error) == (False, 0, "")


async def test_tasks_outlive_their_process(tmp_path: Path) -> None:
    path, agent_id = tmp_path / "greenroom.db", derived_id("agent")
    async with OpenFiles().open_store(path, agent_id) as store, a_bench(fail, store) as bench:
        await bench.agent.schedule(Task(derived_id("daily"), "POST", START, **repeating()))
        bench.clock.advance(minutes=1)
        await bench.scheduler.run_due()
    async with OpenFiles().open_store(path, agent_id) as store, a_bench(store=store) as later:
        later.clock.advance(hours=3)
        await later.scheduler.run_due()
        [after] = await later.tasks.tasks(name="POST")

        assert [(run.attempts, run.last_error) for run in later.runs] == [(1, "ValueError: no words")]
        assert (after.attempts, after.metadata["skipped"] > 170) == (0, True)


async def test_a_running_agent_does_at_once_what_it_is_given() -> None:
    done = asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        done.set()

    plugin = Plugin("test", workers=[Worker("POST", work)])
    async with running_agent(plugin) as harness:
        await asyncio.sleep(0)  # it has nothing to do yet, and sleeps
        await harness.agent.schedule(Task(derived_id("now"), "POST", harness.agent.clock()))
        await done.wait()


@pytest.mark.failure("J-10")
async def test_after_a_downtime_a_flooded_room_keeps_no_other_waiting(store: Store) -> None:
    flood, quiet = derived_id("flood"), [derived_id("room", str(number)) for number in range(5)]
    async with a_bench(store=store) as bench:
        await asyncio.gather(*(bench.save(room_id=flood) for _ in range(90)))
        for room_id in quiet:
            await bench.save(room_id=room_id, next_run=START + timedelta(seconds=1))
        bench.clock.advance(hours=8)
        await bench.scheduler.run_due()
        assert {run.room_id for run in bench.runs} == {flood}
        await bench.scheduler.run_due()
        assert {run.room_id for run in bench.runs} == {flood, *quiet}
        while await bench.scheduler.run_due():
            pass
        assert len(bench.runs) == len({run.id for run in bench.runs}) == 95


@pytest.mark.failure("J-10")
async def test_flooded_rooms_take_turns(store: Store) -> None:
    rooms = [derived_id("room", str(number)) for number in range(4)]
    async with a_bench(store=store) as bench:
        for room_id in rooms:
            await asyncio.gather(*(bench.save(room_id=room_id) for _ in range(40)))
        for _ in range(8):
            await bench.scheduler.run_due()
        counts = Counter(run.room_id for run in bench.runs)
        assert counts == dict.fromkeys(rooms, 20)


@pytest.mark.failure("J-10")
async def test_however_much_is_due_ten_at_once_run_and_messages_are_answered(store: Store) -> None:
    count, under_way, most = 60, 0, 0
    is_open, is_over = asyncio.Event(), asyncio.Event()

    async def work(agent: Agent, task: Task) -> None:
        nonlocal count, under_way, most
        under_way += 1
        most = max(most, under_way)
        await is_open.wait()
        under_way -= 1
        count -= 1
        if not count:
            is_over.set()

    posts = Plugin("post", workers=[Worker("POST", work)])
    async with running_agent(posts, store=store) as harness:
        now = harness.agent.clock()
        tasks = [Task(derived_id("task", str(number)), "POST", now) for number in range(count)]
        await asyncio.gather(*map(harness.agent.store.tasks.save_task, tasks))
        for number in range(5):
            receipt = await harness.send("Hello", room=f"room {number}")
            assert receipt.outcome == "answered"
        assert len(await harness.agent.store.tasks.tasks(name="POST")) == count
        is_open.set()
        await is_over.wait()
        assert most == MAX_CONCURRENT_TASKS


@pytest.mark.failure("J-11")
async def test_a_task_whose_transaction_is_rolled_back_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "greenroom.db"
    async with OpenFiles().open_store(file, derived_id("agent")) as store, a_bench(store=store) as bench:
        with closing(sqlite3.connect(file)) as other:
            other.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN NEW.description = 'no' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
            other.commit()
        woken: list[str] = []
        bench.tasks.watch(lambda: woken.append("saved"))
        ends = await asyncio.gather(
            bench.save(description="one"),
            bench.save(description="no"),
            bench.save(description="two"),
            return_exceptions=True,
        )
        assert [isinstance(end, Exception) for end in ends] == [False, True, False]
        assert sorted(task.description for task in await bench.tasks.tasks()) == ["one", "two"]
        assert len(woken) == 2
        await bench.scheduler.run_due()
        assert sorted(run.description for run in bench.runs) == ["one", "two"]
