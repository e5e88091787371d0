"""Sampling settings and their precedence."""

import pytest

from bot.errors import SettingError
from bot.models.handler import SAMPLING, ModelSettings, read_sampling
from bot.models.types import ModelType, TextRequest, TextResult
from bot.settings import Layer, Settings
from tests.models.bench import RouterBench, build_result

SMALL, LARGE = ModelType.TEXT_SMALL, ModelType.TEXT_LARGE


def settings_with(**values: str) -> Settings:
    return Settings([Layer("the test", values)])


def test_a_value_of_the_own_type_precedes_the_common_value_and_the_older_names() -> None:
    sampling = read_sampling(
        settings_with(
            TEXT_SMALL_TEMPERATURE="0.1",
            DEFAULT_TEMPERATURE="0.5",
            MODEL_TEMPERATURE="0.9",
            MODEL_MAX_TOKEN="77",
            MODEL_FREQ_PENALTY="0.3",
            MODEL_PRESENCE_PENALTY="0.4",
        )
    )

    assert (sampling[SMALL]["temperature"], sampling[LARGE]["temperature"]) == (0.1, 0.5)
    assert sampling[LARGE]["max_tokens"] == 77
    assert (sampling[LARGE]["frequency_penalty"], sampling[LARGE]["presence_penalty"]) == (0.3, 0.4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", 12),
        ("TEMPERATURE", 0.0),
        ("TOP_P", 0.5),
        ("TOP_K", 40),
        ("MIN_P", 0.05),
        ("SEED", 0),
        ("REPETITION_PENALTY", 1.1),
        ("FREQUENCY_PENALTY", -1.0),
        ("PRESENCE_PENALTY", 2.0),
    ],
)
@pytest.mark.parametrize("kind", ["OBJECT_MEDIUM", "DEFAULT"])
def test_every_value_can_be_set_for_a_type_or_for_all(kind: str, name: str, value: float) -> None:
    sampling = read_sampling(settings_with(**{f"{kind}_{name}": str(value)}))

    assert sampling[ModelType.OBJECT_MEDIUM] == {name.lower(): value}
    assert sampling[LARGE] == ({name.lower(): value} if kind == "DEFAULT" else {})


async def test_a_request_keeps_its_own_values_including_zero() -> None:
    requests: list[TextRequest] = []

    async def keep(request: TextRequest) -> TextResult:
        requests.append(request)
        return build_result()

    bench = RouterBench(sampling=read_sampling(settings_with(DEFAULT_TEMPERATURE="0.7", DEFAULT_TOP_K="5")))
    bench.serve(keep)
    await bench.router.text(TextRequest("a"))
    await bench.router.text(TextRequest("a", temperature=0.0))

    assert [(request.temperature, request.top_k) for request in requests] == [(0.7, 5), (0.0, 5)]


@pytest.mark.parametrize(
    ("name", "value"), [("TEXT_LARGE_TEMPERATURE", "hot"), ("DEFAULT_TOP_P", "7"), ("MODEL_MAX_TOKEN", "0")]
)
def test_a_wrong_value_is_named_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=rf"{name} \(in the test\): Input should be"):
        read_sampling(settings_with(**{name: value}))


def test_each_setting_for_all_types_is_a_sampling_value() -> None:
    listed = {name.removeprefix("default_") for name in ModelSettings.model_fields if "default_" in name}

    assert listed == {"max_tokens", *SAMPLING}
