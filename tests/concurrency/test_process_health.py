"""What is measured of the process."""

from datetime import datetime, timedelta
from pathlib import Path

from bot.concurrency.clock import TimeSource
from bot.concurrency.process_health import LAG_TICKS, DiskSpace, ProcessMonitor, read_disk_space
from bot.testing import ManualClock


class JumpingClock(ManualClock):
    """A clock whose wall time can be set without the monotonic one."""

    offset = timedelta()

    def wall(self) -> datetime:
        return self.now() + self.offset

    @property
    def time_source(self) -> TimeSource:
        return TimeSource(self.wall, self.monotonic, self.sleep)


async def tick(clock: ManualClock, seconds: float = 1.0, count: int = 1) -> None:
    for _ in range(count):
        await clock.wait_for_sleepers()
        clock.advance(seconds)
    await clock.wait_for_sleepers()


async def test_a_jump_of_the_clock_is_known_for_ten_minutes(tmp_path: Path) -> None:
    clock = JumpingClock()
    async with ProcessMonitor(tmp_path, clock.time_source) as monitor:
        await tick(clock, count=3)
        assert monitor.read().clock_jump is None
        clock.offset = timedelta(hours=-2)
        await tick(clock)
        assert monitor.read().clock_jump == timedelta(hours=-2)
        await tick(clock, count=600)
        assert monitor.read().clock_jump is None


async def test_only_a_loop_that_is_late_again_and_again_counts_as_late(tmp_path: Path) -> None:
    clock = ManualClock()
    async with ProcessMonitor(tmp_path, clock.time_source) as monitor:
        await tick(clock, count=LAG_TICKS)
        await tick(clock, seconds=5.0)
        assert (monitor.read().lag_seconds, monitor.read().longest_lag_seconds) == (0.0, 4.0)
        await tick(clock, seconds=3.0, count=LAG_TICKS)
        assert monitor.read().lag_seconds == 2.0


async def test_the_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    space = read_disk_space(tmp_path / "data" / "later")
    assert space is not None
    assert 0 < space.free_bytes < space.disk_bytes
    clock = ManualClock()
    async with ProcessMonitor(tmp_path, clock.time_source, lambda folder: DiskSpace(1, 9)) as monitor:
        assert monitor.read().free_bytes is None
        await tick(clock)
        await clock.wait_for_sleepers()
        assert (monitor.read().free_bytes, monitor.read().disk_bytes) == (1, 9)
