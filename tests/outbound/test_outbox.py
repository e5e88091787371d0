"""The outbox stores replies before it sends them and sends each part once, in order."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any
from uuid import UUID

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.events import MessageSent, ModelRetried
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import Delivery, DeliveryState, Outcome
from bot.domain.memory import Memory, MemoryKind
from bot.errors import DeliveryHeld, DeliveryUnknown, NotSent, Undeliverable
from bot.event_bus import EventBus
from bot.outbound import outbox as outbox_module
from bot.outbound import sender as attempt_module
from bot.outbound.outbox import Outbox, OutgoingReply
from bot.store import InMemoryStore
from bot.store.ledger import TurnCommit
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger
from bot.testing import RecordingAdapter, make_message

AGENT, WORLD = derived_id("agent"), derived_id("world")
NOW_OR_NEVER = NotSent("busy", retry_after=0)


class AskableAdapter(RecordingAdapter):
    """A platform that can be asked what became of a part: a fault is raised, True means that it is there.

    `hold` lets a test decide when a delivery ends.
    """

    def __init__(self, *, faults: Iterable[Exception] = (), found: Iterable[Exception | bool] = ()) -> None:
        super().__init__(faults=faults)
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None
        self.arrived = asyncio.Event()
        self._found: Iterator[Exception | bool] = iter(found)

    async def deliver(self, delivery: Delivery) -> str:
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()
        return await super().deliver(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        self.asked.append(delivery.id)
        found = next(self._found)
        if isinstance(found, Exception):
            raise found
        assert found
        return "found"


class BrittleLedger(SqlLedger):
    """A ledger that fails, and completes a commit, when the test says so."""

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store.database, ALL_AGENTS)
        self.failing: set[DeliveryState] = set()
        self.failures = 0
        self.saved: list[DeliveryState] = []
        self.committed: list[DeliveryState] = []
        self.hold_commit: asyncio.Event | None = None
        self.is_locked = False

    async def save_delivery(self, delivery: Delivery) -> None:
        if delivery.state in self.failing:
            self.failures += 1
            if self.failures == 2:
                self.failing.clear()
            raise OSError("the disk is full")
        self.saved.append(delivery.state)
        await super().save_delivery(delivery)

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        if self.is_locked:
            raise OSError("locked")
        self.committed += [delivery.state for delivery in turn_commit.deliveries]
        placed = await super().commit(turn_commit)
        if self.hold_commit is not None:
            hold, self.hold_commit = self.hold_commit, None
            await hold.wait()
        return placed


@pytest.fixture
def ledger(store: InMemoryStore) -> BrittleLedger:
    return BrittleLedger(store)


@pytest.fixture
def outbox(ledger: BrittleLedger, events: EventBus, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr(attempt_module, "FIRST_DELAY_SECONDS", 0)
    return Outbox(ledger, events, AGENT, clock=clock)


@pytest.fixture
def sent(events: EventBus) -> list[UUID]:
    """Return the messages that were reported as sent."""
    found: list[UUID] = []

    async def listen(event: MessageSent) -> None:
        found.append(event.message_id)

    events.subscribe(MessageSent, listen)
    return found


def outgoing(text: str, *, at: datetime, room: str = "lobby", turn: UUID | None = None) -> OutgoingReply:
    turn = turn or new_id()
    place = Room(derived_id("room", room), WORLD, ChannelType.GROUP, "test", room, "account", room)
    content = Content(text=text)
    memory = Memory(derived_id(turn, "0"), MemoryKind.MESSAGE, AGENT, place.id, WORLD, content, at, turn_id=turn)
    return OutgoingReply(memory, place, 0, "m-1")


async def states(ledger: SqlLedger) -> list[DeliveryState]:
    return [part.state for part in await ledger.deliveries()]


async def turns(count: int = 5) -> None:
    """Run all tasks that are ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_message_that_is_edited_again_and_again_stays_as_many_messages_as_its_text_has_parts(
    outbox: Outbox, clock: Any
) -> None:
    adapter = RecordingAdapter(max_length=3, can_edit=True)
    outbox.connect(adapter)
    reply = outgoing("one", at=clock())
    await outbox.commit([reply])
    await adapter.wait_until_sent(1)
    shown: list[list[tuple[str, str]]] = []
    for index, text in enumerate(("two", "thrfou", "six", "sev", "eignin"), 1):
        await turns()
        edits, posts = len(adapter.edited), len(adapter.sent)
        edit = replace(reply, memory=replace(reply.memory, content=Content(text=text)), reply_index=index)
        await outbox.commit([replace(edit, replaces=reply.memory)])
        await outbox.drain(10)
        edited = [(part.replaces_external_id, part.content.text) for part in adapter.edited[edits:]]
        shown.append([*edited, *(("", part.content.text) for part in adapter.sent[posts:])])
    assert shown == [
        [("sent-1", "two")],
        [("sent-1", "thr"), ("", "fou")],
        [("sent-1", "six"), ("sent-2", "")],
        [("sent-1", "sev")],
        [("sent-1", "eig"), ("", "nin")],
    ]


