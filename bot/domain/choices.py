"""A task that waits for somebody's choice: what may be chosen, by whom, and what a button says of it.

What follows is decided here, as values, so that a press and a spoken choice come to the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from bot.domain.content import MAX_CHOICES, Choice
from bot.domain.environment import Role
from bot.domain.task import AWAITING_CHOICE, QUEUE, Task

ABORT = "ABORT"
ABORT_NAMES = frozenset({ABORT, "CANCEL"})
DEFAULT_CHOOSER_ROLES = ("OWNER", "ADMIN")
VALUE_PREFIX = "choice"


def options_of(task: Task) -> list[str]:
    """List the names of a task's options, in their order."""
    options = task.metadata.get("options", ())
    names = (option.get("name") if isinstance(option, Mapping) else option for option in options)
    return [str(name) for name in names if name]


def option_named(text: str, options: Sequence[str]) -> str:
    """Give the option that was named exactly, or by its number; ABORT; empty for anything else."""
    text = text.strip()
    if text in options:
        return text
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(options):
        return options[int(text[:4]) - 1]
    return ABORT if text.upper() in ABORT_NAMES else ""


def objection(task: Task, authors: Collection[UUID], role: Role) -> str:
    """Say why these people, of whom the least has this role, may not choose; empty where they may."""
    choosers = set(_texts(task.metadata.get("choosers")))
    if choosers:
        return (
            "" if {str(author_id) for author_id in authors} <= choosers else "it is another person's choice"
        )
    allowed = _texts(task.metadata.get("roles")) or DEFAULT_CHOOSER_ROLES
    return "" if role.value in allowed else f"only {' or '.join(allowed)} may choose here"


def is_open(task: Task, now: datetime) -> bool:
    """Tell whether a task still waits for its choice."""
    written = task.metadata.get("expiresAt")
    end = datetime.fromisoformat(written) if isinstance(written, str) else None
    return AWAITING_CHOICE in task.tags and (end is None or end > now)


def chosen(task: Task, choice: str, by: UUID, at: datetime) -> Task:
    """Give a task its choice: now it is to be carried out."""
    metadata = {**task.metadata, "choice": choice, "chosenBy": str(by)}
    return replace(task, tags=(task.tags - {AWAITING_CHOICE}) | {QUEUE}, metadata=metadata, next_run=at)


def choices_of(task: Task) -> tuple[Choice, ...]:
    """Give a task's options as choices, to be offered with a message; the first 25 of them."""
    options = options_of(task)[:MAX_CHOICES]
    return tuple(
        Choice(name, f"{VALUE_PREFIX}:{task.id.hex}:{number}") for number, name in enumerate(options)
    )


def parse_choice_value(value: str) -> tuple[UUID, int] | None:
    """Tell of which task a choice's value is, and which option it names; None for any other value."""
    prefix, _, rest = value.partition(":")
    key, _, number = rest.partition(":")
    if (
        prefix != VALUE_PREFIX
        or len(key) != 32
        or not (number.isascii() and number.isdigit() and len(number) < 3)
    ):
        return None
    try:
        return UUID(hex=key), int(number)
    except ValueError:
        return None


def _texts(written: Any) -> tuple[str, ...]:
    return tuple(map(str, written)) if isinstance(written, list | tuple) else ()
