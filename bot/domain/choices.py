"""Choices: what a waiting task offers, who may choose, and what was chosen.

A pressed button and a choice in a message use the same functions, so that both have the same effect.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Self
from uuid import UUID

from bot.domain.content import MAX_CHOICES, Choice
from bot.domain.environment import Role
from bot.domain.task import Task, TaskTag

VALUE_PREFIX = "choice"
ABORT_NAMES = frozenset({"ABORT", "CANCEL"})
DEFAULT_ROLES = (Role.OWNER.value, Role.ADMIN.value)


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """The choice that a task waits for; once it is made, `choice` and `chosen_by`.

    People with one of `roles` (by default OWNER or ADMIN) may choose; if there are `choosers`, only those:
    ids as text. A `code` must be repeated in the choice; in a private chat an answer to `question`, the id of the
    message that asks, is enough, unless it `needs_code`. `operation` is what the task does once it is chosen.
    In a task's metadata the keys are `options`, `roles`, `choosers`, `expiresAt`, `code`, `needsCode`, `question`,
    `change`, `choice` and `chosenBy`.
    """

    ABORT: ClassVar[str] = "ABORT"

    options: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    choosers: tuple[str, ...] = ()
    expires_at: datetime | None = None
    code: str = ""
    operation: Mapping[str, Any] = field(default_factory=dict)
    choice: str = ""
    chosen_by: UUID | None = None
    question: UUID | None = None
    needs_code: bool = False

    @property
    def chooser(self) -> UUID:
        """Who has chosen; raises LookupError before the choice."""
        if self.chosen_by is None:
            raise LookupError("nothing has been chosen yet")
        return self.chosen_by

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the request in a task's metadata; raises ValueError for a time or id that is none."""
        options = [_name_and_description(option) for option in _list(metadata.get("options"))]
        expires_at, chosen_by = metadata.get("expiresAt"), metadata.get("chosenBy")
        return cls(
            tuple(name for name, _ in options if name),
            {name: description for name, description in options if name and description},
            tuple(map(str, _list(metadata.get("roles")))),
            tuple(map(str, _list(metadata.get("choosers")))),
            datetime.fromisoformat(expires_at) if isinstance(expires_at, str) else None,
            str(metadata.get("code", "")),
            metadata.get("change", {}),
            str(metadata.get("choice", "")),
            UUID(str(chosen_by)) if chosen_by is not None else None,
            UUID(str(question)) if (question := metadata.get("question")) is not None else None,
            metadata.get("needsCode") is True,
        )

    def to_metadata(self) -> dict[str, Any]:
        """Return the metadata that describes this request, without empty values."""
        descriptions = self.descriptions
        values = {
            "options": [
                {"name": name, "description": descriptions[name]} if name in descriptions else name
                for name in self.options
            ],
            "roles": list(self.roles),
            "choosers": list(self.choosers),
            "code": self.code,
            "expiresAt": self.expires_at.isoformat() if self.expires_at else "",
            "change": dict(self.operation),
            "choice": self.choice,
            "chosenBy": str(self.chosen_by or ""),
            "question": str(self.question or ""),
            "needsCode": self.needs_code,
        }
        return {key: value for key, value in values.items() if value}

    def match(self, text: str) -> str:
        """Return the option with exactly this name or number, ABORT, or "" for anything else."""
        text = text.strip()
        if text in self.options:
            return text
        if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(self.options):
            return self.options[int(text[:4]) - 1]
        return self.ABORT if text.upper() in ABORT_NAMES else ""

    def refusal_for(self, authors: Collection[UUID], role: Role) -> str:
        """Return why these people, of whom `role` is the lowest role, may not choose; "" if they may."""
        if self.choosers:
            is_allowed = {str(author_id) for author_id in authors} <= set(self.choosers)
            return "" if is_allowed else "it is another person's choice"
        allowed = self.roles or DEFAULT_ROLES
        return "" if role.value in allowed else f"only {' or '.join(allowed)} may choose here"

    def is_open(self, task: Task, now: datetime) -> bool:
        """Return whether the task still waits for its choice."""
        is_waiting = TaskTag.AWAITING_CHOICE in task.tags
        return is_waiting and (self.expires_at is None or self.expires_at > now)

    def choose(self, task: Task, choice: str, by: UUID, now: datetime) -> Task:
        """Return the task with its choice, queued to run now."""
        tags = (task.tags - {TaskTag.AWAITING_CHOICE}) | {TaskTag.QUEUE}
        metadata = {**task.metadata, "choice": choice, "chosenBy": str(by)}
        return replace(task, tags=tags, metadata=metadata, next_run=now)

    def choices(self, task_id: UUID) -> tuple[Choice, ...]:
        """Return the first 25 options as choices to offer with a message."""
        options = enumerate(self.options[:MAX_CHOICES])
        return tuple(Choice(name, f"{VALUE_PREFIX}:{task_id.hex}:{number}") for number, name in options)


def parse_choice_value(value: str) -> tuple[UUID, int] | None:
    """Return the task and the option number that a choice's value names; None for any other value."""
    prefix, _, rest = value.partition(":")
    key, _, number = rest.partition(":")
    if prefix != VALUE_PREFIX or len(key) != 32 or not (number.isascii() and number.isdigit() and len(number) < 3):
        return None
    try:
        return UUID(hex=key), int(number)
    except ValueError:
        return None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _name_and_description(option: Any) -> tuple[str, str]:
    if isinstance(option, Mapping):
        return str(option.get("name") or ""), str(option.get("description") or "")
    return str(option or ""), ""
