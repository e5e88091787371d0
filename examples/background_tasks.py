"""Background tasks: reminders that come once, and a summary every morning.

Both are stored tasks: they survive a restart, and a failed run is tried again.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from bot import ActionResult, Agent, Effect, Plugin, Task, TaskSchedule, TaskTag, Turn, action, derived_id, worker
from bot.prompts import Authority

MORNING = TaskSchedule(cron="0 8 * * *", timezone="UTC")


@action(
    "REMIND_ME",
    "Remind the person of something later.",
    effect=Effect.KEYED,
    authority=Authority.named("remind", "reminder"),
)
async def remind_me(
    turn: Turn,
    about: Annotated[str, "What to remind of", Field(min_length=1, max_length=200)],
    minutes: Annotated[int, "In how many minutes", Field(ge=1, le=10_080)],
) -> ActionResult:
    """Store a task that runs once. Its id is of this turn: after a crash the action leaves no second one."""
    task = Task(
        id=derived_id(turn.id, "reminder"),
        name=send_reminder.name,
        next_run=turn.agent.clock() + timedelta(minutes=minutes),
        tags=frozenset({TaskTag.QUEUE}),
        room_id=turn.room.id,
        entity_id=turn.author.id,
        metadata={"about": about, "name": turn.author.name},
    )
    await turn.agent.schedule(task)
    return ActionResult(text=f"a reminder of {about!r} comes in {minutes} minutes")


@worker("SEND_REMINDER", deadline=30)
async def send_reminder(agent: Agent, task: Task) -> None:
    """Send the reminder where it was asked for, once, even if this runs again."""
    room = await agent.store.worlds.room(task.room_id) if task.room_id else None
    if room is not None:
        text = f"{task.metadata['name']}, you wanted to hear of: {task.metadata['about']}"
        await agent.say(room, text, key=task.run_key)


async def has_reminders(agent: Agent, task: Task) -> bool:
    """Return whether the summary has anything to say; if not, it waits for the next morning."""
    return bool(await agent.store.tasks.tasks(name=send_reminder.name))


@worker("SUMMARIZE_REMINDERS", validate=has_reminders)
async def summarize(agent: Agent, task: Task) -> None:
    """Send each person privately how many of their reminders are to come."""
    reminders = await agent.store.tasks.tasks(name=send_reminder.name)
    for person_id in sorted({reminder.entity_id for reminder in reminders if reminder.entity_id}):
        count = sum(reminder.entity_id == person_id for reminder in reminders)
        await agent.say_to(person_id, f"Reminders to come: {count}.", key=f"{task.run_key}:{person_id}")


async def schedule_summary(agent: Agent) -> None:
    """Schedule the repeating task at every start; with the same id it exists once, and keeps its next run."""
    tags = frozenset({TaskTag.QUEUE, TaskTag.REPEAT})
    task_id = derived_id(agent.id, "background_tasks", "summary")
    await agent.schedule(Task(task_id, summarize.name, agent.clock(), tags=tags, metadata=MORNING.to_metadata()))


plugin = Plugin(
    "background_tasks",
    "Reminds people, and sums up every morning what is to come.",
    actions=[remind_me],
    workers=[send_reminder, summarize],
    init=schedule_summary,
)
