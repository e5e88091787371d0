"""What the API gives back, as far as it is read."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from bot.models import ModelError, TextResult, ToolCall, Usage

T = TypeVar("T")
HUGE = 100_000_000  # more tokens than this in one call are a mistake
REFUSED = "I would rather not answer that."
CUT = frozenset({"max_tokens", "model_context_window_exceeded"})


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Perhaps = Annotated[T | None, WrapValidator(_or_none)]
Count = Annotated[int, Field(strict=True, ge=0, lt=HUGE)]


class Counted(BaseModel):
    """What an answer took, or has taken so far: the three kinds of tokens in are counted apart."""

    input_tokens: Perhaps[Count] = None
    output_tokens: Perhaps[Count] = None
    cache_creation_input_tokens: Perhaps[Count] = None
    cache_read_input_tokens: Perhaps[Count] = None

    def later(self, newer: "Counted") -> "Counted":
        """Put newer numbers over these."""
        return self.model_copy(update=newer.model_dump(exclude_none=True))

    def usage(self) -> Usage | None:
        """Put it into our words; None where its numbers make no sense, or it says that it was nothing."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        cached = self.cache_read_input_tokens or 0
        tokens_in = self.input_tokens + (self.cache_creation_input_tokens or 0) + cached
        if not tokens_in:
            return None
        return Usage(tokens_in, self.output_tokens, cached)


class Block(BaseModel):
    """A part of an answer: text, a call, or something that is not read, such as thoughts."""

    type: str
    text: Perhaps[str] = None
    name: Perhaps[str] = None
    input: Any = None


class Details(BaseModel):
    """Why the model would not go on."""

    explanation: Perhaps[str] = None


class Answer(BaseModel):
    """An answer."""

    content: list[Block]
    model: Perhaps[str] = None
    stop_reason: Perhaps[str] = None
    stop_details: Perhaps[Details] = None
    usage: Perhaps[Counted] = None


def read_answer(body: bytes, model: str) -> TextResult:
    """Read an answer; raises ModelError for what is none."""
    try:
        answer = Answer.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        where = ".".join(map(str, problem["loc"])) or "the whole"
        raise ModelError(
            f"anthropic: {model} gave what is no message ({where}: {problem['msg']}): "
            "is ANTHROPIC_BASE_URL right?"
        ) from None
    return result_of(
        model=answer.model or model,
        text="".join(block.text or "" for block in answer.content if block.type == "text"),
        calls=[(one.name or "", one.input) for one in answer.content if one.type == "tool_use"],
        stop=answer.stop_reason or "",
        why=answer.stop_details,
        counted=answer.usage or Counted(),
    )


def result_of(
    *,
    model: str,
    text: str,
    calls: Sequence[tuple[str, object]],
    stop: str,
    why: Details | None,
    counted: Counted,
) -> TextResult:
    """Put an answer into our words; raises ModelError where a call in it is not whole."""
    if stop == "refusal" and not text:
        text = (why.explanation if why else None) or REFUSED
    if stop == "refusal":
        calls = ()
    return TextResult(
        text=text,
        model=model,
        usage=counted.usage(),
        is_truncated=stop in CUT,
        tool_calls=tuple(_call(name, given, model) for name, given in calls),
    )


def _call(name: str, given: object, model: str) -> ToolCall:
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            given = None
    if not name or not isinstance(given, dict):
        raise ModelError(f"anthropic: {model} called a function in a way that cannot be read")
    return ToolCall(name, given)
