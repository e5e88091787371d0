"""A place to try a character in: what `bot run --emulate telegram` puts up in the place of Telegram."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from adapters.telegram.emulator.server import Emulator
from bot import Trial

FIRST = 1_000_001
# What is meant for the real Telegram: its chats are not here, and nothing is delivered to its address.
ELSEWHERE = {"TELEGRAM_ALLOWED_CHATS": "", "TELEGRAM_WEBHOOK_URL": ""}


@asynccontextmanager
async def emulated(names: Sequence[str], *, port: int = 0) -> AsyncIterator[Trial]:
    """Put up a Telegram with a bot for each of these characters, as long as the block lasts.

    `settings` are to be put over those of each character; the page is for whoever wants to talk there.
    """
    async with Emulator(port=port) as emulator:
        settings = {}
        for number, name in enumerate(names, FIRST):
            handle = re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_") or f"bot_{number}"
            bot = emulator.bot(f"{number}:emulated-token", username=f"{handle[:28]}_bot", name=name)
            settings[name] = {**ELSEWHERE, **emulator.settings(bot)}
        yield Trial(f"{emulator.url}/", settings)
