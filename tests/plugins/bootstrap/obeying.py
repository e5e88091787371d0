"""A model that does what a test says, and what tests of actions look at afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bot import Role, Task, TaskTag, World, derived_id
from bot.background.scheduler import Scheduler
from bot.models import Purpose, TextRequest
from bot.store import LogKind
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer

IGNORING = "<response><reasoning>not for Ada</reasoning><action>IGNORE</action></response>"


class Obedient:
    """Calls the actions that the test names, and chooses silence where it is asked whether to speak."""

    def __init__(self, *actions: str, **parameters: Any) -> None:
        self.model = ScriptedModel(self._write)
        self.does(*actions, **parameters)

    def does(self, *actions: str, **parameters: Any) -> None:
        """Say what it does from now on; the parameters are those of the one action."""
        self._actions: Sequence[str] = ("REPLY", *actions)
        self._parameters: Mapping[str, Any] = {actions[0]: parameters} if parameters else {}

    def _write(self, request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return IGNORING
        if request.purpose is Purpose.REPAIR:
            return "{}"
        return model_answer("Very well.", actions=self._actions, parameters=self._parameters)


async def world_of(stage: AgentHarness) -> World:
    """Give the world of the test platform as it is kept."""
    world_id = make_message("", sent_at=stage.agent.clock()).world.id
    found = await stage.agent.store.worlds.world(world_id)
    assert found is not None
    return found


async def role_of(stage: AgentHarness, name: str) -> Role:
    """Tell somebody's role."""
    return (await world_of(stage)).role_of(derived_id("test", "entity", name))


async def waiting(stage: AgentHarness) -> list[Task]:
    """List what waits for a choice."""
    return await stage.agent.store.tasks.tasks(tags={TaskTag.AWAITING_CHOICE})


async def code(stage: AgentHarness) -> str:
    """Give the code of the one change that waits to be confirmed."""
    [task] = await waiting(stage)
    return str(task.metadata["code"])


async def run_due(stage: AgentHarness) -> None:
    """Have what is due done, also what the agent's own scheduler has just begun, and what it says sent."""
    await Scheduler(stage.agent, stage.agent_runtime.registry).run_due()
    for _ in range(1000):
        if not await stage.agent.store.tasks.tasks(tags={TaskTag.QUEUE}):
            break
        await asyncio.sleep(0)
    await stage.agent.outbox.drain(5.0)


async def decisions(stage: AgentHarness, action: str) -> list[tuple[bool, str]]:
    """List what was decided about an action, oldest first: whether it was allowed, else why not."""
    entries = await stage.agent.store.logs.logs(kind=LogKind.AUTHORIZATION, limit=1000)
    bodies = [entry["body"] for entry in reversed(entries)]
    return [(body["allowed"], body["reason"]) for body in bodies if body["action"] == action]
