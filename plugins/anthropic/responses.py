"""Parse responses of the API into results."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, field_validator

from bot.models import InvalidAnswer, ModelBusy, ModelError, TextResult, ToolCall, Usage, read_arguments
from bot.text import user_text

T = TypeVar("T")
MAX_TOKENS_PER_CALL = 100_000_000  # larger counts are treated as invalid
TRANSIENT_ERRORS = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
TRUNCATION_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Lenient = Annotated[T | None, WrapValidator(_none_if_invalid)]
TokenCount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOKENS_PER_CALL)]


class UsageBody(BaseModel):
    """The tokens of a response, or of its part so far; three kinds of input tokens are counted apart."""

    input_tokens: Lenient[TokenCount] = None
    output_tokens: Lenient[TokenCount] = None
    cache_creation_input_tokens: Lenient[TokenCount] = None
    cache_read_input_tokens: Lenient[TokenCount] = None

    def updated(self, newer: "UsageBody") -> "UsageBody":
        """Return these numbers, replaced by the newer ones that are set."""
        return self.model_copy(update=newer.model_dump(exclude_none=True))

    def to_usage(self) -> Usage | None:
        """Return the usage; None if its numbers are missing, invalid or zero."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        cached = self.cache_read_input_tokens or 0
        tokens_in = self.input_tokens + (self.cache_creation_input_tokens or 0) + cached
        if not tokens_in:
            return None
        return Usage(tokens_in, self.output_tokens, cached)


class ContentBlock(BaseModel):
    """A part of a message: text, a tool call, or a type that is ignored, such as thinking."""

    type: Lenient[str] = None
    text: Lenient[str] = None
    name: Lenient[str] = None
    input: Any = None


class StopDetails(BaseModel):
    """Why the model refused to answer."""

    explanation: Lenient[str] = None


class ErrorBody(BaseModel):
    """An error reported inside an answer."""

    type: Lenient[str] = None
    message: Lenient[str] = None

    def to_model_error(self, model: str) -> ModelError:
        """Return the ModelError; ModelBusy if the same request may succeed later."""
        message = " ".join((self.message or self.type or "no reason given").split())[:200]
        error_type = ModelBusy if self.type in TRANSIENT_ERRORS else ModelError
        return error_type(f"anthropic: {model} broke its answer off: {message}")


class MessageBody(BaseModel):
    """A response message. Its content may be a text or missing too: some servers of other makers send that."""

    content: list[ContentBlock]
    model: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None
    usage: Lenient[UsageBody] = None

    @field_validator("content", mode="before")
    @classmethod
    def _to_blocks(cls, value: Any) -> Any:
        blocks = [value] if isinstance(value, str | dict) else value or []
        if not isinstance(blocks, list):
            return blocks
        blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return [block for block in blocks if isinstance(block, dict)]


class ErrorAnswer(BaseModel):
    """A response that reports an error though its status says success."""

    error: ErrorBody


def parse_message(body: bytes | str, model: str) -> TextResult:
    """Parse a response message. Raises InvalidAnswer if it has another form, ModelError if it reports an error."""
    try:
        message = MessageBody.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, problem["loc"])) or "the whole response"
        try:
            reported = ErrorAnswer.model_validate_json(body)
        except ValidationError:
            raise InvalidAnswer(
                f"anthropic: {model} returned no valid message ({location}: {problem['msg']}); check ANTHROPIC_BASE_URL"
            ) from None
        raise reported.error.to_model_error(model) from None
    return build_result(
        model=message.model or model,
        text="".join(block.text or "" for block in message.content if block.type in ("text", None)),
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
    """Return a TextResult; a notice instead of the text that a refusal has cut off.

    Raises InvalidAnswer if a tool call in it is invalid.
    """
    if stop_reason == "refusal":
        text = (stop_details.explanation if stop_details else None) or user_text("notices.no_answer")
        calls = ()
    return TextResult(
        text=text,
        model=model,
        usage=usage.to_usage(),
        is_truncated=stop_reason in TRUNCATION_REASONS,
        tool_calls=tuple(call for name, arguments in calls for call in _build_tool_calls(name, arguments, model)),
    )


def _build_tool_calls(name: str, arguments: object, model: str) -> list[ToolCall]:
    try:
        values = read_arguments(arguments) if name else []
    except ValueError:
        values = []
    if not values:
        raise InvalidAnswer(f"anthropic: {model} returned a tool call that cannot be read")
    return [ToolCall(name, given) for given in values]
