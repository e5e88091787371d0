"""Bad days of the provider, through the real SDK: rows E-05, E-08, E-09 and E-10 of the failures."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from bot import Attachment, Character, Content, MediaKind, MemoryKind, Outcome, Plugin, RecallScope
from bot.events import EmbeddingCompleted
from bot.models import router
from bot.pipeline.compose import MAX_TRIES
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from bot.text import parse_history
from plugins.bootstrap import listeners
from plugins.knowledge import plugin as knowledge
from plugins.openai import plugin as openai
from tests.plugins.loopback import Answer, Asked, Loopback, loopback
from tests.plugins.openai.wire import KEY, completion, open_harness

TOO_LONG = Answer({"error": {"message": "too much", "code": "context_length_exceeded"}}, 400)
AWAY = Answer({"error": {"message": "closed"}}, 503, {"Retry-After": "3600"})
ADA = Character(name="Ada", bio=("Ada keeps the lighthouse of Tern Rock.",))
LONG = "the sea " * 200


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


def shown(asked: Asked) -> str:
    return str(asked.json["messages"][-1]["content"])


def reading(most: int) -> Callable[[Asked], Answer]:
    """Answer prompts of at most so many characters, and find all others too long."""

    def answered(asked: Asked) -> Answer:
        is_short = len(shown(asked)) <= most
        return Answer(completion(model_answer("Aye.", actions=["REPLY"]))) if is_short else TOO_LONG

    return answered


@pytest.mark.long
@pytest.mark.failure("E-05")
async def test_where_the_prompt_is_too_long_the_model_is_asked_once_more_with_less(api: Loopback) -> None:
    async with open_harness(api.url, character=ADA) as harness:
        api.answers = reading(100_000)
        for number in range(8):
            await harness.send(f"message {number}: {LONG}")
        api.answers, api.asked = reading(9_000), []
        receipt = await harness.send("and what do you think?")

    first, second = (shown(request) for request in api.asked)
    assert receipt.outcome is Outcome.ANSWERED
    assert receipt.notes == ("the prompt was too long for the model; it was asked with less of RECENT_MESSAGES",)
    assert [bool(call.error) for call in receipt.model_calls if call.model != "scripted"] == [True, False]
    history, less = parse_history(first), parse_history(second)
    assert "message 0" in history[0].text
    assert "message 0" not in second
    assert less[-1].text == history[-1].text == "and what do you think?"
    assert "Ada keeps the lighthouse" in second


@pytest.mark.failure("E-05")
async def test_open_messages_and_what_they_bring_are_kept(api: Loopback) -> None:
    api.answers = reading(9_000)
    files = tuple(
        Attachment(str(day), MediaKind.DOCUMENT, name="log.txt", text=f"Day {day}: fog. {LONG}") for day in range(8)
    )
    async with open_harness(api.url) as harness:
        receipt = await harness.send(Content(text="what does the log say?", attachments=files))

    assert receipt.outcome is Outcome.ANSWERED
    second = shown(api.asked[1])
    assert "Day 0: fog." in second
    assert "Nobody has answered these yet" in second
    assert parse_history(second)[-1].text == "what does the log say?"


@pytest.mark.failure("E-05")
async def test_a_prompt_that_is_still_too_long_ends_in_a_neutral_line(api: Loopback) -> None:
    api.answers = [TOO_LONG]
    async with open_harness(api.url) as harness:
        receipt = await harness.send("hi")
        await harness.send("hi again")

    assert (receipt.outcome, receipt.rule) == (Outcome.FAILED, "PromptTooLong")
    assert len(api.asked) == 2 * MAX_TRIES
    assert len(harness.texts) == 1
    assert "too long" not in harness.texts[0]


@pytest.mark.long
@pytest.mark.failure("E-08")
async def test_an_outage_costs_few_calls_and_every_message_has_its_end(api: Loopback) -> None:
    api.answers = [AWAY]
    rooms, each = 50, 20
    async with open_harness(api.url) as harness:
        receipts = [await harness.submit(f"{n}", room=f"room {n % rooms}") for n in range(rooms * each)]
        settled = await asyncio.gather(*(harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts))
        await harness.agent.outbox.drain(60.0)

    outcomes = Counter(receipt.outcome for receipt in settled)
    assert set(outcomes) <= {Outcome.FAILED, Outcome.SUPERSEDED}
    assert outcomes[Outcome.FAILED] >= rooms
    assert len(api.asked) <= 64  # those that were under way when it became plain
    assert len(harness.texts) == rooms


@pytest.mark.failure("E-08")
async def test_after_the_outage_the_first_message_is_answered(api: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "OPEN_SECONDS", 0.0)
    api.answers = [AWAY]
    async with open_harness(api.url) as harness:
        for number in range(router.FAILURE_THRESHOLD + 1):
            assert (await harness.send(f"are you there? {number}")).outcome is Outcome.FAILED
        api.answers = [Answer(completion())]
        assert (await harness.send("and now?")).outcome is Outcome.ANSWERED


@pytest.mark.failure("E-08")
async def test_without_another_model_a_message_waits_for_the_end_of_an_outage(
    api: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "OPEN_SECONDS", 0.1)
    api.answers = [Answer({"error": {"message": "closed"}}, 503)]
    without_model = ScriptedModel()
    without_model.plugin = Plugin("empty", "Has no model.")
    settings = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1", "MODEL_RETRIES": "1"}
    async with running_agent(openai, model=without_model, settings=settings) as harness:
        failed = await asyncio.gather(*(harness.send("hi", room=f"room {n}") for n in range(router.FAILURE_THRESHOLD)))
        assert {receipt.outcome for receipt in failed} == {Outcome.FAILED}
        count = len(api.asked)
        waiting = asyncio.ensure_future(harness.send("are you back?", room="another room"))
        api.answers = [Answer(completion())]
        assert (await waiting).outcome is Outcome.ANSWERED

    assert len(api.asked) == count + 1


def vectors_of(asked: Asked, dimension: int) -> Answer:
    data = [{"index": n, "embedding": [1.0] * dimension} for n, _ in enumerate(asked.json["input"])]
    return Answer({"data": data})


def serving(dimension: int, is_away: asyncio.Event | None = None) -> Callable[[Asked], Answer]:
    """Write texts, and make vectors of this dimension unless that part is away."""

    def answered(asked: Asked) -> Answer:
        if not asked.path.endswith("/embeddings"):
            return Answer(completion(model_answer("Aye.")))
        return AWAY if is_away is not None and is_away.is_set() else vectors_of(asked, dimension)

    return answered


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the pauses between attempts."""
    for name in ("BATCH_DELAY_SECONDS", "PAGE_DELAY_SECONDS", "FIRST_RETRY_SECONDS", "MAX_RETRY_SECONDS"):
        monkeypatch.setattr(listeners, name, 0.01)
    monkeypatch.setattr(router, "OPEN_SECONDS", 0.0)


