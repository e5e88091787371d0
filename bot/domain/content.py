"""Content of a message: text, attachments, choices, and whom it addresses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.text import shorten

MAX_LABEL_LENGTH = 80
MAX_VALUE_LENGTH = 64
MAX_CHOICES = 25
MAX_DESCRIPTION_LENGTH = 300  # of a picture, in the line of its message
SPEECH_ID = "speech"
# in the metadata of a forwarded message: who wrote it and when, or its id on the platform
FORWARDED_AUTHOR, FORWARDED_AT, FORWARDED_MESSAGE = "forwarded_author", "forwarded_at", "forwarded_message"


class MediaKind(StrEnum):
    """The kind of an attachment, as far as a reader needs it."""

    IMAGE = "IMAGE"
    VIDEO = "VIDEO"
    AUDIO = "AUDIO"
    DOCUMENT = "DOCUMENT"
    LINK = "LINK"

    @classmethod
    def of_content_type(cls, content_type: str) -> "MediaKind":
        """Return the kind of a file by its MIME type; DOCUMENT for an unknown one."""
        family = content_type.partition("/")[0].strip().lower()
        return cls(family.upper()) if family in ("image", "video", "audio") else cls.DOCUMENT


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment of an incoming or outgoing message.

    `text` is its content (a document's text, a recording's transcript), `description` what it shows,
    `problem` why it could not be read. `data` holds the bytes of an outgoing file; `size` is the number of bytes of
    an incoming one, if known.
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
    size: int | None = None

    @property
    def is_speech(self) -> bool:
        """Whether it is the spoken form of the agent's own text."""
        return self.id == SPEECH_ID and self.data is not None

    def summarize(self) -> str:
        """Return in brackets what is said in a recording, what a picture shows, or else the title of a file."""
        summary = self.title or self.name or "untitled"
        if self.kind is MediaKind.AUDIO and self.text.strip():
            summary = self.text.strip()
        elif self.kind is MediaKind.IMAGE and self.description:
            summary = shorten(self.description, MAX_DESCRIPTION_LENGTH)
        return f"[{self.kind.lower()}: {summary}]"


@dataclass(frozen=True, slots=True)
class MentionContext:
    """How a message addresses the agent, according to the platform's own entities rather than a search in its
    text.

    `denied_by` names the adapter's rule that forbids an answer here (an allow-list, listen-only). `replies_to` is the
    author of the message that it replies to: a person, another bot or the agent. With `mentions_others` it mentions
    others than the agent.
    """

    is_mention: bool = False
    is_reply: bool = False
    is_thread: bool = False
    denied_by: str = ""
    replies_to: UUID | None = None
    mentions_others: bool = False


@dataclass(frozen=True, slots=True)
class Quotation:
    """Text and attachments of another message that a message replies to or quotes, not of the reply's author.

    `author_id` sent them, and `message_id` is the platform's id of their message; None and blank if unknown.
    """

    text: str
    author_name: str = ""
    author_id: UUID | None = None
    message_id: str = ""
    attachments: tuple[Attachment, ...] = ()

    def render(self, max_length: int | None = None) -> str:
        """Return its author, text and attachments as quoted lines, shortened to one line where they are longer."""
        text = " ".join(filter(None, [self.text, *(item.summarize() for item in self.attachments)]))
        text = text if max_length is None or len(text) <= max_length else shorten(text, max_length)
        lines = f"{self.author_name or 'unknown'}: {text}".splitlines()
        return "\n".join(f"> {line}" for line in lines if line.strip())


def build_forward_metadata(
    written_at: datetime, *, author_id: UUID | None = None, message_id: str = ""
) -> dict[str, str]:
    """Return the metadata of a forwarded message: with its author's data its text is deleted too.

    Who does not know its author gives the id of the message on the platform, if that is unique there.
    """
    named = {FORWARDED_AUTHOR: str(author_id or ""), FORWARDED_MESSAGE: message_id}
    return {FORWARDED_AT: written_at.isoformat()} | {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Choice:
    """One option offered with a message: the label of its button, and the value that comes back when it is
    pressed.

    The value is opaque to platforms: printable ASCII, at most 64 bytes. It proves nothing; who may choose is
    checked when it comes back. Raises ValueError for any other value.
    """

    label: str
    value: str

    def __post_init__(self) -> None:
        is_plain = self.value.isascii() and self.value.isprintable()
        if not is_plain or not 1 <= len(self.value) <= MAX_VALUE_LENGTH:
            raise ValueError(f"a choice's value must be 1 to {MAX_VALUE_LENGTH} printable ASCII characters")
        object.__setattr__(self, "label", shorten(" ".join(self.label.split()) or "?", MAX_LABEL_LENGTH))


class PostOperationKind(StrEnum):
    """What is done to a post of a social platform. Stored with the content."""

    LIKE = "like"
    REPOST = "repost"
    QUOTE = "quote"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class PostOperation:
    """An operation on the post `post_id` of a social platform, carried out by delivering the content."""

    kind: PostOperationKind
    post_id: str

    @property
    def creates_post(self) -> bool:
        """Whether the operation publishes the content's text as a post of its own."""
        return self.kind in (PostOperationKind.QUOTE, PostOperationKind.REPLY)


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message on any platform; of its choices the first 25 are offered.

    `text` and `attachments` are the author's own; those of the message to which they reply are in the `quotation`.
    """

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
    operation: PostOperation | None = None
    quotation: Quotation | None = None

    @property
    def is_voice(self) -> bool:
        """Whether the message consists of recordings only."""
        kinds = {attachment.kind for attachment in self.attachments}
        return not self.text.strip() and kinds == {MediaKind.AUDIO}

    @property
    def all_attachments(self) -> tuple[Attachment, ...]:
        """The attachments of the message, and behind them those of the message to which it replies."""
        return self.attachments if self.quotation is None else (*self.attachments, *self.quotation.attachments)

    def render_text(self, max_quotation_length: int | None = None) -> str:
        """Return the text below the quoted lines to which it replies."""
        if self.quotation is None:
            return self.text
        return "\n".join(filter(None, [self.quotation.render(max_quotation_length), self.text]))
