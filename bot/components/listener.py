"""Listeners: who is told of events."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bot.agent import Agent
from bot.domain.events import Event

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Listener(Generic[E]):
    """A listener: the class of events it hears, and the function that is told."""

    kind: type[E]
    handler: Callable[[Agent, E], Awaitable[None]]

    async def __call__(self, agent: Agent, event: E, /) -> None:
        await self.handler(agent, event)


def on(kind: type[E]) -> Callable[[Callable[[Agent, E], Awaitable[None]]], Listener[E]]:
    """Make a listener of an async function that takes the agent and an event of this class."""

    def decorate(handler: Callable[[Agent, E], Awaitable[None]]) -> Listener[E]:
        return Listener(kind, handler)

    return decorate
