"""Asking twice: what cannot be taken back is done after whoever asked for it has answered with a code."""

from collections.abc import Mapping
from datetime import timedelta

from bot.domain.choices import choices_of
from bot.domain.content import Content
from bot.domain.ids import derived_id
from bot.domain.results import ActionResult
from bot.domain.task import AWAITING_CHOICE, Task
from bot.text import clean_name
from bot.turn import Turn

CONFIRM = "confirm"
HOLDS = timedelta(minutes=10)
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE = 5


async def ask_twice(turn: Turn, worker: str, change: Mapping[str, str], said: str) -> ActionResult:
    """Say what would be done, and leave it to `worker` once the author has answered with the code.

    One change waits for each person in a room: a newer one takes the place of the older. The worker finds
    it in `task.metadata["change"]`, and who has confirmed it in `task.metadata["chosenBy"]`.
    """
    agent, author = turn.agent, turn.author
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


def _code(number: int) -> str:
    """Write a number in a few letters that nobody mistakes for others."""
    return "".join(ALPHABET[(number >> 5 * place) % len(ALPHABET)] for place in range(CODE))
