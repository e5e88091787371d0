"""A task that waits for somebody's choice: what may be chosen, by whom, and what a button says of it.

What follows is decided here, as values, so that a press and a spoken choice come to the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from bot.domain.content import MOST_CHOICES, Choice
from bot.domain.environment import Role
from bot.domain.task import AWAITING_CHOICE, QUEUE, Task

ABORT = "ABORT"
ABORTS = frozenset({ABORT, "CANCEL"})
CHOOSERS = ("OWNER", "ADMIN")
SIGN = "choice"


def options_of(task: Task) -> list[str]:
    """List the names of a task's options, in their order."""
    options = task.metadata.get("options", ())
    names = (one.get("name") if isinstance(one, Mapping) else one for one in options)
    return [str(name) for name in names if name]


def option_named(said: str, options: Sequence[str]) -> str:
    """Give the option that was named exactly, or by its number; ABORT; empty for anything else."""
    said = said.strip()
    if said in options:
        return said
    if said.isascii() and said.isdigit() and 1 <= int(said[:4]) <= len(options):
        return options[int(said[:4]) - 1]
    return ABORT if said.upper() in ABORTS else ""


def objection(task: Task, authors: Collection[UUID], role: Role) -> str:
    """Say why these people, of whom the least has this role, may not choose; empty where they may."""
    choosers = set(_words(task.metadata.get("choosers")))
    if choosers:
        return "" if {str(one) for one in authors} <= choosers else "it is another person's choice"
    allowed = _words(task.metadata.get("roles")) or CHOOSERS
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
    options = options_of(task)[:MOST_CHOICES]
    return tuple(Choice(name, f"{SIGN}:{task.id.hex}:{number}") for number, name in enumerate(options))


def meant_by(value: str) -> tuple[UUID, int] | None:
    """Tell of which task a choice's value is, and which option it names; None for any other value."""
    sign, _, rest = value.partition(":")
    key, _, number = rest.partition(":")
    if sign != SIGN or len(key) != 32 or not (number.isascii() and number.isdigit() and len(number) < 3):
        return None
    try:
        return UUID(hex=key), int(number)
    except ValueError:
        return None


def _words(written: Any) -> tuple[str, ...]:
    return tuple(map(str, written)) if isinstance(written, list | tuple) else ()
