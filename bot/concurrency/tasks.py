"""Background tasks and who owns them: `TaskSet`, `Batcher`; how many run at once, and how much memory they take:
`TaskSlots`, `FairSlots`, `MemorySemaphore`.

Run plugin code: time limits, exceptions turned into `Failure`, forced stop.

`BoundedSet` and `BoundedDict`: collections that drop the entry used longest ago.

Named points at which a test kills the process, to check that nothing is lost or done twice.

With `BOT_KILL_AT=turn.claimed:3` the process ends by SIGKILL, as in a power cut, when it reaches that point
for the third time. Without the variable nothing happens. The tests in `tests/chaos` use every name.
"""

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from cachetools import FIFOCache, LRUCache

from bot.errors import MemoryLimitReached, SettingError

logger = logging.getLogger(__name__)

T = TypeVar("T")
FLUSH_DELAY_SECONDS = 0.25
DEFAULT_MEMORY_LIMIT = 128 * 2**20  # bytes


class Batcher(Generic[T]):
    """Collects items for a quarter of a second, then passes them to `handle`; the end of the context flushes.

    If `handle` fails, the items are lost, and the log names them by `label`.
    """

    def __init__(self, handle: Callable[[Sequence[T]], Awaitable[object]], *, label: str) -> None:
        self._handle = handle
        self._label = label
        self._items: list[T] = []
        self._handling = asyncio.Lock()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task

    def add(self, item: T) -> None:
        """Add an item to the next batch."""
        self._items.append(item)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_later())

    async def flush(self) -> None:
        """Pass on at once what was collected; wait for what is being passed on.

        It is passed on even if the caller is cancelled.
        """
        await asyncio.shield(asyncio.get_running_loop().create_task(self._pass_on()))

    async def _pass_on(self) -> None:
        async with self._handling:
            items, self._items = self._items, []
            if not items:
                return
            try:
                await self._handle(items)
            except Exception as error:  # items are lost rather than retried; later batches still run
                logger.info("%d %s are lost: %s", len(items), self._label, error)

    async def _flush_later(self) -> None:
        while self._items:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_DELAY_SECONDS):
                    await self._closing.wait()
            await self._pass_on()
        self._task = None


