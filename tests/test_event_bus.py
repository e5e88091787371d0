"""Which listeners receive which events."""

import asyncio
from typing import Any

import pytest

from bot import event_bus as bus_module
from bot.domain.events import EmbeddingCompleted, EmbeddingRequested, Event, MessageSent, VoiceMessageSent
from bot.domain.ids import new_id
from bot.event_bus import EventBus

ME = new_id()


def sent(kind: type[MessageSent] = MessageSent) -> MessageSent:
    return kind(ME, new_id(), new_id(), new_id())


def requested() -> EmbeddingRequested:
    return EmbeddingRequested(ME, new_id())


async def test_a_listener_hears_its_class_and_the_classes_below() -> None:
    bus, heard = EventBus(), []

    async def listen(event: Event) -> None:
        heard.append(event)

    bus.subscribe(MessageSent, listen)
    events = [sent(), sent(VoiceMessageSent), requested()]
    for event in events:
        bus.emit(event)
    await bus.wait_idle()

    assert heard == events[:2]


async def test_who_listens_to_every_event_hears_every_event() -> None:
    bus, heard = EventBus(), []

    async def listen(event: Event) -> None:
        heard.append(event)

    bus.subscribe(Event, listen)
    events = [sent(VoiceMessageSent), requested()]
    for event in events:
        bus.emit(event)
    await bus.wait_idle()

    assert heard == events


async def test_listeners_are_started_in_the_order_of_events_and_of_subscription() -> None:
    bus, heard = EventBus(), []

    def listener(name: str) -> Any:
        async def listen(event: EmbeddingRequested) -> None:
            heard.append((name, event.memory_id))
            await asyncio.sleep(0)

        return listen

    for name in ("a", "b"):
        bus.subscribe(EmbeddingRequested, listener(name))
    events = [requested(), requested()]
    for event in events:
        bus.emit(event)
    assert heard == []
    await bus.wait_idle()

    assert heard == [(name, event.memory_id) for event in events for name in ("a", "b")]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_a_failing_listener_affects_no_other_listener(error: BaseException) -> None:
    bus, heard = EventBus(), []

    async def fail(event: Event) -> None:
        raise error

    def fail_at_once(event: Event) -> Any:
        raise error

    async def listen(event: Event) -> None:
        heard.append(event)

    for listener in (fail, fail_at_once, listen):
        bus.subscribe(Event, listener)
    bus.emit(sent())
    await bus.wait_idle()

    assert len(heard) == 1


async def test_a_failing_listener_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()

    async def count_words(event: Event) -> None:
        raise ValueError("no")

    bus.subscribe(Event, count_words)
    bus.subscribe(Event, count_words, name="weather.count")
    bus.emit(sent())
    await bus.wait_idle()

    assert "count_words of MessageSent failed: ValueError: no" in caplog.text
    assert "listener weather.count of MessageSent failed" in caplog.text


async def test_a_slow_listener_is_stopped_at_its_deadline() -> None:
    bus = EventBus(deadline=0)

    async def listen(event: Event) -> None:
        await asyncio.Event().wait()

    bus.subscribe(Event, listen)
    bus.emit(sent())
    await bus.wait_idle()


async def test_a_subscription_ends_once_and_ends_no_other() -> None:
    bus, heard = EventBus(), []

    async def listen(event: Event) -> None:
        heard.append(event)

    end = bus.subscribe(MessageSent, listen)
    bus.subscribe(MessageSent, listen)
    end()
    end()
    bus.emit(sent())
    await bus.wait_idle()

    assert len(heard) == 1


async def test_a_listener_may_subscribe_end_and_emit() -> None:
    bus, heard = EventBus(), []

    async def answer(event: EmbeddingRequested) -> None:
        end()
        bus.subscribe(EmbeddingCompleted, note)
        bus.emit(EmbeddingCompleted(ME, event.memory_id))

    async def note(event: EmbeddingCompleted) -> None:
        heard.append(event.memory_id)

    end = bus.subscribe(EmbeddingRequested, answer)
    first, second = requested(), requested()
    bus.emit(first)
    await bus.wait_idle()
    bus.emit(second)
    await bus.wait_idle()

    assert heard == [first.memory_id]


async def test_leaving_waits_for_listeners_that_are_being_notified() -> None:
    heard: list[Event] = []
    go = asyncio.Event()

    async def listen(event: Event) -> None:
        await go.wait()
        heard.append(event)

    async with EventBus() as bus:
        bus.subscribe(Event, listen)
        bus.emit(sent())
        asyncio.get_running_loop().call_soon(go.set)

    assert len(heard) == 1


async def test_leaving_stops_listeners_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "FLUSH_TIMEOUT", 0)
    stopped = asyncio.Event()

    async def hang(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def echo(event: Event) -> None:
        bus.emit(sent())

    async with EventBus() as bus:
        bus.subscribe(Event, hang)
        bus.subscribe(Event, echo)
        bus.emit(sent())
        await asyncio.sleep(0)

    await stopped.wait()


async def test_a_plain_listener_is_notified_before_the_event_takes_effect() -> None:
    events: list[Event] = []
    event = requested()
    async with EventBus() as bus:
        bus.subscribe(type(event), events.append, at_once=True)
        bus.emit(event)
        assert events == [event]


async def test_a_plain_listener_that_fails_affects_no_other_listener(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("no")

    async with EventBus() as bus:
        event = requested()
        bus.subscribe(type(event), broken, name="broken", at_once=True)
        bus.emit(event)
    assert "listener broken of" in caplog.text


async def test_listeners_that_hang_at_the_end_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bus_module, "FLUSH_TIMEOUT", 0)

    async def listen(event: Event) -> None:
        await asyncio.Event().wait()

    async with EventBus() as bus:
        bus.subscribe(MessageSent, listen, name="weather.count")
        bus.emit(sent())
    [record] = caplog.records
    expected = "listeners that did not finish in time are cancelled: listener weather.count of MessageSent"
    assert record.getMessage() == expected
