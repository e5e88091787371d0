"""A month on the free plan stays within its limits."""

from collections import Counter
from itertools import count

import pytest

from adapters.x.emulator import Emulator
from bot.background.posting import PostScheduler
from bot.background.scheduler import Scheduler
from bot.models import Purpose, TextRequest
from bot.store import InMemoryStore
from bot.testing import ManualClock, model_answer
from tests.adapters.x.conftest import RunX, XHarness

pytestmark = pytest.mark.long

LIMITS = {"POST /2/tweets": (17, 86_400.0), "GET /2/users/:id/mentions": (1, 900.0)}
STEP, A_DAY, DAYS = 3600, 86_400, 30


async def _do_what_is_due(harness: XHarness) -> None:
    poster = PostScheduler(harness.agent, harness.agent_runtime.registry)
    await Scheduler(harness.agent, harness.agent_runtime.registry, [poster.worker]).run_due()
    await harness.wait_idle()


@pytest.mark.failure("O-09")
async def test_a_month_of_posts_and_answers_stays_inside_the_free_plan(
    clock: ManualClock, run_x: RunX, emulator: Emulator
) -> None:
    emulator.limits.update(LIMITS)
    emulator.monthly_reads = 100
    numbers = count(1)

    def script(request: TextRequest) -> str:
        number = next(numbers)
        text = " ".join(f"{word}{number}" for word in ("tide", "fog", "rope", "gull", "salt"))
        return f"<post>{text}</post>" if request.purpose is Purpose.POST else model_answer(f"Answer {number}.")

    settings = {
        "X_MONTHLY_READS": "",
        "X_POST_ENABLE": "true",
        "X_POST_INTERVAL_MIN": "150",
        "X_POST_INTERVAL_MAX": "210",
        "X_QUIET_HOURS": "22:00-07:00",
        "X_POLL_INTERVAL": str(A_DAY // 4),
    }
    asked = []
    async with run_x(script, is_at_rest=True, **settings) as harness:
        for step in range(DAYS * A_DAY // STEP):
            if step % (A_DAY // STEP) == 0:
                asked.append(emulator.say(f"user{step}", "@greenroom_bot how is it?"))
            clock.advance(STEP)
            await _do_what_is_due(harness)

    made = emulator.state.posts_by(emulator.user_id)
    posts = [post for post in made if not post.reply_to_id]
    days = Counter(post.created_at.date() for post in made)
    assert {post.reply_to_id for post in made if post.reply_to_id} == set(asked)
    assert len(posts) > 3 * DAYS
    assert max(days.values()) <= 15
    assert len(made) <= 500
    assert all(7 <= post.created_at.hour < 22 for post in posts)
    assert max(emulator.reads.values()) <= 100
    assert all(call.status < 400 for call in emulator.calls)
    assert len({post.text for post in posts}) == len(posts)


async def test_an_overdue_post_is_posted_once_after_a_restart(
    clock: ManualClock, run_x: RunX, emulator: Emulator
) -> None:
    store = InMemoryStore(clock.now)
    settings = {"X_POST_ENABLE": "true", "X_REPLY_ENABLE": "false"}
    async with run_x(store=store, is_at_rest=True, **settings):
        pass
    clock.advance(A_DAY)
    async with run_x("<post>Late, but here.</post>", store=store, is_at_rest=True, **settings) as harness:
        for _ in range(3):
            poster = PostScheduler(harness.agent, harness.agent_runtime.registry)
            await Scheduler(harness.agent, harness.agent_runtime.registry, [poster.worker]).run_due()
            await harness.agent.outbox.drain(60.0)
        assert emulator.bot_texts == ["Late, but here."]
