"""What a message says: its text, its attachments, and whom it addresses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.text import shorten

MAX_LABEL_LENGTH = 80
MAX_VALUE_LENGTH = 64
MAX_CHOICES = 25


class MediaKind(StrEnum):
    """What an attachment is, as far as a reader cares."""

    IMAGE = "IMAGE"
    VIDEO = "VIDEO"
    AUDIO = "AUDIO"
    DOCUMENT = "DOCUMENT"
    LINK = "LINK"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One thing that came with a message, or leaves with one.

    `text` is what it says (a document's words, a recording's transcript), `description` what it
    shows, `problem` why it could not be read. `data` holds our own bytes for outgoing files.
    """

    id: str
    kind: MediaKind
    url: str = ""
    content_type: str = ""
    name: str = ""
    title: str = ""
    description: str = ""
    text: str = ""
    problem: str = ""
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MentionContext:
    """How a message addresses the agent, by the platform's own entities rather than by substring.

    `denied_by` names the adapter's rule that forbids an answer here (an allow-list, listen-only).
    """

    is_mention: bool = False
    is_reply: bool = False
    is_thread: bool = False
    denied_by: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that may be chosen: what a button says, and what comes back when it is pressed.

    The value is opaque to platforms, printable ASCII and at most 64 bytes. It proves nothing: who may
    choose is looked up when it comes back. Raises ValueError for another one.
    """

    label: str
    value: str

    def __post_init__(self) -> None:
        is_plain = self.value.isascii() and self.value.isprintable()
        if not is_plain or not 1 <= len(self.value) <= MAX_VALUE_LENGTH:
            raise ValueError(f"a choice's value is 1 to {MAX_VALUE_LENGTH} printable characters of ASCII")
        object.__setattr__(self, "label", shorten(" ".join(self.label.split()) or "?", MAX_LABEL_LENGTH))


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says, on any platform; of its choices the first 25 are offered."""

    text: str = ""
    thought: str = ""
    actions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    source: str = ""
    url: str = ""
    in_reply_to: UUID | None = None
    mention: MentionContext = MentionContext()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()

    @property
    def is_voice(self) -> bool:
        """Whether there is nothing but recordings in it: a voice message."""
        kinds = {attachment.kind for attachment in self.attachments}
        return not self.text.strip() and kinds == {MediaKind.AUDIO}
