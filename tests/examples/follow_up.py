"""Follow-up: promises to come back to something, and does, also after a restart."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from bot import ActionResult, Agent, Effect, Plugin, Task, Turn, action, derived_id, worker


@action("FOLLOW_UP", "Come back to something later.", effect=Effect.KEYED)
async def follow_up(
    turn: Turn,
    about: Annotated[str, "What to ask about then", Field(max_length=200)],
    minutes: Annotated[int, "After how many minutes", Field(ge=1, le=10_080)] = 60,
) -> ActionResult:
    """Leave a task; its id is of this turn, so that a repeated run leaves no second one."""
    task = Task(
        id=derived_id(turn.id, "follow-up"),
        name="FOLLOW_UP_TASK",
        next_run=turn.agent.clock() + timedelta(minutes=minutes),
        description="come back to somebody",
        room_id=turn.room.id,
        world_id=turn.world.id,
        entity_id=turn.author.id,
        metadata={"about": about},
    )
    await turn.agent.store.tasks.save_task(task)
    return ActionResult(text=f"will ask about it in {minutes} minutes")


@worker("FOLLOW_UP_TASK")
async def ask(agent: Agent, task: Task) -> None:
    """Send it to the room of the promise, once, even where this runs again after a crash."""
    room = await agent.store.worlds.room(task.room_id) if task.room_id else None
    if room is not None:
        await agent.say(room, f"How did it go: {task.metadata['about']}?", key=str(task.id))


plugin = Plugin("follow_up", "Comes back to things later.", actions=[follow_up], workers=[ask])
