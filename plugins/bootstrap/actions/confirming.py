"""Asking twice: what changes who may do what is done after whoever asked for it has confirmed it."""

from collections.abc import Mapping
from datetime import timedelta

from bot import (
    AWAITING_CHOICE,
    ActionResult,
    Agent,
    Content,
    Memory,
    MemoryKind,
    Outgoing,
    Room,
    Task,
    Turn,
    choices_of,
    clean_name,
    derived_id,
)
from plugins.bootstrap.actions.authority import Request, authorize, refused

CONFIRM = "confirm"
HOLDS = timedelta(minutes=10)
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE = 5


async def ask_to_confirm(
    turn: Turn, request: Request, worker: str, change: Mapping[str, str], said: str
) -> ActionResult:
    """Say what would be done, and leave it to `worker` once the author has answered with the code.

    One change waits for each person in a room: a newer one takes the place of the older.
    """
    agent, author = turn.agent, turn.author
    if cause := await authorize(agent, request):
        return refused(cause)
    tasks, now = agent.store.tasks, agent.clock()
    for older in await tasks.tasks(room_id=turn.room.id, entity_id=author.id, tags={AWAITING_CHOICE}):
        if "code" in older.metadata:
            await tasks.delete_task(older.id)
    task_id = derived_id(turn.id, "confirmation", str(turn.next_reply))
    code = _code(derived_id(task_id, str(author.id)).int)
    metadata = {
        "options": [CONFIRM],
        "choosers": [str(author.id)],
        "code": code,
        "expiresAt": (now + HOLDS).isoformat(),
        "change": dict(change),
    }
    task = Task(
        task_id,
        worker,
        now,
        said,
        turn.room.id,
        turn.world.id,
        author.id,
        tags=frozenset({AWAITING_CHOICE}),
        metadata=metadata,
    )
    await tasks.save_task(task)
    name = clean_name(agent.name)
    asked = (
        f"{said} Is that right, {clean_name(author.name)}? Then answer within ten minutes: "
        f"{name}, {CONFIRM} {code}"
    )
    await turn.reply(Content(text=asked, choices=choices_of(task)))
    return ActionResult(text="asked for confirmation; nothing has been changed yet")


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


def _code(number: int) -> str:
    """Write a number in a few letters that nobody mistakes for others."""
    return "".join(ALPHABET[(number >> 5 * place) % len(ALPHABET)] for place in range(CODE))
