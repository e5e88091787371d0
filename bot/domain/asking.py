"""What people ask the bot itself, by a command or by pressing a button, and what they are shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bot.domain.content import Choice
from bot.domain.ledger import Receipt
from bot.domain.people import Entity
from bot.domain.places import Room, World


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that somebody gave, with its arguments by name, or as the text that stood behind it.

    `event_id` is the platform's own id of what happened: given again, it does nothing more. `message_id` is
    what the platform calls the message in which it was given, where there is one.
    """

    name: str
    world: World
    room: Room
    author: Entity
    event_id: str
    created_at: datetime
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Pressed:
    """A choice's value that came back from a platform, and from whom."""

    world: World
    room: Room
    author: Entity
    value: str
    event_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Shown:
    """What to show whoever asked; to nobody else, where it `is_private` and the platform can.

    With a `receipt` there is nothing to show yet: the answer comes as a message like any other.
    """

    text: str = ""
    is_private: bool = True
    choices: tuple[Choice, ...] = ()
    receipt: Receipt | None = None
