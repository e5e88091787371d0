"""Asking twice: what changes who may do what is done after whoever asked for it has confirmed it."""

from collections.abc import Mapping

from bot import (
    ActionResult,
    Agent,
    Content,
    Memory,
    MemoryKind,
    Outgoing,
    Room,
    Task,
    Turn,
    ask_twice,
    derived_id,
)
from plugins.bootstrap.actions.authority import Request, authorize, refused


async def ask_to_confirm(
    turn: Turn, request: Request, worker: str, change: Mapping[str, str], said: str
) -> ActionResult:
    """Ask for the code of a change that the author may have done, and refuse any other."""
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    return await ask_twice(turn, worker, change, said)


async def report(agent: Agent, task: Task, room: Room, text: str) -> None:
    """Say what has become of a task, once, however often its worker runs."""
    memory = Memory(
        id=derived_id(task.id, "report"),
        kind=MemoryKind.MESSAGE,
        entity_id=agent.id,
        room_id=room.id,
        world_id=room.world_id,
        content=Content(text=text),
        created_at=agent.clock(),
        turn_id=task.id,
    )
    await agent.outbox.commit([Outgoing(memory, room)])
