"""A place to try a character in: what `bot run --emulate x` puts up instead of X."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from adapters.x.emulator.server import Emulator
from bot import Trial

LONGEST_HANDLE = 15
# What counts here: the people are others, reading costs nothing, what is written is to be seen, and whoever
# tries something out does not wait a minute for the next look at the mentions (the shortest pause is 5 s).
HERE = {
    "X_TARGET_USERS": "",
    "X_DRY_RUN": "",
    "X_POLL_INTERVAL": "5",
    "X_MONTHLY_READS": "100000",
    "X_MONTHLY_POSTS": "100000",
    "X_POST_DAILY_CAP": "100000",
}


@asynccontextmanager
async def emulated(names: Sequence[str], *, port: int = 0) -> AsyncIterator[Trial]:
    """Put up an X with these characters and two people, as long as the block lasts.

    `settings` are to be put over those of each character; the page is for whoever wants to talk there.
    """
    handles = _handles(names)
    async with Emulator(username=handles[0] if handles else "nobody", port=port) as emulator:
        accounts = {name: emulator.add_account(one) for name, one in zip(names, handles, strict=True)}
        for person in ("robin", "kim"):
            emulator.world.person(person)
        settings = {name: {**HERE, **emulator.environment_of(keys)} for name, keys in accounts.items()}
        yield Trial(f"{emulator.url}/", settings)


def _handles(names: Sequence[str]) -> list[str]:
    """Make a handle of each name, no two alike."""
    found: list[str] = []
    for name in names:
        handle = re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_")[:LONGEST_HANDLE] or "bot"
        while handle in found:
            handle = f"{handle[: LONGEST_HANDLE - 2]}_{len(found)}"
        found.append(handle)
    return found