async def test_a_reply_is_stored_with_its_receipt_before_it_is_sent(
    outbox: Outbox, store: InMemoryStore, ledger: BrittleLedger, clock: Any
) -> None:
    receipt = (await ledger.receive([make_message("Hi", sent_at=clock())], clock()))[0].receipt
    reply = outgoing("Hello.", at=clock())
    closed = replace(receipt, outcome=Outcome.ANSWERED)
    kept = await outbox.commit([reply], [closed])

    assert kept == [reply.memory]
    assert await store.memories.by_turn(reply.memory.turn_id or new_id()) == kept
    assert await ledger.receipt(receipt.id) == closed
    assert await states(ledger) == [DeliveryState.PENDING]


async def test_an_attempt_is_stored_before_the_part_is_sent(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, sent: list[UUID], events: EventBus
) -> None:
    adapter = AskableAdapter()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    reply = outgoing("Hello.", at=clock())
    await outbox.commit([reply])
    await adapter.arrived.wait()
    [under_way] = await ledger.deliveries()
    assert (under_way.state, under_way.attempts) == (DeliveryState.ATTEMPTING, 1)
    assert under_way.first_attempt_at == clock()

    adapter.hold.set()
    await adapter.wait_until_sent(1)
    assert await outbox.drain(60) == 0
    await events.wait_idle()
    [part] = await ledger.deliveries()
    assert (part.state, part.external_id, part.cause) == (DeliveryState.SENT, "sent-1", "")
    assert sent == [reply.memory.id]


