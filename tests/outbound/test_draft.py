"""Drafts: how often they are updated, and that they never block other deliveries."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.errors import MessageGone, NotSent, StoreUnavailable
from bot.event_bus import EventBus
from bot.outbound import drafts as draft_module
from bot.outbound.drafts import Draft
from bot.outbound.outbox import Outbox
from bot.outbound.sender import OutgoingReply
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger
from bot.testing import RecordingAdapter

AGENT, WORLD = derived_id("agent"), derived_id("world")
ROOM = Room(derived_id("room"), WORLD, ChannelType.GROUP, "test", "room", "account", "room")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Watch:
    """A clock controlled by the test; `asked` has the requested sleeps in order."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._sleepers: list[asyncio.Future[None]] = []
        self._changed = asyncio.Condition()

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        async with self._changed:
            self.asked.append(seconds)
            self._sleepers.append(future)
            self._changed.notify_all()
        await future

    async def until_asked(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.asked) >= count)

    def ring(self) -> None:
        self._sleepers[-1].set_result(None)


class Writing:
    """A reply that is being written, and the outbox that it leaves by."""

    def __init__(self, adapter: RecordingAdapter, ledger: SqlLedger | None = None) -> None:
        self.adapter, self.watch, self.text = adapter, Watch(), ""
        self.ledger = ledger or InMemoryStore().ledger
        self.outbox = Outbox(self.ledger, EventBus(), AGENT, secrets=(), clock=lambda: NOW, sleep=self.watch.sleep)
        self.outbox.connect(adapter)
        self.turn_id = new_id()
        draft = self.outbox.open_draft(ROOM, self.turn_id, lambda: reply(self.turn_id))
        assert draft is not None
        self.draft: Draft = draft
        self.draft.follow(lambda: self.text, lambda: True)

    def write(self, more: str) -> None:
        self.text += more
        self.draft.notify()

    async def end(self) -> None:
        self.draft.stop()
        await self.outbox.commit([reply(self.turn_id, self.text)])
        await self.outbox.drain(10.0)


def reply(turn_id: object, text: str = "") -> OutgoingReply:
    """Make a turn's reply."""
    memory = Memory(
        id=derived_id(str(turn_id), "reply"),
        kind=MemoryKind.MESSAGE,
        entity_id=AGENT,
        room_id=ROOM.id,
        world_id=WORLD,
        content=Content(text=text),
        created_at=NOW,
        turn_id=turn_id,  # type: ignore[arg-type]  # an id
    )
    return OutgoingReply(memory, ROOM)


def editing(**details: object) -> RecordingAdapter:
    return RecordingAdapter(can_edit=True, stream_interval=1.0, **details)  # type: ignore[arg-type]  # passed on


async def test_a_draft_is_updated_at_most_once_per_interval() -> None:
    writing = Writing(editing())
    for piece in "One, two, three":
        writing.write(piece)
    await writing.watch.until_asked(1)
    assert writing.adapter.attempts == []
    writing.watch.ring()
    assert await writing.adapter.wait_until_sent(1) == ["One, two, three"]
    for piece in ", four, five":
        writing.write(piece)
    await writing.watch.until_asked(2)
    assert writing.adapter.edited == []
    writing.watch.ring()
    assert await writing.adapter.wait_until_edited(1) == ["One, two, three, four, five"]
    assert writing.watch.asked[:2] == [1.0, 1.0]
    await writing.end()


async def test_a_delay_requested_by_the_platform_is_respected() -> None:
    writing = Writing(editing())
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    writing.adapter.fail_with(NotSent("slower", retry_after=30.0))
    writing.write(", two")
    await writing.watch.until_asked(2)
    writing.watch.ring()
    await writing.adapter.wait_until_attempted(2)
    writing.write(", three")
    await writing.watch.until_asked(3)
    assert writing.watch.asked == [1.0, 1.0, 30.0]
    await writing.end()
    assert [delivery.content.text for delivery in writing.adapter.edited] == ["One, two, three"]


class Slow(RecordingAdapter):
    """A platform that takes its time for everything but what is whole."""

    async def edit(self, delivery: Delivery) -> str:
        await self._attempt(delivery)
        if not delivery.content.text.endswith("."):
            await asyncio.get_running_loop().create_future()
        return await super().edit(delivery)


async def test_a_draft_update_that_hangs_does_not_delay_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_module, "UPDATE_GRACE_SECONDS", 0.0)
    writing = Writing(Slow(can_edit=True, stream_interval=1.0))
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    writing.write(", two")
    await writing.watch.until_asked(2)
    writing.watch.ring()
    await writing.adapter.wait_until_attempted(2)
    writing.text += "."
    await writing.end()
    assert [delivery.content.text for delivery in writing.adapter.edited] == ["One, two."]


