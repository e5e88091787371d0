"""Quota, quiet hours, opt-outs and dry run of an account."""

import os
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from adapters.x.client import OPT_OUT_KEY, is_opt_in_request, is_opt_out_request
from adapters.x.emulator import Emulator
from bot import ChannelType, Content, Outcome
from bot.models import TextRequest
from bot.platform import Delivery, NotSent, PostOperation, PostOperationKind, StreamCursor, Undeliverable
from bot.store import InMemoryStore
from bot.testing import ManualClock, make_message, model_answer
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of

TURNS = int(os.environ.get("X_DRY_TURNS", "60"))  # 10000 for the whole form
DM = ChannelType.DM


@pytest.mark.long
@pytest.mark.failure("O-09")
async def test_a_dry_run_writes_nothing_in_any_turn(run_x: RunX, emulator: Emulator, clock: ManualClock) -> None:
    theirs = emulator.say("bob", "The mill burned down, @greenroom_bot.")
    actions = cycle(
        [
            ("POST", {"text": "Fog, again. " * 40}),
            ("LIKE", {"post": theirs}),
            ("REPOST", {"post": theirs}),
            ("QUOTE", {"text": "It did.", "post": theirs}),
            ("REPLY_ON_X", {"text": "It did.", "post": theirs}),
        ]
    )

    def says(request: TextRequest) -> str:
        name, parameters = next(actions)
        return model_answer("As you wish.", actions=["REPLY", name], parameters={name: parameters})

    unlimited = {"X_MONTHLY_READS": "1000000", "MESSAGES_PER_PERSON": "0"}
    settings = {"X_DRY_RUN": "true", "X_OPERATORS": "test:Alice", **unlimited}
    async with run_x(says, **settings) as harness:
        for number in range(TURNS):
            if number % 5 == 0:
                emulator.say("carol", f"@greenroom_bot what about {number}?")
                await harness.poll()
            else:
                order = make_message(f"Ada, do {number}", sent_at=clock.now(), author="Alice", kind=DM)
                receipt = await harness.agent_runtime.inbox.submit(order)
                await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.wait_idle()
        parts = await harness.agent.store.ledger.deliveries()
    dry = [part for part in parts if part.external_id.startswith("dry-run-")]
    assert emulator.writes == []
    assert len(dry) >= TURNS  # posts, threads, likes, answers


@pytest.mark.failure("O-09")
async def test_a_dry_run_writes_nothing_without_the_outbox_either(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_DRY_RUN="true") as harness:
        part = part_of(harness)
        for operation in (None, *(PostOperation(kind, "5") for kind in PostOperationKind if kind != "reply")):
            content = Content(text="Post", operation=operation)
            assert (await harness.adapter.deliver(_with(part, content))).startswith("dry-run-")
            assert (await harness.adapter.reconcile(_with(part, content))).startswith("dry-run-")
        assert emulator.writes == []


@pytest.mark.failure("O-09")
async def test_a_dry_run_reads_mentions_and_only_logs_answers(
    run_x: RunX, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="adapters.x")
    async with run_x(X_DRY_RUN="true") as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        assert "would be sent" in caplog.text
        assert emulator.writes == []
        with pytest.raises(NotSent, match="X_DRY_RUN"):
            await harness.account.client.create_post("past the sender")


@pytest.mark.failure("O-09")
async def test_the_off_switch_stops_the_next_call(run_x: RunX, emulator: Emulator, tmp_path: Path) -> None:
    async with run_x() as harness:
        before = len(emulator.calls)
        (tmp_path / "x.off").touch()
        with pytest.raises(NotSent, match="switched off"):
            await harness.adapter.deliver(part_of(harness))
        await harness.poll()
        [feed] = harness.agent.outbox.feeds()
        assert "x.off" in feed.pause_reason
        assert len(emulator.calls) == before
        (tmp_path / "x.off").unlink()
        await harness.adapter.deliver(part_of(harness))


