"""Streamed replies from the message to the platform, in memory and on SQLite."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bot import (
    ActionResult,
    Clock,
    Effect,
    Outcome,
    Plugin,
    ProviderResult,
    Receipt,
    Turn,
    action,
    derived_id,
    model,
    provider,
    system_clock,
)
from bot.domain.inbound import MAX_BACKFILL_AGE
from bot.models import ModelError, ModelType, TextRequest
from bot.platform import DeliveryState, DeliveryUnknown, NotSent, Undeliverable
from bot.store import Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    Restart,
    ScriptedModel,
    StreamedText,
    model_answer,
    running_agent,
)

pytestmark = pytest.mark.usefixtures("nothing_held_back")

AGENT = derived_id("agent", "Ada")
HEAD = "<response><thought>hm</thought><actions>REPLY</actions><text>"
TAIL = "</text></response>"
FIRST, WHOLE = "Once upon a time", "Once upon a time there was a bot."
OpenHarness = Callable[..., AbstractAsyncContextManager[AgentHarness]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with OpenFiles().open_store(tmp_path / "greenroom.db", AGENT) as opened:
        yield opened


@pytest.fixture
def open_harness(store: Store) -> OpenHarness:
    return partial(running_agent, store=store)


def editing(**details: object) -> RecordingAdapter:
    """Make a platform that edits, as often as it is asked to."""
    return RecordingAdapter(can_edit=True, stream_interval=0, **details)  # type: ignore[arg-type]  # passed on


def story(gate: asyncio.Event, *, rest: str = WHOLE.removeprefix(FIRST) + TAIL) -> ScriptedModel:
    """Make a model that writes the beginning, and the rest when the test wants it."""
    return ScriptedModel([StreamedText(HEAD, FIRST, gate, rest), model_answer("And another.")])


def unending(adapter: RecordingAdapter) -> ScriptedModel:
    """Make a model that goes on when its beginning is seen, and never gets to the end."""

    async def write(request: TextRequest) -> str:
        assert request.sink is not None
        await request.sink.write(HEAD + FIRST)
        await adapter.wait_until_sent(1)
        await request.sink.write(" there")
        return await asyncio.get_running_loop().create_future()

    return ScriptedModel(write)


async def settled(harness: AgentHarness, receipt: Receipt) -> Receipt:
    end = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return end


def visible(adapter: RecordingAdapter) -> list[str]:
    """Return the visible messages of the platform, after their last edits."""
    messages = {f"sent-{number}": memory.content.text for number, memory in enumerate(adapter.sent, start=1)}
    messages |= {delivery.replaces_external_id: delivery.content.text for delivery in adapter.edited}
    return [text for text in messages.values() if text]


async def states(harness: AgentHarness, receipt: Receipt) -> list[str]:
    assert receipt.turn_id is not None
    return [str(delivery.state) for delivery in await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)]


async def test_a_draft_is_shown_and_edited_into_the_complete_reply(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(adapter=editing(), model=story(gate)) as harness:
        receipt = await harness.submit("Tell me a story")
        assert await harness.adapter.wait_until_sent(1) == [FIRST]
        gate.set()
        end = await settled(harness, receipt)
        assert end.outcome is Outcome.ANSWERED
        assert visible(harness.adapter) == [WHOLE]
        assert len(harness.adapter.sent) == 1
        assert await states(harness, end) == ["sent", "sent"]
        [memory] = await harness.agent.store.memories.by_turn(end.turn_id)  # type: ignore[arg-type]
        assert memory.content.text == WHOLE


async def test_the_first_draft_is_stored_with_its_platform_id_before_the_next_update(open_harness: OpenHarness) -> None:
    gate, more = asyncio.Event(), asyncio.Event()
    model = ScriptedModel([StreamedText(HEAD, FIRST, gate, " there", more, TAIL)])
    async with open_harness(adapter=editing(), model=model) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        await harness.adapter.wait_until_edited(1)
        [draft] = await harness.agent.store.ledger.deliveries(is_open=True)
        assert (draft.external_id, draft.state) == ("sent-1", DeliveryState.ATTEMPTING)
        more.set()
        await settled(harness, receipt)


async def test_a_reply_complete_before_the_first_draft_is_due_is_sent_normally(open_harness: OpenHarness) -> None:
    adapter = RecordingAdapter(can_edit=True, stream_interval=3600.0)
    async with open_harness(adapter=adapter, model=ScriptedModel([StreamedText(HEAD, WHOLE, TAIL)])) as harness:
        end = await harness.send("Tell me a story")
        assert (harness.texts, adapter.edited) == ([WHOLE], [])
        assert await states(harness, end) == ["sent"]


@pytest.mark.parametrize("settings", [{"STREAMING": "false"}, {}])
async def test_no_draft_is_shown_if_disabled_or_not_supported_by_the_platform(
    open_harness: OpenHarness, settings: dict[str, str]
) -> None:
    adapter = editing() if settings else RecordingAdapter(can_edit=True)
    model = ScriptedModel([StreamedText(HEAD, FIRST, TAIL)])
    async with open_harness(adapter=adapter, model=model, settings=settings) as harness:
        await harness.send("Tell me a story")
        assert (harness.texts, adapter.edited) == ([FIRST], [])


async def test_a_newer_message_does_not_supersede_a_turn_with_a_visible_draft(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(adapter=editing(), model=story(gate)) as harness:
        first = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        second = await harness.submit("And then?")
        gate.set()
        ends = [await settled(harness, receipt) for receipt in (first, second)]
        assert [end.outcome for end in ends] == [Outcome.ANSWERED, Outcome.ANSWERED]
        assert visible(harness.adapter) == [WHOLE, "And another."]


async def test_a_restarted_text_replaces_the_draft(open_harness: OpenHarness) -> None:
    gate, last = asyncio.Event(), asyncio.Event()
    model = ScriptedModel([StreamedText(HEAD, FIRST, gate, Restart, HEAD, "Well", last, TAIL)])
    async with open_harness(adapter=editing(), model=model) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        assert await harness.adapter.wait_until_edited(1) == ["Well"]
        last.set()
        await settled(harness, receipt)
        assert visible(harness.adapter) == ["Well"]


async def test_a_model_failure_during_a_draft_is_reported_in_the_same_message(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()

    async def breaks_off(request: TextRequest) -> str:
        assert request.sink is not None
        await request.sink.write(HEAD + FIRST)
        await gate.wait()
        raise ModelError("the line went dead")

    async with open_harness(adapter=editing(), model=ScriptedModel(breaks_off)) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        end = await settled(harness, receipt)
        assert end.outcome is Outcome.FAILED
        [text] = visible(harness.adapter)
        assert text.startswith("Sorry")


async def test_the_draft_of_an_answer_that_becomes_silence_is_deleted(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    rest = f"{TAIL}"
    first = StreamedText(HEAD, FIRST, gate, Restart, model_answer("", actions=["IGNORE"]) + rest)
    async with open_harness(adapter=editing(), model=ScriptedModel([first])) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        end = await settled(harness, receipt)
        assert end.outcome is Outcome.IGNORED
        assert visible(harness.adapter) == []
        assert await harness.agent.store.ledger.deliveries(is_open=True) == []


@pytest.mark.parametrize(("effect", "shown"), [(Effect.PURE, ["I wave.", "waves"]), (Effect.UNSAFE, ["waves"])])
async def test_an_answer_with_actions_continues_from_its_draft_or_removes_it(
    open_harness: OpenHarness, effect: Effect, shown: list[str]
) -> None:
    @action("WAVE", "Wave.", effect=effect)
    async def wave(turn: Turn) -> ActionResult:
        await turn.reply("waves")
        return ActionResult(text="waved")

    gate = asyncio.Event()
    first = StreamedText(HEAD, FIRST, gate, Restart, model_answer("I wave.", actions=["REPLY", "WAVE"]))
    async with open_harness(Plugin("w", actions=[wave]), adapter=editing(), model=ScriptedModel([first])) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        await settled(harness, receipt)
        assert visible(harness.adapter) == shown


async def test_the_draft_of_a_long_reply_is_its_first_part_and_the_rest_follows_in_parts(
    open_harness: OpenHarness,
) -> None:
    gate = asyncio.Event()
    async with open_harness(adapter=editing(max_length=10), model=story(gate)) as harness:
        receipt = await harness.submit("Tell me a story")
        assert await harness.adapter.wait_until_sent(1) == [WHOLE[:10]]
        gate.set()
        await settled(harness, receipt)
        assert "".join(visible(harness.adapter)) == WHOLE
        assert harness.texts[1:] == [WHOLE[10:20], WHOLE[20:30], WHOLE[30:]]


async def test_deleting_a_question_deletes_the_draft_of_its_answer(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()
    async with open_harness(adapter=editing(), model=story(gate)) as harness:
        receipt = await harness.submit("Tell me a story", message_id="m1")
        await harness.adapter.wait_until_sent(1)
        await harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, ["m1"])
        gate.set()
        await harness.adapter.wait_until_edited(1)
        await harness.agent.outbox.drain(5.0)
        assert visible(harness.adapter) == []


@pytest.mark.parametrize("fault", [NotSent("busy", retry_after=0), Undeliverable("no"), OSError("reset")])
async def test_the_complete_reply_is_sent_if_the_draft_could_not_be_sent(
    open_harness: OpenHarness, fault: Exception
) -> None:
    gate = asyncio.Event()
    adapter = editing(faults=[fault])
    async with open_harness(adapter=adapter, model=story(gate)) as harness:
        receipt = await harness.submit("Tell me a story")
        await adapter.wait_until_attempted(1)
        gate.set()
        end = await settled(harness, receipt)
        assert visible(adapter)[-1] == WHOLE
        assert end.outcome is Outcome.ANSWERED


async def test_a_rate_limited_platform_gets_the_complete_reply_and_no_more_drafts(open_harness: OpenHarness) -> None:
    gate, last = asyncio.Event(), asyncio.Event()
    adapter = editing()
    model = ScriptedModel([StreamedText(HEAD, FIRST, gate, " there", last, " was a bot.", TAIL)])
    async with open_harness(adapter=adapter, model=model) as harness:
        receipt = await harness.submit("Tell me a story")
        await adapter.wait_until_sent(1)
        adapter.fail_with(NotSent("slower", retry_after=3600.0))
        gate.set()
        await adapter.wait_until_attempted(2)
        last.set()
        await settled(harness, receipt)
        assert [delivery.content.text for delivery in adapter.edited] == [WHOLE]


async def test_no_secret_is_shown_in_two_draft_updates(open_harness: OpenHarness) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    pieces = StreamedText(HEAD, "The key is fake-", gates[0], "key-123456", gates[1], ".", TAIL)
    settings = {"OTHER_API_KEY": "fake-key-123456"}
    adapter = editing()
    async with open_harness(adapter=adapter, model=ScriptedModel([pieces]), settings=settings) as harness:
        receipt = await harness.submit("Tell me")
        await adapter.wait_until_sent(1)
        for gate in gates:
            gate.set()
        await settled(harness, receipt)
        assert harness.texts == ["The key is"]
        assert not any("fake" in memory.content.text for memory in (*adapter.sent, *adapter.edited))


async def test_a_fallback_handler_starts_the_draft_again(open_harness: OpenHarness) -> None:
    gate = asyncio.Event()

    @model(ModelType.TEXT_LARGE, priority=10)
    async def breaks_off(agent: object, request: TextRequest) -> str:
        assert request.sink is not None
        await request.sink.write(HEAD + FIRST)
        await gate.wait()
        raise ModelError("the line went dead")

    second = ScriptedModel([StreamedText(HEAD, "Well then.", TAIL)])
    async with open_harness(Plugin("first", models=[breaks_off]), adapter=editing(), model=second) as harness:
        receipt = await harness.submit("Tell me a story")
        await harness.adapter.wait_until_sent(1)
        gate.set()
        await settled(harness, receipt)
        assert visible(harness.adapter) == ["Well then."]


class Answering(RecordingAdapter):
    """A platform that can reconcile."""

    async def reconcile(self, delivery: object) -> str:
        if not self.sent:
            raise DeliveryUnknown("nothing is known")
        return "sent-1"


@pytest.mark.failure("A-08")
@pytest.mark.parametrize("was_unclear", [False, True])
async def test_a_draft_left_by_a_stopped_process_is_completed_after_the_restart(
    open_harness: OpenHarness, was_unclear: bool
) -> None:
    adapter = Answering(can_edit=True, stream_interval=0)
    async with open_harness(adapter=adapter, model=unending(adapter)) as harness:
        receipt = await harness.submit("Tell me a story")
        await adapter.wait_until_edited(1)
        ledger = harness.agent.store.ledger
        [draft] = await ledger.deliveries(is_open=True)
        await harness.agent_runtime.inbox.processor.release()
    if was_unclear:
        await ledger.save_delivery(replace(draft, external_id=""))
    async with open_harness(adapter=adapter, model=ScriptedModel([StreamedText(HEAD, WHOLE, TAIL)])) as harness:
        end = await settled(harness, receipt)
        assert end.outcome is Outcome.ANSWERED
        assert visible(adapter) == [WHOLE]
        assert await harness.agent.store.ledger.deliveries(is_open=True) == []


@pytest.mark.failure("A-08")
async def test_a_draft_without_a_reply_is_deleted_after_the_restart(open_harness: OpenHarness) -> None:
    adapter = Answering(can_edit=True, stream_interval=0)
    async with open_harness(adapter=adapter, model=unending(adapter)) as harness:
        receipt = await harness.submit("Tell me a story")
        await adapter.wait_until_edited(1)
        await harness.agent_runtime.inbox.processor.release()
        ledger = harness.agent.store.ledger
        kept = await ledger.receipt(receipt.id)
        assert kept is not None
        await ledger.save_receipts([replace(kept, outcome=Outcome.EXPIRED)])
    async with open_harness(adapter=adapter) as harness:
        await adapter.wait_until_edited(1)
        await harness.agent.outbox.drain(5.0)
        assert visible(adapter) == []
        assert await harness.agent.store.ledger.deliveries(is_open=True) == []


async def left_half_written(
    open_harness: OpenHarness, *plugins: Plugin, adapter: RecordingAdapter, clock: Clock = system_clock
) -> tuple[Store, Receipt]:
    """End a process in the middle of a reply; return its store."""
    async with open_harness(*plugins, adapter=adapter, model=unending(adapter), clock=clock) as harness:
        receipt = await harness.submit("Tell me a story")
        await adapter.wait_until_edited(1)
        await harness.agent_runtime.inbox.processor.release()
        kept = await harness.agent.store.ledger.receipt(receipt.id)
        assert kept is not None
        return harness.agent.store, kept


async def taken_away(harness: AgentHarness, seen: int) -> bool:
    """Wait until the draft was edited again; return whether it was deleted."""
    adapter = harness.adapter
    await adapter.wait_until_edited(seen + 1)
    await harness.agent.outbox.drain(5.0)
    return visible(adapter) == [] and await harness.agent.store.ledger.deliveries(is_open=True) == []


@pytest.mark.failure("A-08")
async def test_the_draft_of_an_expired_answer_is_deleted_after_the_restart(open_harness: OpenHarness) -> None:
    adapter, passed = Answering(can_edit=True, stream_interval=0), [timedelta()]

    def clock() -> datetime:
        return system_clock() + passed[-1]

    @provider("SLOW", "Takes its time, so that what is seen is younger than the question.")
    async def slow(turn: Turn) -> ProviderResult:
        passed.append(MAX_BACKFILL_AGE / 2)
        return ProviderResult()

    _, kept = await left_half_written(open_harness, Plugin("slow", providers=[slow]), adapter=adapter, clock=clock)
    seen = len(adapter.edited)
    passed.append(MAX_BACKFILL_AGE + timedelta(minutes=1))
    async with open_harness(adapter=adapter, clock=clock) as harness:
        assert (await settled(harness, kept)).outcome is Outcome.EXPIRED
        assert await taken_away(harness, seen)


@pytest.mark.failure("A-08")
async def test_the_draft_of_an_answer_to_a_deleted_message_is_deleted_after_the_restart(
    open_harness: OpenHarness,
) -> None:
    adapter = Answering(can_edit=True, stream_interval=0)
    store, kept = await left_half_written(open_harness, adapter=adapter)
    seen = len(adapter.edited)
    await store.memories.remove([kept.memory_id])
    async with open_harness(adapter=adapter) as harness:
        assert (await settled(harness, kept)).outcome is Outcome.CANCELLED
        assert await taken_away(harness, seen)


@pytest.mark.failure("B-08")
async def test_a_draft_is_deleted_as_soon_as_its_question_is_deleted(open_harness: OpenHarness) -> None:
    adapter = editing()
    async with open_harness(adapter=adapter, model=unending(adapter)) as harness:
        receipt = await harness.submit("Tell me a story", message_id="m1")
        seen = len(await adapter.wait_until_edited(1))
        await harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, ["m1"])
        assert await taken_away(harness, seen)
        assert (await settled(harness, receipt)).outcome is Outcome.CANCELLED
        await harness.agent_runtime.inbox.processor.release()
