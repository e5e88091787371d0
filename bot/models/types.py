"""Model types, requests and results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self


class ModelType(StrEnum):
    """The task of a handler; spelled as in elizaOS, aliases included. TEXT_OFFLINE is not of it."""

    TEXT_SMALL = "TEXT_SMALL"
    TEXT_MEDIUM = "TEXT_MEDIUM"
    TEXT_LARGE = "TEXT_LARGE"
    TEXT_OFFLINE = "TEXT_OFFLINE"  # phrases without a model, where the budget pays for none
    TEXT_EMBEDDING = "TEXT_EMBEDDING"
    OBJECT_SMALL = "OBJECT_SMALL"
    OBJECT_MEDIUM = "OBJECT_MEDIUM"
    OBJECT_LARGE = "OBJECT_LARGE"
    IMAGE = "IMAGE"
    IMAGE_DESCRIPTION = "IMAGE_DESCRIPTION"
    TRANSCRIPTION = "TRANSCRIPTION"
    TEXT_TO_SPEECH = "TEXT_TO_SPEECH"
    MODERATION = "MODERATION"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        normalized = str(value).strip().upper()
        normalized = {"IMAGE_GENERATION": "IMAGE", "SPEECH_TO_TEXT": "TRANSCRIPTION"}.get(normalized, normalized)
        return next((member for member in cls if member.value == normalized), None)


class Purpose(StrEnum):
    """The purpose of a call; shown in receipts and counted separately."""

    SHOULD_RESPOND = "should_respond"
    REPLY = "reply"
    STEP = "step"
    SUMMARY = "summary"
    REPAIR = "repair"
    POST = "post"
    INLINE = "inline"
    REFLECTION = "reflection"
    ROOM_SUMMARY = "room_summary"
    DESCRIPTION = "description"
    IMAGE = "image"
    SPEECH = "speech"
    EMBEDDING = "embedding"
    CHECK = "check"
    CARE = "care"
    MODERATION = "moderation"
    REHEARSAL = "rehearsal"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the provider counted them, or `is_estimate`."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    is_estimate: bool = False


class TextSink(Protocol):
    """Receives a text while it is generated; both methods must return quickly."""

    async def write(self, text: str) -> None:
        """Receive the next piece of the text."""

    async def restart(self) -> None:
        """Discard all pieces received so far: the text starts again."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function call requested by the model; the arguments are not validated against the schema."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Generate a text.

    `temperature` and the other sampling values default to the operator's, then to the provider's. `schema`, a
    JSON schema, requests an object of that shape from handlers that support it. `tools` are for handlers that
    can call them. `model` names one of the handler's models in place of the configured one; where it does not answer,
    the configured one is asked. A handler that streams writes each piece to the `sink`; the result is always the whole
    text.
    """

    prompt: str
    purpose: Purpose = Purpose.OTHER
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    sink: TextSink | None = field(default=None, repr=False, compare=False)
    model: str = ""


@dataclass(frozen=True, slots=True)
class TextResult:
    """A text, its model and usage; `is_truncated` if the length limit ended it.

    `tool_calls` are the tools that the model wants to call, in order; each of them is complete. `has_cut_call` says
    that the limit ended it within another call. `has_thoughts` says that the model has written thoughts before it that
    are not in the text.
    """

    text: str
    model: str = ""
    usage: Usage | None = None
    is_truncated: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    has_cut_call: bool = False
    has_thoughts: bool = False


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that a server has, and what the server tells of it; None where it tells nothing.

    `context_length` is in tokens: the prompt and the answer together. `is_local` says that the server is on this
    machine or in its network: it may be slow, and work on one request after the other.
    """

    name: str
    can_call_tools: bool | None = None
    can_see: bool | None = None
    is_embedding: bool = False
    context_length: int | None = None
    is_local: bool = False
    parameter_count: int | None = None

    def __str__(self) -> str:
        abilities = {"tools": self.can_call_tools, "pictures": self.can_see, "embeddings": self.is_embedding}
        details = [name for name, is_able in abilities.items() if is_able]
        details += [f"{self.context_length:,} tokens"] if self.context_length else []
        return f"{self.name} ({', '.join(details)})" if details else self.name


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Embed texts: those that are stored, or, with `is_question`, those by which they are found.

    Some models read the two differently; the vectors of both are compared with each other.
    """

    texts: tuple[str, ...]
    purpose: Purpose = Purpose.EMBEDDING
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """One vector per text, in their order, all of one dimension, comparable by cosine."""

    vectors: tuple[tuple[float, ...], ...]
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ImageDescriptionRequest:
    """Describe an image."""

    image: bytes = field(repr=False)
    content_type: str
    prompt: str = ""
    purpose: Purpose = Purpose.DESCRIPTION


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """Transcribe a recording. The router sets its `seconds`."""

    audio: bytes = field(repr=False)
    content_type: str
    purpose: Purpose = Purpose.DESCRIPTION
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Generate an image; `size` is width and height in pixels, None for the provider's default."""

    prompt: str
    size: tuple[int, int] | None = None
    purpose: Purpose = Purpose.IMAGE


@dataclass(frozen=True, slots=True)
class ImageResult:
    """An image: its bytes, or its URL."""

    data: bytes | None = field(default=None, repr=False)
    url: str = ""
    content_type: str = "image/png"
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """Speak a text; `voice` is one of the provider's, blank for its default.

    `content_type` is the media type that is played best where it is sent; a handler may return another one.
    """

    text: str
    voice: str = ""
    purpose: Purpose = Purpose.SPEECH
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """Generated speech."""

    audio: bytes = field(repr=False)
    content_type: str = "audio/mpeg"
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ModerationRequest:
    """Find out whether a text is harmful."""

    text: str
    purpose: Purpose = Purpose.MODERATION


@dataclass(frozen=True, slots=True)
class ModerationResult:
    """How likely a text is of each category of harm, from 0 to 1, and which of them the provider flags."""

    scores: Mapping[str, float]
    flagged: frozenset[str] = frozenset()
    model: str = ""
    usage: Usage | None = None


ModelRequest = (
    TextRequest
    | EmbeddingRequest
    | ImageDescriptionRequest
    | TranscriptionRequest
    | ImageRequest
    | SpeechRequest
    | ModerationRequest
)
ModelResult = TextResult | EmbeddingResult | ImageResult | SpeechResult | ModerationResult
