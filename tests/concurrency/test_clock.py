import asyncio

import pytest

from bot.concurrency.clock import Backoff, ShutdownDeadline, every


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.5, 6.0, jitter=0.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 4, 5, 500)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_jitter_shortens_a_delay_by_at_most_its_share(chance: float, seconds: float) -> None:
    assert Backoff(1.0, 8.0, jitter=0.5, chance=lambda: chance).delay(9) == seconds


def test_a_delay_is_never_shorter_than_the_server_asks_for() -> None:
    assert Backoff(1.0, 8.0).delay(1, retry_after=30.0) == 30.0


def test_the_remaining_time_of_a_shutdown_is_bounded_on_both_sides() -> None:
    deadline = ShutdownDeadline()
    assert deadline.remaining(8.0) == 8.0
    deadline.start(-1.0)
    assert deadline.remaining(8.0) == 0.05


@pytest.mark.parametrize("is_set_before", [True, False])
async def test_repeated_work_is_done_once_more_after_the_end_was_asked_for(*, is_set_before: bool) -> None:
    end, times = asyncio.Event(), 0
    if is_set_before:
        end.set()
    async for _ in every(0.0, until=end):
        times += 1
        end.set()  # while the work is done: what came in meanwhile needs another time
    assert times == (1 if is_set_before else 2)