async def test_a_first_part_that_waits_for_nothing_is_committed_with_its_attempt(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = RecordingAdapter(max_length=5)
    outbox.connect(adapter)
    await outbox.commit([outgoing("HelloWorld", at=clock())])
    assert await adapter.wait_until_sent(2) == ["Hello", "World"]
    assert await outbox.drain(60) == 0
    assert ledger.committed == [DeliveryState.ATTEMPTING, DeliveryState.PENDING]
    assert ledger.saved == [DeliveryState.SENT, DeliveryState.ATTEMPTING, DeliveryState.SENT]
    assert [part.attempts for part in await ledger.deliveries()] == [1, 1]


async def test_what_waits_behind_another_part_is_committed_as_pending(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    await outbox.commit([outgoing("first", at=clock())])
    await outbox.commit([outgoing("second", at=clock())])
    assert ledger.committed == [DeliveryState.ATTEMPTING, DeliveryState.PENDING]
    adapter.hold.set()
    assert await adapter.wait_until_sent(2) == ["first", "second"]


@pytest.mark.long
async def test_a_part_that_an_earlier_process_began_is_asked_for_and_not_sent_again(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter(found=[True])
    reply = outgoing("Hello.", at=clock())
    await outbox.commit([reply])
    [part] = await ledger.deliveries()
    await ledger.save_delivery(replace(part, state=DeliveryState.ATTEMPTING, attempts=1, first_attempt_at=clock()))

    clock.advance(seconds=1)
    later = Outbox(ledger, EventBus(), AGENT, clock=clock)
    later.connect(adapter)
    await later.commit([reply])
    assert await later.drain(60) == 0
    assert (adapter.asked, adapter.texts) == ([part.id], [])


async def test_a_reply_is_split_into_parts_of_the_platform(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, sent: list[UUID], events: EventBus
) -> None:
    adapter = RecordingAdapter(max_length=3)
    outbox.connect(adapter)
    reply = outgoing("abcdefgh", at=clock())
    await outbox.commit([reply])

    assert await adapter.wait_until_sent(3) == ["abc", "def", "gh"]
    assert [part.reply_to for part in adapter.sent] == ["m-1", "", ""]
    assert [(part.target, part.account) for part in adapter.sent] == [("lobby", "account")] * 3
    assert len({part.id for part in adapter.sent}) == 3
    await outbox.drain(60)
    await events.wait_idle()
    assert sent == [reply.memory.id]


async def test_a_reply_is_filtered_before_it_is_stored(
    ledger: BrittleLedger, store: InMemoryStore, events: EventBus, clock: Any
) -> None:
    outbox = Outbox(ledger, events, AGENT, secrets=["hunter22"], clock=clock)
    turn = new_id()
    kept = await outbox.commit([outgoing("it is hunter22", turn=turn, at=clock())])

    assert [memory.content.text for memory in kept] == ["it is [redacted]"]
    assert await store.memories.by_turn(turn) == kept
    assert [part.content.text for part in await ledger.deliveries()] == ["it is [redacted]"]


async def test_a_reply_that_is_empty_after_filtering_is_dropped_and_the_receipt_closes(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    receipt = (await ledger.receive([make_message("Hi", sent_at=clock())], clock()))[0].receipt
    closed = replace(receipt, outcome=Outcome.ANSWERED)

    assert await outbox.commit([outgoing("<response> </response>", at=clock())], [closed]) == []
    assert await ledger.deliveries() == []
    assert await ledger.receipt(receipt.id) == closed


async def test_replies_of_a_room_are_sent_in_order_and_rooms_concurrently(outbox: Outbox, clock: Any) -> None:
    adapter = AskableAdapter()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    await outbox.commit([outgoing(text, at=clock()) for text in ("1", "2", "3")])
    await outbox.commit([outgoing(text, at=clock(), room="attic") for text in ("a", "b")])
    await turns()
    assert adapter.sent == []
    adapter.hold.set()
    await adapter.wait_until_sent(5)

    in_lobby = [part.content.text for part in adapter.sent if part.target == "lobby"]
    in_attic = [part.content.text for part in adapter.sent if part.target == "attic"]
    assert (in_lobby, in_attic) == (["1", "2", "3"], ["a", "b"])


async def test_deliveries_are_sent_in_the_order_of_commits(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    ledger.hold_commit = hold = asyncio.Event()
    first = asyncio.ensure_future(outbox.commit([outgoing("first", at=clock())]))
    await turns()
    await outbox.commit([outgoing("second", at=clock())])
    hold.set()
    await first
    adapter = RecordingAdapter()
    outbox.connect(adapter)

    assert await adapter.wait_until_sent(2) == ["first", "second"]


async def test_a_reply_waits_for_replies_committed_before_it(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    ledger.hold_commit = hold = asyncio.Event()
    first = asyncio.ensure_future(outbox.commit([outgoing("first", at=clock())]))
    await turns()
    await outbox.commit([outgoing("second", at=clock())])
    await outbox.commit([outgoing("elsewhere", at=clock(), room="attic")])
    assert await adapter.wait_until_sent(1) == ["elsewhere"]
    await turns(20)
    hold.set()
    await first

    assert await adapter.wait_until_sent(3) == ["elsewhere", "first", "second"]


async def test_a_stored_reply_is_sent_even_if_its_caller_was_cancelled(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    ledger.hold_commit = hold = asyncio.Event()
    stopped = asyncio.ensure_future(outbox.commit([outgoing("kept", at=clock())]))
    await turns()
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    hold.set()

    assert await adapter.wait_until_sent(1) == ["kept"]


async def test_a_failed_commit_does_not_block_others(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    ledger.is_locked = True
    with pytest.raises(OSError, match="locked"):
        await outbox.commit([outgoing("lost", at=clock())])
    ledger.is_locked = False
    await outbox.commit([outgoing("next", at=clock())])

    assert await adapter.wait_until_sent(1) == ["next"]
    assert await outbox.drain(60) == 0
    assert outbox._queue._queues == {}


async def test_a_part_known_not_to_be_sent_is_retried(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = AskableAdapter(faults=[NOW_OR_NEVER, NotSent("refused"), NOW_OR_NEVER])
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock()), outgoing("And?", at=clock())])

    assert await adapter.wait_until_sent(2) == ["Hello.", "And?"]
    await outbox.drain(60)
    first, _ = await ledger.deliveries()
    assert (first.state, first.attempts, first.cause) == (DeliveryState.SENT, 4, "")
    assert adapter.asked == []


@pytest.mark.parametrize("asked", [None, 0.0, 86_401.0, inf])
async def test_a_part_that_expires_is_failed_and_does_not_block_the_room(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, asked: float | None
) -> None:
    adapter = RecordingAdapter(faults=[NotSent("busy", retry_after=asked)])
    await outbox.commit([outgoing("late", at=clock())])
    clock.advance(minutes=15, seconds=1)
    await outbox.commit([outgoing("next", at=clock())])
    outbox.connect(adapter)
    assert await adapter.wait_until_sent(1) == ["next"]
    await outbox.drain(60)

    late, following = await ledger.deliveries()
    assert (late.state, following.state) == (DeliveryState.FAILED, DeliveryState.SENT)
    assert "given up after 1 attempts: busy" in late.cause


@pytest.mark.failure("D-10")
@pytest.mark.parametrize("asked", [901.0, 80_000.0])
async def test_a_requested_delay_does_not_expire_the_parts_behind_it(
    ledger: BrittleLedger, events: EventBus, clock: Any, asked: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def sleep(seconds: float) -> None:
        clock.advance(seconds=seconds)

    outbox = Outbox(ledger, events, AGENT, clock=clock, sleep=sleep)
    adapter = RecordingAdapter(
        faults=[NotSent("the window is used up", retry_after=asked), NotSent("hiccup"), NotSent("hiccup")]
    )
    await outbox.commit([outgoing("first", at=clock()), outgoing("second", at=clock())])
    outbox.connect(adapter)
    assert await adapter.wait_until_sent(2) == ["first", "second"]
    await outbox.drain(60)
    assert await states(ledger) == [DeliveryState.SENT] * 2
    assert caplog.text.count("the window is used up") == 1


@pytest.mark.failure("D-10")
async def test_a_part_waits_at_most_a_day_in_all(
    ledger: BrittleLedger, events: EventBus, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds=seconds)

    outbox = Outbox(ledger, events, AGENT, clock=clock, sleep=sleep)
    outbox.connect(RecordingAdapter(faults=[NotSent("the token is refused", retry_after=3600)] * 100))
    await outbox.commit([outgoing("Hello.", at=clock())])
    await outbox.drain(60)
    [part] = await ledger.deliveries()
    assert (part.state, sum(waits)) == (DeliveryState.FAILED, 86_400)
    assert "the token is refused" in part.cause
    assert caplog.text.count("waits for 3600 s: the token is refused") == 1


async def test_shutdown_does_not_wait_for_a_requested_delay(
    ledger: BrittleLedger, events: EventBus, clock: Any
) -> None:
    rests = asyncio.Event()

    async def sleep(seconds: float) -> None:
        rests.set()
        await asyncio.Event().wait()

    outbox = Outbox(ledger, events, AGENT, clock=clock, sleep=sleep)
    outbox.connect(RecordingAdapter(faults=[NotSent("the window is used up", retry_after=3600)]))
    await outbox.commit([outgoing("Hello.", at=clock())])
    await rests.wait()
    assert await outbox.close(3599) == 1
    assert await states(ledger) == [DeliveryState.PENDING]


@pytest.mark.failure("D-10")
async def test_a_part_that_waited_for_days_is_not_expired_at_the_next_start(
    ledger: BrittleLedger, events: EventBus, clock: Any
) -> None:
    earlier = Outbox(ledger, events, AGENT, clock=clock)
    await earlier.commit([outgoing("Hello.", at=clock())])
    clock.advance(hours=30)
    adapter = RecordingAdapter(faults=[NotSent("hiccup")])
    again = Outbox(ledger, events, AGENT, clock=clock, sleep=lambda seconds: asyncio.sleep(0))
    again.connect(adapter)
    await again.resume()
    assert await adapter.wait_until_sent(1) == ["Hello."]
    await again.drain(60)


async def test_an_undeliverable_part_does_not_block_its_room(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, sent: list[UUID], events: EventBus
) -> None:
    adapter = RecordingAdapter(faults=[Undeliverable("blocked")])
    outbox.connect(adapter)
    lost, following = outgoing("lost", at=clock()), outgoing("next", at=clock())
    await outbox.commit([lost, following])
    await adapter.wait_until_sent(1)
    await outbox.drain(60)
    await events.wait_idle()

    first, second = await ledger.deliveries()
    assert (first.state, first.cause) == (DeliveryState.FAILED, "blocked")
    assert second.state is DeliveryState.SENT
    assert sent == [following.memory.id]


async def test_a_message_with_a_failed_part_is_not_reported_as_sent(
    outbox: Outbox, clock: Any, sent: list[UUID], events: EventBus
) -> None:
    adapter = RecordingAdapter(faults=[Undeliverable("too long")], max_length=3)
    outbox.connect(adapter)
    whole = outgoing("xyz", at=clock())
    await outbox.commit([outgoing("abcdefgh", at=clock()), whole])
    await adapter.wait_until_sent(3)
    await outbox.drain(60)
    await events.wait_idle()

    assert sent == [whole.memory.id]


async def test_an_ambiguous_part_that_the_platform_has_is_not_sent_again(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter(faults=[DeliveryUnknown("reset")], found=[True])
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock())])
    await turns(20)

    [part] = await ledger.deliveries()
    assert (part.state, part.external_id) == (DeliveryState.SENT, "found")
    assert (adapter.attempts, adapter.asked) == ([part.id], [part.id])


async def test_an_ambiguous_part_that_the_platform_lacks_is_sent_again(outbox: Outbox, clock: Any) -> None:
    adapter = AskableAdapter(faults=[DeliveryUnknown("reset")], found=[NotSent("not there", retry_after=0)])
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock())])

    assert await adapter.wait_until_sent(1) == ["Hello."]
    assert len(adapter.attempts) == 2


async def test_a_part_that_cannot_be_reconciled_is_held_and_does_not_block_its_room(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter(faults=[DeliveryUnknown("reset")], found=[DeliveryHeld("no way to ask")])
    outbox.connect(adapter)
    await outbox.commit([outgoing("held", at=clock()), outgoing("next", at=clock())])

    assert await adapter.wait_until_sent(1) == ["next"]
    await outbox.drain(60)
    held, _ = await ledger.deliveries()
    assert (held.state, held.cause) == (DeliveryState.UNKNOWN, "no way to ask")
    assert await outbox.resume() == 0


async def test_a_part_that_becomes_ambiguous_in_a_later_attempt_is_reconciled(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter(faults=[NOW_OR_NEVER, DeliveryUnknown("reset")], found=[True])
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock())])
    await turns(30)

    assert await states(ledger) == [DeliveryState.SENT]
    assert len(adapter.asked) == 1


async def test_an_unexpected_adapter_error_is_ambiguous(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = RecordingAdapter(faults=[ValueError("no JSON")])
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock()), outgoing("next", at=clock())])

    assert await adapter.wait_until_sent(1) == ["next"]
    assert (await states(ledger))[0] is DeliveryState.UNKNOWN


