"""One call at a time for each key, whose result also counts for those who asked while it waited."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Queue(Generic[T]):
    """Those who wait for the call in flight. A future without result makes its owner the next to call."""

    waiting: list[asyncio.Future[T | None]] = field(default_factory=list)


class SharedCalls(Generic[T]):
    """Runs one call at a time for each key.

    Those who ask while a call is in flight wait. When it ends, the newest of them calls, and the result is that of
    all who waited: it was found later than they asked. If a call fails, only its caller gets the error.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue[T]] = {}

    async def run(
        self, key: Hashable, call: Callable[[int], Awaitable[T]], *, counts_for_later: Callable[[T], bool]
    ) -> T:
        """Return the result of `call`, or of another caller's; `call` receives how many others it covers.

        A result for which `counts_for_later` is also that of those who asked while it was being found.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        elif (result := await self._wait(key, queue)) is not None:
            return result
        covered, queue.waiting = queue.waiting, []
        result = None
        try:
            result = await call(len(covered))
            return result
        finally:
            if result is None:
                queue.waiting[:0] = covered  # it failed: another one of them asks
            else:
                if counts_for_later(result):
                    covered, queue.waiting = covered + queue.waiting, []
                for future in covered:
                    if not future.done():
                        future.set_result(result)
            self._call_next(key, queue)

    async def _wait(self, key: Hashable, queue: _Queue[T]) -> T | None:
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result() is None:
                self._call_next(key, queue)
            raise

    def _call_next(self, key: Hashable, queue: _Queue[T]) -> None:
        """Make the newest who waits to call; without any, forget the key."""
        while queue.waiting:
            future = queue.waiting.pop()
            if not future.done():
                future.set_result(None)
                return
        del self._queues[key]
