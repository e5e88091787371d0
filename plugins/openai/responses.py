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

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
HUGE = 100_000_000  # more tokens than this in one call are a mistake
REFUSED = "I would rather not answer that."
FILTERED = "content_filter"


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


def _text(value: object) -> object:
    """Take arguments that are an object already, as some servers send them, for the text they should be."""
    return json.dumps(value) if isinstance(value, dict) else value


Perhaps = Annotated[T | None, WrapValidator(_or_none)]
Count = Annotated[int, Field(strict=True, ge=0, lt=HUGE)]
JsonText = Annotated[str | None, BeforeValidator(_text)]


class Details(BaseModel):
    """Which of the prompt's tokens cost less."""

    cached_tokens: Perhaps[Count] = None


class Counted(BaseModel):
    """What an answer took; where its numbers make no sense there are none, and they are estimated."""

    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: Perhaps[Details] = None

    def usage(self) -> Usage | None:
        """Put it into our words; None where a server counts nothing, and says that it was nothing."""
        if not self.prompt_tokens:
            return None
        details = self.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return Usage(self.prompt_tokens, self.completion_tokens, min(cached, self.prompt_tokens))


class Function(BaseModel):
    """A function that is called, or a piece of such a call."""

    name: Perhaps[str] = None
    arguments: JsonText = None


class Call(BaseModel):
    """A call, or a piece of the one that `index` or `id` names."""

    index: Perhaps[int] = None
    id: Perhaps[str] = None
    function: Function = Function()


class Message(BaseModel):
    """What was written, or why nothing was."""

    content: str | None = None
    refusal: Perhaps[str] = None
    tool_calls: list[Call] | None = None


class Choice(BaseModel):
    """One of the answers; only one is asked for."""

    message: Message
    finish_reason: Perhaps[str] = None


class Completion(BaseModel):
    """An answer to a chat completion."""

    choices: Annotated[list[Choice], Field(min_length=1)]
    model: Perhaps[str] = None
    usage: Perhaps[Counted] = None


def read_as(shape: type[M], body: bytes | str, model: str, kind: str) -> M:
    """Read an answer of a given shape; raises ModelError for what is none."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        where = ".".join(map(str, problem["loc"])) or "the whole"
        raise ModelError(
            f"openai: {model} gave what is no {kind} ({where}: {problem['msg']}): is OPENAI_BASE_URL right?"
        ) from None


def read_completion(body: bytes | str, model: str) -> TextResult:
    """Read an answer to a chat completion; raises ModelError for what is none."""
    completion = read_as(Completion, body, model, "chat completion")
    [choice, *_] = completion.choices
    message = choice.message
    calls = [(call.function.name or "", call.function.arguments or "") for call in message.tool_calls or ()]
    return result_of(
        model=completion.model or model,
        text=without_thinking(message.content or "") or message.refusal or "",
        calls=calls,
        finish=choice.finish_reason or "",
        counted=completion.usage,
    )


def result_of(
    *, model: str, text: str, calls: list[tuple[str, str]], finish: str, counted: Counted | None
) -> TextResult:
    """Put an answer into our words; raises ModelError where a call in it cannot be read whole."""
    if finish == FILTERED and not text and not calls:
        text = REFUSED
    return TextResult(
        text=text,
        model=model,
        usage=counted.usage() if counted else None,
        is_truncated=finish == "length",
        tool_calls=tuple(_call(name, arguments, model) for name, arguments in calls),
    )


def _call(name: str, arguments: str, model: str) -> ToolCall:
    try:
        given = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        given = None
    if not name or not isinstance(given, dict):
        raise ModelError(f"openai: {model} called a function in a way that cannot be read")
    return ToolCall(name, given)


OPENING, CLOSING = "<think>", "</think>"


class Thinking:
    """Takes a text piece by piece and gives what of it is for others."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._is_settled = False

    def feed(self, piece: str) -> str:
        """Take a piece; gives what may be shown of it and of what was held back."""
        if self._is_settled:
            return piece
        self._held += piece
        if not self._is_thinking:
            start = self._held.lstrip()
            if OPENING.startswith(start[: len(OPENING)]) and len(start) < len(OPENING):
                return ""
            if not start.startswith(OPENING):
                return self._release(self._held)
            self._is_thinking = True
        _, closed, rest = self._held.partition(CLOSING)
        if closed and rest.lstrip():
            return self._release(rest.lstrip())
        if not closed:
            self._held = OPENING + self._held[-len(CLOSING) :]
        return ""

    def end(self) -> str:
        """Give what is left when no more comes: all that was held, unless it is thought alone."""
        return "" if self._is_thinking else self._release(self._held)

    def _release(self, text: str) -> str:
        self._held, self._is_settled = "", True
        return text


def without_thinking(text: str) -> str:
    """Leave out what a whole text begins with in thoughts."""
    thinking = Thinking()
    return thinking.feed(text) + thinking.end()
