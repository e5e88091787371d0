"""Filters of texts: what a filter is given, and what it decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self

from bot.domain.content import Attachment, Content
from bot.domain.environment import Entity, Room, World
from bot.domain.memory import Memory

Direction = Literal["in", "out"]
OnFailure = Literal["open", "closed"]
FILTER_KEY = "filtered"  # in the metadata of a message: what the filters have made of it
STOPPED_TEXT = "[message stopped by a filter]"


class FilterOutcome(StrEnum):
    """What a filter does with a text."""

    PASS = "pass"
    REPLACE = "replace"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class FilterInput:
    """A text that a filter checks: a message that came in, or a reply or post that is to be sent.

    `author` is who wrote a message; None for what the agent says. `attachments` are as they are known at that time:
    those of a message have not been read. Once one has been, its text is checked by itself and `is_attachment`.
    """

    text: str
    attachments: Sequence[Attachment]
    room: Room
    world: World
    author: Entity | None = None
    is_attachment: bool = False


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """What a filter decides about a text, and why; by default the text passes.

    `reason` stands in the receipt: it does not quote the text.
    """

    outcome: FilterOutcome = FilterOutcome.PASS
    reason: str = ""
    text: str = ""

    @classmethod
    def replace(cls, text: str, reason: str = "") -> Self:
        """Return the decision that another text is read or sent in place of this one."""
        return cls(FilterOutcome.REPLACE, reason, text)

    @classmethod
    def hold(cls, reason: str) -> Self:
        """Return the decision that the answer waits for a person."""
        return cls(FilterOutcome.HOLD, reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """Return the decision that a message is not read, or that a text is not sent."""
        return cls(FilterOutcome.STOP, reason)


@dataclass(frozen=True, slots=True)
class FilterResult:
    """What all filters together made of a text: the text, why it is held or stopped, and notes for the receipt."""

    text: str
    hold_reason: str = ""
    stop_reason: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of_message(cls, message: Memory) -> Self | None:
        """Return what the filters have made of a message earlier; None for a text that they have not changed or held.

        An edit brings another text, which they have not seen.
        """
        record = message.metadata.get(FILTER_KEY)
        if record is None or record["text"] != message.content.text:
            return None
        return cls(record["text"], record["hold"], record["stop"], tuple(record["notes"]))

    def to_record(self) -> dict[str, Any]:
        """Return the entry in the metadata of the message."""
        return {"text": self.text, "hold": self.hold_reason, "stop": self.stop_reason, "notes": list(self.notes)}


def find_hold_reason(message: Memory) -> str:
    """Return why the answer to a message waits for a person; empty if it does not."""
    result = FilterResult.of_message(message)
    return "" if result is None else result.hold_reason


def build_stopped(content: Content) -> Content:
    """Return what is left of the content of a message that a filter stopped."""
    return Content(STOPPED_TEXT, source=content.source, mention=content.mention)