class HeldParts(Slow):
    """A platform on which an edit hangs, and a message ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(can_edit=True, stream_interval=1.0)
        self.may_end: asyncio.Event | None = None
        self.is_held = asyncio.Event()
        self.begun: list[str] = []

    async def deliver(self, delivery: Delivery) -> str:
        self.begun.append(delivery.content.text)
        if self.may_end is not None:
            self.is_held.set()
            await self.may_end.wait()
        return await super().deliver(delivery)


async def test_while_a_release_waits_for_a_draft_nothing_more_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = HeldParts()
    writing = Writing(adapter)
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await adapter.wait_until_sent(1)
    writing.write(", two")
    await writing.watch.until_asked(2)
    writing.watch.ring()
    await adapter.wait_until_attempted(2)  # the update of the draft hangs

    adapter.may_end = asyncio.Event()
    other_room = replace(ROOM, id=derived_id("other room"), external_id="other")
    for text in ("first", "second"):
        outgoing = reply(new_id(), text)
        memory = replace(outgoing.memory, room_id=other_room.id)
        await writing.outbox.commit([replace(outgoing, memory=memory, room=other_room)])
    await adapter.is_held.wait()
    releasing = asyncio.ensure_future(writing.outbox.release())
    for _ in range(5):
        await asyncio.sleep(0)
    adapter.may_end.set()
    await releasing
    assert adapter.begun == ["One", "first"]


class Held(RecordingAdapter):
    """A platform that sends nothing before the test says so."""

    def __init__(self) -> None:
        super().__init__(can_edit=True, stream_interval=1.0)
        self.go = asyncio.Event()

    async def deliver(self, delivery: Delivery) -> str:
        await self._attempt(delivery)
        await self.go.wait()
        return await super().deliver(delivery)


async def test_no_draft_is_shown_while_another_delivery_of_the_room_is_pending() -> None:
    writing = Writing(Held())
    assert isinstance(writing.adapter, Held)
    await writing.outbox.commit([reply(new_id(), "Before.")])
    await writing.adapter.wait_until_attempted(1)
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    writing.write(", two")
    await writing.watch.until_asked(2)
    assert len(writing.adapter.attempts) == 1
    writing.adapter.go.set()
    await writing.outbox.drain(10.0)
    writing.watch.ring()
    assert await writing.adapter.wait_until_sent(2) == ["Before.", "One, two"]
    await writing.end()


class Broken(SqlLedger):
    """A ledger that cannot store the state of a part."""

    def __init__(self) -> None:
        store = InMemoryStore()
        super().__init__(store.database, ALL_AGENTS)
        self.asked = asyncio.Event()

    async def save_delivery(self, delivery: Delivery) -> None:
        self.asked.set()
        raise StoreUnavailable("the disk is full")


async def test_no_draft_is_shown_if_it_could_not_be_stored() -> None:
    ledger = Broken()
    writing = Writing(editing(), ledger)
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await ledger.asked.wait()
    await writing.draft.wait_stopped()
    assert writing.adapter.attempts == []


async def test_a_draft_has_no_open_delivery_after_its_reply_was_sent() -> None:
    writing = Writing(editing())
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    writing.text += ", two."
    await writing.end()
    parts = await writing.ledger.deliveries(turn_id=writing.turn_id)
    assert [(part.state, part.external_id) for part in parts] == [(DeliveryState.SENT, "sent-1")] * 2
    assert not writing.outbox.has_draft(writing.turn_id)
    assert not writing.outbox.is_busy(ROOM.id)


async def test_cancelling_a_reply_removes_its_draft() -> None:
    writing = Writing(editing())
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    writing.draft.stop()
    writing.adapter.fail_with(NotSent("slower", retry_after=60.0))
    await writing.outbox.commit([reply(writing.turn_id, "One, two.")])
    await writing.adapter.wait_until_attempted(2)
    parts = await writing.ledger.deliveries(turn_id=writing.turn_id)
    cancelled = replace(parts[-1], state=DeliveryState.CANCELLED)
    await writing.ledger.save_delivery(cancelled)
    await writing.outbox.stop_cancelled([cancelled])
    await writing.outbox.drain(10.0)
    assert [delivery.content.text for delivery in writing.adapter.edited] == [""]
    assert await writing.ledger.deliveries(is_open=True) == []


@pytest.mark.failure("B-14")
async def test_after_a_room_migration_the_draft_stays_and_the_reply_is_sent_to_the_new_room() -> None:
    writing = Writing(editing())
    writing.write("One")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    await writing.outbox.migrate_room(ROOM.id, replace(ROOM, id=new_id(), external_id="new"), [])
    writing.text += ", two."
    await writing.end()
    assert [(part.content.text, part.target) for part in writing.adapter.sent] == [
        ("One", "room"),
        ("One, two.", "new"),
    ]
    assert writing.adapter.edited == []
    assert await writing.ledger.deliveries(is_open=True) == []


async def test_a_reply_whose_draft_a_user_deleted_is_not_sent() -> None:
    writing = Writing(editing(max_length=10))
    writing.write("One, two")
    await writing.watch.until_asked(1)
    writing.watch.ring()
    await writing.adapter.wait_until_sent(1)
    writing.adapter.fail_with(MessageGone("somebody has removed it"))
    writing.text += ", three, four, five."
    await writing.end()
    assert writing.adapter.texts == ["One, two"]
    parts = await writing.ledger.deliveries(turn_id=writing.turn_id)
    assert [(part.state, part.cause) for part in parts if part.content.text != "One, two"] == [
        (DeliveryState.CANCELLED, "somebody has removed it")
    ] * 3
