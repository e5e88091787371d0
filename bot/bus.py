"""Who is told of what: events subscribed by class, each listener on its own."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from bot.boundary import contained
from bot.domain.events import Event

E = TypeVar("E", bound=Event)
Listen = Callable[[E], Awaitable[None]]


class EventBus:
    """Tells listeners what has happened, without waiting for them; their failures reach nobody.

    A listener of a class also hears its subclasses. Listeners are started in the order of the
    events; each has `deadline` seconds. Leaving the context waits for those under way.
    """

    def __init__(self, *, deadline: float = 60.0) -> None:
        self._listeners: defaultdict[type[Event], list[Listen[Event]]] = defaultdict(list)
        self._deadline = deadline
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.settle()

    def subscribe(self, kind: type[E], listen: Listen[E]) -> Callable[[], None]:
        """Have `listen` awaited for every event of `kind`; the returned call ends that."""
        listeners: list[Listen[E]] = self._listeners[kind]  # type: ignore[assignment]  # keyed by what it takes
        listeners.append(listen)

        def unsubscribe() -> None:
            if listen in listeners:
                listeners.remove(listen)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell all listeners of this event's class; returns at once."""
        for kind in type(event).__mro__:
            for listen in self._listeners.get(kind, ()):
                told = contained(
                    listen(event), what=f"listener {listen} of {kind.__name__}", deadline=self._deadline
                )
                task = asyncio.get_running_loop().create_task(told)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until every listener has been told what was emitted so far."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
