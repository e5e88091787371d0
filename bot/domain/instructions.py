"""`RoomInstructions`: what is set for a room or its world beside the character, and how rooms inherit it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from bot.domain.environment import Room, World

MAX_TEXT_LENGTH: Final = 2_000
MAX_WORLD_LENGTH: Final = 100_000  # of all that is set in a world, which is read with each of its messages
SETTING_PREFIX: Final = "room."
MODEL_SIZES: Final = ("small", "medium", "large")
LENGTHS: Final = {
    "short": "Answer in one or two short sentences.",
    "medium": "Answer in at most one paragraph.",
    "long": "Answer as thoroughly as the question needs.",
}
SWITCH_WORDS: Final = {"on": True, "off": False}


class AnswerRule(StrEnum):
    """Which messages of a room are answered.

    ALWAYS: every one. LIVELY to CALLED: as RESPONSIVENESS. MENTIONS: those that mention the agent or reply to it.
    LISTEN: none.
    """

    ALWAYS = "always"
    LIVELY = "lively"
    BALANCED = "balanced"
    RESERVED = "reserved"
    CALLED = "called"
    MENTIONS = "mentions"
    LISTEN = "listen"

    @property
    def is_responsiveness(self) -> bool:
        """Whether it is a value of RESPONSIVENESS."""
        return self in (AnswerRule.LIVELY, AnswerRule.BALANCED, AnswerRule.RESERVED, AnswerRule.CALLED)


class ThreadRule(StrEnum):
    """At whose messages of a room the character may open a thread: of admins and owners, of everybody, or at none."""

    OFF = "off"
    ADMINS = "admins"
    ON = "on"

    @property
    def rank(self) -> int:
        """How many people it allows, in an order: 0 for none."""
        return list(ThreadRule).index(self)


def _read_tools(value: object) -> object:
    """Return on or off as a bool, and a text with names as a tuple of them."""
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    word = value.strip().lower()
    return SWITCH_WORDS.get(word, tuple(filter(None, (name.strip().upper() for name in value.split(",")))))


def _read_number(value: object) -> object:
    """Return a text of digits, also with a dollar sign, as a number."""
    if isinstance(value, str):
        text = value.strip().removeprefix("$")
        return float(text) if text.replace(".", "", 1).isdecimal() else value.strip().lower()
    return value


ActionName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
Length = Annotated[int, Field(ge=20, le=10_000)] | Literal["short", "medium", "long"]
IdleHours = Annotated[float, Field(ge=1, le=10_000, allow_inf_nan=False)] | Literal["off"]
Instruction = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT_LENGTH)]


class RoomInstructions(BaseModel):
    """What is set for a room or a world; None leaves it to the world, and then to the character.

    `length` is a number of characters, or short, medium or long. `tools` are the actions that may be used: all, none
    or those named. Without `threads`, threads are opened for admins. `budget` is in dollars a day for each room.
    `model` is a size, or the name of a model. After `idle_talk` hours without a message a conversation is begun,
    unless it is off.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    instructions: Instruction | None = None
    notes: Instruction | None = None
    model: Annotated[str, StringConstraints(pattern=r"^[\w.:/@+-]{1,100}$")] | None = None
    language: Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^\W\d_][\w -]{1,39}$")] | None = None
    answer: AnswerRule | None = None
    length: Annotated[Length, BeforeValidator(_read_number)] | None = None
    reactions: bool | None = None
    threads: ThreadRule | None = None
    tools: Annotated[bool | tuple[ActionName, ...], BeforeValidator(_read_tools)] | None = None
    budget: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False), BeforeValidator(_read_number)] | None = (
        None
    )
    idle_talk: Annotated[IdleHours, BeforeValidator(_read_number)] | None = None

    def narrowed_by(self, limit: "RoomInstructions") -> "RoomInstructions":
        """Return these with no more than `limit` allows: tools, threads, budget, conversations that are begun."""
        tools, budget, idle_talk, threads = self.tools, self.budget, self.idle_talk, self.threads
        if limit.tools is False or tools in (None, True):
            tools = limit.tools if limit.tools is not None else tools
        elif isinstance(limit.tools, tuple) and isinstance(tools, tuple):
            tools = tuple(name for name in tools if name in limit.tools)
        if limit.budget is not None:
            budget = limit.budget if budget is None else min(budget, limit.budget)
        if limit.idle_talk == "off" or idle_talk is None:
            idle_talk = limit.idle_talk
        elif limit.idle_talk is not None and idle_talk != "off":
            idle_talk = max(idle_talk, limit.idle_talk)
        if threads is not None and limit.threads is not None:
            threads = min(threads, limit.threads, key=lambda rule: rule.rank)
        return self.model_copy(update={"tools": tools, "budget": budget, "idle_talk": idle_talk, "threads": threads})

    def render(self) -> str:
        """Return the lines of the system prompt; empty where nothing in the prompt depends on these."""
        lines = [self.instructions or "", self.notes or ""]
        if self.language:
            lines.append(f"Write in this language, whatever the messages are written in: {self.language}.")
        if self.length is not None:
            lines.append(LENGTHS.get(str(self.length)) or f"Answer in at most {self.length} characters.")
        lines = [line for line in lines if line]
        return "\n".join(["Your operator's instructions for this room:", *lines]) if lines else ""


