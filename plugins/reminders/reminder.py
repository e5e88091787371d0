"""Reminders as tasks: their times, their time zone, and how they are delivered."""

import calendar
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal
from uuid import UUID

from pydantic import Field

from bot import Agent, Entity, Room, SettingsModel, Task, TaskSchedule, TaskTag, World, find_time_zone, on, worker
from bot.events import ActionCompleted
from bot.text import sanitize_name, user_text

REMINDER = "REMINDER"
MAX_DAYS = 5 * 366
LATE_AFTER = timedelta(minutes=15)
DEADLINE = 10.0  # seconds: after a crash a reminder waits for as long
TIME_FORMAT = "%A, %Y-%m-%d %H:%M"
WALL_TIME = re.compile(r"(?:(?P<date>\d{4}-\d{2}-\d{2})|(?P<day>[a-z]+))?,?[ t]*(?P<time>\d{1,2}:\d{2})(?::00)?")
DAY_NAMES = {name.casefold(): number for number, name in enumerate(calendar.day_name)}
Repeat = Literal["", "daily", "weekdays", "weekly", "monthly", "yearly"]


class ReminderSettings(SettingsModel):
    """The variables of reminders."""

    CHARACTER_SETTINGS = frozenset({"REMINDERS"})

    reminders: int = Field(
        20,
        ge=1,
        le=1000,
        description="Turns the plugin reminders on: how many reminders each person may have at a time.",
    )


def parse_wall_time(text: str, now: datetime) -> datetime:
    """Return the next time that a text names, in the time zone of `now`.

    It is `2026-11-29 09:00`, or `09:00` with or without today, tomorrow or a day of the week before it. Raises
    ValueError with what is wrong, for the model.
    """
    found = WALL_TIME.fullmatch(text.strip().casefold())
    if found is None:
        raise ValueError(f"{text[:40]!r} is no time: write it as 2026-11-29 09:00, Friday 09:00 or 09:00")
    try:
        wall_time = datetime.strptime(found["time"], "%H:%M").time()
        date = datetime.fromisoformat(found["date"]).date() if found["date"] else now.date()
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is no time: {error}") from None
    day = found["day"] or ""
    due = datetime.combine(date, wall_time, now.tzinfo)
    if day == "tomorrow":
        due += timedelta(days=1)
    elif day in DAY_NAMES:
        due += timedelta(days=(DAY_NAMES[day] - due.weekday()) % 7)
        due += timedelta(days=7 if due <= now else 0)
    elif day not in {"", "today"}:
        raise ValueError(f"{day[:20]!r} is no day: write today, tomorrow, a day of the week in English, or a date")
    elif not found["date"] and not day and due <= now:
        due += timedelta(days=1)
    if due <= now:
        raise ValueError(f"{due:{TIME_FORMAT}} is over: now it is {now:{TIME_FORMAT}}")
    if due - now > timedelta(days=MAX_DAYS):
        raise ValueError("that is more than five years ahead")
    return due


def build_cron(due: datetime, repeat: Repeat) -> str:
    """Return the cron expression of a reminder that repeats; "" for one that does not."""
    day = "L" if due.day == calendar.monthrange(due.year, due.month)[1] else due.day
    days = {
        "daily": "* * *",
        "weekdays": "* * 1-5",
        "weekly": f"* * {due.isoweekday() % 7}",
        "monthly": f"{day} * *",
        "yearly": f"{due.day} {due.month} *",
    }
    return f"{due.minute} {due.hour} {days[repeat]}" if repeat else ""


async def find_own_time_zone(agent: Agent, person_id: UUID, world: World | None = None) -> tzinfo | None:
    """Return the time zone that a person has said is theirs, else TIMEZONE of the world or the agent, if it is set."""
    for component in await agent.store.entities.components(person_id, "CONTACT"):
        if component.world_id is None and (zone := find_time_zone(str(component.data.get("timezone") or ""))):
            return zone
    zone = agent.find_time_zone(world)
    return None if zone is UTC else zone


