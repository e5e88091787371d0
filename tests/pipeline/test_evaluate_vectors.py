"""Embeddings: batched, never delaying a reply, and completed after a crash."""

import asyncio
from collections.abc import Sequence

import pytest

from bot.domain.events import EmbeddingCompleted, EmbeddingFailed, EmbeddingRequested, Event
from bot.errors import ModelRefused, ModelUnavailable
from bot.models.types import EmbeddingRequest, EmbeddingResult
from bot.pipeline.commit import MAX_BATCH_TURNS, Embeddings
from bot.plugin_system.plugin import Plugin
from bot.store import InMemoryStore
from bot.store.protocols import Store
from bot.testing import AgentHarness, ScriptedModel, make_turn, running_agent
from bot.turn import Agent, Turn

BARE = Plugin("bootstrap", "Nothing: its back-fill would see to what waits here.")


async def test_a_message_and_its_replies_are_embedded() -> None:
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    async with running_agent(model=ScriptedModel(can_embed=True)) as harness:
        harness.agent.events.subscribe(Event, hear)
        turn = make_turn(harness.agent, "Hello")
        await harness.agent.store.memories.add([turn.message])
        reply = await turn.reply("Hi")
        assert reply is not None
        await Embeddings(harness.agent).embed(turn, turn.message)
        kept = await harness.agent.store.memories.memories([turn.message.id, reply.id])
        await harness.agent.events.wait_idle()
    assert [kept[sent].embedding for sent in (turn.message.id, reply.id)] == [(5.0, 1.0), (2.0, 1.0)]
    assert {memory.embedding_model for memory in kept.values()} == {"scripted-2"}
    for kind in (EmbeddingRequested, EmbeddingCompleted):
        assert {event.memory_id for event in events if isinstance(event, kind)} == set(kept)


@pytest.mark.parametrize("text", ["", "\u200b"])
async def test_an_empty_text_is_not_embedded(text: str) -> None:
    async with running_agent(model=ScriptedModel(can_embed=True)) as harness:
        turn = make_turn(harness.agent, text)
        await Embeddings(harness.agent).embed(turn, turn.message)
        assert await harness.agent.store.memories.memories([turn.message.id]) == {}


class Unable(ScriptedModel):
    """A model whose vectors are too few, or do not come."""

    def __init__(self, fault: str) -> None:
        super().__init__(can_embed=True)
        self.fault = fault

    async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        if self.fault == "down":
            raise ModelUnavailable("no vectors today")
        return EmbeddingResult((), "m")


@pytest.mark.parametrize("fault", ["down", "too few"])
async def test_without_an_embedding_model_only_the_event_is_emitted(fault: str) -> None:
    events: list[EmbeddingFailed] = []

    async def hear(event: EmbeddingFailed) -> None:
        events.append(event)

    async with running_agent(model=Unable(fault)) as harness:
        harness.agent.events.subscribe(EmbeddingFailed, hear)
        turn = make_turn(harness.agent, "Hello")
        await harness.agent.store.memories.add([turn.message])
        await Embeddings(harness.agent).embed(turn, turn.message)
        await harness.agent.events.wait_idle()
        [kept] = (await harness.agent.store.memories.memories([turn.message.id])).values()
    assert [event.memory_id for event in events] == [turn.message.id]
    assert kept.embedding is None


class Slow(ScriptedModel):
    """An embedding model that responds when released; `asked` has the texts of each call."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__(can_embed=True)
        self.calls: list[Sequence[str]] = []
        self.is_free = asyncio.Event()
        self.is_asked = asyncio.Event()
        self._refuses = refuses

    async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        self.calls.append(request.texts)
        self.is_asked.set()
        await self.is_free.wait()
        if self._refuses and self._refuses in request.texts:
            raise ModelRefused("not this one")
        return await super()._embed(agent, request)


async def kept(harness: AgentHarness, text: str) -> Turn:
    turn = make_turn(harness.agent, text)
    await harness.agent.store.memories.add([turn.message])
    return turn


async def with_vectors(harness: AgentHarness, turns: Sequence[Turn]) -> list[str]:
    found = await harness.agent.store.memories.memories([turn.message.id for turn in turns])
    return sorted(memory.content.text for memory in found.values() if memory.embedding is not None)


async def test_texts_that_arrive_during_a_call_are_embedded_in_a_single_batch() -> None:
    async with running_agent(BARE, model=(model := Slow())) as harness:
        vectors = Embeddings(harness.agent)
        turns = [await kept(harness, f"text {number}") for number in range(MAX_BATCH_TURNS + 9)]
        async with asyncio.TaskGroup() as group:
            for turn in turns:
                group.create_task(vectors.embed(turn, turn.message))
            await model.is_asked.wait()
            model.is_free.set()
        assert [len(texts) for texts in model.calls] == [1, MAX_BATCH_TURNS, 8]
        assert len(await with_vectors(harness, turns)) == len(turns)


async def test_a_refused_text_does_not_affect_other_embeddings() -> None:
    async with running_agent(BARE, model=(model := Slow(refuses="bad"))) as harness:
        vectors = Embeddings(harness.agent)
        turns = [await kept(harness, text) for text in ("one", "two", "bad", "four")]
        async with asyncio.TaskGroup() as group:
            for turn in turns:
                group.create_task(vectors.embed(turn, turn.message))
            model.is_free.set()
        assert await with_vectors(harness, turns) == ["four", "one", "two"]


async def test_a_cancelled_request_does_not_stop_the_embedding_of_others() -> None:
    async with running_agent(BARE, model=(model := Slow())) as harness:
        vectors = Embeddings(harness.agent)
        turns = [await kept(harness, text) for text in ("one", "two", "three")]
        first, *others = [asyncio.create_task(vectors.embed(turn, turn.message)) for turn in turns]
        await model.is_asked.wait()
        first.cancel()
        model.is_free.set()
        await asyncio.gather(*others)
        assert await with_vectors(harness, turns) == ["three", "two"]


async def test_the_reply_does_not_wait_for_embeddings() -> None:
    async with running_agent(BARE, model=(model := Slow())) as harness:
        receipt = await harness.send("Hello")
        assert receipt.outcome == "answered"
        assert harness.texts == ["Hello."]
        await model.is_asked.wait()
        model.is_free.set()


async def test_messages_without_embedding_after_a_crash_are_embedded_at_the_next_start() -> None:
    store: Store = InMemoryStore()
    async with running_agent(model=(model := Slow()), store=store) as harness:
        await harness.send("Hello")
        await model.is_asked.wait()
        await harness.agent_runtime.inbox.drain(0)  # the process ends before there is an answer
    events: asyncio.Queue[EmbeddingCompleted] = asyncio.Queue()

    async def hear(event: EmbeddingCompleted) -> None:
        events.put_nowait(event)

    async with running_agent(model=ScriptedModel(can_embed=True), store=store) as harness:
        harness.agent.events.subscribe(EmbeddingCompleted, hear)
        found = await store.memories.unembedded("scripted-2")
        left = {memory.id for memory in found.memories if memory.content.text}
        while left:
            left.discard((await events.get()).memory_id)
        found = await store.memories.unembedded("scripted-2")
        assert [memory for memory in found.memories if memory.content.text] == []
