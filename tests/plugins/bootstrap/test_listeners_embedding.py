"""What an outage, a crash or another model has left without a vector gets one afterwards."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest

from bot import Agent, Content, Memory, MemoryKind, Plugin, Service, derived_id, model, new_id
from bot.events import EmbeddingCompleted
from bot.models import EmbeddingRequest, EmbeddingResult, ModelError, ModelRefused, ModelType, ModelUnavailable
from bot.testing import AgentHarness, ScriptedModel, make_message, running_agent
from plugins.bootstrap import listeners
from plugins.bootstrap.listeners import PROBE_TEXT, EmbeddingBackfill
from plugins.sql import plugin as sql


class Embedder(ScriptedModel):
    """A model for vectors, under a name, that can be down and refuses what it does not like."""

    def __init__(self, name: str = "m-1") -> None:
        super().__init__(can_embed=True)
        self.name = name
        self.is_down = False
        self.refused = ""
        self.asked_for: list[tuple[str, ...]] = []

    async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        if self.is_down:
            raise ModelUnavailable("no vectors today")
        if self.refused and self.refused in request.texts:
            raise ModelRefused("too ugly")
        self.asked_for.append(tuple(request.texts))
        return EmbeddingResult(tuple((float(len(text)), 1.0) for text in request.texts), self.name)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the pauses between attempts."""
    for name in ("BATCH_DELAY_SECONDS", "PAGE_DELAY_SECONDS", "FIRST_RETRY_SECONDS", "MAX_RETRY_SECONDS"):
        monkeypatch.setattr(listeners, name, 0.0)


@pytest.fixture(params=["memory", "SQLite"])
def kept_in(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Plugin], dict[str, str]]:
    """Return plugins and settings that store in memory or in a file."""
    if request.param == "memory":
        return [], {}
    return [sql], {"BOT_DATA_DIR": str(tmp_path)}


@asynccontextmanager
async def open_harness(
    kept_in: tuple[list[Plugin], dict[str, str]], embedder: Embedder, *others: Plugin
) -> AsyncIterator[AgentHarness]:
    plugins, settings = kept_in
    async with running_agent(*plugins, *others, model=embedder, settings=settings) as harness:
        yield harness


async def store_texts(harness: AgentHarness, *texts: str, kind: MemoryKind = MemoryKind.MESSAGE) -> list[Memory]:
    """Store texts without vectors, the last text the newest."""
    arrival = make_message("", sent_at=harness.agent.clock())
    memories = [
        Memory(
            id=new_id(),
            kind=kind,
            entity_id=derived_id("alice"),
            room_id=arrival.room.id,
            world_id=arrival.world.id,
            content=Content(text=text),
            created_at=harness.agent.clock() + timedelta(milliseconds=number),
        )
        for number, text in enumerate(texts)
    ]
    await harness.agent.store.memories.add(memories)
    return memories


async def halted(harness: AgentHarness) -> EmbeddingBackfill:
    """Return the service with its loop stopped, so that the test starts each look."""
    backlog = harness.agent.services[EmbeddingBackfill]
    await backlog.__aexit__(None, None, None)
    return backlog


async def models_of(harness: AgentHarness, memories: Sequence[Memory]) -> list[str]:
    kept = await harness.agent.store.memories.memories([memory.id for memory in memories])
    return [kept[memory.id].embedding_model for memory in memories]


async def until_complete(harness: AgentHarness, name: str) -> None:
    """Wait until everything has a vector of this model."""
    done = asyncio.Event()

    async def hear(event: EmbeddingCompleted | None = None) -> None:
        left = (await harness.agent.store.memories.unembedded(name)).memories
        if not [memory for memory in left if memory.content.text]:
            done.set()

    leave = harness.agent.events.subscribe(EmbeddingCompleted, hear)
    await hear()  # it may have been done before anybody listened
    async with asyncio.timeout(60):
        await done.wait()
    leave()


@pytest.mark.failure("E-10")
async def test_the_log_tells_how_far_it_has_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "LOG_INTERVAL", 40)
    caplog.set_level(logging.INFO, listeners.__name__)
    async with running_agent(model=Embedder("m-2")) as harness:
        backlog = await halted(harness)
        await store_texts(harness, *(f"message {number}" for number in range(70)))
        await backlog.fill()

    assert caplog.messages == ["embedded 64 messages and facts with m-2 so far"]


async def test_memories_without_a_vector_get_a_vector_in_batches_the_newest_first(
    kept_in: tuple[list[Plugin], dict[str, str]],
) -> None:
    embedder = Embedder()
    async with open_harness(kept_in, embedder) as harness:
        backlog = await halted(harness)
        memories = await store_texts(harness, *(f"message {number}" for number in range(70)), "", "\u200b")
        facts = await store_texts(harness, "Alice likes tea", kind=MemoryKind.FACT)
        assert await backlog.fill() == 71
        assert await models_of(harness, [*memories[:70], *facts]) == ["m-1"] * 71
        assert await backlog.fill() == 0
    batches = [texts for texts in embedder.asked_for if texts != (PROBE_TEXT,)]
    assert [len(texts) for texts in batches] == [32, 32, 7]
    assert batches[0][:2] == ("Alice likes tea", "message 69")
    assert batches[-1][-1] == "message 0"


