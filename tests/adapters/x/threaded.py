"""The emulated X in its own thread, for tests of other loops and processes."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adapters.x.emulator import Emulator

DEADLINE = 60.0


class Threaded(Emulator):
    """An emulator in the loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, looking after each call."""
        asyncio.run_coroutine_threadsafe(self.wait_until(is_so), self._loop).result(DEADLINE)


@contextmanager
def emulated() -> Iterator[Threaded]:
    """Run the emulator."""
    loop, is_there, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    emulator = Threaded(loop)

    async def run_x() -> None:
        async with emulator:
            is_there.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run_x(),))
    thread.start()
    assert is_there.wait(DEADLINE)
    try:
        yield emulator
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(DEADLINE)
        loop.close()
