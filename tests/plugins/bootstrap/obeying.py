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
        """Set what it does from now on; the parameters are those of the only action."""
        self._actions: Sequence[str] = ("REPLY", *actions)
        self._parameters: Mapping[str, Any] = {actions[0]: parameters} if parameters else {}

    def _write(self, request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return IGNORING
        if request.purpose is Purpose.REPAIR:
            return "{}"
        return model_answer("Very well.", actions=self._actions, parameters=self._parameters)


async def world_of(harness: AgentHarness) -> World:
    """Return the stored world of the test platform."""
    world_id = make_message("", sent_at=harness.agent.clock()).world.id
    found = await harness.agent.store.worlds.world(world_id)
    assert found is not None
    return found


async def role_of(harness: AgentHarness, name: str) -> Role:
    """Return a person's role."""
    return (await world_of(harness)).role_of(derived_id("test", "entity", name))


async def waiting(harness: AgentHarness) -> list[Task]:
    """List what waits for a choice."""
    return await harness.agent.store.tasks.tasks(tags={TaskTag.AWAITING_CHOICE})


async def code(harness: AgentHarness) -> str:
    """Return the code of the only change that waits to be confirmed."""
    [task] = await waiting(harness)
    return str(task.metadata["code"])


async def run_due(harness: AgentHarness) -> None:
    """Run what is due, also what the agent's own scheduler has just begun, and send the resulting messages."""
    await Scheduler(harness.agent, harness.agent_runtime.registry).run_due()
    for _ in range(1000):
        now = harness.agent.clock()
        if all(task.next_run > now for task in await harness.agent.store.tasks.tasks(tags={TaskTag.QUEUE})):
            break
        await asyncio.sleep(0)
    await harness.agent.outbox.drain(5.0)


async def decisions(harness: AgentHarness, action: str) -> list[tuple[bool, str]]:
    """List what was decided about an action, oldest first: whether it was allowed, else why not."""
    entries = await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION, limit=1000)
    bodies = [entry["body"] for entry in reversed(entries)]
    return [(body["allowed"], body["reason"]) for body in bodies if body["action"] == action]
