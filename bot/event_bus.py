"""Who is told of what: events subscribed by class, each listener on its own."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from bot.concurrency.clock import Patience
from bot.concurrency.isolation import contained, failed
from bot.domain.events import Event

E = TypeVar("E", bound=Event)
Listen = Callable[[E], Awaitable[None] | None]
logger = logging.getLogger(__name__)
LAST_WORDS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    listen: Listen[Any]
    name: str
    at_once: bool

    async def tell(self, event: Event, deadline: float) -> None:
        await contained(self._hear(event), what=self._what(event), deadline=deadline)

    def tell_at_once(self, event: Event) -> None:
        try:
            self.listen(event)
        except BaseException as error:  # as in the boundary, at less cost: nearly every message has five
            failed(error, what=self._what(event))

    async def _hear(self, event: Event) -> None:
        told = self.listen(event)
        if told is not None:
            await told

    def _what(self, event: Event) -> str:
        return f"listener {self.name} of {type(event).__name__}"


class EventBus:
    """Tells listeners what has happened, without waiting for them; their failures reach nobody.

    A listener of a class also hears its subclasses. Listeners are started in the order of the
    events; each has `deadline` seconds. Leaving the context gives those under way two seconds, and no more
    than `patience` leaves.
    """

    def __init__(self, *, deadline: float = 60.0, patience: Patience | None = None) -> None:
        self._subscriptions: defaultdict[type[Event], list[_Subscription]] = defaultdict(list)
        self._deadline = deadline
        self._patience = patience or Patience()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for who is being told, then stop the rest; what does not stop is left alone."""
        try:
            async with asyncio.timeout(self._patience.left(LAST_WORDS)):
                await self.settle()
        except TimeoutError:
            late = set(self._tasks)
            logger.warning("%d listeners were still at work and were stopped", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=self._patience.left(LAST_WORDS))

    def subscribe(
        self, kind: type[E], listen: Listen[E], *, name: str = "", at_once: bool = False
    ) -> Callable[[], None]:
        """Have `listen` awaited for every event of `kind`; the returned call ends that.

        `name` is for the log. With `at_once` it is a plain function, called before `emit` returns.
        """
        name = name or getattr(listen, "__qualname__", type(listen).__name__)
        own = _Subscription(listen, name, at_once)
        subscriptions = self._subscriptions[kind]
        subscriptions.append(own)

        def unsubscribe() -> None:
            if own in subscriptions:
                subscriptions.remove(own)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell all listeners of this event's class; returns at once."""
        for kind in type(event).__mro__:
            for one in self._subscriptions.get(kind, ()):
                if one.at_once:
                    one.tell_at_once(event)
                    continue
                task = asyncio.get_running_loop().create_task(one.tell(event, self._deadline))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until every listener has been told what was emitted so far, and what they emitted then."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
