"""What `bot doctor` says of tasks: which have been given up, and which nobody does."""

import asyncio
from collections.abc import Iterator, Mapping

from bot.background.posting import POST
from bot.cli.beside import looked_into
from bot.cli.cast import Part
from bot.cli.checks import Finding, Status
from bot.domain.task import Task
from bot.errors import BotError
from bot.plugin_system.plugin import storage_of
from bot.text import shorten

MOST_SHOWN = 5


def check_tasks(part: Part) -> Iterator[Finding]:
    """Look at the tasks that are kept; where the database cannot be read, its own check tells."""
    if storage_of(part.plugins) is None:
        return
    try:
        counts, parked = asyncio.run(_tasks(part))
    except BotError:
        return
    if counts:
        yield Finding(Status.OK, "tasks", f"{sum(counts.values())} for later")
    known = {POST, *(worker.name for plugin in part.plugins for worker in plugin.workers)}
    for name in sorted({name for name, _ in counts} - known):
        count = counts.get((name, False), 0) + counts.get((name, True), 0)
        advice = "give the character the plugin again that left them"
        yield Finding(Status.WARN, "tasks", f"{count} of {name} wait: no plugin has this worker", advice)
    for task in parked[:MOST_SHOWN]:
        what = f"{task.name} is parked after {task.attempts} failures: {shorten(task.last_error, 200)}"
        advice = "correct the cause; what a plugin schedules at its start begins anew with the next one"
        yield Finding(Status.WARN, "tasks", f"{what} ({task.id})", advice)


async def _tasks(part: Part) -> tuple[Mapping[tuple[str, bool], int], list[Task]]:
    async with looked_into(part) as store:
        counts = await store.tasks.count_tasks()
        names = sorted(name for name, is_parked in counts if is_parked)
        return counts, [
            task for name in names for task in await store.tasks.tasks(name=name) if task.is_parked
        ]
