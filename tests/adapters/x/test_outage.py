"""X fails several times in a row: the post is made once."""

import pytest

from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.outbound import sender
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_journeys import LONG
from tests.adapters.x.test_sending import POST, QUIET, TIMELINE

FAILURES = 4


@pytest.fixture(autouse=True)
def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next attempt at once."""
    monkeypatch.setattr(sender, "FIRST_DELAY_SECONDS", 0.0)


@pytest.mark.parametrize("kind", [FaultKind.REFUSED, FaultKind.FAILED, FaultKind.CUT, FaultKind.LOST])
async def test_a_reply_that_failed_four_times_is_posted_once(kind: FaultKind, run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(*[Fault(POST, kind) for _ in range(FAILURES)])
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        [part] = await harness.agent.store.ledger.deliveries()
        assert part.state is DeliveryState.SENT
        assert emulator.bot_texts == ["Noted."]


@pytest.mark.parametrize("kind", [FaultKind.REFUSED, FaultKind.FAILED, FaultKind.CUT, FaultKind.LOST])
async def test_attempts_that_created_no_post_are_not_counted(kind: FaultKind, run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_POST_DAILY_CAP="2") as harness:
        emulator.add_faults(*[Fault(POST, kind) for _ in range(FAILURES)])
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        assert emulator.bot_texts == ["Noted."]
        assert harness.account.quota.usage.posts == 1


@pytest.mark.parametrize("kind", [FaultKind.CUT, FaultKind.LOST])
async def test_the_timeline_is_read_until_it_can_be(kind: FaultKind, run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(Fault(POST, kind), *[Fault(TIMELINE) for _ in range(8)])
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        [part] = await harness.agent.store.ledger.deliveries()
        assert part.state is DeliveryState.SENT
        assert emulator.bot_texts == ["Noted."]
        assert not emulator.faults


async def test_the_parts_of_a_thread_wait_for_an_unclear_part(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(model_answer(LONG)) as harness:
        faults = [Fault(POST, FaultKind.PASSED), Fault(POST, FaultKind.LOST), *[Fault(TIMELINE) for _ in range(8)]]
        emulator.add_faults(*faults)
        asked = emulator.say("bob", "@greenroom_bot tell me everything")
        await harness.poll()
        first, second, third = emulator.state.posts_by(emulator.user_id)
        assert [first.reply_to_id, second.reply_to_id, third.reply_to_id] == [asked, first.id, second.id]
        assert " ".join(emulator.bot_texts) == LONG


async def test_a_post_without_being_asked_is_made_once(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(*[Fault(POST, FaultKind.FAILED) for _ in range(FAILURES)])
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        await harness.agent.say(feed.room, "Fog again.")
        await harness.agent.outbox.drain(60.0)
        assert emulator.bot_texts == ["Fog again."]
        assert await harness.unsent() == []


async def test_many_unclear_replies_share_a_look_at_the_timeline(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(*[Fault(POST, FaultKind.LOST) for _ in range(12)])
        for number in range(12):
            emulator.say(f"person_{number}", "@greenroom_bot hello")
        await harness.poll()
        assert {part.state for part in await harness.agent.store.ledger.deliveries()} == {DeliveryState.SENT}
        assert len({post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)}) == 12
        assert len(emulator.bot_texts) == 12
        looks = [call for call in emulator.calls if call.endpoint == TIMELINE and "pagination" not in call.path]
        assert len(looks) < 12
