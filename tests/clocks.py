"""The clock of tests whose code takes a `Clock`; `bot.testing.ManualClock` is one for a `TimeSource`."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self, now: datetime = datetime(2026, 5, 4, 12, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **amount: float) -> datetime:
        """Move the clock forward by an amount of time, named as for `timedelta`; return the new time."""
        self.now += timedelta(**amount)
        return self.now