@pytest.mark.parametrize(
    ("found", "attempts", "state"),
    [
        (True, 0, DeliveryState.SENT),
        (NotSent("not there", retry_after=0), 1, DeliveryState.SENT),
        (DeliveryHeld("who knows"), 0, DeliveryState.UNKNOWN),
        (Undeliverable("gone"), 0, DeliveryState.FAILED),
    ],
    ids=["there", "not there", "unclear", "gone"],
)
async def test_a_part_whose_process_died_while_sending_is_reconciled_first(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, found: Exception | bool, attempts: int, state: DeliveryState
) -> None:
    await outbox.commit([outgoing("Hello.", at=clock())])
    [part] = await ledger.deliveries()
    died = replace(part, state=DeliveryState.ATTEMPTING, attempts=1, first_attempt_at=clock())
    await ledger.save_delivery(died)

    again = Outbox(ledger, EventBus(), AGENT, clock=clock)
    adapter = AskableAdapter(found=[found])
    again.connect(adapter)
    assert await again.resume() == 1
    await turns(20)

    assert adapter.asked == [part.id]
    assert len(adapter.attempts) == attempts
    assert await states(ledger) == [state]
    [after] = await ledger.deliveries()
    assert after.first_attempt_at == died.first_attempt_at


async def test_unsent_parts_are_sent_in_order_after_a_restart(
    outbox: Outbox, ledger: BrittleLedger, events: EventBus, clock: Any, sent: list[UUID]
) -> None:
    cut = RecordingAdapter(max_length=1, faults=[NotSent("busy", retry_after=600)])
    outbox.connect(cut)
    reply = outgoing("abcde", at=clock())
    await outbox.commit([reply])
    await turns()
    assert await outbox.close(0) == 1
    first, *_ = await ledger.deliveries()
    await ledger.save_delivery(replace(first, state=DeliveryState.SENT))

    again = Outbox(ledger, events, AGENT, clock=clock)
    adapter = RecordingAdapter()
    again.connect(adapter)
    assert await again.resume() == 4
    assert await adapter.wait_until_sent(4) == ["b", "c", "d", "e"]
    await again.drain(60)
    await events.wait_idle()
    assert sent == [reply.memory.id]


