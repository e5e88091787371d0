"""What the API gives back, as far as it is read."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from bot.models import ModelError, TextResult, ToolCall, Usage
from bot.text import user_text

T = TypeVar("T")
MAX_TOKENS_PER_CALL = 100_000_000  # more tokens than this in one call are a mistake
TRUNCATION_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Lenient = Annotated[T | None, WrapValidator(_none_if_invalid)]
TokenCount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOKENS_PER_CALL)]


class UsageBody(BaseModel):
    """What an answer took, or has taken so far: the three kinds of tokens in are counted apart."""

    input_tokens: Lenient[TokenCount] = None
    output_tokens: Lenient[TokenCount] = None
    cache_creation_input_tokens: Lenient[TokenCount] = None
    cache_read_input_tokens: Lenient[TokenCount] = None

    def updated(self, newer: "UsageBody") -> "UsageBody":
        """Put newer numbers over these."""
        return self.model_copy(update=newer.model_dump(exclude_none=True))

    def to_usage(self) -> Usage | None:
        """Put it into our words; None where its numbers make no sense, or it says that it was nothing."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        cached = self.cache_read_input_tokens or 0
        tokens_in = self.input_tokens + (self.cache_creation_input_tokens or 0) + cached
        if not tokens_in:
            return None
        return Usage(tokens_in, self.output_tokens, cached)


class ContentBlock(BaseModel):
    """A part of an answer: text, a call, or something that is not read, such as thoughts."""

    type: str
    text: Lenient[str] = None
    name: Lenient[str] = None
    input: Any = None


class StopDetails(BaseModel):
    """Why the model would not go on."""

    explanation: Lenient[str] = None


class MessageBody(BaseModel):
    """An answer."""

    content: list[ContentBlock]
    model: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None
    usage: Lenient[UsageBody] = None


def parse_message(body: bytes, model: str) -> TextResult:
    """Read an answer; raises ModelError for what is none."""
    try:
        message = MessageBody.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, problem["loc"])) or "the whole"
        raise ModelError(
            f"anthropic: {model} gave what is no message ({location}: {problem['msg']}): "
            "is ANTHROPIC_BASE_URL right?"
        ) from None
    return build_result(
        model=message.model or model,
        text="".join(block.text or "" for block in message.content if block.type == "text"),
        calls=[(block.name or "", block.input) for block in message.content if block.type == "tool_use"],
        stop_reason=message.stop_reason or "",
        stop_details=message.stop_details,
        usage=message.usage or UsageBody(),
    )


def build_result(
    *,
    model: str,
    text: str,
    calls: Sequence[tuple[str, object]],
    stop_reason: str,
    stop_details: StopDetails | None,
    usage: UsageBody,
) -> TextResult:
    """Put an answer into our words; raises ModelError where a call in it is not whole."""
    if stop_reason == "refusal" and not text:
        text = (stop_details.explanation if stop_details else None) or user_text("notices.no_answer")
    if stop_reason == "refusal":
        calls = ()
    return TextResult(
        text=text,
        model=model,
        usage=usage.to_usage(),
        is_truncated=stop_reason in TRUNCATION_REASONS,
        tool_calls=tuple(_build_tool_call(name, arguments, model) for name, arguments in calls),
    )


def _build_tool_call(name: str, arguments: object, model: str) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not name or not isinstance(arguments, dict):
        raise ModelError(f"anthropic: {model} called a function in a way that cannot be read")
    return ToolCall(name, arguments)
