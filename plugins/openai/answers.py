"""What the API gives back, as far as it is read: servers that speak it differ in all the rest."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from bot import ModelError, TextResult, Usage

T = TypeVar("T")
HUGE = 100_000_000  # more tokens than this in one call are a mistake


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Perhaps = Annotated[T | None, WrapValidator(_or_none)]
Count = Annotated[int, Field(strict=True, ge=0, lt=HUGE)]


class Details(BaseModel):
    """Which of the prompt's tokens cost less."""

    cached_tokens: Perhaps[Count] = None


class Counted(BaseModel):
    """What an answer took; where its numbers make no sense there are none, and they are estimated."""

    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: Perhaps[Details] = None

    def usage(self) -> Usage:
        """Put it into our words."""
        details = self.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return Usage(self.prompt_tokens, self.completion_tokens, min(cached, self.prompt_tokens))


class Message(BaseModel):
    """What was written, or why nothing was."""

    content: str | None = None
    refusal: Perhaps[str] = None


class Choice(BaseModel):
    """One of the answers; only one is asked for."""

    message: Message
    finish_reason: Perhaps[str] = None


class Completion(BaseModel):
    """An answer to a chat completion."""

    choices: Annotated[list[Choice], Field(min_length=1)]
    model: Perhaps[str] = None
    usage: Perhaps[Counted] = None


def read_completion(body: bytes, model: str) -> TextResult:
    """Read an answer; raises ModelError for what is none."""
    try:
        completion = Completion.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        where = ".".join(map(str, problem["loc"])) or "the whole"
        raise ModelError(
            f"openai: {model} gave what is no chat completion ({where}: {problem['msg']}): "
            "is OPENAI_BASE_URL right?"
        ) from None
    [choice, *_] = completion.choices
    return TextResult(
        text=choice.message.content or choice.message.refusal or "",
        model=completion.model or model,
        usage=completion.usage.usage() if completion.usage else None,
        is_cut=choice.finish_reason == "length",
    )
