"""A-01, A-16 and their like: killed at every stage of a message's road, each is answered once."""

import asyncio
import json
import os
from pathlib import Path

from adapters.discord.emulator import Emulator
from tests.adapters.discord.harbour import TOKEN, Harbour
from tests.chaos.program import Life, Nursery

SECONDS = 60.0
STAGES = [
    "ingress.pre_commit",
    "send.pre_write",
    "send.post_write",
    "send.pre_record",
]


class Discords(Nursery):
    """A nursery whose children have Discord's library already."""

    module = "tests.adapters.discord.nursery"


class Keeper:
    """Starts the bot in a folder of its own, as often as it is killed."""

    def __init__(self, folder: Path, url: str, nursery: Nursery) -> None:
        (folder / "ada.json").write_text(json.dumps({"name": "Ada", "plugins": ["sql"]}))
        self._folder, self._url, self._nursery = folder, url, nursery

    async def start(self, kill_at: str) -> Life:
        """Start it, to kill itself at a point."""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DATABASE_URL": f"sqlite:///{self._folder / 'greenroom.db'}",
            "BOT_DATA_DIR": str(self._folder),
            "BOT_KILL_AT": kill_at,
            "CRASH_LOOP_BOOTS": "0",
            "STREAMING": "false",
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": self._url,
            "PYTHONWARNINGS": "ignore",
        }
        order = {
            "arguments": ["run", "-c", "ada.json", "--only", "discord"],
            "environment": environment,
            "folder": str(self._folder),
            "log": str(self._folder / "log.txt"),
        }
        pid = await self._nursery.bear(order)
        return Life(pid, asyncio.get_running_loop().create_task(self._nursery.told()))


async def test_a16_killed_at_every_stage_nothing_is_lost_and_nothing_is_said_twice(tmp_path: Path) -> None:
    async with Emulator() as emulator:
        harbour = Harbour(emulator)
        ledger, say = emulator.ledger, emulator.people.say
        with Discords(tmp_path) as nursery:
            keeper = Keeper(tmp_path, emulator.url, nursery)
            life = await keeper.start("")
            await ledger.until(lambda: ledger.counts["ready"] > 0, SECONDS)
            await say(harbour.direct(harbour.kim), harbour.kim, "hello")
            await ledger.until(lambda: len(ledger.said()) == 1, SECONDS)
            life.kill()
            await life.ended(SECONDS)
            for stage in STAGES:
                life = await keeper.start(f"{stage}:1")
                await say(harbour.direct(harbour.kim), harbour.kim, f"hello before {stage}")
                assert await life.ended(SECONDS) == -9, (
                    f"{stage}: {(tmp_path / 'log.txt').read_text()[-3000:]}"
                )
            life = await keeper.start("")
            await ledger.until(lambda: len(ledger.said()) > len(STAGES), SECONDS)
            life.stop()
            await life.ended(SECONDS)
    answered = [one.channel for one in ledger.shown]
    assert len(set(answered)) == len(answered) == 1 + len(STAGES)
