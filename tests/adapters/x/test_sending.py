"""Sending posts, and resolving unclear ones."""

from dataclasses import replace
from typing import Any

import pytest

from adapters.x.emulator import Emulator, Fault, FaultKind
from bot import Attachment, Content, MediaKind, new_id
from bot.domain.ids import delivery_id
from bot.platform import Delivery, DeliveryHeld, DeliveryState, DeliveryUnknown, NotSent, Undeliverable
from bot.store import InMemoryStore
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX, XHarness

POST, TIMELINE = "POST /2/tweets", "GET /2/users/:id/tweets"
QUIET = {"X_REPLY_ENABLE": "false"}
NINETY_NINE = "4070908800"


def part_of(harness: XHarness, text: str = "Fog again.", **details: Any) -> Delivery:
    """Return a part for the own timeline at its first attempt."""
    [feed] = harness.agent.outbox.feeds()
    turn_id = new_id()
    now = harness.clock.now()
    part = Delivery(
        id=delivery_id(turn_id, 0, 0),
        turn_id=turn_id,
        room_id=feed.room.id,
        memory_id=new_id(),
        platform="x",
        account=feed.room.account,
        target=feed.room.external_id,
        part=0,
        content=Content(text=text),
        created_at=now,
        state=DeliveryState.ATTEMPTING,
        attempts=1,
        first_attempt_at=now,
    )
    return replace(part, **details)


@pytest.mark.failure("D-04", "D-06", "D-07", "D-08")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(POST, FaultKind.LOST),
        Fault(POST, FaultKind.BROKEN),
        Fault(POST, FaultKind.FAILED, 500),
        Fault(POST, FaultKind.FAILED, 503),
        Fault(POST, FaultKind.FAILED, 524),
        Fault(POST, FaultKind.FAILED, 302),
        Fault(POST, FaultKind.FAILED, 200, body='{"data": {}}'),
        Fault(POST, FaultKind.FAILED, 200, body="x" * 2_000_000),
    ],
    ids=["reset", "no json", "500", "503", "524", "302", "no id", "endless"],
)
async def test_a_post_that_may_have_arrived_is_found_on_the_timeline(
    fault: Fault, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(fault)
        part = part_of(harness)
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        [made] = emulator.state.posts_by(emulator.user_id)
        assert await harness.adapter.reconcile(part) == made.id
        assert emulator.bot_texts == ["Fog again."]


@pytest.mark.parametrize("way", [FaultKind.CUT, FaultKind.REFUSED])
async def test_a_post_that_did_not_arrive_is_sent_again_unchanged(
    way: FaultKind, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, way))
        part = part_of(harness)
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        with pytest.raises(NotSent):
            await harness.adapter.reconcile(part)
        await harness.adapter.deliver(replace(part, attempts=2))
        assert emulator.bot_texts == ["Fog again."]


@pytest.mark.parametrize(
    "text",
    [
        "See https://example.com/a?b=1&c=2, and https://example.org/",
        "1 < 2 & 3 > 2",
        "“Curly” – e\u0301 – 日本",
        "two\n\nparagraphs",
    ],
)
async def test_a_post_is_found_however_x_writes_it(text: str, run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, FaultKind.LOST))
        part = part_of(harness, text)
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        assert await harness.adapter.reconcile(part) == emulator.state.posts_by(emulator.user_id)[0].id


