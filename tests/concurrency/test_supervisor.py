"""What is kept up: tried again later and later, and soon again once it has held."""

import asyncio
from types import TracebackType
from typing import Self

import pytest

from bot.concurrency import supervisor
from bot.concurrency.clock import Patience
from bot.concurrency.supervisor import Upkeep


class Line:
    """Connects where the test lets it, and ends when it is hung up."""

    def __init__(self, fault: Exception | None) -> None:
        self.fault = fault
        self.task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        if self.fault is not None:
            raise self.fault
        self.task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""

    def hang_up(self) -> None:
        assert self.task is not None
        self.task.cancel()


@pytest.mark.parametrize(("seconds", "pause"), [(3600.0, "0.001"), (0.0, "0.008")])
async def test_h11_what_held_for_long_is_tried_again_soon_and_what_did_not_is_not(
    monkeypatch: pytest.MonkeyPatch, seconds: float, pause: str
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.001)
    lines = [Line(OSError("no network")) for _ in range(3)] + [Line(None), Line(None)]
    up: asyncio.Queue[Line] = asyncio.Queue()
    causes: list[str] = []
    now = 0.0
    kept = Upkeep(
        lambda: lines.pop(0),
        what="line",
        goes_up=up.put,
        goes_down=causes.append,
        patience=Patience(),
        clock=lambda: now,
    )
    await kept.begin(None)
    first = await up.get()
    await asyncio.sleep(0)  # it is looked at how long it holds
    now += seconds
    first.hang_up()
    await up.get()
    await kept.end(1.0)
    assert causes[-1] == f"it cancelled itself; it is tried again in {pause} s"
