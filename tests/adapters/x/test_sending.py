"""Sending posts, and resolving unclear ones."""

from dataclasses import replace
from typing import Any

import pytest

from adapters.x.client import ContentRules
from adapters.x.config import XSettings, parse_post_id
from adapters.x.emulator import Emulator, Fault, FaultKind
from bot import Attachment, Content, MediaKind, Outcome, Settings, new_id
from bot.domain.ids import delivery_id
from bot.platform import Delivery, DeliveryHeld, DeliveryState, DeliveryUnknown, NotSent, Undeliverable
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ManualClock, model_answer
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


# Reactions of the bot on X: a post is liked, once, and the like is taken back.


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


async def test_what_pleases_is_a_like_in_place_of_words_and_can_be_taken_back(emulator: Emulator, run_x: RunX) -> None:
    async with run_x(react("🎉")) as harness:
        post_id = emulator.say("kim", "@greenroom_bot it works, thank you")
        await harness.poll()
        receipt = (await harness.receipts())[post_id]
        assert receipt.turn_id is not None
        [delivery] = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
        assert (receipt.outcome, delivery.state, delivery.content.text) == (Outcome.ANSWERED, DeliveryState.SENT, "❤")
        assert emulator.state.posts[post_id].likes == {emulator.user_id}
        for _ in range(2):
            await harness.adapter.react(replace(delivery, content=Content(), replaces_external_id="❤"))
        assert emulator.state.posts[post_id].likes == set()
    assert [call.endpoint for call in emulator.writes].count("POST /2/tweets") == 0


async def test_a_dry_run_likes_nothing(emulator: Emulator, run_x: RunX) -> None:
    async with run_x(react("🎉"), X_DRY_RUN="true") as harness:
        post_id = emulator.say("kim", "@greenroom_bot it works, thank you")
        await harness.poll()
        assert (await harness.receipts())[post_id].outcome is Outcome.ANSWERED
        assert await harness.unsent() == []
    assert emulator.state.posts[post_id].likes == set()


# O-10: forbidden content is never posted.

CORPUS = {
    "a key or a token": [
        "my key is sk-notAKeyAtAll0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----",
        "ghp_notATokenAtAll0123456789abcdefghij",
        "xoxb-not-a-token-0123",
        "123456789:notATokenAtAll0123456789abcdefghi",
    ],
    "a mail address": ["write to bob.smith+home@mail.example.org!", "ＢＯＢ＠example.org"],
    "a telephone number": ["call +49 (30) 1234-5678", "0044 20 7946 0958"],
    "a bank account": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "a bank card": ["4111 1111 1111 1111", "5555-5555-5555-4444"],
    "X_FORBIDDEN_WORDS": ["Ducks FLY", "this has  guaranteed\nreturns, all"],
}
HARMLESS = [
    "See https://x.com/i/status/4111111111111111 and https://example.org/?id=+493012345678",
    "4111 1111 1111 1112 is no card, and 1999-12-31 no number to call",
    "@bob@x is no address; 12:30 to 14:00; +1; 100000000000 stars",
    "Duck's flyer: guarantee d returns",
    "Write to help@acme.example or call +1 555 010 0199.",
]
LISTED = {"X_FORBIDDEN_WORDS": "ducks fly,guaranteed returns", "X_CONTACTS": "help@acme.example, +1 555 010 0199"}


def policy() -> ContentRules:
    return ContentRules(Settings([Layer("the test", LISTED)]).load(XSettings))


@pytest.mark.failure("O-10")
@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in CORPUS.items() for text in texts])
def test_forbidden_content_is_named(what: str, text: str) -> None:
    assert what in policy().find_violation(f"Well: {text} indeed")


@pytest.mark.failure("O-10")
@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_allowed(text: str) -> None:
    assert policy().find_violation(text) == ""


@pytest.mark.failure("O-10")
async def test_a_thread_with_forbidden_content_is_not_posted_at_all(run_x: RunX, emulator: Emulator) -> None:
    text = "Fog again, and nothing to be seen of the mill. " * 8 + "Ask bob@mail.example.org."
    async with run_x(**QUIET, **LISTED) as harness:
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        await harness.agent.say(feed.room, Content(text=text))
        await harness.agent.outbox.drain(60.0)
        parts = await harness.agent.store.ledger.deliveries()
        assert len(parts) > 1
        assert {part.state for part in parts} == {DeliveryState.FAILED}
        assert emulator.writes == []


@pytest.mark.failure("O-10")
async def test_every_way_to_post_is_checked_also_a_dry_run(run_x: RunX, emulator: Emulator) -> None:
    for settings in ({}, {"X_DRY_RUN": "true"}):
        async with run_x(**QUIET, **LISTED, **settings) as harness:
            with pytest.raises(Undeliverable, match="X_FORBIDDEN_WORDS"):
                await harness.adapter.deliver(part_of(harness, "Guaranteed returns!"))
    assert emulator.writes == []


# Deleting posts, on X and in the store.

DELETE, READ = "DELETE /2/tweets/:id", "GET /2/tweets"
SENTENCES = " ".join(f"This is sentence number {number} of a long post." for number in range(14))


