"""Providers: what a character knows when it answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.components.action import check_name
from bot.domain.component_specs import ProviderSpec
from bot.domain.results import ProviderResult
from bot.turn import Turn

Provide = Callable[[Turn], Awaitable[ProviderResult] | ProviderResult]


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: what it is, and the function that looks it up."""

    spec: ProviderSpec
    handler: Provide

    async def __call__(self, turn: Turn, /) -> ProviderResult:
        given = self.handler(turn)
        return await given if isinstance(given, Awaitable) else given


def provider(
    name: str, description: str, *, position: int = 0, dynamic: bool = False, private: bool = False
) -> Callable[[Provide], Provider]:
    """Make a provider of a function that takes the turn: an async one, or a plain one that need not wait.

    `position` orders the texts in the prompt: give what rarely changes a low one, so that a model
    provider's prompt cache hits. Dynamic and private ones are composed only when asked for.
    Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: Provide) -> Provider:
        check_name(name, "provider")
        return Provider(ProviderSpec(name, description, dynamic, private, position), handler)

    return decorate
