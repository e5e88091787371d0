"""Isolation of plugin code."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FunctionType

import pytest

from bot.concurrency import tasks
from bot.concurrency.tasks import Failure, run_isolated


async def run(code: Callable[[], Awaitable[object]], timeout: float = 60.0) -> object:
    return await run_isolated(code(), label="a test", timeout=timeout)


async def never() -> None:
    await asyncio.Event().wait()


async def test_the_result_of_plugin_code_is_returned() -> None:
    async def code() -> str:
        return "fine"

    assert await run(code) == "fine"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("no"), "ValueError: no"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (GeneratorExit(), "GeneratorExit: "),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (asyncio.CancelledError(), "it cancelled itself"),
        (BaseExceptionGroup("two", [ValueError(), SystemExit()]), "BaseExceptionGroup: two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_any_exception_becomes_a_failure(
    error: BaseException, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def code() -> None:
        raise error

    assert await run(code) == Failure(cause)
    assert f"a test failed: {cause}" in caplog.text


async def test_code_that_does_not_return_is_stopped_after_its_timeout() -> None:
    stopped = asyncio.Event()

    async def code() -> None:
        try:
            await never()
        finally:
            stopped.set()

    assert await run(code, timeout=0) == Failure("no answer within 0 s")
    assert stopped.is_set()


@pytest.mark.failure("H-03")
async def test_code_that_swallows_its_cancellation_is_stopped_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0)
    log: list[str] = []

    async def cling() -> None:
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await never()
        finally:
            log.append("let go")

    before = asyncio.all_tasks()
    assert await run(cling, timeout=0) == Failure("no answer within 0 s")
    task = asyncio.ensure_future(run(cling))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert log == ["let go", "let go"]
    assert asyncio.all_tasks() == before


async def test_a_result_after_the_timeout_still_counts() -> None:
    async def code() -> str:
        try:
            await never()
        except asyncio.CancelledError:
            return "late"
        return "early"

    assert await run(code, timeout=0) == "late"


async def test_cancellation_from_outside_propagates() -> None:
    task = asyncio.ensure_future(run(never))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("after", [None, ValueError("late"), TimeoutError("late"), SystemExit(1)])
async def test_cancellation_from_outside_propagates_through_code_that_swallows_it(after: BaseException | None) -> None:
    async def code() -> str:
        try:
            await never()
        except asyncio.CancelledError:
            if after is not None:
                raise after from None
        return "as if nothing had happened"

    task = asyncio.ensure_future(run(code))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_code_that_cancels_itself_is_a_failure_and_no_shutdown() -> None:
    async def stopping() -> None:
        child = asyncio.ensure_future(never())
        child.cancel()
        await child  # what many a service does when it stops

    results: list[object] = []

    async def work() -> None:
        try:
            await never()
        finally:
            results.append(await run(stopping))
            results.append(await run(never, timeout=0))

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert results == [Failure("it cancelled itself"), Failure("no answer within 0 s")]


async def test_only_a_trusted_plugin_runs_in_the_task_of_its_caller() -> None:
    async def where() -> asyncio.Task[object] | None:
        return asyncio.current_task()

    named_alike = FunctionType(where.__code__, {**globals(), "__name__": "plugins.ours"})
    current = asyncio.current_task()
    assert await run_isolated(where(), label="ours", timeout=5.0, trusted=True) is current
    assert await run_isolated(where(), label="theirs", timeout=5.0) is not current
    assert await run_isolated(named_alike(), label="named like ours", timeout=5.0) is not current