class TaskSet:
    """Background tasks of one owner, who waits for them or cancels them before it ends.

    A task that fails is logged once with `label`, unless `logs_failures` is off because the caller awaits it.
    """

    def __init__(self, label: str, *, logs_failures: bool = True) -> None:
        self._label = label
        self._logs_failures = logs_failures
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> list[str]:
        """The names of the tasks that run, as `start` got them."""
        return sorted(task.get_name() for task in self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a coroutine as a task and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait(self, timeout: float | None = None) -> int:
        """Wait at most `timeout` seconds for the tasks to end; return how many are still running."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        return len(self._tasks)

    async def cancel(self, timeout: float | None = None) -> int:
        """Cancel all tasks and wait at most `timeout` seconds; return how many are still running."""
        for task in self._tasks:
            task.cancel()
        return await self.wait(timeout)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._logs_failures:
            logger.error("%s failed: %s", self._label, error, exc_info=error)


class TaskSlots:
    """At most `count` tasks run at once, besides at most `count` that have left their slot to wait for others.

    A task that waits for another one must not keep its slot: the other may itself wait for one.
    """

    def __init__(self, count: int) -> None:
        self._first = asyncio.Semaphore(count)
        self._after_waiting = asyncio.Semaphore(count)
        self._held: dict[asyncio.Task[object], asyncio.Semaphore] = {}

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait for a slot, and keep it during the block unless the block leaves it."""
        task = _running_task()
        await self._take(task, self._first)
        try:
            yield
        finally:
            self._release(task)

    @asynccontextmanager
    async def leave(self) -> AsyncIterator[None]:
        """Release the slot of the running task, if it has one, and wait for another one after the block."""
        task = _running_task()
        had_slot = self._release(task)
        yield
        if had_slot:
            await self._take(task, self._after_waiting)

    async def _take(self, task: asyncio.Task[object], slots: asyncio.Semaphore) -> None:
        await slots.acquire()
        self._held[task] = slots

    def _release(self, task: asyncio.Task[object]) -> bool:
        slots = self._held.pop(task, None)
        if slots is not None:
            slots.release()
        return slots is not None


class FairSlots:
    """At most `count` blocks run at once, shared among the owners that they name, such as a person and a room.

    No owner takes a slot while it holds as many as are free: one is left for others, however many blocks an owner has
    waiting. A slot that becomes free goes to the block whose owners hold the fewest, in turn if several do. Blocks
    without an owner share as if they had one.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._held = Counter[Hashable]()
        self._waiting: dict[tuple[Hashable, ...], dict[asyncio.Future[None], None]] = {}  # by their owners, in order

    @asynccontextmanager
    async def hold(self, owners: Collection[Hashable] = ()) -> AsyncIterator[None]:
        """Wait for a slot, and keep it during the block."""
        key = tuple(owners) or (None,)
        if self._count_held(key) < self._free:
            self._take(key)
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._release(key)

    def _count_held(self, owners: tuple[Hashable, ...]) -> int:
        return max(self._held[owner] for owner in owners)

    def _take(self, owners: tuple[Hashable, ...]) -> None:
        self._free -= 1
        self._held.update(owners)

    async def _wait(self, owners: tuple[Hashable, ...]) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owners, {})[future] = None
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(owners, future)
            else:  # it was given a slot meanwhile
                self._release(owners)
            raise

    def _forget(self, owners: tuple[Hashable, ...], future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(owners, {})
        futures.pop(future, None)
        if not futures:
            self._waiting.pop(owners, None)

    def _release(self, owners: tuple[Hashable, ...]) -> None:
        self._free += 1
        self._held.subtract(owners)
        for owner in owners:
            if not self._held[owner]:
                del self._held[owner]
        while (waiting := self._find_next()) is not None:
            future = next(iter(self._waiting[waiting]))
            self._forget(waiting, future)
            if waiting in self._waiting:  # behind the others that hold as few
                self._waiting[waiting] = self._waiting.pop(waiting)
            if not future.cancelled():
                self._take(waiting)
                future.set_result(None)

    def _find_next(self) -> tuple[Hashable, ...] | None:
        """Return the owners of the block that takes the next slot; None if there is none that may."""
        fewest, following = self._free, None
        for owners in self._waiting:
            held = self._count_held(owners)
            if held < fewest:
                fewest, following = held, owners
            if not fewest:
                break
        return following


@dataclass(slots=True, eq=False)
class _MemoryBlock:
    """A block that holds `size` bytes of a semaphore, of which what runs inside it uses `used`."""

    semaphore: "MemorySemaphore"
    size: int
    used: int = 0
    is_open: bool = True


_MEMORY_BLOCK: ContextVar[_MemoryBlock | None] = ContextVar("_MEMORY_BLOCK", default=None)


class MemorySemaphore:
    """A weighted semaphore: blocks hold at most `limit` bytes together, and wait in the order in which they come.

    A block inside another one, also in a task that the other has started, uses the bytes of the outer block. If it
    needs more, it takes what is free and never waits: those that hold it may be waiting in the same way.
    """

    def __init__(self, limit: int = DEFAULT_MEMORY_LIMIT) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: dict[asyncio.Future[None], int] = {}  # in their order

    @property
    def held(self) -> int:
        """The bytes that are held."""
        return self.limit - self._free

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait for so many bytes, and hold them during the block; none are there at once.

        Raises MemoryLimitReached for more than the limit, and inside another block for more than is free.
        """
        outer = self._find_block()
        if outer is not None:
            self._use(outer, size)
            try:
                yield
            finally:
                outer.used -= size
            return
        await self._acquire(size)
        block = _MemoryBlock(self, size)
        token = _MEMORY_BLOCK.set(block)
        try:
            yield
        finally:
            _MEMORY_BLOCK.reset(token)
            block.is_open = False
            self._release(block.size)

    def grow(self, size: int) -> None:
        """Use so many bytes of the running block until it ends, and hold more if it has too few.

        Outside a block nothing is held. Raises MemoryLimitReached if they are not free.
        """
        block = self._find_block()
        if block is None:
            self._check_free(size, size)
        else:
            self._use(block, size)

    def _find_block(self) -> _MemoryBlock | None:
        block = _MEMORY_BLOCK.get()
        return block if block is not None and block.is_open and block.semaphore is self else None

    def _use(self, block: _MemoryBlock, size: int) -> None:
        missing = max(0, block.used + size - block.size)
        self._check_free(missing, block.size + missing)
        self._free -= missing
        block.size += missing
        block.used += size

    def _check_free(self, missing: int, total: int) -> None:
        self._check_limit(total)
        if missing > self._free:
            raise MemoryLimitReached(
                f"it takes more memory than is free now: {_in_mebibytes(self.held)} of MEMORY_LIMIT "
                f"({_in_mebibytes(self.limit)}) are in use; try again later, or raise the limit"
            )

    def _check_limit(self, size: int) -> None:
        if size > self.limit:
            raise MemoryLimitReached(
                f"it takes {_in_mebibytes(size)} of memory, and MEMORY_LIMIT is {_in_mebibytes(self.limit)}: raise the "
                "limit, or use something smaller"
            )

    async def _acquire(self, size: int) -> None:
        self._check_limit(size)
        if not size or (size <= self._free and not self._waiting):
            self._free -= size
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = size
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._waiting.pop(future, None)
                self._release(0)  # a smaller one may have waited behind it
            else:  # it was given its bytes meanwhile
                self._release(size)
            raise

    def _release(self, size: int) -> None:
        self._free += size
        while self._waiting:
            future, wanted = next(iter(self._waiting.items()))
            if wanted > self._free:
                return
            del self._waiting[future]
            if not future.cancelled():
                self._free -= wanted
                future.set_result(None)


def _in_mebibytes(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"


def _running_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "slots belong to tasks"
    return task


CANCEL_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that returned no result: the cause in one line, and the exception if there was one."""

    cause: str
    error: BaseException | None = field(default=None, compare=False, repr=False)


class CancellationScope:
    """Distinguishes cancellation of the current task from outside from CancelledError raised inside it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._initial_count = self._count()

    @property
    def requested(self) -> bool:
        """Whether the task was cancelled from outside since this scope was created."""
        return self._count() > self._initial_count

    def _count(self) -> int:
        return self._task.cancelling() if self._task is not None else 0


async def call_isolated(
    call: Callable[[], Awaitable[T] | T], *, label: str, timeout: float | None, trusted: bool = False
) -> T | Failure:
    """Call a plain or async plugin function; return its result, or a Failure as `run_isolated` does."""
    try:
        value = call()
    except BaseException as error:  # plugin code may raise anything, SystemExit included
        return log_failure(error, label=label)
    if isinstance(value, bool) or not isinstance(value, Awaitable):
        return value
    return await run_isolated(value, label=label, timeout=timeout, trusted=trusted)


async def run_isolated(
    awaitable: Awaitable[T], *, label: str, timeout: float | None, trusted: bool = False, logs_failure: bool = True
) -> T | Failure:
    """Await plugin code for at most `timeout` seconds (None: no limit). Return its result, or `Failure` for a
    timeout or any exception.

    Only cancellation from outside propagates, even if the plugin swallows it. Code that still runs two
    seconds after cancellation is stopped by force. `label` names the code in the log, where a failure is logged unless
    `logs_failure` is off because the caller does it.
    """
    report: Callable[..., Failure] = partial(log_failure, label=label) if logs_failure else to_failure
    cancellation = CancellationScope()
    result: T | Failure
    try:
        if timeout is None:
            result = await await_in_task(awaitable, label=label, trusted=trusted)
        else:
            async with asyncio.timeout(timeout) as limit:
                result = await await_in_task(awaitable, label=label, trusted=trusted)
    except asyncio.CancelledError as error:
        if cancellation.requested:
            raise
        result = report(error)
    except TimeoutError as error:
        is_timeout = timeout is not None and limit.expired()
        timeout_error = TimeoutError(f"no answer within {timeout:g} s") if is_timeout else None
        result = report(timeout_error or error, cause=str(timeout_error or ""))
    except BaseException as error:  # as in `call_isolated`
        result = report(error)
    if cancellation.requested:
        raise asyncio.CancelledError
    return result


async def await_in_task(awaitable: Awaitable[T], *, label: str, trusted: bool = False) -> T:
    """Await plugin code in a task of its own, and return or raise what it does; the caller can always be
    cancelled.

    Cancelling the caller cancels the task, and stops it by force after two seconds. Bundled plugins let
    cancellation through, so their code is awaited directly.
    """
    if trusted:
        return await awaitable
    task = asyncio.ensure_future(_capture_result(awaitable))
    task.set_name(label)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await force_stop(task, label=label)
        if not task.done():
            raise
        if asyncio.iscoroutine(awaitable):
            awaitable.close()  # it may not have started
    result = task.result()
    if result.error is not None:
        raise result.error
    return result.value  # type: ignore[return-value]  # there is one wherever there is no error


async def force_stop(task: asyncio.Task[Any], *, label: str, grace: float | None = None) -> None:
    """Wait `grace` seconds for a cancelled task, then stop it by force.

    Force means closing its coroutine where it waits: code that catches CancelledError does not catch that.
    """
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS if grace is None else grace)
    finally:
        if not task.done():
            logger.warning("%s did not stop when it was cancelled, and was stopped by force", label)
            task.add_done_callback(_log_late_end)
            if (coroutine := task.get_coro()) is not None:
                with suppress(Exception):  # its cleanup code may raise
                    coroutine.close()
            task.cancel()


def _log_late_end(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not report it as unhandled."""
    if not task.cancelled() and task.exception() is not None:
        logger.debug("%s ended late: %s", task.get_name(), task.exception())


def log_failure(error: BaseException, *, label: str, cause: str = "") -> Failure:
    """Log what plugin code raised, and return it as a Failure."""
    failure = to_failure(error, cause=cause)
    logger.warning("%s failed: %s", label, failure.cause, exc_info=None if cause else error)
    return failure


def to_failure(error: BaseException, *, cause: str = "") -> Failure:
    """Return the Failure of an exception, with this cause or else its own; of a group of one, that of its member."""
    if cause:
        return Failure(cause, error)
    if isinstance(error, asyncio.CancelledError):
        return Failure("it cancelled itself", error)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        [error] = error.exceptions
    return Failure(f"{type(error).__name__}: {error}", error)


@dataclass(frozen=True, slots=True)
class _TaskResult(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


async def _capture_result(awaitable: Awaitable[T]) -> _TaskResult[T]:
    """Return the result or the exception: a task that raised SystemExit would end the process."""
    try:
        return _TaskResult(await awaitable)
    except BaseException as error:  # passed to the task's owner
        return _TaskResult(error=error)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedSet(FIFOCache[K, None]):
    """A set of at most `max_size` items; adding one more drops the item added longest ago."""

    def add(self, item: K) -> None:
        """Add an item, as the newest."""
        self[item] = None

    def discard(self, item: K) -> None:
        """Remove an item if it is there."""
        self.pop(item, None)


class BoundedDict(LRUCache[K, V]):
    """A dictionary of at most `max_size`; the least recently used entry is dropped first.

    With `factory`, a missing key is created when it is read.
    """

    def __init__(self, max_size: int, factory: Callable[[], V] | None = None) -> None:
        super().__init__(max_size)
        self._factory = factory

    def __missing__(self, key: K) -> V:
        if self._factory is None:
            raise KeyError(key)
        value = self[key] = self._factory()
        return value


VARIABLE = "BOT_KILL_AT"
CRASH_POINT = "greenroom.crash_point"

crash_point = partial(sys.audit, CRASH_POINT)
"""Report that a point is reached, by its name, as an audit event (PEP 578); nothing reads it without BOT_KILL_AT."""


def kill_at(point: str) -> Callable[[str, tuple[object, ...]], None]:
    """Return an audit hook that kills the process at a point, for example `turn.claimed:3`. Raises SettingError."""
    name, _, number = point.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise SettingError(f"{VARIABLE} is {point!r}: it must look like turn.claimed:1")
    remaining = iter(range(int(number) - 1, -1, -1))

    def kill(event: str, arguments: tuple[object, ...]) -> None:
        if event == CRASH_POINT and arguments == (name,) and not next(remaining):
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows both end it at once

    return kill


if os.environ.get(VARIABLE):
    sys.addaudithook(kill_at(os.environ[VARIABLE]))