def build_task(
    id_: UUID, what: str, person: Entity, room: Room, due: datetime, *, repeat: Repeat, is_private: bool, is_wall: bool
) -> Task:
    """Return the task of a reminder; one that `is_wall` follows the clock of the person's time zone."""
    metadata: dict[str, object] = {"name": sanitize_name(person.name), "private": is_private}
    if is_wall:
        metadata |= {"local": due.replace(tzinfo=None).isoformat(), "zone": str(due.tzinfo)}
    task = Task(id_, REMINDER, due.astimezone(UTC), what, room.id, room.world_id, person.id, metadata=metadata)
    if cron := build_cron(due, repeat):
        schedule = TaskSchedule(cron=cron, timezone=str(due.tzinfo))
        return replace(
            task,
            next_run=task.next_run - timedelta(minutes=1),  # a repeating task first runs after it
            tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}),
            metadata={**metadata, **schedule.to_metadata()},
        )
    return task


async def list_own(agent: Agent, person_id: UUID, room: Room) -> list[Task]:
    """Return the reminders of a person by their time: in a room those of this room that are not private."""
    tasks = await agent.store.tasks.tasks(name=REMINDER, entity_id=person_id)
    if not room.type.is_direct:
        tasks = [task for task in tasks if task.room_id == room.id and not task.metadata.get("private")]
    return sorted(tasks, key=lambda task: (task.next_run, task.id))


def describe(task: Task, zone: tzinfo) -> str:
    """Return a reminder as a line: when, how it repeats, and of what."""
    due = task.next_run.astimezone(find_time_zone(str(task.metadata.get("zone") or "")) or zone)
    repeat = f", {user_text('reminders.repeats')}" if task.is_repeating else ""
    return f"{due:{TIME_FORMAT}} ({due.tzname()}{repeat}): {task.description}"


def describe_all(tasks: Sequence[Task], zone: tzinfo) -> str:
    """Return the numbered lines of reminders."""
    return "\n".join(f"{number}. {describe(task, zone)}" for number, task in enumerate(tasks, 1))


@worker(REMINDER, deadline=DEADLINE)
async def deliver(agent: Agent, task: Task) -> None:
    """Send a reminder, once, in the room where it was asked for or in private; a late one says when it was due."""
    room = await agent.store.worlds.room(task.room_id) if task.room_id else None
    if room is None or task.entity_id is None:
        return
    text = user_text("reminders.due", name=str(task.metadata["name"]), what=task.description)
    if agent.clock() - task.next_run > LATE_AFTER:
        zone = find_time_zone(str(task.metadata.get("zone") or "")) or UTC
        text += " " + user_text("reminders.late", time=f"{task.next_run.astimezone(zone):{TIME_FORMAT} %Z}")
    if task.metadata.get("private"):
        await agent.say_to(task.entity_id, text, key=task.run_key)
    else:
        await agent.say(room, text, key=task.run_key)


@on(ActionCompleted)
async def follow_time_zone(agent: Agent, event: ActionCompleted) -> None:
    """Move the reminders of people whose time zone is another one now: nine o'clock stays nine o'clock."""
    if event.result.action != "UPDATE_CONTACT" or not event.result.success:
        return
    tasks = [task for task in await agent.store.tasks.tasks(name=REMINDER) if "local" in task.metadata]
    for person_id in {task.entity_id for task in tasks if task.entity_id is not None}:
        zone = await find_own_time_zone(agent, person_id)
        for task in tasks:
            if zone is not None and task.entity_id == person_id and task.metadata["zone"] != str(zone):
                await agent.schedule(_move(task, zone, agent.clock()))


def _move(task: Task, zone: tzinfo, now: datetime) -> Task:
    metadata = {**task.metadata, "zone": str(zone)}
    if task.is_repeating:
        return replace(task, next_run=now, metadata={**metadata, "timezone": str(zone)})
    due = datetime.fromisoformat(str(task.metadata["local"])).replace(tzinfo=zone)
    return replace(task, next_run=due.astimezone(UTC), metadata=metadata)
