"""Workers: what does the tasks of later."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.agent import Agent
from bot.components.action import check_name
from bot.domain.task import Task

Work = Callable[[Agent, Task], Awaitable[None]]
Validate = Callable[[Agent, Task], Awaitable[bool]]


async def _always(agent: Agent, task: Task) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: the name its tasks carry, how long it may take, and the function that works.

    `validate` says before each run whether a task is to run now.
    """

    name: str
    handler: Work
    deadline: float = 300.0
    validate: Validate = _always

    async def __call__(self, agent: Agent, task: Task, /) -> None:
        await self.handler(agent, task)


def worker(name: str, *, deadline: float = 300.0, validate: Validate = _always) -> Callable[[Work], Worker]:
    """Make a worker of an async function that takes the agent and the task.

    A task may run again after a crash: `task.attempts` counts, and `task.key` is the same at every attempt
    of one run. `deadline` is in seconds. Where `validate` says no, a repeating task waits for its next
    time, and another is asked about again a minute later. Raises PluginError for a name that is not
    UPPER_SNAKE.
    """

    def decorate(handler: Work) -> Worker:
        check_name(name, "worker")
        return Worker(name, handler, deadline, validate)

    return decorate
