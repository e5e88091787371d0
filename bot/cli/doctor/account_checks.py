"""Checks of platform accounts, and of parked and orphaned tasks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from bot.background.posting import POST_WORKER
from bot.cli.characters import CharacterConfig
from bot.cli.doctor.checks import SETTINGS_ADVICE
from bot.cli.platforms import Platform
from bot.cli.running_bot import open_store_for_reading
from bot.domain.task import Task
from bot.errors import BotError, ConfigError, TemporaryError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.plugin import find_storage
from bot.store.storage import CheckReport
from bot.text import shorten

TIMEOUT_SECONDS = 30.0
RETRY_ADVICE = "check the network and the platform's status page, then try again"
MAX_PARKED_LISTED = 5


def check_accounts(config: CharacterConfig, platforms: Sequence[Platform]) -> Iterator[Finding]:
    """Check the account on each platform that is on, without any visible effect there."""
    for platform in platforms:
        if platform.is_on and platform.spec is not None and platform.spec.check is not None:
            yield from _check_account(config, platform)


def _check_account(config: CharacterConfig, platform: Platform) -> Iterator[Finding]:
    try:
        report = asyncio.run(_run_account_check(config, platform))
    except TimeoutError:
        message = f"{platform.name}: no answer within {TIMEOUT_SECONDS:g} s"
        yield Finding(FindingStatus.FAIL, "account", message, RETRY_ADVICE, is_outside=True)
    except TemporaryError as error:
        yield Finding(FindingStatus.FAIL, "account", f"{platform.name}: {error}", RETRY_ADVICE, is_outside=True)
    except ConfigError as error:
        yield Finding(FindingStatus.FAIL, "account", f"{platform.name}: {error}", SETTINGS_ADVICE)
    else:
        facts = ", ".join(f"{name}: {value}" for name, value in report.facts.items())
        if report.exists:
            yield Finding(FindingStatus.OK, "account", f"{report.location}{f' ({facts})' if facts else ''}")
        for problem in report.problems:
            yield Finding(FindingStatus.FAIL, "account", f"{report.location}: {problem}", SETTINGS_ADVICE)


async def _run_account_check(config: CharacterConfig, platform: Platform) -> CheckReport:
    """Run a platform's account check, with access to its stored cursors."""

    async def read_cursor(platform_name: str, account: str, name: str) -> str | None:
        if find_storage(config.plugins) is None:
            return None
        try:
            async with open_store_for_reading(config) as store:
                return await store.ledger.cursor(platform_name, account, name)
        except BotError:  # reported by the check of the database
            return None

    assert platform.spec is not None
    assert platform.spec.check is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await platform.spec.check(config.settings, read_cursor)


def check_tasks(config: CharacterConfig) -> Iterator[Finding]:
    """Check the stored tasks; an unreadable database is reported by its own check."""
    if find_storage(config.plugins) is None:
        return
    try:
        counts, parked = asyncio.run(_load_tasks(config))
    except BotError:
        return
    if counts:
        yield Finding(FindingStatus.OK, "tasks", f"{sum(counts.values())} scheduled")
    worker_names = {POST_WORKER, *(worker.name for plugin in config.plugins for worker in plugin.workers)}
    for name in sorted({name for name, _ in counts} - worker_names):
        count = counts.get((name, False), 0) + counts.get((name, True), 0)
        advice = "add the plugin that scheduled them to the character again"
        yield Finding(FindingStatus.WARN, "tasks", f"{count} of {name} wait: no plugin defines this worker", advice)
    for task in parked[:MAX_PARKED_LISTED]:
        message = f"{task.name} is parked after {task.attempts} failures: {shorten(task.last_error, 200)}"
        advice = "correct the cause; tasks that plugins schedule at start are scheduled again then"
        yield Finding(FindingStatus.WARN, "tasks", f"{message} ({task.id})", advice)


async def _load_tasks(config: CharacterConfig) -> tuple[Mapping[tuple[str, bool], int], list[Task]]:
    async with open_store_for_reading(config) as store:
        counts = await store.tasks.count_tasks()
        names = sorted(name for name, is_parked in counts if is_parked)
        return counts, [task for name in names for task in await store.tasks.tasks(name=name) if task.is_parked]
