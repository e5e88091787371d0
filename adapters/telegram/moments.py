"""Time as the adapter sees it, so that a test can be its clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot import Clock, system_clock


@dataclass(frozen=True, slots=True)
class Moments:
    """The wall's clock, one that only goes forward, and a way to let time pass."""

    wall: Clock = system_clock
    steady: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
