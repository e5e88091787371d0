"""The bot of `benchmarks.telegram`, in a process of its own: its real client library, a file of SQLite, and no pacing.

`python -P telegram_bot.py URL TOKEN FOLDER`. It imports the version of Greenroom that PYTHONPATH names, so it uses only
what a reference has too.
"""

import asyncio
import sys
import time
from pathlib import Path

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits
from benchmarks.doubles import StatelessModel
from benchmarks.exchange import AGENT
from bot import AgentConfig, Character, Runtime, Settings
from bot.cli.process.shutdown import reduce_gc_frequency
from bot.platform import TimeSource
from bot.settings import Layer
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing.harness import add_required

SPEED = 1_000.0  # of the clock by which messages are paced
SETTINGS = {"MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


async def _run_bot(url: str, token: str, folder: Path) -> None:
    model = StatelessModel()
    settings = Settings(
        [Layer("the benchmark", {**SETTINGS, "TELEGRAM_BOT_TOKEN": token, "TELEGRAM_API_BASE_URL": url})]
    )
    async with OpenFiles().open_store(folder / "bot.db", AGENT) as store:
        config = AgentConfig(Character(name="Ada"), (*add_required(()), model.plugin), settings, store)
        async with Runtime([config], is_strict=True) as runtime:
            time_source = TimeSource(monotonic=lambda: time.monotonic() * SPEED)
            limits = Limits(probe_seconds=float("inf"))
            await runtime.connect(TelegramAdapter(runtime.handles, limits=limits, time_source=time_source))
            reduce_gc_frequency()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run_bot(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
