"""The time zone of prompts and tasks: the world's, else the character's, else the operator's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from bot import Task, TaskSchedule, TaskTag, derived_id
from bot.models import Purpose
from bot.settings import load_settings
from bot.testing import AgentHarness, make_turn, running_agent

EVENING = datetime(2026, 11, 21, 23, 58, tzinfo=UTC)  # in Berlin it is Sunday already
BERLIN = {"TIMEZONE": "Europe/Berlin"}
WORLD = derived_id("test", "world")


def reply_prompt(harness: AgentHarness) -> str:
    return harness.model.requests_for(Purpose.REPLY)[-1].prompt


async def test_a_prompt_tells_the_time_and_the_times_of_messages_in_the_time_zone() -> None:
    now = [EVENING - timedelta(minutes=90)]
    async with running_agent(settings=BERLIN, clock=lambda: now[0]) as harness:
        await harness.send("before midnight")
        now[0] = EVENING
        await harness.send("after midnight")
    prompt = reply_prompt(harness)
    assert "It is Sunday, 2026-11-22 00:58 Europe/Berlin (UTC+01:00)." in prompt
    lines = [line for line in prompt.splitlines() if line.startswith("---") or "midnight" in line]
    assert [line.partition(" Alice")[0] for line in lines] == [
        "--- 2026-11-21 ---",
        "[23:28]",
        "--- 2026-11-22 ---",
        "[00:58]",
    ]


async def test_messages_that_are_answered_together_have_the_times_that_the_conversation_has() -> None:
    async with running_agent(settings={**BERLIN, "BURST_PAUSE": "200"}, clock=lambda: EVENING) as harness:
        for receipt in [await harness.submit(text) for text in ("one", "two")]:
            await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    assert reply_prompt(harness).count("[00:58] Alice") == 4
    assert "23:58" not in reply_prompt(harness)


async def test_the_time_follows_the_change_to_summer_time() -> None:
    now = [datetime(2026, 3, 29, 0, 30, tzinfo=UTC)]
    async with running_agent(settings=BERLIN, clock=lambda: now[0]) as harness:
        await harness.send("Hello")
        assert "01:30 Europe/Berlin (UTC+01:00)." in reply_prompt(harness)
        now[0] += timedelta(hours=1)
        await harness.send("Hello")
        assert "03:30 Europe/Berlin (UTC+02:00)." in reply_prompt(harness)


async def test_a_world_that_chooses_its_time_zone_has_it_from_the_next_message_on() -> None:
    async with running_agent(settings=BERLIN, clock=lambda: EVENING) as harness:
        await harness.send("Hello")
        await harness.agent.store.worlds.set_setting(WORLD, "TIMEZONE", "America/Lima")
        await harness.send("Hello again")
    assert "It is Saturday, 2026-11-21 18:58 America/Lima (UTC-05:00)." in reply_prompt(harness)
    assert "[18:58] Alice" in reply_prompt(harness)
    assert "[00:58]" not in reply_prompt(harness)


@pytest.mark.parametrize(
    ("operator", "character", "world", "expected"),
    [
        ("", "", "", "UTC"),
        ("Asia/Tokyo", "", "", "Asia/Tokyo"),
        ("Asia/Tokyo", "Europe/Berlin", "", "Europe/Berlin"),
        ("Asia/Tokyo", "Europe/Berlin", "America/Lima", "America/Lima"),
        ("Asia/Tokyo", "", "UTC", "UTC"),
        ("Asia/Tokyo", "", "no zone", "Asia/Tokyo"),
    ],
)
async def test_a_world_has_its_own_time_zone_else_the_characters_else_the_operators(
    operator: str, character: str, world: str, expected: str
) -> None:
    found = load_settings({"TIMEZONE": character}, environment={"TIMEZONE": operator}).get("TIMEZONE")
    async with running_agent(settings={"TIMEZONE": found} if found else {}) as harness:
        turn = make_turn(harness.agent)
        turn = replace(turn, world=replace(turn.world, settings={"TIMEZONE": world} if world else {}))
        assert str(turn.time_zone) == expected


def morning(world_id: UUID | None = None, **schedule: Any) -> Task:
    metadata = TaskSchedule(cron="0 9 * * *", **schedule).to_metadata()
    tags = frozenset({TaskTag.QUEUE, TaskTag.REPEAT})
    return Task(derived_id("task"), "POST", EVENING, tags=tags, metadata=metadata, world_id=world_id)


async def test_a_task_runs_by_the_clock_of_its_world() -> None:
    async with running_agent(settings=BERLIN, clock=lambda: EVENING) as harness:
        await harness.send("Hello")
        of_agent = await harness.agent.schedule(morning())
        await harness.agent.store.worlds.set_setting(WORLD, "TIMEZONE", "America/Lima")
        of_world = await harness.agent.schedule(morning(WORLD))
        of_its_own = await harness.agent.schedule(morning(WORLD, timezone="UTC"))
    assert [f"{task.next_run:%d %H}" for task in (of_agent, of_world, of_its_own)] == ["22 08", "22 14", "22 09"]
    assert of_agent.schedule.timezone == "Europe/Berlin"
    assert of_agent.schedule.find_next_run(of_agent.next_run, of_agent.next_run)[0].hour == 8
