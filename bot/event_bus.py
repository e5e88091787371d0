"""`EventBus`: listeners subscribe by event class; each runs on its own."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.tasks import TaskSet, log_failure, run_isolated
from bot.domain.events import Event

E = TypeVar("E", bound=Event)
Listen = Callable[[E], Awaitable[None] | None]
logger = logging.getLogger(__name__)
MAX_NAMED = 10  # listeners in one line of the log
FLUSH_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    listen: Listen[Any]
    name: str
    at_once: bool

    async def notify(self, event: Event, deadline: float) -> None:
        await run_isolated(self._call_listener(event), label=self.label(event), timeout=deadline)

    def notify_now(self, event: Event) -> None:
        try:
            self.listen(event)
        except BaseException as error:  # as in the boundary, at less cost: nearly every message has five
            log_failure(error, label=self.label(event))

    async def _call_listener(self, event: Event) -> None:
        awaitable = self.listen(event)
        if awaitable is not None:
            await awaitable

    def label(self, event: Event) -> str:
        """Return the listener's name with its event, for the log."""
        return f"listener {self.name} of {type(event).__name__}"


class EventBus:
    """Calls listeners of events without waiting for them; their failures are logged and stay with them.

    A listener of a class also receives its subclasses. Listeners start in the order of the events; each has
    `deadline` seconds. Leaving the context flushes: running listeners have two seconds, and no more than
    `shutdown_deadline` leaves.
    """

    def __init__(self, *, deadline: float = 60.0, shutdown_deadline: ShutdownDeadline | None = None) -> None:
        self._subscriptions: defaultdict[type[Event], list[_Subscription]] = defaultdict(list)
        self._by_event: dict[type[Event], tuple[_Subscription, ...]] = {}  # with those of base classes
        self._deadline = deadline
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._tasks = TaskSet("event listener", logs_failures=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.flush()

    async def flush(self) -> None:
        """Wait for running listeners up to two seconds, then cancel them; one that does not stop is left."""
        try:
            async with asyncio.timeout(self._shutdown_deadline.remaining(FLUSH_TIMEOUT)):
                await self.wait_idle()
        except TimeoutError:
            names = self._tasks.names
            listed = ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if names[MAX_NAMED:] else "")
            logger.warning("listeners that did not finish in time are cancelled: %s", listed)
            await self._tasks.cancel(self._shutdown_deadline.remaining(FLUSH_TIMEOUT))

    def subscribe(
        self, kind: type[E], listen: Listen[E], *, name: str = "", at_once: bool = False
    ) -> Callable[[], None]:
        """Await `listen` for every event of `kind`; the returned function ends the subscription.

        `name` is for the log. With `at_once` it is a plain function, called before `emit` returns.
        """
        name = name or getattr(listen, "__qualname__", type(listen).__name__)
        subscription = _Subscription(listen, name, at_once)
        subscriptions = self._subscriptions[kind]
        subscriptions.append(subscription)
        self._by_event.clear()

        def unsubscribe() -> None:
            if subscription in subscriptions:
                subscriptions.remove(subscription)
                self._by_event.clear()

        return unsubscribe

    def has_listeners(self, kind: type[Event]) -> bool:
        """Return whether an event of this class would be received, for events that take work to build."""
        subscriptions = self._by_event.get(kind)
        return bool(self._find(kind) if subscriptions is None else subscriptions)

    def _find(self, kind: type[Event]) -> tuple[_Subscription, ...]:
        found = (self._subscriptions.get(base, ()) for base in kind.__mro__)
        subscriptions = self._by_event[kind] = tuple(chain.from_iterable(found))
        return subscriptions

    def emit(self, event: Event) -> None:
        """Start all listeners of this event's class; returns at once."""
        kind = type(event)
        if (subscriptions := self._by_event.get(kind)) is None:
            subscriptions = self._find(kind)
        for subscription in subscriptions:
            if subscription.at_once:
                subscription.notify_now(event)
                continue
            self._tasks.start(subscription.notify(event, self._deadline), name=subscription.label(event))

    async def wait_idle(self) -> None:
        """Wait until all listeners of the events emitted so far, and of those they emit, have ended."""
        while self._tasks:
            await self._tasks.wait()