async def test_an_empty_store_costs_no_call(kept_in: tuple[list[Plugin], dict[str, str]]) -> None:
    embedder = Embedder()
    async with open_harness(kept_in, embedder) as harness:
        assert await (await halted(harness)).fill() == 0
    assert embedder.asked_for == []


async def test_at_the_next_start_what_was_left_gets_its_vectors(tmp_path: Path) -> None:
    kept_in = ([sql], {"BOT_DATA_DIR": str(tmp_path)})
    silent = Embedder()
    silent.is_down = True
    async with open_harness(kept_in, silent) as harness:
        memories = await store_texts(harness, "one", "two")
    async with open_harness(kept_in, Embedder()) as harness:
        await until_complete(harness, "m-1")
        assert await models_of(harness, memories) == ["m-1", "m-1"]


async def test_at_a_start_the_service_of_the_model_is_not_asked_before_it_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Client(Service):
        """Takes longer to start than the backfill takes to find what has no vector."""

        async def __aenter__(self) -> Self:
            for _ in range(20):
                await self.agent.store.memories.unembedded("")
            return self

    @model(ModelType.TEXT_EMBEDDING, priority=1)
    async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        agent.services[Client]
        return EmbeddingResult(tuple((1.0, 1.0) for _ in request.texts), "m-1")

    silent = Embedder()
    silent.is_down = True
    kept_in = ([sql], {"BOT_DATA_DIR": str(tmp_path)})
    async with open_harness(kept_in, silent) as harness:
        await store_texts(harness, "one", "two")
    caplog.clear()
    async with open_harness(kept_in, silent, Plugin("late", services=[Client], models=[embed])) as harness:
        await until_complete(harness, "m-1")

    assert "is not running" not in caplog.text


async def test_after_a_change_of_model_everything_gets_vectors_of_the_new_model(tmp_path: Path) -> None:
    kept_in = ([sql], {"BOT_DATA_DIR": str(tmp_path)})
    async with open_harness(kept_in, Embedder("m-1")) as harness:
        backlog = await halted(harness)
        memories = await store_texts(harness, "one", "two")
        await backlog.fill()
        assert await models_of(harness, memories) == ["m-1", "m-1"]
    async with open_harness(kept_in, Embedder("m-2")) as harness:
        await until_complete(harness, "m-2")
        assert await models_of(harness, memories) == ["m-2", "m-2"]


async def test_after_an_outage_what_was_said_meanwhile_gets_its_vectors(
    kept_in: tuple[list[Plugin], dict[str, str]],
) -> None:
    embedder = Embedder()
    embedder.is_down = True
    async with open_harness(kept_in, embedder) as harness:
        receipt = await harness.send("Can you hear me?")
        embedder.is_down = False
        await until_complete(harness, "m-1")
        kept = await harness.agent.store.memories.memories([receipt.memory_id])
        assert kept[receipt.memory_id].embedding_model == "m-1"


async def test_a_message_that_is_refused_keeps_no_other_from_its_vector(
    kept_in: tuple[list[Plugin], dict[str, str]],
) -> None:
    embedder = Embedder()
    embedder.refused = "ugly"
    async with open_harness(kept_in, embedder) as harness:
        backlog = await halted(harness)
        memories = await store_texts(harness, "good", "ugly", "better")
        assert await backlog.fill() == 2
        assert await models_of(harness, memories) == ["m-1", "", "m-1"]
        before = len(embedder.asked_for)
        assert await backlog.fill() == 0
        assert embedder.asked_for[before:] == [(PROBE_TEXT,)]


async def test_no_other_model_replaces_the_model_that_everything_is_embedded_by() -> None:
    @model(ModelType.TEXT_EMBEDDING)
    async def stand_in(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        return EmbeddingResult(tuple((1.0,) for _ in request.texts), "other")

    embedder = Embedder()
    reserve = Plugin("reserve", models=[stand_in], priority=-10)
    async with open_harness(([], {}), embedder, reserve) as harness:
        embedder.is_down = True
        memories = await store_texts(harness, "one")
        with pytest.raises(ModelUnavailable):
            await harness.agent.services[EmbeddingBackfill].fill()
        assert await models_of(harness, memories) == [""]

        receipt = await harness.send("two")  # in a message it may: recall works as well as it can
        embedder.is_down = False
        await until_complete(harness, "m-1")
        kept = await harness.agent.store.memories.memories([receipt.memory_id])
        assert kept[receipt.memory_id].embedding_model == "m-1"


async def test_a_model_that_changes_its_name_from_call_to_call_is_not_asked_for_more() -> None:
    class Fickle(Embedder):
        async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
            self.name = f"m-{len(self.asked_for)}"
            return await super()._embed(agent, request)

    async with open_harness(([], {}), Fickle()) as harness:
        backlog = await halted(harness)
        await store_texts(harness, "one", "two")
        with pytest.raises(ModelError, match="the embedding model changed from m-0 to m-1"):
            await backlog.fill()


async def test_without_a_model_for_vectors_nothing_is_looked_for(agent_harness: AgentHarness) -> None:
    await store_texts(agent_harness, "one")
    await agent_harness.agent.events.wait_idle()
    found = await agent_harness.agent.store.memories.unembedded("")
    assert [memory.content.text for memory in found.memories] == ["one"]