async def test_an_answer_that_may_have_arrived_is_posted_once(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(Fault(POST, FaultKind.LOST))
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        assert emulator.bot_texts == ["Noted."]
        assert await harness.unsent() == []


async def test_the_same_text_in_reply_to_another_post_is_no_match(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        emulator.add_faults(Fault(POST, FaultKind.CUT))
        part = part_of(harness, "Noted.")
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        with pytest.raises(NotSent):
            await harness.adapter.reconcile(part)


@pytest.mark.failure("D-13")
async def test_a_duplicate_at_the_first_try_is_given_up(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.state.create_post(emulator.user_id, "Fog again.")
        with pytest.raises(Undeliverable, match="duplicate"):
            await harness.adapter.deliver(part_of(harness))


@pytest.mark.failure("D-13")
async def test_a_duplicate_after_an_unclear_try_is_confirmed_by_reading(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        made = emulator.state.create_post(emulator.user_id, "Fog again.")
        part = part_of(harness, attempts=2)
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        assert await harness.adapter.reconcile(part) == made.id


@pytest.mark.failure("D-13")
async def test_a_duplicate_that_is_not_found_is_held(run_x: RunX, emulator: Emulator, clock: ManualClock) -> None:
    async with run_x(**QUIET) as harness:
        emulator.state.create_post(emulator.user_id, "Fog again.")
        clock.advance(3600)
        part = part_of(harness, attempts=2)
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part)
        with pytest.raises(DeliveryUnknown, match="not among the latest yet") as caught:
            await harness.adapter.reconcile(part)
        assert not isinstance(caught.value, DeliveryHeld)
        clock.advance(901)
        with pytest.raises(DeliveryHeld, match="check the account"):
            await harness.adapter.reconcile(part)


async def test_without_reads_an_unclear_post_is_held_and_listed(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_MONTHLY_READS="0", **QUIET) as harness:
        emulator.add_faults(Fault(POST, FaultKind.LOST))
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        await harness.agent.say(feed.room, "Fog again.")
        await harness.agent.outbox.drain(60.0)
        [held] = await harness.unsent()
        assert held.state is DeliveryState.UNKNOWN
        assert "X_MONTHLY_READS" in held.cause
        assert emulator.bot_texts == ["Fog again."]


async def test_a_timeline_blocked_for_long_is_not_waited_for(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(TIMELINE, status=429, headers={"x-rate-limit-reset": NINETY_NINE}))
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.reconcile(part_of(harness))


@pytest.mark.failure("D-10")
async def test_no_call_follows_a_401_but_a_call_for_the_account(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.is_revoked = True
        before = len(emulator.calls)
        for _ in range(5):
            with pytest.raises(NotSent, match="refuses the keys"):
                await harness.adapter.deliver(part_of(harness))
        with pytest.raises(NotSent, match="refuses the keys"):
            await harness.account.receiver.poll()
        assert [call.endpoint for call in emulator.calls[before:]] == [POST, "GET /2/users/me"]
        [feed] = harness.agent.outbox.feeds()
        assert "refuses the keys" in feed.pause_reason


@pytest.mark.failure("D-10")
async def test_a_post_waits_for_its_rate_limit_across_a_restart(
    run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    store = InMemoryStore(clock.now)
    emulator.limits[POST] = (1, 7200.0)
    async with run_x(store=store, **QUIET) as harness:
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        for text in ("First.", "Second."):
            await harness.agent.say(feed.room, Content(text=text))
        await harness.agent.outbox.drain(60.0)
        [waiting] = await harness.unsent()
        assert (waiting.state, waiting.attempts) == (DeliveryState.PENDING, 1)
    clock.advance(7201)
    async with run_x(store=store, **QUIET) as harness:
        await harness.agent.outbox.drain(60.0)
        assert emulator.bot_texts == ["First.", "Second."]
    assert all(call.status < 400 for call in emulator.calls)


@pytest.mark.failure("D-11")
async def test_a_forbidden_answer_affects_nothing_else(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.state.blocked.add((emulator.state.user_id_of("bob"), emulator.user_id))
        emulator.say("bob", "@greenroom_bot hello")
        emulator.say("carol", "@greenroom_bot hello")
        await harness.poll()
        [failed] = await harness.unsent()
        assert (failed.state, failed.attempts) == (DeliveryState.FAILED, 1)
        assert "not permitted" in failed.cause
        assert emulator.bot_texts == ["Noted."]


@pytest.mark.failure("D-14")
@pytest.mark.parametrize(("reset", "wait"), [(NINETY_NINE, 86_400.0), ("1", 1.0), ("soon", 5.0)])
async def test_an_exhausted_endpoint_is_blocked_for_a_bounded_time(
    reset: str, wait: float, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, status=429, headers={"x-rate-limit-reset": reset}))
        for _ in range(3):
            with pytest.raises(NotSent) as refusal:
                await harness.adapter.deliver(part_of(harness))
            assert refusal.value.retry_after == wait
        assert len(emulator.writes) == 1
        harness.clock.advance(wait)
        await harness.adapter.deliver(part_of(harness))


@pytest.mark.failure("D-03")
async def test_a_429_without_readable_reset_is_five_seconds(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, status=429, body="<html>Too many</html>"))
        with pytest.raises(NotSent) as refusal:
            await harness.adapter.deliver(part_of(harness))
        assert refusal.value.retry_after == 5.0


@pytest.mark.failure("D-05")
async def test_a_failed_connection_to_x_means_not_sent(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        await emulator.__aexit__(None, None, None)
        with pytest.raises(NotSent, match="no connection"):
            await harness.adapter.deliver(part_of(harness))


async def test_a_part_of_a_thread_is_never_sent_before_the_previous_part(run_x: RunX, emulator: Emulator) -> None:
    text = " ".join(f"This is sentence number {number} of a long post." for number in range(14))
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, FaultKind.PASSED), Fault(POST, status=400))
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        reply = await harness.agent.say(feed.room, text)
        assert reply is not None
        await harness.agent.outbox.drain(60.0)
        parts = await harness.agent.store.ledger.deliveries(turn_id=reply.turn_id)
        states = [part.state for part in sorted(parts, key=lambda delivery: delivery.part)]
        assert states == [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.FAILED]
        assert len(emulator.bot_texts) == 1
        for part in sorted(parts, key=lambda delivery: delivery.part)[1:]:
            await harness.agent_runtime.handle.undelivered.retry(part.id)
        await harness.agent.outbox.drain(60.0)
        assert " ".join(emulator.bot_texts) == text


@pytest.mark.failure("D-15")
async def test_a_picture_that_is_refused_is_named_and_nothing_is_posted_without_it(
    run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault("POST /2/media/upload", status=400, body='{"detail": "not an image"}'))
        part = part_of(harness)
        picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", name="fog.png", data=b"png")
        with pytest.raises(Undeliverable, match=r"fog\.png.*not an image"):
            await harness.adapter.deliver(replace(part, content=replace(part.content, attachments=(picture,))))
        assert emulator.bot_texts == []
