"""What time it is, as a value that a test can supply."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Tell the present moment, aware, in UTC."""
    return datetime.now(UTC)
