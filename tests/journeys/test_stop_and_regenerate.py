"""Stopping an answer, and answering a message once more: one outcome each, in memory and on SQLite."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bot import Memory, Outcome, Receipt, derived_id, new_id
from bot.domain.inbound import INCOMPLETE_KEY, REVISIONS_KEY
from bot.events import MessageEdited, RunEnded
from bot.inbound.edits import EditReporter
from bot.models import ModelRefused, TextRequest
from bot.platform import AnswerRefused, Delivery
from bot.store import Store, TurnCommit
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, StreamedText, model_answer, running_agent

pytestmark = pytest.mark.usefixtures("nothing_held_back")

AGENT = derived_id("agent", "Ada")
Staged = Callable[..., AbstractAsyncContextManager[AgentHarness]]
BEGINNING = "<response><actions>REPLY</actions><text>Once upon"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with OpenFiles().open_store(tmp_path / "greenroom.db", AGENT) as opened:
        yield opened


@pytest.fixture
def open_harness(store: Store) -> Staged:
    return partial(running_agent, store=store)


class HeldModel(ScriptedModel):
    """A model that answers "answer 1", "answer 2" and so on, each when it is released."""

    def __init__(self) -> None:
        self.requested: asyncio.Queue[TextRequest] = asyncio.Queue()
        self.released = asyncio.Event()
        self.count = 0
        super().__init__(self._answer)

    async def _answer(self, request: TextRequest) -> str:
        self.count += 1
        text = f"answer {self.count}"
        self.requested.put_nowait(request)
        await self.released.wait()
        return model_answer(text)


class VersionAdapter(RecordingAdapter):
    """A platform whose readers see versions; `shown` has what is seen of unfinished replies."""

    shows_versions = True

    def __init__(self) -> None:
        super().__init__(can_edit=True, stream_interval=0)
        self.shown: asyncio.Queue[str] = asyncio.Queue()

    async def preview(self, delivery: Delivery) -> None:
        self.shown.put_nowait(delivery.content.text)


def edits(harness: AgentHarness) -> EditReporter:
    return harness.agent_runtime.handle.edits


async def final(harness: AgentHarness, receipt: Receipt) -> Receipt:
    closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return closed


async def messages(harness: AgentHarness, receipt: Receipt) -> list[Memory]:
    return await harness.agent.store.memories.recent(receipt.room_id)


async def texts(harness: AgentHarness, receipt: Receipt) -> list[str]:
    return [message.content.text for message in await messages(harness, receipt)]


async def test_a_stopped_turn_is_cancelled_and_sends_nothing(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model) as harness:
        receipt = await harness.submit("Hello")
        await model.requested.get()
        stopped = await edits(harness).stop_answer(receipt.memory_id)
        assert (stopped.id, stopped.outcome, stopped.rule) == (receipt.id, Outcome.CANCELLED, "stopped")
        assert stopped.is_evaluated
        assert await final(harness, receipt) == stopped
        assert await edits(harness).stop_answer(receipt.memory_id) == stopped
        assert (harness.texts, await texts(harness, receipt)) == ([], ["Hello"])


async def test_a_stop_ends_the_run_of_the_message_once(open_harness: Staged) -> None:
    model, ended = HeldModel(), []
    async with open_harness(model=model) as harness:

        async def note(event: RunEnded) -> None:
            ended.append(event.outcome)

        harness.agent.events.subscribe(RunEnded, note)
        receipt = await harness.submit("Hello")
        await model.requested.get()
        await asyncio.gather(*(edits(harness).stop_answer(receipt.memory_id) for _ in range(3)))
        await harness.agent.events.wait_idle()
        assert ended == [Outcome.CANCELLED]


async def test_what_was_shown_of_a_stopped_reply_stays_and_is_marked_as_incomplete(open_harness: Staged) -> None:
    adapter = VersionAdapter()
    model = ScriptedModel([StreamedText(BEGINNING, asyncio.Event())])
    async with open_harness(model=model, adapter=adapter) as harness:
        receipt = await harness.submit("A story")
        assert await adapter.shown.get() == "Once upon"
        stopped = await edits(harness).stop_answer(receipt.memory_id)
        await final(harness, receipt)
        assert stopped.rule == "stopped"
        assert harness.texts == ["Once upon"]
        reply = (await messages(harness, receipt))[-1]
        assert (reply.content.text, reply.metadata[INCOMPLETE_KEY]) == ("Once upon", True)
        assert reply.content.in_reply_to == receipt.memory_id


async def test_a_platform_without_marks_gets_a_mark_in_the_text_of_a_stopped_reply(open_harness: Staged) -> None:
    adapter = RecordingAdapter(can_edit=True, stream_interval=0)
    model = ScriptedModel([StreamedText(BEGINNING, asyncio.Event())])
    async with open_harness(model=model, adapter=adapter) as harness:
        receipt = await harness.submit("A story")
        await adapter.wait_until_sent(1)
        await edits(harness).stop_answer(receipt.memory_id)
        await final(harness, receipt)
        assert [delivery.content.text for delivery in adapter.edited][-1] == "Once upon\n\n(stopped)"


@pytest.mark.parametrize("is_commit_first", [True, False])
async def test_a_stop_that_races_with_the_commit_has_a_single_winner(
    open_harness: Staged, is_commit_first: bool
) -> None:
    model = HeldModel()
    async with open_harness(model=model) as harness:
        ledger, reached, go = harness.agent.store.ledger, asyncio.Event(), asyncio.Event()
        commit = ledger.commit

        async def held_commit(turn_commit: TurnCommit) -> list[Delivery]:
            reached.set()
            await go.wait()
            return await commit(turn_commit)

        ledger.commit = held_commit  # type: ignore[method-assign]  # the moment of the commit is the test's
        receipt = await harness.submit("Hello")
        await model.requested.get()
        if is_commit_first:
            model.released.set()
            await reached.wait()
        stopping = asyncio.create_task(edits(harness).stop_answer(receipt.memory_id))
        await asyncio.sleep(0)
        go.set()
        stopped = await stopping
        model.released.set()
        closed = await final(harness, receipt)
        assert stopped.outcome is closed.outcome
        assert closed.outcome is (Outcome.ANSWERED if is_commit_first else Outcome.CANCELLED)
        assert harness.texts == (["answer 1"] if is_commit_first else [])


@pytest.mark.long
async def test_stopping_the_older_of_two_messages_ends_the_turn_that_answers_both(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model) as harness:
        older = await harness.submit("Hello")
        await model.requested.get()
        newer = await harness.submit("and one more")
        await model.requested.get()
        await edits(harness).stop_answer(older.memory_id)
        outcomes = [(await final(harness, receipt)).outcome for receipt in (older, newer)]
        assert outcomes == [Outcome.SUPERSEDED, Outcome.CANCELLED]
        assert harness.texts == []


@pytest.mark.long
async def test_a_message_after_a_stopped_message_is_answered(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model) as harness:
        receipt = await harness.submit("Hello")
        await model.requested.get()
        await edits(harness).stop_answer(receipt.memory_id)
        model.released.set()
        assert (await harness.send("Again")).outcome is Outcome.ANSWERED
        assert harness.texts == ["answer 2"]


async def test_a_stopped_message_is_not_answered_at_the_next_start(store: Store) -> None:
    model = HeldModel()
    async with running_agent(model=model, store=store) as harness:
        receipt = await harness.submit("Hello")
        await model.requested.get()
        await edits(harness).stop_answer(receipt.memory_id)
    async with running_agent(model=model, store=store) as harness:
        assert (await final(harness, receipt)).rule == "stopped"
        assert (harness.texts, model.count) == ([], 1)


async def test_nothing_that_was_never_said_is_stopped(open_harness: Staged) -> None:
    async with open_harness() as harness:
        with pytest.raises(LookupError):
            await edits(harness).stop_answer(new_id())
        with pytest.raises(LookupError):
            await edits(harness).answer_again(new_id(), "again")


async def test_a_new_answer_replaces_the_earlier_answer_which_is_kept_as_a_version(open_harness: Staged) -> None:
    adapter = RecordingAdapter(can_edit=True)
    model = ScriptedModel([model_answer("one"), model_answer("two"), model_answer("three")])
    async with open_harness(model=model, adapter=adapter) as harness:
        first = await harness.send("Hello")
        earlier = (await messages(harness, first))[-1]
        receipt = await final(harness, await edits(harness).answer_again(first.memory_id, "again"))
        reply = (await messages(harness, first))[-1]
        assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "regenerated")
        assert (receipt.memory_id, receipt.key.revision) == (first.memory_id, 1)
        assert (reply.id, reply.content.text) == (earlier.id, "two")
        assert [revision["text"] for revision in reply.metadata[REVISIONS_KEY]] == ["one"]
        assert [delivery.content.text for delivery in adapter.edited] == ["two"]
        assert await texts(harness, first) == ["Hello", "two"]
        question = (await messages(harness, first))[0]
        assert REVISIONS_KEY not in question.metadata


async def test_prompts_contain_the_current_version_only_and_none_while_a_new_version_is_written(
    open_harness: Staged,
) -> None:
    model = ScriptedModel([model_answer(f"version {number}") for number in range(1, 4)])
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        first = await harness.send("Hello")
        await final(harness, await edits(harness).answer_again(first.memory_id, "again"))
        await harness.send("And now?")
        regenerated, later = (request.prompt for request in model.requests[1:])
        assert "version 1" not in regenerated
        assert "version 2" in later
        assert "version 1" not in later


async def test_an_answer_in_the_middle_is_written_again_without_what_came_later(open_harness: Staged) -> None:
    model = ScriptedModel([model_answer(f"version {number}") for number in range(1, 4)])
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        first = await harness.send("Hello")
        await harness.send("Something later")
        await final(harness, await edits(harness).answer_again(first.memory_id, "again"))
        assert "Something later" not in model.requests[-1].prompt
        assert await texts(harness, first) == ["Hello", "version 3", "Something later", "version 2"]


async def test_a_repeated_request_for_a_new_answer_is_carried_out_once(open_harness: Staged) -> None:
    model = ScriptedModel([model_answer("one"), model_answer("two"), model_answer("three")])
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        first = await harness.send("Hello")
        receipts = [await edits(harness).answer_again(first.memory_id, "again") for _ in range(2)]
        await final(harness, receipts[0])
        receipts.append(await edits(harness).answer_again(first.memory_id, "again"))
        assert len({receipt.id for receipt in receipts}) == 1
        assert len(model.requests) == 2


async def test_no_new_answer_is_written_while_an_answer_is_being_written(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        receipt = await harness.submit("Hello")
        await model.requested.get()
        with pytest.raises(AnswerRefused) as refusal:
            await edits(harness).answer_again(receipt.memory_id, "again")
        assert refusal.value.code == "in_progress"
        model.released.set()
        assert (await final(harness, receipt)).outcome is Outcome.ANSWERED
        again = await edits(harness).answer_again(receipt.memory_id, "again")
        assert (await final(harness, again)).outcome is Outcome.ANSWERED


@pytest.mark.long
async def test_a_message_that_was_answered_with_a_newer_message_names_it(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model) as harness:
        older = await harness.submit("Hello")
        await model.requested.get()
        newer = await harness.submit("and one more")
        model.released.set()
        await final(harness, newer)
        with pytest.raises(AnswerRefused, match=str(newer.memory_id)) as refusal:
            await edits(harness).answer_again(older.memory_id, "again")
        assert refusal.value.code == "superseded"


async def test_an_earlier_reply_is_kept_if_the_new_reply_fails(open_harness: Staged) -> None:
    def answer(request: TextRequest) -> str:
        if len(model.requests) > 1:
            raise ModelRefused("no credit")
        return model_answer("one")

    model = ScriptedModel(answer)
    adapter = RecordingAdapter(can_edit=True)
    async with open_harness(model=model, adapter=adapter) as harness:
        first = await harness.send("Hello")
        receipt = await final(harness, await edits(harness).answer_again(first.memory_id, "again"))
        assert receipt.outcome is Outcome.FAILED
        assert (adapter.edited, await texts(harness, first)) == ([], ["Hello", "one"])


async def test_a_message_that_failed_is_answered_in_the_place_of_its_apology(open_harness: Staged) -> None:
    def answer(request: TextRequest) -> str:
        if len(model.requests) == 1:
            raise ModelRefused("no credit")
        return model_answer("one")

    model = ScriptedModel(answer)
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        first = await harness.send("Hello")
        receipt = await final(harness, await edits(harness).answer_again(first.memory_id, "again"))
        assert (first.outcome, receipt.outcome) == (Outcome.FAILED, Outcome.ANSWERED)
        assert await texts(harness, first) == ["Hello", "one"]


async def test_a_new_version_is_shown_while_it_is_written_and_its_beginning_stays_if_stopped(
    open_harness: Staged,
) -> None:
    adapter = VersionAdapter()
    model = ScriptedModel([model_answer("one"), StreamedText(BEGINNING, asyncio.Event()), model_answer("two")])
    async with open_harness(model=model, adapter=adapter) as harness:
        first = await harness.send("Hello")
        receipt = await edits(harness).answer_again(first.memory_id, "again")
        assert await adapter.shown.get() == "Once upon"
        stopped = await edits(harness).stop_answer(first.memory_id)
        await final(harness, receipt)
        assert (stopped.id, stopped.rule) == (receipt.id, "stopped")
        reply = (await messages(harness, first))[-1]
        assert (reply.content.text, reply.metadata[INCOMPLETE_KEY]) == ("Once upon", True)
        assert [revision["text"] for revision in reply.metadata[REVISIONS_KEY]] == ["one"]
        await final(harness, await edits(harness).answer_again(first.memory_id, "once more"))
        reply = (await messages(harness, first))[-1]
        assert (reply.content.text, INCOMPLETE_KEY in reply.metadata) == ("two", False)
        revisions = [(item["text"], INCOMPLETE_KEY in item) for item in reply.metadata[REVISIONS_KEY]]
        assert revisions == [("one", False), ("Once upon", True)]


@pytest.mark.long
async def test_a_new_answer_that_a_crash_interrupted_is_written_once_after_the_next_start(store: Store) -> None:
    model, adapter = HeldModel(), RecordingAdapter(can_edit=True)
    model.released.set()
    async with running_agent(model=model, adapter=adapter, store=store) as harness:
        first = await harness.send("Hello")
        model.released.clear()
        receipt = await edits(harness).answer_again(first.memory_id, "again")
        await model.requested.get()
        await model.requested.get()
    model.released.set()
    async with running_agent(model=model, adapter=adapter, store=store) as harness:
        repeated = await edits(harness).answer_again(first.memory_id, "again")
        closed = await final(harness, receipt)
        assert repeated.id == receipt.id
        assert (closed.outcome, closed.rule) == (Outcome.ANSWERED, "regenerated")
        reply = (await messages(harness, first))[-1]
        assert await texts(harness, first) == ["Hello", "answer 3"]
        assert [revision["text"] for revision in reply.metadata[REVISIONS_KEY]] == ["answer 1"]


async def test_an_edited_message_is_answered_again_whatever_on_edit_says(open_harness: Staged) -> None:
    model = ScriptedModel([model_answer("Of Frence."), model_answer("Paris.")])
    edited: list[str] = []
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:

        async def note(event: MessageEdited) -> None:
            edited.append(event.message.content.text)

        harness.agent.events.subscribe(MessageEdited, note)
        first = await harness.send("the capital of Frence?")
        question = (await messages(harness, first))[0]
        content = replace(question.content, text="the capital of France?")
        receipt = await final(harness, await edits(harness).answer_again(first.memory_id, "edit", content))
        assert receipt.outcome is Outcome.ANSWERED
        assert await texts(harness, first) == ["the capital of France?", "Paris."]
        question, reply = await messages(harness, first)
        assert [revision["text"] for revision in question.metadata[REVISIONS_KEY]] == ["the capital of Frence?"]
        assert [revision["text"] for revision in reply.metadata[REVISIONS_KEY]] == ["Of Frence."]
        await harness.agent.events.wait_idle()
        assert edited == ["the capital of France?"]


async def test_an_edit_stops_the_answer_under_way(open_harness: Staged) -> None:
    model = HeldModel()
    async with open_harness(model=model, adapter=RecordingAdapter(can_edit=True)) as harness:
        first = await harness.submit("Helo")
        await model.requested.get()
        question = (await messages(harness, first))[0]
        content = replace(question.content, text="Hello")
        again = await edits(harness).answer_again(first.memory_id, "edit", content)
        model.released.set()
        assert (await final(harness, first)).rule == "stopped"
        assert (await final(harness, again)).outcome is Outcome.ANSWERED
        assert await texts(harness, first) == ["Hello", "answer 2"]
