"""Rate limits in public rooms: excess messages cost nothing, and the receipt says why."""

from collections import Counter
from itertools import count

import pytest

from bot import Agent, Attachment, MediaKind, Plugin, Turn, evaluator, model
from bot.domain.content import Content, MentionContext
from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome
from bot.models import EmbeddingRequest, EmbeddingResult, ImageDescriptionRequest, ModelType, TextResult, Usage
from bot.testing import RecordingAdapter, ScriptedModel, model_answer, running_agent

NAMED = MentionContext(is_mention=True)
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55")


class Gallery(RecordingAdapter):
    """A platform with pictures."""

    def __init__(self, *, is_private: bool) -> None:
        super().__init__(is_trusted_audience=is_private)
        self.downloads: list[str] = []

    async def download(self, url: str) -> bytes | None:
        self.downloads.append(url)
        return PNG


@evaluator("LOOK", "Looks.", always_run=True)
async def look(turn: Turn) -> None:
    await turn.agent.store.cache.set(f"seen:{turn.message.content.text}", True)


@pytest.mark.failure("O-01")
async def test_a_flood_gets_a_single_answer_and_a_single_slow_down_notice() -> None:
    scripted = ScriptedModel(can_embed=True)
    adapter = RecordingAdapter(is_trusted_audience=False)
    async with running_agent(
        Plugin("look", evaluators=[look]), model=scripted, adapter=adapter, settings={"MESSAGES_PER_PERSON": "1"}
    ) as harness:
        direct = {"room": "direct", "kind": ChannelType.DM, "author": "Ann"}
        receipts = [await harness.send(f"message {number}", **direct) for number in range(6)]
        asked = len(scripted.requests)
        other = await harness.send("hello", room="direct too", kind=ChannelType.DM, author="Bo")
        seen = [await harness.agent.store.cache.get(f"seen:message {number}") for number in range(6)]
    assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 2 + [Outcome.IGNORED] * 4
    assert {receipt.rule for receipt in receipts[2:]} == {"MESSAGES_PER_PERSON"}
    assert receipts[2].reason == "more than 1 messages a minute came of one person"
    assert harness.texts[:3] == ["Hello.", "Hello.", "Too many messages at once. Please wait a minute."]
    assert len(harness.texts) == 4
    assert other.outcome is Outcome.ANSWERED
    assert seen == [True] * 2 + [None] * 4
    assert asked == 2


@pytest.mark.failure("O-01")
async def test_messages_not_addressed_to_the_bot_get_no_slow_down_notice() -> None:
    async with running_agent(
        adapter=RecordingAdapter(is_trusted_audience=False), settings={"MESSAGES_PER_PERSON": "1"}
    ) as harness:
        await harness.send(Content(text="hi", mention=NAMED))
        await harness.send(Content(text="hi", mention=NAMED))
        silent = [await harness.send("did you see the game?") for _ in range(3)]
        receipts = [await harness.send(Content(text="hey", mention=NAMED)) for _ in range(2)]
    assert {receipt.outcome for receipt in (*silent, *receipts)} == {Outcome.IGNORED}
    assert len(harness.texts) == 3


@pytest.mark.failure("O-13")
async def test_rate_limited_messages_have_no_pictures_fetched_or_described_and_no_embedding() -> None:
    gallery, paid = Gallery(is_private=False), Counter[ModelType]()

    @model(ModelType.IMAGE_DESCRIPTION)
    async def see(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
        paid[ModelType.IMAGE_DESCRIPTION] += 1
        return TextResult("<title>A mast</title><description>A mast.</description>", "eyes")

    @model(ModelType.TEXT_EMBEDDING)
    async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        paid[ModelType.TEXT_EMBEDDING] += len(request.texts)
        return EmbeddingResult(tuple((1.0, 0.0) for _ in request.texts), "ears", Usage())

    costly = Plugin("costly", models=[see, embed])
    async with running_agent(costly, adapter=gallery, settings={"MESSAGES_PER_PERSON": "1"}) as harness:
        for number in range(6):
            picture = Attachment("1", MediaKind.IMAGE, url=f"test:{number}")
            await harness.send(Content(text=f"look {number}", attachments=(picture,)), kind=ChannelType.DM)
    assert gallery.downloads == ["test:0", "test:1"]
    assert paid[ModelType.IMAGE_DESCRIPTION] == 2
    assert paid[ModelType.TEXT_EMBEDDING] <= 4  # what was said to it, and what it said


@pytest.mark.long
@pytest.mark.failure("O-01")
@pytest.mark.parametrize(("is_private", "answered"), [(True, 40), (False, 20)])
async def test_no_default_limit_applies_to_a_trusted_audience(is_private: bool, answered: int) -> None:
    async with running_agent(adapter=RecordingAdapter(is_trusted_audience=is_private)) as harness:
        receipts = [await harness.send("hi", kind=ChannelType.DM) for _ in range(40)]
    found = sum(receipt.outcome is Outcome.ANSWERED for receipt in receipts)
    assert answered <= found <= answered + 10  # a slow minute lets ten more in


@pytest.mark.failure("O-01")
async def test_a_configured_limit_applies_everywhere() -> None:
    async with running_agent(settings={"MESSAGES_PER_PERSON": "1"}) as harness:
        receipts = [await harness.send("hi", kind=ChannelType.DM) for _ in range(5)]
    assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 2 + [Outcome.IGNORED] * 3


@pytest.mark.failure("O-05")
async def test_two_bots_stop_answering_each_other_until_a_person_writes() -> None:
    """A platform on which another bot answers every message immediately."""
    words = count()
    scripted = ScriptedModel(lambda request: model_answer(f"Hello, for time {next(words)}."))
    async with running_agent(settings={"RESPOND_TO_BOTS": "true"}, model=scripted) as harness:
        echo = {"kind": ChannelType.DM, "author": "Echo", "is_bot": True}
        receipt = await harness.send("I am a bot", **echo)
        rounds = 0
        while receipt.outcome is Outcome.ANSWERED:
            rounds += 1
            receipt = await harness.send(f"I heard: {harness.texts[-1]}", **echo)
        assert (rounds, receipt.rule) == (5, "RESPOND_TO_BOTS")
        assert receipt.reason == "bots wrote 5 messages here since a person did"
        await harness.send("stop it, you two", kind=ChannelType.DM, author="Ann")
        assert (await harness.send("I am a bot", **echo)).outcome is Outcome.ANSWERED
