"""Processes with separate roles: gateways, a worker and a sender, over one database and one emulated platform."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class RoleProcesses:
    """Starts processes, each with one role, for the same characters; stops them at the end of the context.

    What they print is in a file `log.txt` of each one's folder.
    """

    def __init__(
        self,
        url: str,
        model_url: str,
        folder: Path,
        platform: str,
        characters: Sequence[Mapping[str, Any]],
        settings: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._platform = platform
        self._files = []
        for number, character in enumerate(characters):
            file = folder / f"{number}.json"
            file.write_text(json.dumps({"plugins": ["sql", "openai"], **character}))
            self._files.append(file)
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "POSTGRES_URL": url,
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": "unused",
            "OPENAI_LARGE_MODEL": "m",
            "OPENAI_SMALL_MODEL": "m",
            "LATEST_RESPONSE": "queue",
            "BURST_PAUSE": "0",
            "STREAMING": "false",
            "MESSAGES_PER_PERSON": "0",
            "AI_NOTICE": "off",
            **settings,
        }
        self._count = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def start(self, role: str) -> Process:
        """Start one more process."""
        self._count += 1
        folder = self._folder / f"{role}-{self._count}"
        folder.mkdir()
        command = [sys.executable, "-m", "bot", "run", "--role", role]
        command += [] if role == "worker" else ["--only", self._platform]
        for file in self._files:
            command += ["-c", str(file)]
        log = self._stack.enter_context((folder / "log.txt").open("w"))
        environment = {**self._environment, "BOT_DATA_DIR": str(folder)}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdin=DEVNULL, stdout=log, stderr=log
        )
        self._stack.push_async_callback(_stop, process)
        return process


def judge(sent: Sequence[str], texts: Sequence[str]) -> tuple[int, int, int, int]:
    """Return how many messages of a room were answered, lost and answered twice, and how many answers out of order.

    `texts` are the answers, `re NAME` for each name in `sent`.
    """
    numbers = [sent.index(text.removeprefix("re ")) for text in texts if text.removeprefix("re ") in sent]
    answered = len(set(numbers))
    inversions = sum(later < earlier for earlier, later in pairwise(numbers))
    return answered, len(sent) - answered, len(texts) - answered, inversions


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    await process.wait()