async def publish(harness: XHarness, text: str = "Fog again.") -> list[str]:
    """Publish a post on the own timeline; return the ids of its parts."""
    [feed] = harness.agent.outbox.feeds()
    await harness.agent.store.worlds.save_world(feed.world, [feed.room])
    await harness.agent.say(feed.room, text)
    await harness.agent.outbox.drain(60.0)
    return [post.id for post in harness.emulator.state.posts_by(harness.emulator.user_id)]


async def stored_texts(harness: XHarness) -> list[str]:
    rooms = await harness.agent.store.worlds.rooms()
    memories = [memory for room in rooms for memory in await harness.agent.store.memories.recent(room.id, 50)]
    return [memory.content.text for memory in memories]


async def delete(harness: XHarness, post_id: str) -> bool:
    [feed] = harness.agent.outbox.feeds()
    assert feed.delete is not None
    return await feed.delete(post_id)


async def test_a_post_is_deleted_on_x_and_in_the_store_and_once_only(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        assert await stored_texts(harness) == ["Fog again."]
        assert await delete(harness, post_id) is True
        assert emulator.bot_texts == []
        assert await stored_texts(harness) == []
        assert await delete(harness, post_id) is False


async def test_a_thread_is_deleted_as_a_whole_from_its_end(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        first, second, third = await publish(harness, SENTENCES)
        assert await delete(harness, second) is True
        calls = [call.path for call in emulator.calls if call.endpoint == DELETE]
        assert calls == [f"/2/tweets/{post_id}" for post_id in (third, second, first)]
        assert emulator.bot_texts == []
        assert await stored_texts(harness) == []


async def test_the_waiting_parts_of_a_deleted_thread_are_not_sent(run_x: RunX, emulator: Emulator) -> None:
    emulator.limits[POST] = (1, 900.0)
    async with run_x(**QUIET) as harness:
        [first] = await publish(harness, SENTENCES)
        assert await delete(harness, first) is True
        states = [part.state for part in await harness.agent.store.ledger.deliveries()]
        assert states == [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.FAILED]
        assert emulator.bot_texts == []


async def test_an_answer_is_deleted_and_the_mention_stays(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        [answer] = emulator.state.posts_by(emulator.user_id)
        assert await delete(harness, answer.id) is True
        assert await stored_texts(harness) == ["@greenroom_bot hello"]


async def test_a_post_of_another_account_is_refused(run_x: RunX, emulator: Emulator) -> None:
    theirs = emulator.say("bob", "The mill burned down.")
    async with run_x(**QUIET) as harness:
        with pytest.raises(Undeliverable, match=r"post of @bob, .* only its own \(X says 403: You are not permitted"):
            await delete(harness, theirs)
    assert not emulator.state.posts[theirs].is_deleted


async def test_a_refusal_that_cannot_be_looked_up_is_reported_as_x_says_it(run_x: RunX, emulator: Emulator) -> None:
    theirs = emulator.say("bob", "The mill burned down.")
    async with run_x(**QUIET, X_MONTHLY_READS="0") as harness:
        with pytest.raises(Undeliverable, match=r"^X says 403: You are not permitted to delete this Tweet\.$"):
            await delete(harness, theirs)


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(DELETE, status=404, body='{"errors": [{"detail": "Could not find tweet"}]}'),),
        (Fault(DELETE, status=403, body='{"detail": "You are not permitted to delete this Tweet."}'),),
    ],
    ids=["not deleted", "404", "403"],
)
async def test_a_post_that_is_gone_already_is_no_error(
    faults: tuple[Fault, ...], run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        emulator.state.posts[post_id].is_deleted = True  # by its owner, on the website
        emulator.add_faults(*faults)
        assert await delete(harness, post_id) is False
        assert await stored_texts(harness) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(DELETE, FaultKind.LOST), DeliveryUnknown),
        (Fault(DELETE, FaultKind.FAILED, 200, body='{"errors": [{"title": "?"}]}'), DeliveryUnknown),
        (Fault(DELETE, status=429, body="{}"), NotSent),
    ],
    ids=["lost", "without data", "limit"],
)
async def test_an_unclear_deletion_can_be_repeated(
    fault: Fault, error: type[Exception], run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        emulator.add_faults(fault)
        with pytest.raises(error):
            await delete(harness, post_id)
        assert await stored_texts(harness) == ["Fog again."]
        harness.clock.advance(1_000)
        await delete(harness, post_id)
        assert (emulator.bot_texts, await stored_texts(harness)) == ([], [])


async def test_a_dry_run_deletes_nothing(run_x: RunX, emulator: Emulator) -> None:
    ours = emulator.state.create_post(emulator.user_id, "Fog again.")
    async with run_x(**QUIET, X_DRY_RUN="true") as harness:
        with pytest.raises(NotSent, match="X_DRY_RUN"):
            await delete(harness, ours.id)
    assert emulator.calls == []


@pytest.mark.parametrize(
    ("reference", "post_id"),
    [
        ("1445880548472328192", "1445880548472328192"),
        (" https://x.com/i/status/17 ", "17"),
        ("https://twitter.com/ada/status/17?s=20", "17"),
        ("x.com/i/web/status/17/photo/1", "17"),
        ("", ""),
        ("fog", ""),
        ("https://x.com/ada", ""),
        ("https://x.example/ada/status/17", ""),
        ("17 18", ""),
    ],
)
def test_a_post_is_named_by_its_id_or_url(reference: str, post_id: str) -> None:
    assert parse_post_id(reference) == post_id