@pytest.mark.failure("O-09")
async def test_the_daily_cap_holds_over_restarts_and_ends_with_the_day(
    run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    store, settings = InMemoryStore(), {"X_POST_DAILY_CAP": "2", **QUIET}
    async with run_x(store=store, **settings) as harness:
        for number in range(2):
            await harness.adapter.deliver(part_of(harness, f"Post {number}"))
    async with run_x(store=store, **settings) as harness:
        with pytest.raises(NotSent, match="X_POST_DAILY_CAP") as refusal:
            await harness.adapter.deliver(part_of(harness, "One more"))
        assert refusal.value.retry_after == 15 * 3600  # from nine in the morning
        clock.advance(15 * 3600)
        await harness.adapter.deliver(part_of(harness, "One more"))
        assert len(emulator.writes) == 3


async def test_the_months_posts_are_not_exceeded(run_x: RunX, emulator: Emulator, clock: ManualClock) -> None:
    async with run_x(X_MONTHLY_POSTS="1", **QUIET) as harness:
        await harness.adapter.deliver(part_of(harness, "First"))
        with pytest.raises(NotSent, match="X_MONTHLY_POSTS"):
            await harness.adapter.deliver(part_of(harness, "Second"))
        clock.advance(31 * 86_400)
        await harness.adapter.deliver(part_of(harness, "Second"))


@pytest.mark.parametrize(
    ("span", "zone", "is_quiet"),
    [
        ("", "UTC", False),
        ("08:00-10:00", "UTC", True),
        ("09:01-10:00", "UTC", False),
        ("22:00-09:30", "UTC", True),
        ("22:00-09:00", "UTC", False),
        ("10:00-11:00", "Europe/Berlin", True),
        ("3:30-4:30", "America/New_York", True),
    ],
)
async def test_quiet_hours_use_the_configured_time_zone(
    span: str, zone: str, is_quiet: bool, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(X_QUIET_HOURS=span, X_TIME_ZONE=zone, X_POST_ENABLE="true", **QUIET) as harness:
        [feed] = harness.agent.outbox.feeds()  # it is nine in Greenwich
        assert bool(feed.pause_reason) is is_quiet
        await harness.adapter.deliver(part_of(harness))  # it is posted on request of any person


@pytest.mark.parametrize(("own", "is_quiet"), [("", True), ("UTC", False)])
async def test_quiet_hours_without_a_time_zone_of_their_own_use_that_of_the_character(
    own: str, is_quiet: bool, run_x: RunX, emulator: Emulator
) -> None:
    hours = {"X_QUIET_HOURS": "10:00-11:00", "X_TIME_ZONE": own, "TIMEZONE": "Europe/Berlin"}
    async with run_x(**hours, X_POST_ENABLE="true", **QUIET) as harness:
        [feed] = harness.agent.outbox.feeds()  # it is nine in Greenwich
        assert bool(feed.pause_reason) is is_quiet


async def test_the_start_reads_nothing_beyond_the_quota(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_MONTHLY_READS="10"):
        assert emulator.calls == []  # one is kept in reserve, and the smallest page may cost ten


@pytest.mark.long
async def test_reads_are_counted_over_restarts(run_x: RunX, emulator: Emulator) -> None:
    store = InMemoryStore()
    for number in range(6):
        async with run_x(store=store, X_MONTHLY_READS="20") as harness:
            for person in ("bob", "carol"):
                emulator.say(person, f"@greenroom_bot question {number}")
            await harness.poll()
    assert emulator.reads["2026-03"] == 10  # of twenty, two are kept in reserve, and a page may cost ten
    assert emulator.reads["2026-04"] == 2  # the next look was when the month was over


@pytest.mark.failure("O-11")
@pytest.mark.parametrize("words", ["STOP!", "@greenroom_bot Please stop.", "opt-out"])
async def test_a_user_who_opts_out_is_not_answered_any_more(words: str, run_x: RunX, emulator: Emulator) -> None:
    store = InMemoryStore()
    async with run_x(store=store) as harness:
        last = emulator.say("bob", f"@greenroom_bot {words}")
        await harness.poll()
        assert (await harness.receipts())[last].rule == "opt-out"
    async with run_x(store=store) as harness:
        again = emulator.say("bob", "@greenroom_bot what do you think?")
        emulator.say("carol", "@greenroom_bot what do you think?")
        await harness.poll()
        receipt = (await harness.receipts())[again]
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "opt-out")
        assert emulator.bot_texts == ["Noted."]
        back = emulator.say("bob", "@greenroom_bot start")
        await harness.poll()
        assert (await harness.receipts())[back].outcome is Outcome.ANSWERED


@pytest.mark.failure("O-11")
@pytest.mark.parametrize(("first", "second", "answered"), [("start", "stop", 0), ("stop", "start", 1)])
async def test_of_two_requests_the_later_holds_though_it_is_read_first(
    first: str, second: str, answered: int, run_x: RunX, emulator: Emulator
) -> None:
    store = InMemoryStore()
    async with run_x(store=store):
        pass
    emulator.say("bob", f"@greenroom_bot {first}")
    for number in range(5):  # as many as a page has while few reads are left
        emulator.say("carol", f"@greenroom_bot question {number}")
    emulator.say("bob", f"@greenroom_bot {second}")
    async with run_x(store=store, X_MONTHLY_READS="100") as harness:
        await harness.poll()
    async with run_x(store=store) as harness:
        last = emulator.say("bob", "@greenroom_bot what do you think?")
        await harness.poll()
        assert ((await harness.receipts())[last].outcome is Outcome.ANSWERED) == answered


@pytest.mark.failure("O-11")
async def test_an_opt_out_that_was_stored_by_an_earlier_version_holds(run_x: RunX, emulator: Emulator) -> None:
    store = InMemoryStore()
    async with run_x(store=store) as harness:
        user_id = emulator.state.posts[emulator.say("bob", "hello")].author_id
        cursor = StreamCursor("x", emulator.user_id, OPT_OUT_KEY, f'["{user_id}"]')
        await harness.agent_runtime.inbox.submit_all([], cursor)
    async with run_x(store=store) as harness:
        last = emulator.say("bob", "@greenroom_bot what do you think?")
        await harness.poll()
        assert (await harness.receipts())[last].rule == "opt-out"


@pytest.mark.failure("O-11")
async def test_an_opt_out_stops_pending_parts(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(model_answer("A sentence of a long answer. " * 20)) as harness:
        asked = emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        delivered = await harness.agent.store.ledger.deliveries(turn_id=(await harness.receipts())[asked].turn_id)
        count = len(emulator.bot_texts)
        assert len(delivered) == count > 1
        emulator.say("bob", "@greenroom_bot stop")
        await harness.poll()
        for part in delivered:  # also the rest of a thread that has begun
            with pytest.raises(Undeliverable, match="opt-out"):
                await harness.adapter.deliver(part)
        assert len(emulator.bot_texts) == count


@pytest.mark.failure("O-11")
async def test_the_operators_list_applies_to_likes_and_quotes(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_OPT_OUT_USERS="@Mallory", **QUIET) as harness:
        theirs = emulator.say("mallory", "Look at me.")
        for kind in PostOperationKind:
            content = Content(text="Hm.", operation=PostOperation(kind, theirs))
            with pytest.raises(Undeliverable, match="opt-out"):
                await harness.adapter.deliver(_with(part_of(harness), content))
        assert emulator.writes == []


async def test_only_users_who_mention_the_account_or_are_listed_get_replies(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        strange, friend = emulator.say("carol", "Nice weather."), emulator.say("dave", "Hi @greenroom_bot")
        with pytest.raises(Undeliverable, match="X_TARGET_USERS"):
            await harness.adapter.deliver(_with(part_of(harness), _reply(strange)))
        await harness.adapter.deliver(_with(part_of(harness), _reply(friend)))
    async with run_x(X_TARGET_USERS="carol", **QUIET) as harness:
        await harness.adapter.deliver(_with(part_of(harness), _reply(strange)))
    assert [post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)] == [friend, strange]


def test_only_exact_phrases_are_opt_outs() -> None:
    assert not is_opt_out_request("When does the rain stop?")
    assert not is_opt_out_request("don't stop")
    assert is_opt_in_request("@ada opt-in")


def _with(part: Delivery, content: Content) -> Delivery:
    return replace(part, content=content)


def _reply(subject: str) -> Content:
    return Content(text="Indeed.", operation=PostOperation(PostOperationKind.REPLY, subject))
