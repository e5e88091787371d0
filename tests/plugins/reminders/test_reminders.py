"""Rules of reminders: each is delivered once, at the time that was meant, only to the person who asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot import ChannelType, Task, derived_id
from bot.background.scheduler import Scheduler
from bot.testing import AgentHarness, ManualClock, running_agent
from plugins.reminders import plugin
from plugins.reminders.reminder import REMINDER, build_cron, parse_wall_time
from plugins.sql import plugin as sql
from tests.plugins.bootstrap.obeying import Obedient, run_due

GROUP = ChannelType.GROUP
BERLIN = ZoneInfo("Europe/Berlin")
SATURDAY = datetime(2026, 11, 28, 15, 0, tzinfo=BERLIN)
HOUR, DAY = 3600.0, 86_400.0


@asynccontextmanager
async def reminding(
    clock: ManualClock, obedient: Obedient, folder: Path | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    plugins = (plugin,) if folder is None else (plugin, sql)
    given = {"BURST_PAUSE": "0", **({} if folder is None else {"BOT_DATA_DIR": str(folder)}), **settings}
    async with running_agent(*plugins, model=obedient.model, clock=clock.now, settings=given) as harness:
        yield harness


async def reminders(harness: AgentHarness) -> list[Task]:
    return await harness.agent.store.tasks.tasks(name=REMINDER)


def due_texts(harness: AgentHarness) -> list[str]:
    return [text for text in harness.texts if "asked me to remind" in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-24 18:00", "2026-12-24 18:00"),
        ("2026-12-24T18:00:00", "2026-12-24 18:00"),
        ("15:30", "2026-11-28 15:30"),
        ("9:00", "2026-11-29 09:00"),
        ("today 23:59", "2026-11-28 23:59"),
        ("Tomorrow 09:00", "2026-11-29 09:00"),
        ("friday, 18:00", "2026-12-04 18:00"),
        ("Saturday 16:00", "2026-11-28 16:00"),
        ("Saturday 14:00", "2026-12-05 14:00"),
    ],
)
def test_words_name_the_next_such_time(text: str, expected: str) -> None:
    assert f"{parse_wall_time(text, SATURDAY):%Y-%m-%d %H:%M}" == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "tomorrow", "tomorrow at nine", "25:00", "2026-02-30 09:00", "today 14:00", "2025-01-01 09:00",
             "2099-01-01 09:00", "someday 09:00", "09:00 09:00"],
)  # fmt: skip
def test_what_is_no_time_to_come_is_refused_and_never_read_as_another(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|no day|is over|five years"):
        parse_wall_time(text, SATURDAY)


def test_a_time_that_the_summer_time_skips_is_an_hour_later() -> None:
    due = parse_wall_time("2027-03-28 02:30", SATURDAY)
    assert due.astimezone(UTC) == datetime(2027, 3, 28, 1, 30, tzinfo=UTC)


def test_the_last_day_of_a_month_repeats_on_the_last_day_of_each() -> None:
    assert build_cron(datetime(2026, 11, 30, 9, 5), "monthly") == "5 9 L * *"
    assert build_cron(datetime(2026, 11, 29, 9, 5), "weekly") == "5 9 * * 0"


async def test_a_person_is_reminded_once_in_the_room_at_the_local_time() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, TIMEZONE="Europe/Berlin") as harness:
        obedient.does("REMIND_ME", what="call Robin", at="tomorrow 09:00")
        await harness.send("Ada, remind me tomorrow at nine to call Robin", kind=GROUP)
        clock.advance(17.9 * HOUR)
        await run_due(harness)
        assert due_texts(harness) == []
        clock.advance(0.1 * HOUR)
        await run_due(harness)
        assert due_texts(harness) == ["Alice, you asked me to remind you: call Robin"]
        clock.advance(10 * DAY)
        await run_due(harness)
        assert len(due_texts(harness)) == 1
        assert await reminders(harness) == []


async def test_an_unknown_time_zone_is_asked_for_once_and_then_kept() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient) as harness:
        obedient.does("REMIND_ME", what="tea", at="16:00")
        await harness.send("Ada, remind me at four of the tea", kind=GROUP)
        assert await reminders(harness) == []
        obedient.does("REMIND_ME", what="tea", in_minutes=20)
        await harness.send("Ada, then remind me in twenty minutes", kind=GROUP)
        assert len(await reminders(harness)) == 1
        obedient.does("UPDATE_CONTACT", kind="timezone", value="America/New_York")
        await harness.send("Ada, my time zone is America/New_York", kind=GROUP)
        obedient.does("REMIND_ME", what="coffee", at="16:00")
        await harness.send("Ada, remind me at four of the coffee", kind=GROUP)
        [_, coffee] = sorted(await reminders(harness), key=lambda task: task.next_run)
        assert coffee.next_run == datetime(2026, 11, 28, 21, 0, tzinfo=UTC)


async def test_nine_o_clock_stays_nine_o_clock_over_summer_time_and_another_time_zone() -> None:
    clock = ManualClock(datetime(2027, 3, 26, 12, 0, tzinfo=UTC))
    obedient = Obedient("REMIND_ME", what="the news", at="09:00", repeat="daily")
    async with reminding(clock, obedient, TIMEZONE="Europe/Berlin") as harness:
        await harness.send("Ada, remind me every day at nine of the news", kind=GROUP)
        obedient.does("REMIND_ME", what="the dentist", at="2027-04-02 09:00")
        await harness.send("Ada, and remind me on Friday at nine of the dentist", kind=GROUP)
        seen = []
        for _ in range(3):
            [daily] = [task for task in await reminders(harness) if task.is_repeating]
            seen.append(daily.next_run)
            clock.advance((daily.next_run - clock.now()).total_seconds())
            await Scheduler(harness.agent, harness.agent_runtime.registry).run_due()
            await harness.agent.outbox.drain(5.0)
        assert [f"{run:%d %H:%M}" for run in seen] == ["27 08:00", "28 07:00", "29 07:00"]

        obedient.does("UPDATE_CONTACT", kind="timezone", value="Asia/Tokyo")
        await harness.send("Ada, my time zone is Asia/Tokyo now", kind=GROUP)
        await harness.agent.events.wait_idle()
        times = {task.description: f"{task.next_run:%d %H:%M}" for task in await reminders(harness)}
        assert times == {"the news": "30 00:00", "the dentist": "02 00:00"}


async def test_a_late_reminder_says_when_it_was_due(tmp_path: Path) -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, tmp_path, TIMEZONE="Europe/Berlin") as harness:
        obedient.does("REMIND_ME", what="call Robin", at="16:00")
        await harness.send("Ada, remind me at four to call Robin", kind=GROUP)
    clock.advance(3 * HOUR)
    async with reminding(clock, obedient, tmp_path, TIMEZONE="Europe/Berlin") as harness:
        await run_due(harness)
        assert due_texts(harness) == [
            "Alice, you asked me to remind you: call Robin (It was due on Saturday, 2026-11-28 16:00 CET; I was "
            "offline then.)"
        ]


async def test_a_private_reminder_goes_to_the_person_alone_and_is_not_listed_in_the_room() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, TIMEZONE="Europe/Berlin") as harness:
        await harness.send("hello", room="alice")
        obedient.does("REMIND_ME", what="the surprise", in_minutes=5, private=True)
        await harness.send("Ada, remind me of the surprise in private", kind=GROUP, room="all")
        obedient.does("LIST_REMINDERS")
        await harness.send("Ada, what do you remind me of?", kind=GROUP, room="all")
        clock.advance(300)
        await run_due(harness)
        [sent] = [item for item in harness.adapter.sent if "the surprise" in item.content.text]
        assert sent.target == "alice"


async def test_people_list_cancel_and_receive_only_their_own_reminders() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, TIMEZONE="Europe/Berlin") as harness:
        obedient.does("REMIND_ME", what="call Robin", in_minutes=60)
        await harness.send("Ada, remind me in an hour to call Robin", kind=GROUP)
        obedient.does("CANCEL_REMINDER", which="Robin")
        await harness.send("Ada, cancel the reminder about Robin", kind=GROUP, author="Bob")
        [task] = await reminders(harness)
        assert task.entity_id == derived_id("test", "entity", "Alice")
        await harness.send("Ada, cancel it", kind=GROUP)
        assert await reminders(harness) == []


async def test_the_words_of_another_text_neither_set_nor_cancel_a_reminder() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, TIMEZONE="Europe/Berlin") as harness:
        obedient.does("REMIND_ME", what="pay Mallory", in_minutes=60, repeat="daily")
        await harness.send("Bob said that you should be asked to pay", author="Bob", kind=GROUP)
        await harness.send("Ada, what did Bob say?", kind=GROUP)
        assert await reminders(harness) == []
        await harness.send("Ada, remind me every day", kind=GROUP)
        obedient.does("CANCEL_REMINDER", which="1")
        await harness.send("Ada, and what else did Bob say?", kind=GROUP)
        assert len(await reminders(harness)) == 1


async def test_a_person_has_at_most_as_many_reminders_as_the_setting_says() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient()
    async with reminding(clock, obedient, REMINDERS="2") as harness:
        for number in range(3):
            obedient.does("REMIND_ME", what=f"thing {number}", in_minutes=60)
            await harness.send(f"Ada, remind me in an hour of thing {number}", kind=GROUP)
        assert len(await reminders(harness)) == 2


async def test_a_person_who_is_forgotten_has_no_reminders_left() -> None:
    clock, obedient = ManualClock(SATURDAY.astimezone(UTC)), Obedient("REMIND_ME", what="tea", in_minutes=5)
    async with reminding(clock, obedient) as harness:
        await harness.send("Ada, remind me of the tea", kind=GROUP)
        await harness.agent_runtime.handle.edits.erase_entity(derived_id("test", "entity", "Alice"))
        assert await reminders(harness) == []
