"""Supervision: restarts with growing delays that a long run resets."""

import asyncio
from types import TracebackType
from typing import Self

import pytest

from bot.concurrency import supervisor
from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.supervisor import Supervisor


class Connection:
    """A context manager that fails with `error` or stays connected until `cancel_task`."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        if self.error is not None:
            raise self.error
        self.task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def cancel_task(self) -> None:
        assert self.task is not None
        self.task.cancel()


@pytest.mark.failure("H-11")
@pytest.mark.parametrize(("seconds", "pause"), [(3600.0, "0.001"), (0.0, "0.008")])
async def test_a_long_run_resets_the_restart_delay_and_a_short_run_does_not(
    monkeypatch: pytest.MonkeyPatch, seconds: float, pause: str
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY_SECONDS", 0.001)
    lines = [Connection(OSError("no network")) for _ in range(3)] + [Connection(None), Connection(None)]
    up: asyncio.Queue[Connection] = asyncio.Queue()
    causes: list[str] = []
    now = 0.0
    kept = Supervisor(
        lambda: lines.pop(0),
        label="line",
        on_up=up.put,
        on_down=causes.append,
        shutdown_deadline=ShutdownDeadline(),
        clock=lambda: now,
    )
    await kept.start(None)
    first = await up.get()
    await asyncio.sleep(0)  # it is looked at how long it holds
    now += seconds
    first.cancel_task()
    await up.get()
    await kept.stop(1.0)
    assert causes[-1] == f"it cancelled itself; retry in {pause} s"
