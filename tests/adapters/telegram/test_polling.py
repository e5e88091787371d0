"""Polling of updates: none is lost or processed twice."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault, build_refusal, too_many_requests
from bot import Outcome, system_clock
from bot.adapter.adapter import FIRST_PAUSE_SECONDS
from bot.store import InMemoryStore, StoreUnavailable
from tests.adapters.telegram.conftest import TOKEN, OpenHarness, SkippingClock, TelegramHarness, run_character


@pytest.mark.failure("A-01")
async def test_an_update_that_was_not_stored_is_not_confirmed(open_harness: OpenHarness) -> None:
    store = InMemoryStore()
    receive, failures = store.ledger.receive, list[int]()

    async def failing(*args: Any, **details: Any) -> Any:
        if len(failures) < 3 and args[0]:
            failures.append(1)
            raise StoreUnavailable("the disk is full", cause="disk_full")
        return await receive(*args, **details)

    store.ledger.receive = failing  # type: ignore[method-assign]  # what a full disk would do
    async with open_harness(store=store) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(1) == ["You said: Hello"]
        offsets = [item.get("offset") for item in harness.telegram.recorder.calls_of("getUpdates")]
    assert len(failures) == 3
    assert offsets[:4] == [None] * 4


@pytest.mark.failure("A-02")
async def test_after_a_restart_nothing_is_fetched_or_answered_twice() -> None:
    async with Emulator() as telegram:
        store = InMemoryStore()
        async with run_character(telegram, store=store) as harness:
            alice = harness.people.add_user("Alice")
            chat = harness.people.open_private_chat(alice)
            harness.people.say(chat, alice, "Hello")
            await harness.wait_texts(1)
            await harness.wait_confirmed()
        telegram.recorder.calls.clear()
        async with run_character(telegram, store=store) as harness:
            harness.people.say(chat, alice, "Again")
            assert await harness.wait_texts(2) == ["You said: Hello", "You said: Again"]
            assert telegram.recorder.calls_of("getUpdates")[0]["offset"] == 2


@pytest.mark.long
async def test_300_updates_waiting_through_a_restart_are_each_answered_once() -> None:
    async with Emulator() as telegram:
        store = InMemoryStore()
        async with run_character(telegram, store=store):
            pass
        people = [telegram.people.add_user(f"P{number}") for number in range(100)]
        chats = [telegram.people.open_private_chat(item) for item in people]
        for turn in range(3):
            for person, chat in zip(people, chats, strict=True):
                telegram.people.say(chat, person, f"question {turn} of {person['first_name']}")
        settings = {"LATEST_RESPONSE": "queue"}
        async with run_character(telegram, store=store, settings=settings) as harness:
            await harness.wait_texts(300)
            receipts = await harness.wait_receipts()
            answered = [part.turn_id for part in await harness.wait_deliveries()]
    assert [item.outcome for item in receipts] == [Outcome.ANSWERED] * 300
    assert len(telegram.recorder.texts()) == 300
    assert sorted(answered) == sorted(item.turn_id for item in receipts)


@pytest.mark.long
async def test_updates_that_are_too_large_together_are_fetched_in_smaller_batches() -> None:
    store = InMemoryStore()
    async with Emulator() as telegram:
        async with run_character(telegram, store=store):
            pass
        people = [telegram.people.add_user(f"P{number}") for number in range(40)]
        for person in people:
            telegram.people.say(telegram.people.open_private_chat(person), person, person["first_name"] + "x" * 4000)
        telegram.recorder.calls.clear()
        async with run_character(telegram, store=store, limits=Limits(max_update_bytes=30_000)) as harness:
            await harness.wait_texts(40)
            await harness.wait_confirmed()
            assert {item.outcome for item in await harness.wait_receipts()} == {Outcome.ANSWERED}
        assert len(telegram.recorder.texts()) == 40
        limits = [item["limit"] for item in telegram.recorder.calls_of("getUpdates")]
    assert limits[:6] == [100, 50, 25, 12, 6, 12]


@pytest.mark.failure("B-01", "B-03")
async def test_the_same_message_in_another_update_is_answered_once(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
    await harness.wait_texts(1)
    update = {"message": next(iter(harness.telegram.state.messages.values()))}
    for number in (1, 50, 51):
        harness.telegram.state.enqueue(harness.bot, {"update_id": number, **update})
    await harness.wait_confirmed()
    assert len(await harness.wait_receipts()) == 1
    assert harness.telegram.recorder.texts() == ["You said: Hello"]


@pytest.mark.failure("B-02")
async def test_an_update_repeated_after_29_days_is_recognized() -> None:
    late = [timedelta()]
    store = InMemoryStore(lambda: system_clock() + late[-1])
    async with Emulator() as telegram:
        async with run_character(telegram, store=store) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            await harness.wait_texts(1)
            await harness.wait_confirmed()
        late.append(timedelta(days=29))
        [message] = [item for item in telegram.state.messages.values() if item.get("text") == "Hello"]
        async with run_character(telegram, store=store) as harness:
            telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update + 7, "message": message})
            await harness.wait_confirmed()
            assert len(await harness.wait_receipts()) == 1
        assert telegram.recorder.texts() == ["You said: Hello"]


@pytest.mark.failure("B-04")
async def test_messages_received_in_reverse_are_stored_as_they_arrived_and_answered_in_their_order() -> None:
    ago = [2]
    async with Emulator(clock=lambda: system_clock() - timedelta(seconds=ago[-1])) as telegram:
        bot = telegram.add_bot(TOKEN)
        alice = telegram.people.add_user("Alice")
        chat = telegram.people.open_private_chat(alice)
        first = telegram.people.say(chat, alice, "one")
        ago.append(1)
        second = telegram.people.say(chat, alice, "two")
        bot.queue.clear()
        for number, message in ((90, second), (91, first)):
            telegram.state.enqueue(bot, {"update_id": number, "message": message})
        async with run_character(telegram) as harness:
            await harness.wait_texts(1)
            [room] = {item.room_id for item in await harness.wait_receipts()}
            stored = await harness.store.memories.recent(room, 10)
        texts = [item.content.text for item in stored if item.content.text in ("one", "two")]
        assert texts == ["two", "one"]
        by_id = {item.id: item.content.text for item in stored}
        answered = [by_id[item.content.in_reply_to] for item in stored if item.content.in_reply_to is not None]
        assert answered in (["two"], ["two", "one"])


@pytest.mark.failure("B-14")
async def test_a_renamed_user_is_the_same_entity(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "Hello")
    await harness.wait_texts(1)
    harness.people.say(chat, {**alice, "first_name": "Alicia"}, "It is me")
    await harness.wait_texts(2)
    [author] = {item.author_id for item in await harness.wait_receipts()}
    assert "Alicia" in (await harness.store.entities.entities([author]))[author].names


@pytest.mark.failure("C-08")
async def test_a_second_poller_is_reported_once_and_waited_for(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = build_refusal(409, "Conflict: terminated by other getUpdates request")
    async with Emulator() as telegram:
        telegram.faults.append(Fault("getUpdates", 409, conflict, times=3))
        async with run_character(telegram) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            await harness.wait_texts(1)
            assert harness.clock.pauses.count(30.0) == 3
    reported = [item.getMessage() for item in caplog.records if item.levelno >= logging.WARNING]
    assert len(reported) == 2, reported
    assert "another program asks for the updates of bot 1000001" in reported[0]
    assert "is on telegram again" in reported[1]


@pytest.mark.failure("C-08")
async def test_two_pollers_on_the_same_token_get_a_conflict() -> None:
    async with Emulator() as telegram:
        clock = SkippingClock()
        async with run_character(telegram, clock=clock), run_character(telegram):
            await telegram.recorder.wait_until(lambda: 30.0 in clock.pauses)


async def test_a_stale_webhook_is_removed_and_updates_are_preserved() -> None:
    async with Emulator() as telegram:
        bot = telegram.add_bot(TOKEN)
        bot.webhook = "https://old.example/hook"
        alice = telegram.people.add_user("Alice")
        telegram.people.say(telegram.people.open_private_chat(alice), alice, "Hello")
        async with run_character(telegram) as harness:
            assert await harness.wait_texts(1) == ["You said: Hello"]
        assert [item["drop_pending_updates"] for item in telegram.recorder.calls_of("deleteWebhook")] == [False]


@pytest.mark.failure("C-09")
async def test_after_six_days_without_updates_the_offset_is_dropped() -> None:
    async with Emulator() as telegram:
        store = InMemoryStore()
        telegram.add_bot(TOKEN).next_update = 500
        async with run_character(telegram, store=store) as harness:
            alice = harness.people.add_user("Alice")
            chat = harness.people.open_private_chat(alice)
            harness.people.say(chat, alice, "Hello")
            await harness.wait_texts(1)
            await harness.wait_confirmed()
        harness.bot.next_update = 7  # Telegram counts from the start
        harness.people.say(chat, alice, "A week later")
        clock = SkippingClock(timedelta(days=7).total_seconds())
        async with run_character(telegram, store=store, clock=clock) as harness:
            assert (await harness.wait_texts(2))[1] == "You said: A week later"


@pytest.mark.failure("C-10")
async def test_an_outage_longer_than_the_update_retention_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with Emulator() as telegram:
        store = InMemoryStore()
        async with run_character(telegram, store=store):
            await telegram.recorder.wait_until(lambda: telegram.recorder.counts["waiting"])
        clock = SkippingClock(timedelta(hours=30).total_seconds())
        async with run_character(telegram, store=store, clock=clock):
            await telegram.recorder.wait_until(lambda: telegram.recorder.counts["waiting"] > 1)
    assert "from 2026-06-01T12:00+00:00 to 2026-06-02T18:00+00:00" in caplog.text


@pytest.mark.failure("C-13")
@pytest.mark.parametrize(
    "fault",
    [
        Fault("getUpdates", times=3),
        Fault("getUpdates", 502, "<html>", times=3),
        Fault("getUpdates", 200, "{", times=3),
        Fault("getUpdates", 200, {"ok": True, "result": "nonsense"}, times=3),
        Fault("getMe", 500, "oops", times=3),
        Fault("getMe", 200, {"ok": True, "result": {}}, times=3),
        Fault("setMyCommands", 404, build_refusal(404, "Not Found"), times=3),
        too_many_requests("getUpdates", 9, times=3),
    ],
    ids=repr,
)
async def test_polling_retries_after_errors(fault: Fault) -> None:
    async with Emulator() as telegram:
        fault = Fault(fault.match, fault.status, fault.body, times=fault.times)
        telegram.faults.append(fault)
        async with run_character(telegram) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            assert await harness.wait_texts(1) == ["You said: Hello"]


@pytest.mark.failure("C-07")
async def test_a_poll_without_a_response_is_abandoned() -> None:
    async with Emulator() as telegram:
        telegram.faults.append(Fault("getUpdates", is_hanging=True, times=2))
        async with run_character(telegram, limits=Limits(poll_seconds=2, grace_seconds=0.2)) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            assert await harness.wait_texts(1) == ["You said: Hello"]


@pytest.mark.failure("D-10")
async def test_a_rejected_token_stops_the_bot_at_once_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = SkippingClock(held=frozenset({FIRST_PAUSE_SECONDS}))
    async with Emulator() as telegram:
        telegram.faults.append(Fault("*", 401, build_refusal(401, "Unauthorized"), times=1000))
        async with run_character(telegram, clock=clock):
            await telegram.recorder.wait_until(lambda: telegram.recorder.counts["getMe"])
            await asyncio.sleep(0)
        assert telegram.recorder.counts["getMe"] == 1
        assert telegram.recorder.counts["getUpdates"] == 0
    assert "TELEGRAM_BOT_TOKEN" in caplog.text


async def test_updates_older_than_a_day_expire() -> None:
    ago = [timedelta(hours=25)]
    async with Emulator(clock=lambda: system_clock() - ago[-1]) as telegram:
        telegram.add_bot(TOKEN)
        alice = telegram.people.add_user("Alice")
        chat = telegram.people.open_private_chat(alice)
        telegram.people.say(chat, alice, "Yesterday")
        ago.append(timedelta())
        telegram.people.say(chat, alice, "Today")
        async with run_character(telegram) as harness:
            await harness.wait_confirmed()
            assert await harness.wait_texts(1) == ["You said: Today"]


@pytest.mark.failure("B-10")
async def test_messages_older_than_the_start_are_stored_and_not_answered() -> None:
    ago = [timedelta(minutes=16)]
    async with Emulator(clock=lambda: system_clock() - ago[-1]) as telegram:
        telegram.add_bot(TOKEN)
        alice = telegram.people.add_user("Alice")
        chat = telegram.people.open_private_chat(alice)
        telegram.people.say(chat, alice, "Long ago")
        telegram.people.send_album(chat, alice, [b"one", b"two"], "An old album")
        ago.append(timedelta(minutes=14))
        telegram.people.say(chat, alice, "A while ago")
        async with run_character(telegram) as harness:
            assert await harness.wait_texts(1) == ["You said: A while ago"]
            ago.append(timedelta(minutes=16))
            bob = telegram.people.add_user("Bob")
            telegram.people.say(telegram.people.open_private_chat(bob), bob, "By a slow clock")
            assert "You said: By a slow clock" in await harness.wait_texts(2)
            reported = [(item.outcome, item.rule) for item in await harness.wait_receipts()]
    assert reported[:2] == [(Outcome.EXPIRED, "backfill")] * 2
    assert [outcome for outcome, _ in reported[2:]] == [Outcome.ANSWERED] * 2


@pytest.mark.failure("B-10")
async def test_old_messages_received_after_an_outage_are_not_answered() -> None:
    ago = [timedelta()]
    async with Emulator(clock=lambda: system_clock() - ago[-1]) as telegram, run_character(telegram) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "Hello")
        await harness.wait_texts(1)
        await harness.wait_confirmed()
        outage = Fault("getUpdates", 502, "<html>", times=2)
        telegram.faults.append(outage)
        harness.people.say(chat, alice, "And good-bye")
        await telegram.recorder.wait_until(lambda: not outage.times)
        ago.append(timedelta(minutes=16))
        harness.people.say(chat, alice, "Are you there?")
        *_, last = await harness.wait_receipts()
    assert (last.outcome, last.rule) == (Outcome.EXPIRED, "backfill")


@pytest.mark.failure("C-15")
async def test_a_disconnected_bot_does_not_affect_another() -> None:
    async with Emulator() as cut_off, Emulator() as telegram:
        cut_off.faults.append(Fault("*", is_hanging=True, times=1000))
        async with run_character(cut_off) as wedged, run_character(telegram) as harness:
            await cut_off.recorder.wait_until(lambda: cut_off.recorder.counts["getMe"])
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            assert await harness.wait_texts(1) == ["You said: Hello"]
            assert wedged.telegram.recorder.counts["getUpdates"] == 0


@pytest.mark.long
async def test_the_token_appears_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Emulator() as telegram:
        telegram.faults += [Fault("getUpdates"), Fault("getUpdates", 200, "{"), Fault("sendMessage", 500, "x")]
        async with run_character(telegram) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            await harness.wait_texts(1)
            await harness.wait_deliveries()
            assert TOKEN not in repr(harness.adapter.__dict__)
        telegram.faults.append(Fault("*", 401, build_refusal(401, "Unauthorized"), times=9))
        async with run_character(telegram):
            await telegram.recorder.wait_until(lambda: telegram.recorder.counts["getMe"] > 1)
    logs = [item for item in caplog.records if not item.name.startswith(("aiohttp", "asyncio"))]
    assert logs
    assert not [item for item in logs if "not-a-real-token" in f"{item.getMessage()}{item.exc_text}"]


def test_the_adapter_can_be_created_without_an_event_loop() -> None:
    assert TelegramAdapter([]).webhook_port == 0


async def test_updates_that_polls_do_not_bring_though_they_are_pending_make_the_account_deaf() -> None:
    async with Emulator() as telegram:
        empty = Fault("getUpdates", 200, {"ok": True, "result": []}, times=10**6)
        async with run_character(telegram, limits=Limits(poll_seconds=1, probe_seconds=5.0)) as harness:
            alice = harness.people.add_user("Alice")
            chat = harness.people.open_private_chat(alice)
            [status] = harness.adapter.connections
            telegram.faults.append(empty)
            calls = telegram.recorder.calls_of
            await telegram.recorder.wait_until(lambda: len(calls("getWebhookInfo")) >= 2)
            assert status.unheard_since is None  # nothing is pending
            harness.people.say(chat, alice, "Hello")
            count = len(calls("getWebhookInfo"))
            await telegram.recorder.wait_until(lambda: len(calls("getWebhookInfo")) >= count + 3)
            assert status.unheard_since is not None
            empty.times = 0
            assert await harness.wait_texts(1) == ["You said: Hello"]
            assert status.unheard_since is None
