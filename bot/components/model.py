"""Model handlers: who serves a type of model."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bot.agent import Agent
from bot.models.types import ModelResult, ModelType

Serve = Callable[[Agent, Any], Awaitable[ModelResult]]


@dataclass(frozen=True, slots=True)
class Model:
    """A model handler: the type it serves, its priority, and the function that asks the model."""

    type: ModelType
    handler: Serve
    priority: int = 0

    async def __call__(self, agent: Agent, request: Any, /) -> ModelResult:
        return await self.handler(agent, request)


def model(kind: ModelType, *, priority: int = 0) -> Callable[[Serve], Model]:
    """Make a model handler of an async function that takes the agent and the type's request.

    It raises ModelRefused for what no repetition mends and ModelError for the rest; the next
    handler, by priority, is then asked.
    """

    def decorate(handler: Serve) -> Model:
        return Model(kind, handler, priority)

    return decorate
