"""Listeners: who is told of events."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bot.agent import Agent
from bot.domain.events import Event

E = TypeVar("E", bound=Event)
Told = Callable[[Agent, E], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Listener(Generic[E]):
    """A listener: the class of events it hears, and the function that is told.

    One `at_once` is a plain function, which is told before whatever happened goes on; others in the
    background.
    """

    kind: type[E]
    handler: Told[E]
    at_once: bool = False

    def __call__(self, agent: Agent, event: E, /) -> Any:
        return self.handler(agent, event)


def on(kind: type[E]) -> Callable[[Told[E]], Listener[E]]:
    """Make a listener of a function that takes the agent and an event of this class.

    An async function is told in the background. A plain one is told at once and must not take long: it
    is for what only counts or notes something.
    """

    def decorate(handler: Told[E]) -> Listener[E]:
        return Listener(kind, handler, at_once=not inspect.iscoroutinefunction(handler))

    return decorate
