"""Confirmation of a change by its author, with a button or a code."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from bot.domain.choices import ChoiceRequest
from bot.domain.content import Content
from bot.domain.ids import derived_id
from bot.domain.results import ActionResult
from bot.domain.task import Task, TaskTag
from bot.text import sanitize_name
from bot.turn import Turn
from bot.user_texts import user_text

CONFIRM = "confirm"
CONFIRMED_WORKER = "RUN_CONFIRMED_ACTION"
CONFIRMATION_TTL = timedelta(minutes=10)
CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 5
MAX_CONFIRMATION_LENGTH = 200
MAX_WORDS_BEFORE = 3  # of a message that only confirms: whom it is for, and a greeting
_CONFIRMATION = re.compile(
    rf"\W*(?:\S+\s+){{0,{MAX_WORDS_BEFORE}}}{CONFIRM}\s+([{CODE_ALPHABET}]{{{CODE_LENGTH}}})\W*", re.IGNORECASE
)


async def ask_to_confirm(turn: Turn, worker: str, operation: Mapping[str, str], summary: str) -> ActionResult:
    """Ask the author to confirm `summary` with a code; then `worker` runs the operation.

    Each user has at most one pending operation in a room; a newer one replaces it. The worker finds it as
    `operation` of the task's `ChoiceRequest`, and who confirmed it as its `chooser`.
    """
    agent, author = turn.agent, turn.author
    tasks, now = agent.store.tasks, agent.clock()
    task_id = derived_id(turn.id, "confirmation", str(turn.next_reply_index))
    for earlier in await tasks.tasks(room_id=turn.room.id, entity_id=author.id, tags={TaskTag.AWAITING_CHOICE}):
        if earlier.id != task_id and ChoiceRequest.from_metadata(earlier.metadata).code:
            await tasks.delete_task(earlier.id)
    code = _encode_code(derived_id(task_id, str(author.id)).int)
    request = ChoiceRequest(
        (CONFIRM,), choosers=(str(author.id),), code=code, expires_at=now + CONFIRMATION_TTL, operation=operation
    )
    task = Task(
        task_id,
        worker,
        now,
        summary,
        turn.room.id,
        turn.world.id,
        author.id,
        tags=frozenset({TaskTag.AWAITING_CHOICE}),
        metadata=request.to_metadata(),
    )
    if await tasks.task(task_id) is None:  # after a crash it may be there, and chosen
        await tasks.save_task(task)
    question = user_text(
        "choices.confirm",
        summary=summary,
        author=sanitize_name(author.name),
        agent=sanitize_name(agent.name),
        word=CONFIRM,
        code=code,
    )
    await turn.reply(Content(text=question, choices=request.choices(task_id)))
    return ActionResult(text="asked for confirmation; nothing has been changed yet", authors=frozenset())


def read_code(text: str) -> str:
    """Return the code of a message that only confirms something, as the question asks; else an empty text."""
    found = _CONFIRMATION.fullmatch(text) if len(text) <= MAX_CONFIRMATION_LENGTH else None
    return found[1].upper() if found else ""


async def find_task_to_confirm(turn: Turn, code: str) -> Task | None:
    """Return the task for whose confirmation the author was asked in this room with a code."""
    agent = turn.agent
    tasks, tags = agent.store.tasks, {TaskTag.AWAITING_CHOICE}
    for task in await tasks.tasks(room_id=turn.room.id, entity_id=turn.author.id, tags=tags):
        request = ChoiceRequest.from_metadata(task.metadata)
        if request.code == code and request.is_open(task, agent.clock()):
            return task
    return None


def confirmed_operation(turn: Turn, action: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the operation of a task that runs an action with exactly these arguments."""
    values = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"action": action, "arguments": values, "message": str(turn.message.id)}


def _encode_code(number: int) -> str:
    """Encode a number in letters that are not confused with others."""
    return "".join(CODE_ALPHABET[(number >> 5 * position) % len(CODE_ALPHABET)] for position in range(CODE_LENGTH))
