"""Model handlers: who serves a type of model."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bot.agent import Agent
from bot.models.types import ModelResult, ModelType
from bot.settings import Settings

Serve = Callable[[Agent, Any], Awaitable[ModelResult]]


Condition = Callable[[Settings], bool]


def _always(settings: Settings) -> bool:
    return True


def _never(settings: Settings) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Model:
    """A model handler: the type it serves, its priority, and the function that asks the model.

    It is left out for an agent whose settings `when` does not hold for; whether it can call tools is
    also theirs to say.
    """

    type: ModelType
    handler: Serve
    priority: int = 0
    can_call_tools: Condition = _never
    when: Condition = _always

    async def __call__(self, agent: Agent, request: Any, /) -> ModelResult:
        return await self.handler(agent, request)


def model(
    kind: ModelType,
    *,
    priority: int = 0,
    can_call_tools: bool | Condition = False,
    when: Condition = _always,
) -> Callable[[Serve], Model]:
    """Make a model handler of an async function that takes the agent and the type's request.

    It raises ModelBusy where it should be asked again, ModelRefused for what no repetition mends and
    ModelError for the rest; the next handler, by priority, is then asked. One that `can_call_tools` is
    given those of a request and gives calls back.
    """
    calls = can_call_tools if callable(can_call_tools) else (_always if can_call_tools else _never)

    def decorate(handler: Serve) -> Model:
        return Model(kind, handler, priority, calls, when)

    return decorate
