"""Settings about time zones, and about hours of the day in which nothing is sent."""

import re
from datetime import UTC, datetime, time, tzinfo
from functools import lru_cache
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

PATTERN = re.compile(r"(\d{1,2}:\d\d)[-–](\d{1,2}:\d\d)")
MESSAGE = "it must look like 22:30-07:00"


def is_quiet(hours: str, zone: str, now: datetime) -> bool:
    """Return whether a time is within hours as `QuietHours` has them, in a time zone; never if there are none."""
    if not hours:
        return False
    start, end = _parse(hours)
    local = now.astimezone(ZoneInfo(zone)).time()
    return start <= local < end if start <= end else local >= start or local < end


def _parse(hours: str) -> tuple[time, time]:
    """Return start and end; raises ValueError."""
    match = PATTERN.fullmatch(hours.replace(" ", ""))
    if match is None:
        raise ValueError(MESSAGE)
    try:
        start, end = (time.fromisoformat(text.rjust(5, "0")) for text in match.groups())
    except ValueError:
        raise ValueError(MESSAGE) from None
    return start, end


def _check_hours(hours: str) -> str:
    if hours:
        _parse(hours)
    return hours


def _check_zone(name: str) -> str:
    if find_time_zone(name) is None:
        raise ValueError("it is no time zone: it must look like Europe/Berlin")
    return name


@lru_cache(maxsize=256)
def find_time_zone(name: str) -> tzinfo | None:
    """Return the time zone of a name such as Europe/Berlin; None where there is none."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


QuietHours = Annotated[str, AfterValidator(_check_hours)]
TimeZoneName = Annotated[str, AfterValidator(_check_zone)]
