"""Public module for authors of model providers: model types, requests, results and errors."""

from bot.domain.ledger import ModelCall
from bot.errors import (
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
    ToolsRefused,
)
from bot.http import host_label
from bot.models.handler import ResponseMemory, note_call
from bot.models.listing import ModelListing
from bot.models.router import ModelStatus, parse_retry_after, read_arguments
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelInfo,
    ModelType,
    Purpose,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TextSink,
    Tool,
    ToolCall,
    TranscriptionRequest,
    Usage,
)

__all__ = [
    "EmbeddingRequest",
    "EmbeddingResult",
    "ImageDescriptionRequest",
    "ImageRequest",
    "ImageResult",
    "InvalidAnswer",
    "ModelBusy",
    "ModelCall",
    "ModelError",
    "ModelInfo",
    "ModelListing",
    "ModelRefused",
    "ModelStatus",
    "ModelType",
    "ModelUnavailable",
    "ModelUnreachable",
    "PromptTooLong",
    "Purpose",
    "ResponseMemory",
    "SpeechRequest",
    "SpeechResult",
    "TextRequest",
    "TextResult",
    "TextSink",
    "Tool",
    "ToolCall",
    "ToolsRefused",
    "TranscriptionRequest",
    "Usage",
    "host_label",
    "note_call",
    "parse_retry_after",
    "read_arguments",
]
