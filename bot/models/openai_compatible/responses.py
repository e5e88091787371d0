"""Parse responses of the API into results, and remove `<think>` blocks from texts."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from bot.errors import InvalidAnswer
from bot.models.openai_compatible.connection import Endpoint
from bot.models.types import TextResult, ToolCall, Usage
from bot.text import user_text

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
MAX_TOKENS_PER_CALL = 100_000_000  # larger counts are treated as invalid
FILTERED = "content_filter"


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


def _object_to_text(value: object) -> object:
    """Return arguments as JSON text; some servers send an object instead."""
    return json.dumps(value) if isinstance(value, dict) else value


Lenient = Annotated[T | None, WrapValidator(_none_if_invalid)]
TokenCount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOKENS_PER_CALL)]
JsonText = Annotated[str | None, BeforeValidator(_object_to_text)]


class PromptTokensDetails(BaseModel):
    """The cached tokens of a prompt."""

    cached_tokens: Lenient[TokenCount] = None


class UsageBody(BaseModel):
    """The tokens of a response; invalid numbers are dropped and estimated later."""

    prompt_tokens: TokenCount
    completion_tokens: TokenCount
    prompt_tokens_details: Lenient[PromptTokensDetails] = None

    def to_usage(self) -> Usage | None:
        """Return the usage; None if the server does not count tokens and reports zero."""
        if not self.prompt_tokens:
            return None
        details = self.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return Usage(self.prompt_tokens, self.completion_tokens, min(cached, self.prompt_tokens))


class FunctionBody(BaseModel):
    """A called function, or a part of one in a stream."""

    name: Lenient[str] = None
    arguments: JsonText = None


class ToolCallBody(BaseModel):
    """A tool call, or a part of the call that `index` or `id` names."""

    index: Lenient[int] = None
    id: Lenient[str] = None
    function: FunctionBody = FunctionBody()


class MessageBody(BaseModel):
    """The message of a response, or its refusal."""

    content: str | None = None
    refusal: Lenient[str] = None
    tool_calls: list[ToolCallBody] | None = None


class ChoiceBody(BaseModel):
    """A choice of a response; one is requested."""

    message: MessageBody
    finish_reason: Lenient[str] = None


class CompletionBody(BaseModel):
    """The response to a chat completion."""

    choices: Annotated[list[ChoiceBody], Field(min_length=1)]
    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None


def parse_response(body_type: type[M], body: bytes | str, model: str, kind: str, endpoint: Endpoint) -> M:
    """Parse a response body. Raises InvalidAnswer if it has another form."""
    try:
        return body_type.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, problem["loc"])) or "the whole response"
        raise InvalidAnswer(
            f"{endpoint.provider}: {model} returned no valid {kind} ({location}: {problem['msg']}); "
            f"check {endpoint.url_name}"
        ) from None


def parse_completion(body: bytes | str, model: str, endpoint: Endpoint) -> TextResult:
    """Parse the response to a chat completion. Raises InvalidAnswer if it is invalid."""
    completion = parse_response(CompletionBody, body, model, "chat completion", endpoint)
    [choice, *_] = completion.choices
    message = choice.message
    calls = [(call.function.name or "", call.function.arguments or "") for call in message.tool_calls or ()]
    return build_result(
        model=completion.model or model,
        text=strip_thinking(message.content or "") or message.refusal or "",
        calls=calls,
        finish_reason=choice.finish_reason or "",
        usage=completion.usage,
        endpoint=endpoint,
    )


def build_result(
    *,
    model: str,
    text: str,
    calls: list[tuple[str, str]],
    finish_reason: str,
    usage: UsageBody | None,
    endpoint: Endpoint,
) -> TextResult:
    """Return a TextResult. Raises InvalidAnswer if a tool call in it is invalid."""
    if finish_reason == FILTERED and not text and not calls:
        text = user_text("notices.no_answer")
    return TextResult(
        text=text,
        model=model,
        usage=usage.to_usage() if usage else None,
        is_truncated=finish_reason == "length",
        tool_calls=tuple(_build_tool_call(name, arguments, model, endpoint) for name, arguments in calls),
    )


def _build_tool_call(name: str, arguments: str, model: str, endpoint: Endpoint) -> ToolCall:
    try:
        parsed = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    if not name or not isinstance(parsed, dict):
        raise InvalidAnswer(f"{endpoint.provider}: {model} returned a tool call that cannot be read")
    return ToolCall(name, parsed)


THINK_START, THINK_END = "<think>", "</think>"


class ThinkingFilter:
    """Removes a leading `<think>` block from a streamed text."""

    def __init__(self) -> None:
        self._pending = ""
        self._is_thinking = False
        self._is_settled = False

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be shown now."""
        if self._is_settled:
            return piece
        self._pending += piece
        if not self._is_thinking:
            start = self._pending.lstrip()
            if THINK_START.startswith(start[: len(THINK_START)]) and len(start) < len(THINK_START):
                return ""
            if not start.startswith(THINK_START):
                return self._release(self._pending)
            self._is_thinking = True
        _, closed, rest = self._pending.partition(THINK_END)
        if closed and rest.lstrip():
            return self._release(rest.lstrip())
        if not closed:
            self._pending = THINK_START + self._pending[-len(THINK_END) :]
        return ""

    def finish(self) -> str:
        """Return the pending text at the end of the stream; empty inside a `<think>` block."""
        return "" if self._is_thinking else self._release(self._pending)

    def _release(self, text: str) -> str:
        self._pending, self._is_settled = "", True
        return text


def strip_thinking(text: str) -> str:
    """Return a text without a leading `<think>` block."""
    thinking = ThinkingFilter()
    return thinking.feed(text) + thinking.finish()
