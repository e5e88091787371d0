"""Platform accounts; parked and orphaned tasks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from bot.background.posting import POST
from bot.cli.characters import Part
from bot.cli.doctor.checks import CORRECT, Finding, Status
from bot.cli.platforms import Platform
from bot.cli.running_bot import looked_into
from bot.domain.task import Task
from bot.errors import BotError, ConfigError, TryAgain
from bot.plugin_system.plugin import storage_of
from bot.store.storage import Checkup
from bot.text import shorten

DEADLINE = 30.0
LATER = "look at the network and at the platform's status page, then try again"


def check_accounts(part: Part, platforms: Sequence[Platform]) -> Iterator[Finding]:
    """Have each platform that is on look at its account; nobody there notices."""
    for platform in platforms:
        if platform.is_on and platform.spec is not None and platform.spec.check is not None:
            yield from _findings(part, platform)


def _findings(part: Part, platform: Platform) -> Iterator[Finding]:
    try:
        found = asyncio.run(_looked_at(part, platform))
    except TimeoutError:
        what = f"{platform.name}: no answer within {DEADLINE:g} s"
        yield Finding(Status.FAIL, "account", what, LATER, is_outside=True)
    except TryAgain as error:
        yield Finding(Status.FAIL, "account", f"{platform.name}: {error}", LATER, is_outside=True)
    except ConfigError as error:
        yield Finding(Status.FAIL, "account", f"{platform.name}: {error}", CORRECT)
    else:
        facts = ", ".join(f"{name}: {value}" for name, value in found.facts.items())
        if found.is_there:
            yield Finding(Status.OK, "account", f"{found.place}{f' ({facts})' if facts else ''}")
        for problem in found.problems:
            yield Finding(Status.FAIL, "account", f"{found.place}: {problem}", CORRECT)


async def _looked_at(part: Part, platform: Platform) -> Checkup:
    """Ask the platform, giving it what its notes in the books say."""

    async def read(of: str, account: str, name: str) -> str | None:
        if storage_of(part.plugins) is None:
            return None
        try:
            async with looked_into(part) as store:
                return await store.ledger.cursor(of, account, name)
        except BotError:  # the database's own check tells
            return None

    assert platform.spec is not None
    assert platform.spec.check is not None
    async with asyncio.timeout(DEADLINE):
        return await platform.spec.check(part.settings, read)


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
