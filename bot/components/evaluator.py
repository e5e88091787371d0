"""Evaluators: what is learnt from a turn once it is over."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.components.action import When, check_name
from bot.domain.component_specs import EvaluatorSpec
from bot.turn import Turn

Evaluate = Callable[[Turn], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator: what it is, when it looks, and the function that does."""

    spec: EvaluatorSpec
    handler: Evaluate
    when: When | None = None

    async def __call__(self, turn: Turn, /) -> None:
        await self.handler(turn)


def evaluator(
    name: str,
    description: str,
    *,
    similes: Sequence[str] = (),
    when: When | None = None,
    always_run: bool = False,
) -> Callable[[Evaluate], Evaluator]:
    """Make an evaluator of an async function that takes the finished turn.

    `when`, a plain function or an async one, tells whether there is something to look at. It runs after
    the reply, never on its path; with `always_run` also for messages left unanswered.
    Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: Evaluate) -> Evaluator:
        check_name(name, "evaluator")
        return Evaluator(EvaluatorSpec(name, description, tuple(similes), always_run), handler, when)

    return decorate