async def test_after_a_restart_a_message_with_a_failed_part_is_not_reported_as_sent(
    outbox: Outbox, ledger: BrittleLedger, events: EventBus, clock: Any, sent: list[UUID]
) -> None:
    outbox.connect(RecordingAdapter(max_length=1, faults=[Undeliverable("no"), NotSent("busy", retry_after=600)]))
    await outbox.commit([outgoing("ab", at=clock())])
    await turns(20)
    await outbox.close(0)

    again = Outbox(ledger, events, AGENT, clock=clock)
    adapter = RecordingAdapter()
    again.connect(adapter)
    await again.resume()
    assert await adapter.wait_until_sent(1) == ["b"]
    await again.drain(60)
    await events.wait_idle()
    assert sent == []


async def test_a_reply_waits_until_its_platform_is_connected(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    await outbox.commit([outgoing("Hello.", at=clock())])
    await turns()
    assert await outbox.drain(60) == 1
    assert await states(ledger) == [DeliveryState.PENDING]
    adapter = RecordingAdapter()
    outbox.connect(adapter)

    assert await adapter.wait_until_sent(1) == ["Hello."]


async def test_parts_queued_while_the_sender_finishes_are_sent(outbox: Outbox, clock: Any, events: EventBus) -> None:
    adapter = RecordingAdapter()
    outbox.connect(adapter)

    for number in range(50):
        await outbox.commit([outgoing(str(number), at=clock())])
        await turns(number % 7)

    assert await adapter.wait_until_sent(50) == [str(number) for number in range(50)]
    assert await outbox.drain(60) == 0
    assert outbox._queue._queues == {}


async def test_draining_includes_deliveries_queued_meanwhile(outbox: Outbox, clock: Any) -> None:
    adapter = AskableAdapter()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    await outbox.commit([outgoing("first", at=clock())])
    drain = asyncio.ensure_future(outbox.drain(60))
    await turns()
    await outbox.commit([outgoing("second", at=clock()), outgoing("elsewhere", at=clock(), room="attic")])
    adapter.hold.set()

    assert await drain == 0
    assert len(adapter.sent) == 3


async def test_a_repeated_commit_sends_nothing_twice(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = AskableAdapter()
    reply = outgoing("Hello.", at=clock())
    await outbox.commit([reply])
    await outbox.commit([reply])
    await outbox.resume()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    await adapter.arrived.wait()
    await outbox.commit([reply])
    await outbox.resume()
    adapter.hold.set()
    await adapter.wait_until_sent(1)
    await outbox.drain(60)
    await outbox.commit([reply])
    await turns(20)

    assert adapter.texts == ["Hello."]
    assert adapter.asked == []
    assert await states(ledger) == [DeliveryState.SENT]


async def test_a_part_sent_while_its_commit_is_repeated_is_not_sent_again(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter()
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    reply = outgoing("Hello.", at=clock())
    await outbox.commit([reply])
    await adapter.arrived.wait()
    ledger.hold_commit = hold = asyncio.Event()
    again = asyncio.ensure_future(outbox.commit([reply]))
    await turns()  # it has read `attempting`, and gets the answer only after the part is sent
    adapter.hold.set()
    await adapter.wait_until_sent(1)
    await turns(20)
    hold.set()
    await again
    await turns(20)

    assert adapter.texts == ["Hello."]
    assert adapter.asked == []


@pytest.mark.parametrize("failing", [DeliveryState.ATTEMPTING, DeliveryState.SENT, DeliveryState.PENDING])
async def test_a_temporary_ledger_failure_neither_loses_nor_doubles_a_part(
    outbox: Outbox, ledger: BrittleLedger, clock: Any, failing: DeliveryState
) -> None:
    adapter = AskableAdapter(faults=[NOW_OR_NEVER] if failing is DeliveryState.PENDING else [])
    ledger.failing = {failing}
    outbox.connect(adapter)
    await outbox.commit([outgoing("first", at=clock()), outgoing("second", at=clock())])

    assert await adapter.wait_until_sent(2) == ["first", "second"]
    assert await outbox.drain(60) == 0
    assert ledger.failures == 2
    assert await states(ledger) == [DeliveryState.SENT, DeliveryState.SENT]
    assert adapter.asked == []


async def test_a_part_cancelled_while_sending_is_reconciled_before_a_retry(
    outbox: Outbox, ledger: BrittleLedger, clock: Any
) -> None:
    adapter = AskableAdapter(found=[True])
    adapter.hold = asyncio.Event()
    outbox.connect(adapter)
    await outbox.commit([outgoing("first", at=clock())])
    await adapter.arrived.wait()
    assert await outbox.drain(0) == 1
    assert await states(ledger) == [DeliveryState.ATTEMPTING]
    adapter.hold.set()
    await outbox.commit([outgoing("second", at=clock())])

    assert await adapter.wait_until_sent(1) == ["second"]
    assert len(adapter.asked) == 1


async def test_a_closed_outbox_stores_and_sends_nothing(outbox: Outbox, ledger: BrittleLedger, clock: Any) -> None:
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    assert await outbox.close(60) == 0
    await outbox.commit([outgoing("Hello.", at=clock())])
    await turns()

    assert adapter.sent == []
    assert await states(ledger) == [DeliveryState.PENDING]


async def test_an_adapter_that_does_not_stop_does_not_block_shutdown(
    outbox: Outbox, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_module, "CANCEL_GRACE_SECONDS", 0)
    go = asyncio.Event()

    class Stubborn(AskableAdapter):
        async def deliver(self, delivery: Delivery) -> str:
            while not go.is_set():
                try:
                    self.arrived.set()
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            return await super().deliver(delivery)

    adapter = Stubborn()
    outbox.connect(adapter)
    await outbox.commit([outgoing("Hello.", at=clock())])
    await adapter.arrived.wait()

    assert await outbox.close(0) == 1
    go.set()
    await adapter.wait_until_sent(1)
    await turns(20)


async def test_typing_is_shown_during_the_block_and_its_failure_is_harmless(
    outbox: Outbox, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = outgoing("", at=clock()).room
    async with outbox.show_typing(room):
        pass  # no client is connected

    adapter = RecordingAdapter()
    outbox.connect(adapter)
    async with outbox.show_typing(room):
        assert adapter.typing_calls == [("lobby", True)]
    assert adapter.typing_calls == [("lobby", True), ("lobby", False)]

    class Broken(RecordingAdapter):
        async def set_typing(self, room: Room, active: bool) -> None:
            if active:
                raise OSError("gone")
            await asyncio.Event().wait()

    monkeypatch.setattr(outbox_module, "TYPING_TIMEOUT", 0)
    outbox.connect(Broken())
    async with outbox.show_typing(room):
        pass


async def test_a_busy_model_is_shown_in_the_room_that_waits_for_it_and_only_while_the_agent_is_typing(
    clock: Any,
) -> None:
    adapter, events = RecordingAdapter(), EventBus()
    outbox = Outbox(InMemoryStore().ledger, events, new_id(), clock=clock)
    outbox.connect(adapter)
    room = make_message("Hello", sent_at=clock()).room
    for room_id in (room.id, new_id(), None):
        events.emit(ModelRetried(AGENT, "a model", "503", 1.0, room_id=room_id))
    await events.wait_idle()
    assert adapter.busy_rooms == []
    async with outbox.show_typing(room):
        events.emit(ModelRetried(AGENT, "a model", "503", 1.0, room_id=room.id))
        await events.wait_idle()
    assert adapter.busy_rooms == ["lobby"]


async def test_waiting_for_a_room_does_not_wait_for_another_platform(outbox: Outbox, clock: Any) -> None:
    elsewhere = outgoing("elsewhere", at=clock(), room="far")
    elsewhere = replace(elsewhere, room=replace(elsewhere.room, platform="other"))
    adapter = RecordingAdapter()
    outbox.connect(adapter)
    await outbox.commit([elsewhere, outgoing("here", at=clock())])

    assert await adapter.wait_until_sent(1) == ["here"]
    assert await outbox.drain(60) == 1


async def test_typing_is_shown_until_the_last_turn_of_a_room_ends(clock: Any) -> None:
    adapter = RecordingAdapter()
    outbox = Outbox(InMemoryStore().ledger, EventBus(), new_id(), clock=clock)
    outbox.connect(adapter)
    room = make_message("Hello", sent_at=clock()).room

    async with outbox.show_typing(room):
        async with outbox.show_typing(room):
            pass
        assert adapter.typing_calls == [("lobby", True)]
    assert adapter.typing_calls == [("lobby", True), ("lobby", False)]


async def test_a_turn_superseded_before_typing_is_shown_leaves_no_typing_indicator(outbox: Outbox, clock: Any) -> None:
    class Slow(RecordingAdapter):
        async def set_typing(self, room: Room, active: bool) -> None:
            await super().set_typing(room, active)
            if len(self.typing_calls) == 1:
                await asyncio.Event().wait()

    adapter, room = Slow(), outgoing("", at=clock()).room
    outbox.connect(adapter)

    async def work() -> None:
        async with outbox.show_typing(room):
            pass

    taken_over = asyncio.create_task(work())
    await turns(5)
    taken_over.cancel()
    await asyncio.wait({taken_over})
    await work()

    assert adapter.typing_calls == [("lobby", True), ("lobby", False)] * 2
