"""What `bot doctor` says of the accounts behind the keys: whose they are, and what stands in the way."""

import asyncio
from collections.abc import Iterator, Sequence

from bot.cli.beside import looked_into
from bot.cli.cast import Part
from bot.cli.checks import CORRECT, Finding, Status
from bot.cli.platforms import Platform
from bot.errors import BotError, ConfigError, TryAgain
from bot.plugin_system.plugin import storage_of
from bot.store.storage import Checkup

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
