"""Measure a bot on Telegram through the real client library, against the emulator, which is this process.

With REFERENCE, the folder of another checkout, that version is run in alternating pairs with this one.
"""

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.telegram.emulator import Emulator
from benchmarks.figures import Row, format_milliseconds
from benchmarks.program import MESSAGES, cpu_seconds, describe_ratios, run_pairs

CHATS = 100
TOKEN = "1000001:only-for-the-benchmark"
BOT_PROGRAM = str(Path(__file__).with_name("telegram_bot.py"))


def measure_telegram() -> list[Row]:
    """Run the bot, in pairs with the reference if there is one."""
    return asyncio.run(_measure_telegram())


async def _measure_telegram() -> list[Row]:
    runs, reference_runs = await run_pairs(_run_bot)
    cpu, rate = (statistics.median(run[index] for run in runs) for index in range(2))
    figures = f"{format_milliseconds(cpu)} CPU of the bot each, {rate:.0f}/s"
    rows = [(f"Telegram, no pacing: {MESSAGES} messages in {CHATS} chats", figures)]
    if reference_runs:
        for index, name in enumerate(("CPU time of the reference", "messages a second of the reference")):
            rows.append((f"Telegram, no pacing: {name}", describe_ratios(runs, reference_runs, index)))
    return rows


async def _run_bot(folder: str) -> tuple[float, float]:
    """Return the CPU seconds of a message in the bot's process, and messages a second."""
    async with Emulator() as emulator, asyncio.timeout(600):
        emulator.add_bot(TOKEN)
        async with _bot_process(folder, emulator.url) as pid:
            await emulator.recorder.wait_until(lambda: emulator.recorder.counts["waiting"])
            exchange = _Exchange(emulator)
            await exchange.run(2 * CHATS)  # nothing is measured while the first statements are prepared
            before, started = cpu_seconds(pid), asyncio.get_running_loop().time()
            await exchange.run(MESSAGES)
            seconds = asyncio.get_running_loop().time() - started
            return (cpu_seconds(pid) - before) / MESSAGES, MESSAGES / seconds


@asynccontextmanager
async def _bot_process(folder: str, url: str) -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as data:
        environment = {"PATH": os.environ["PATH"], "HOME": data, "PYTHONPATH": folder}
        command = [sys.executable, "-P", BOT_PROGRAM, url, TOKEN, data]
        process = await asyncio.create_subprocess_exec(*command, cwd=data, env=environment)
        try:
            yield process.pid
        finally:
            process.terminate()
            await process.wait()


class _Exchange:
    """People in private chats, each of whom writes the next message when the one before is answered."""

    def __init__(self, emulator: Emulator) -> None:
        self._people, self._recorder = emulator.people, emulator.recorder
        users = [self._people.add_user(f"Person {number}") for number in range(CHATS)]
        self._chats = {user["id"]: (self._people.open_private_chat(user), user) for user in users}
        self._seen, self._left, self._finished = 0, 0, asyncio.Event()
        self._recorder.listeners.append(self._answer)

    async def run(self, count: int) -> None:
        """Send `count` messages, at most one in each chat at a time, and wait for their answers."""
        self._left, self._waiting = count, count
        self._finished.clear()
        for chat_id in self._chats:
            self._say(chat_id)
        await self._finished.wait()

    def _say(self, chat_id: int) -> None:
        if self._left:
            chat, user = self._chats[chat_id]
            self._people.say(chat, user, f"Message number {self._left}")
            self._left -= 1

    def _answer(self) -> None:
        for shown in self._recorder.messages[self._seen :]:
            self._seen += 1
            self._waiting -= 1
            self._say(shown.room)
        if not self._waiting:
            self._finished.set()