NO_INSTRUCTIONS: Final = RoomInstructions()
INSTRUCTION_KEYS: Final = tuple(RoomInstructions.model_fields)


def parse_instruction(key: str, text: str) -> Any:
    """Return a value from its text, None from a blank one; raises ValueError that says what fits."""
    if key not in INSTRUCTION_KEYS:
        raise ValueError(f"there is no {key!r}: choose one of {', '.join(INSTRUCTION_KEYS)}")
    try:
        return getattr(RoomInstructions.model_validate({key: text}), key) if text.strip() else None
    except ValidationError:
        raise ValueError(f"{key}: {USAGE[key]}") from None


USAGE: Final = {
    "instructions": f"what the character has to do or know here, at most {MAX_TEXT_LENGTH} characters",
    "notes": f"how the character is here, at most {MAX_TEXT_LENGTH} characters",
    "model": "small, medium, large, or the name of a model",
    "language": "the name of a language, such as German",
    "answer": f"which messages are answered: {', '.join(AnswerRule)}",
    "length": "short, medium, long, or a number of characters from 20 to 10000",
    "reactions": "on or off",
    "threads": "for whom threads are opened: on (everybody), admins, or off",
    "tools": "on, off, or names of actions, separated by commas",
    "budget": "dollars a day, such as 0.50",
    "idle_talk": "after how many hours without a message a conversation is begun, such as 24, or off",
}


def format_value(value: Any) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class InstructionValue:
    """One value with where it is set: `file` (`place` is the key there), `world`, `room`, or `parent`: the channel of a
    thread. `by_id` is the person who set it, None for an operator; `source` says how.
    """

    key: str
    value: Any
    origin: str
    place: str = ""
    by_id: UUID | None = None
    source: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ResolvedInstructions:
    """What is in effect in a room, and each value of it with its origin, in the order of the fields.

    `text` is what a prompt says of it.
    """

    current: RoomInstructions = NO_INSTRUCTIONS
    values: tuple[InstructionValue, ...] = ()
    text: str = ""

    def describe(self) -> str:
        """Return the keys with their origins, for a receipt; empty where nothing is set."""
        return ", ".join(f"{item.key} ({item.place or item.origin})" for item in self.values)


NOTHING_SET: Final = ResolvedInstructions()


def setting_name(key: str, room_id: UUID | None) -> str:
    """Return the name of a value among the settings of a world: that of a room there, or without one of the world."""
    return f"{SETTING_PREFIX}{key}" if room_id is None else f"{SETTING_PREFIX}{key}:{room_id}"


def encode_value(value: InstructionValue) -> str:
    """Return a value as it is stored among the settings of its world."""
    by_id, at = value.by_id and str(value.by_id), value.at and value.at.isoformat()
    return json.dumps({"value": format_value(value.value), "by": by_id, "source": value.source, "at": at})


@lru_cache(maxsize=2_048)
def _decode_value(key: str, origin: str, text: str) -> InstructionValue | None:
    """Return a stored value; None for one that a later version has stored and this one cannot read."""
    try:
        data = json.loads(text)
        value = parse_instruction(key, data["value"])
        by_id, at = data["by"] and UUID(data["by"]), data["at"] and datetime.fromisoformat(data["at"])
        return InstructionValue(key, value, origin, by_id=by_id, source=data["source"], at=at)
    except (ValueError, KeyError, TypeError):
        return None


def _find_in_file(
    rooms: Mapping[str, RoomInstructions], places: tuple[World, Room | None, Room]
) -> Iterator[tuple[str, RoomInstructions]]:
    """Yield the entries of the character's file for these places, with their keys."""
    for place in places if rooms else ():
        if place is None:
            continue
        names = (place.name, place.external_id, f"{place.platform}:{place.external_id}")
        yield from ((name, rooms[name]) for name in dict.fromkeys(names) if name in rooms)


def resolve_instructions(
    rooms: Mapping[str, RoomInstructions], world: World, room: Room, parent: Room | None = None
) -> ResolvedInstructions:
    """Return what is in effect in a room: of the file's `rooms`, its world, its channel and itself; the last wins.

    Each key by itself. `parent` is the channel of a thread, which only the file needs. People in a room cannot have
    more tools, a higher budget or more conversations begun than the file says.
    """
    found: dict[str, InstructionValue] = {}
    limit = NO_INSTRUCTIONS
    for place, entry in _find_in_file(rooms, (world, parent, room)):
        limit = limit.model_copy(update=entry.model_dump(exclude_none=True))
        found |= {key: InstructionValue(key, getattr(entry, key), "file", place) for key in entry.model_fields_set}
    levels = [("world", None), ("parent", room.parent_id), ("room", room.id)] if world.settings else []
    for origin, room_id in levels:
        if origin == "parent" and room_id is None:
            continue
        for key in INSTRUCTION_KEYS:
            stored = world.settings.get(setting_name(key, room_id))
            if stored and (value := _decode_value(key, origin, stored)) is not None:
                found[key] = value
    if not found:
        return NOTHING_SET
    current = RoomInstructions.model_construct(**{key: item.value for key, item in found.items()}).narrowed_by(limit)
    values = (found[key] for key in INSTRUCTION_KEYS if key in found)
    return ResolvedInstructions(
        current,
        tuple(
            replace(item, value=effective) if (effective := getattr(current, item.key)) != item.value else item
            for item in values
            if item.value is not None
        ),
        current.render(),
    )