async def until_all_have_vectors(harness: AgentHarness, model: str, texts: set[str]) -> None:
    """Wait until these were given vectors of this model."""
    done = asyncio.Event()

    async def look(event: EmbeddingCompleted | None = None) -> None:
        left = (await harness.agent.store.memories.unembedded(model)).memories
        if not texts & {memory.content.text for memory in left}:
            done.set()

    harness.agent.events.subscribe(EmbeddingCompleted, look)
    await look()
    async with asyncio.timeout(60):
        await done.wait()


@pytest.mark.failure("E-09")
@pytest.mark.usefixtures("hurry")
async def test_without_the_embedding_service_replies_come_and_vectors_follow_later(api: Loopback) -> None:
    is_away = asyncio.Event()
    is_away.set()
    api.answers = serving(4, is_away)
    character = Character(name="Ada", knowledge=("The lamp of Tern Rock burns whale oil.",))
    async with open_harness(api.url, knowledge, character=character, OPENAI_EMBEDDING_MODEL="v") as harness:
        receipt = await harness.send("what burns in the lamp?")
        assert receipt.outcome is Outcome.ANSWERED
        kept, _ = await harness.agent.store.memories.recent(receipt.room_id, 2)
        assert kept.embedding is None
        is_away.clear()
        await until_all_have_vectors(harness, "v-4", {"what burns in the lamp?", "Aye."})


@pytest.mark.failure("E-10")
@pytest.mark.usefixtures("hurry")
async def test_another_dimension_is_never_mixed_in_and_everything_gets_it(api: Loopback) -> None:
    store = InMemoryStore()
    api.answers = serving(4)
    async with open_harness(api.url, store=store, OPENAI_EMBEDDING_MODEL="v") as harness:
        receipt = await harness.send("the lamp burns whale oil")
        await until_all_have_vectors(harness, "v-4", {"the lamp burns whale oil", "Aye."})
        [memory] = await harness.agent.store.memories.by_turn(receipt.turn_id)
    api.answers = serving(8)
    async with open_harness(api.url, store=store, OPENAI_EMBEDDING_MODEL="v") as harness:
        await until_all_have_vectors(harness, "v-8", {"the lamp burns whale oil", "Aye."})
        memories, reach = harness.agent.store.memories, RecallScope(memory.room_id, memory.world_id)
        assert await memories.recall([1.0] * 4, "v-4", reach, MemoryKind.MESSAGE) == []
        assert len(await memories.recall([1.0] * 8, "v-8", reach, MemoryKind.MESSAGE)) == 2
