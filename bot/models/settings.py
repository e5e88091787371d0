"""Sampling settings: the operator's values per model type, for what a request leaves open."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from bot.errors import SettingError
from bot.models.types import ModelType, TextRequest
from bot.settings import Settings, SettingsModel

# Names of elizaOS that apply to all types.
LEGACY_NAMES = {
    "MAX_TOKENS": "MODEL_MAX_TOKEN",
    "TEMPERATURE": "MODEL_TEMPERATURE",
    "FREQUENCY_PENALTY": "MODEL_FREQ_PENALTY",
    "PRESENCE_PENALTY": "MODEL_PRESENCE_PENALTY",
}
TEXT_TYPES = tuple(kind for kind in ModelType if kind.startswith(("TEXT_SMALL", "TEXT_M", "TEXT_L", "OBJECT_")))
Tokens = Annotated[int | None, Field(ge=1)]
Probability = Annotated[float | None, Field(ge=0, le=1)]
Penalty = Annotated[float | None, Field(ge=-2, le=2)]


class AnswerFormSetting(StrEnum):
    """The form in which answers are requested."""

    AUTO = "auto"
    TAGS = "tags"
    JSON = "json"
    TEXT = "text"


class ModelSettings(SettingsModel):
    """Settings for calling any model."""

    CHARACTER_SETTINGS = frozenset(
        [
            "DEFAULT_MAX_TOKENS",
            "DEFAULT_TEMPERATURE",
            "DEFAULT_TOP_P",
            "DEFAULT_TOP_K",
            "DEFAULT_MIN_P",
            "DEFAULT_SEED",
            "DEFAULT_REPETITION_PENALTY",
            "DEFAULT_FREQUENCY_PENALTY",
            "DEFAULT_PRESENCE_PENALTY",
        ]
    )

    model_timeout: float = Field(
        120.0,
        gt=0,
        description="Seconds to wait for the first word of a model. A server on this machine has as long as it needs "
        "to read the prompt, and works on one request after the other.",
    )
    model_token_timeout: float = Field(
        30.0, gt=0, description="Seconds that a model may pause between two words of an answer."
    )
    model_retries: int = Field(8, ge=0, le=8, description="How often a call to a busy or unreachable model is retried.")
    model_answer_form: AnswerFormSetting = Field(
        AnswerFormSetting.AUTO,
        description="The form in which answers are requested: `json`, which some servers make a model write by a "
        "schema, `tags`, which most models can write, `text`, without actions, for the smallest, or `auto`: JSON until "
        "the server has refused or ignored it, and text for a model of less than a billion parameters.",
    )
    default_max_tokens: Tokens = Field(
        None,
        description="Maximum length of a text in tokens. This and the next eight can be set for one type "
        "alone: TEXT_SMALL_MAX_TOKENS, TEXT_LARGE_TEMPERATURE, OBJECT_SMALL_SEED. "
        "Unset, it is 1024 for a reply, and 8192 more for a model that thinks.",
    )
    default_temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature: higher is more random."
    )
    default_top_p: Probability = Field(
        None, description="Sample only from the most likely tokens that have this probability together."
    )
    default_top_k: int | None = Field(None, ge=0, description="Sample only from this number of most likely tokens.")
    default_min_p: Probability = Field(
        None, description="Skip tokens less likely than this share of the most likely one."
    )
    default_seed: int | None = Field(
        None, description="The same seed gives the same text, if the provider supports it."
    )
    default_repetition_penalty: float | None = Field(
        None, ge=0, description="Above 1, tokens that were used already become less likely."
    )
    default_frequency_penalty: Penalty = Field(None, description="The same, by how often they were used.")
    default_presence_penalty: Penalty = Field(None, description="The same, by whether they were used at all.")


class Sampling(SettingsModel):
    """Sampling values of one type of text; None leaves the value to the provider."""

    model_config = ConfigDict(alias_generator=None)

    max_tokens: Tokens = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: Probability = None
    top_k: int | None = Field(None, ge=0)
    min_p: Probability = None
    seed: int | None = None
    repetition_penalty: float | None = Field(None, ge=0)
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None

    def fill(self, request: TextRequest) -> TextRequest:
        """Return the request with these values where it has none of its own."""
        values = self.model_dump(exclude_none=True)
        missing = {name: value for name, value in values.items() if getattr(request, name) is None}
        return replace(request, **missing) if missing else request


def read_sampling(settings: Settings) -> dict[ModelType, Sampling]:
    """Return the values of every text type; raises SettingError with the name of an invalid variable."""
    return {kind: _read_type(kind, settings) for kind in TEXT_TYPES}


def _read_type(kind: ModelType, settings: Settings) -> Sampling:
    variables = {name: next(_list_variables(kind, name.upper(), settings), "") for name in Sampling.model_fields}
    values = {name: settings.get(variable) for name, variable in variables.items() if variable}
    try:
        return Sampling.model_validate(values)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        variable = variables[str(problem["loc"][0])]
        source = settings.source_of(variable)
        raise SettingError(f"{variable} (in {source}): {problem['msg']}") from None


def _list_variables(kind: ModelType, name: str, settings: Settings) -> Iterator[str]:
    """Yield the variables that set this value, the most specific first."""
    for variable in (f"{kind}_{name}", f"DEFAULT_{name}", LEGACY_NAMES.get(name, "")):
        if variable in settings:
            yield variable
