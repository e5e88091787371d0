"""Response models → results; strips `<think>`."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from bot.models import ModelError, TextResult, ToolCall, Usage
from bot.text import user_text

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
MAX_TOKENS_PER_CALL = 100_000_000  # more tokens than this in one call are a mistake
FILTERED = "content_filter"


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


def _object_to_text(value: object) -> object:
    """Take arguments that are an object already, as some servers send them, for the text they should be."""
    return json.dumps(value) if isinstance(value, dict) else value


Lenient = Annotated[T | None, WrapValidator(_none_if_invalid)]
TokenCount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOKENS_PER_CALL)]
JsonText = Annotated[str | None, BeforeValidator(_object_to_text)]


class PromptTokensDetails(BaseModel):
    """Which of the prompt's tokens cost less."""

    cached_tokens: Lenient[TokenCount] = None


class UsageBody(BaseModel):
    """What an answer took; where its numbers make no sense there are none, and they are estimated."""

    prompt_tokens: TokenCount
    completion_tokens: TokenCount
    prompt_tokens_details: Lenient[PromptTokensDetails] = None

    def to_usage(self) -> Usage | None:
        """Put it into our words; None where a server counts nothing, and says that it was nothing."""
        if not self.prompt_tokens:
            return None
        details = self.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return Usage(self.prompt_tokens, self.completion_tokens, min(cached, self.prompt_tokens))


class FunctionBody(BaseModel):
    """A function that is called, or a piece of such a call."""

    name: Lenient[str] = None
    arguments: JsonText = None


class ToolCallBody(BaseModel):
    """A call, or a piece of the one that `index` or `id` names."""

    index: Lenient[int] = None
    id: Lenient[str] = None
    function: FunctionBody = FunctionBody()


class MessageBody(BaseModel):
    """What was written, or why nothing was."""

    content: str | None = None
    refusal: Lenient[str] = None
    tool_calls: list[ToolCallBody] | None = None


class ChoiceBody(BaseModel):
    """One of the answers; only one is asked for."""

    message: MessageBody
    finish_reason: Lenient[str] = None


class CompletionBody(BaseModel):
    """An answer to a chat completion."""

    choices: Annotated[list[ChoiceBody], Field(min_length=1)]
    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None


def parse_response(body_type: type[M], body: bytes | str, model: str, kind: str) -> M:
    """Read an answer of a given shape; raises ModelError for what is none."""
    try:
        return body_type.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, problem["loc"])) or "the whole"
        raise ModelError(
            f"openai: {model} returned no valid {kind} ({location}: {problem['msg']}); check OPENAI_BASE_URL"
        ) from None


def parse_completion(body: bytes | str, model: str) -> TextResult:
    """Read an answer to a chat completion; raises ModelError for what is none."""
    completion = parse_response(CompletionBody, body, model, "chat completion")
    [choice, *_] = completion.choices
    message = choice.message
    calls = [(call.function.name or "", call.function.arguments or "") for call in message.tool_calls or ()]
    return build_result(
        model=completion.model or model,
        text=strip_thinking(message.content or "") or message.refusal or "",
        calls=calls,
        finish_reason=choice.finish_reason or "",
        usage=completion.usage,
    )


def build_result(
    *, model: str, text: str, calls: list[tuple[str, str]], finish_reason: str, usage: UsageBody | None
) -> TextResult:
    """Put an answer into our words; raises ModelError where a call in it cannot be read whole."""
    if finish_reason == FILTERED and not text and not calls:
        text = user_text("notices.no_answer")
    return TextResult(
        text=text,
        model=model,
        usage=usage.to_usage() if usage else None,
        is_truncated=finish_reason == "length",
        tool_calls=tuple(_build_tool_call(name, arguments, model) for name, arguments in calls),
    )


def _build_tool_call(name: str, arguments: str, model: str) -> ToolCall:
    try:
        parsed = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    if not name or not isinstance(parsed, dict):
        raise ModelError(f"openai: {model} called a function in a way that cannot be read")
    return ToolCall(name, parsed)


THINK_START, THINK_END = "<think>", "</think>"


class ThinkingFilter:
    """Takes a text piece by piece and gives what of it is for others."""

    def __init__(self) -> None:
        self._pending = ""
        self._is_thinking = False
        self._is_settled = False

    def feed(self, piece: str) -> str:
        """Take a piece; gives what may be shown of it and of what was held back."""
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
        """Give what is left when no more comes: all that was held, unless it is thought alone."""
        return "" if self._is_thinking else self._release(self._pending)

    def _release(self, text: str) -> str:
        self._pending, self._is_settled = "", True
        return text


def strip_thinking(text: str) -> str:
    """Leave out what a whole text begins with in thoughts."""
    thinking = ThinkingFilter()
    return thinking.feed(text) + thinking.finish()
