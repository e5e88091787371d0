"""What a model can be asked, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self


class ModelType(StrEnum):
    """What a handler can do; spelled as in the sources, their aliases included."""

    TEXT_SMALL = "TEXT_SMALL"
    TEXT_MEDIUM = "TEXT_MEDIUM"
    TEXT_LARGE = "TEXT_LARGE"
    TEXT_EMBEDDING = "TEXT_EMBEDDING"
    OBJECT_SMALL = "OBJECT_SMALL"
    OBJECT_MEDIUM = "OBJECT_MEDIUM"
    OBJECT_LARGE = "OBJECT_LARGE"
    IMAGE = "IMAGE"
    IMAGE_DESCRIPTION = "IMAGE_DESCRIPTION"
    TRANSCRIPTION = "TRANSCRIPTION"
    TEXT_TO_SPEECH = "TEXT_TO_SPEECH"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        normalized = str(value).strip().upper()
        normalized = {"IMAGE_GENERATION": "IMAGE", "SPEECH_TO_TEXT": "TRANSCRIPTION"}.get(
            normalized, normalized
        )
        return next((member for member in cls if member.value == normalized), None)


class Purpose(StrEnum):
    """What a call is for; shown in receipts and counted apart."""

    SHOULD_RESPOND = "should_respond"
    REPLY = "reply"
    STEP = "step"
    SUMMARY = "summary"
    REPAIR = "repair"
    POST = "post"
    REFLECTION = "reflection"
    DESCRIPTION = "description"
    IMAGE = "image"
    SPEECH = "speech"
    EMBEDDING = "embedding"
    CHECK = "check"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the provider counted them; `is_estimate` where it did not."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    is_estimate: bool = False


class TextSink(Protocol):
    """Is shown a text while it is being written; neither call may take long."""

    async def write(self, text: str) -> None:
        """Take the next piece of the text."""

    async def restart(self) -> None:
        """Forget every piece so far: the text begins anew."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to be called; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model asks to be called; nobody has held the arguments against their schema."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Write a text.

    `temperature` and the other sampling values are the operator's where None, and where that has none
    the provider's own. `schema`, a JSON schema, asks for an object of that shape from handlers that can be
    held to one. `tools` are for handlers that can call them. A handler that writes piece by piece shows
    each to the `sink`; the result is the whole text all the same.
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


@dataclass(frozen=True, slots=True)
class TextResult:
    """A text, who wrote it, and what that took; `is_cut` where the length limit ended it.

    `calls` are the tools that it asks to be called, in order; none of them is cut.
    """

    text: str
    model: str = ""
    usage: Usage | None = None
    is_truncated: bool = False
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Turn texts into vectors."""

    texts: tuple[str, ...]
    purpose: Purpose = Purpose.EMBEDDING


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """One vector a text, in their order, all of one dimension, comparable by cosine."""

    vectors: tuple[tuple[float, ...], ...]
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ImageDescriptionRequest:
    """Say what a picture shows."""

    image: bytes = field(repr=False)
    content_type: str
    prompt: str = ""
    purpose: Purpose = Purpose.DESCRIPTION


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """Write down what a recording says."""

    audio: bytes = field(repr=False)
    content_type: str
    purpose: Purpose = Purpose.DESCRIPTION


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Draw a picture; `size` is width and height in pixels, the provider's own where None."""

    prompt: str
    size: tuple[int, int] | None = None
    purpose: Purpose = Purpose.IMAGE


@dataclass(frozen=True, slots=True)
class ImageResult:
    """A picture: its bytes, or the address at which it lies."""

    data: bytes | None = field(default=None, repr=False)
    url: str = ""
    content_type: str = "image/png"
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """Speak a text; `voice` is one of the provider's, its own choice where blank."""

    text: str
    voice: str = ""
    purpose: Purpose = Purpose.SPEECH


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """A spoken text."""

    audio: bytes = field(repr=False)
    content_type: str = "audio/mpeg"
    model: str = ""
    usage: Usage | None = None


ModelRequest = (
    TextRequest
    | EmbeddingRequest
    | ImageDescriptionRequest
    | TranscriptionRequest
    | ImageRequest
    | SpeechRequest
)
ModelResult = TextResult | EmbeddingResult | ImageResult | SpeechResult
