"""Prices of model calls."""

from dataclasses import replace
from datetime import date

import pytest

from bot.costs.budget import Price, load_prices, parse_price
from bot.domain.ledger import ModelCall
from bot.models.handler import estimate_usage
from bot.models.types import ModelType, TranscriptionRequest


def build_call(model: str, tokens_in: int = 1_000_000, tokens_out: int = 0, tokens_cached: int = 0) -> ModelCall:
    return ModelCall("TEXT_LARGE", "reply", model, tokens_in, tokens_out, tokens_cached)


def test_cached_tokens_are_part_of_the_input_tokens() -> None:
    price = Price(10.0, 1.0, 40.0)
    assert price.cost_of(build_call("m", 1_000_000, 0, 0)) == 10.0
    assert price.cost_of(build_call("m", 1_000_000, 0, 500_000)) == 5.5
    assert price.cost_of(build_call("m", 0, 100_000)) == 4.0
    assert price.cost_of(build_call("m", 10, 0, 5_000)) == 0.00001  # more cached than there was: a provider's slip


def test_the_price_list_has_a_date_and_no_negative_price() -> None:
    prices = load_prices()
    assert prices.as_of > date(2026, 1, 1)
    for price in prices.by_name.values():
        assert 0 <= price.tokens_cached <= price.tokens_in < 1000
        assert 0 <= price.tokens_out < 1000
        assert 0 <= price.per_call < 1


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("GPT-4o", "gpt-4o"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
    ],
)
def test_date_and_vendor_in_a_name_do_not_change_the_price(name: str, same: str) -> None:
    prices = load_prices()
    assert prices.find(name) == prices.find(same) is not None


@pytest.mark.parametrize("name", ["llama3.2", "openai/gpt-oss-120b", "gpt-4o-audio-preview", "", "gpt"])
def test_an_unknown_model_has_no_price_instead_of_zero(name: str) -> None:
    assert load_prices().cost_of(build_call(name)) is None


def test_an_operators_price_comes_first_and_may_be_zero() -> None:
    prices = load_prices(["llama*=0", "gpt-4o=1/2", "big/Model=3/0.3/6"])
    assert prices.cost_of(build_call("Llama3.2:3b")) == 0
    assert prices.find("gpt-4o") == Price(1, 1, 2)
    assert prices.find("big/model") == Price(3, 0.3, 6)
    assert prices.find("gpt-4o-mini") == load_prices().find("gpt-4o-mini")


@pytest.mark.parametrize(
    "text",
    ["", "gpt-4o", "=1/2", "m=", "m=1", "m=/call", "m=1/2/call", "m=a/b", "m=1/2/3/4", "m=-1/2", "m=nan/1", "m=inf/1"],
)
def test_an_invalid_price_is_refused_with_the_expected_format(text: str) -> None:
    with pytest.raises(ValueError, match="write it as name=in/out"):
        parse_price(text)


def test_embeddings_of_a_custom_dimension_cost_what_their_model_costs() -> None:
    made = replace(build_call("text-embedding-3-small-256", 1_000_000), type="TEXT_EMBEDDING")
    assert load_prices().cost_of(made) == 0.02
    assert load_prices().cost_of(replace(made, type="TEXT_LARGE")) is None


@pytest.mark.parametrize(
    ("kind", "model", "cost"),
    [
        ("IMAGE", "dall-e-3", 0.08),
        ("IMAGE", "gpt-image-1", 0.05),
        ("TRANSCRIPTION", "whisper-1", 0.003125),
        ("TRANSCRIPTION", "gpt-4o-transcribe", 0.016),
        ("TEXT_TO_SPEECH", "gpt-4o-mini-tts", 0.06),
        ("TEXT_TO_SPEECH", "tts-1", 0.06),
    ],
)
def test_pictures_and_sound_have_a_price(kind: str, model: str, cost: float) -> None:
    assert load_prices().cost_of(replace(build_call(model, 1000, 1000), type=kind)) == cost


def test_a_price_per_minute_counts_the_seconds_of_a_recording() -> None:
    call = estimate_usage(ModelType.TRANSCRIPTION, TranscriptionRequest(b"", "audio/ogg", seconds=90))
    prices = load_prices(["my-whisper=0.1/minute"])
    assert prices.cost_of(replace(call, model="my-whisper")) == pytest.approx(0.15, rel=0.01)
    assert prices.cost_of(replace(call, model="whisper-1")) == pytest.approx(0.009, rel=0.01)


def test_an_operators_price_per_call_does_not_depend_on_tokens() -> None:
    prices = load_prices(["my-painter*=0.03/call"])
    assert prices.cost_of(build_call("my-painter-2", 5_000, 5_000)) == 0.03


def test_for_a_money_limit_images_and_audio_without_a_price_get_an_assumed_price_and_texts_do_not() -> None:
    drawn = replace(build_call("my-painter"), type="IMAGE")
    assert load_prices().cost_of(drawn) is None
    assert load_prices().cost_of(drawn, assume_unknown=True) == 0.20
    assert load_prices(["my-painter=0"]).cost_of(drawn, assume_unknown=True) == 0
    assert load_prices().cost_of(build_call("my-own"), assume_unknown=True) is None
