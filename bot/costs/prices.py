"""Model prices: a dated price list, and the operator's overrides."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from bot.domain.ledger import ModelCall
from bot.models.types import ModelType
from bot.models.usage import AUDIO_TOKENS

MILLION, SECONDS_PER_MINUTE = 1_000_000, 60
DOLLAR_DECIMALS = 9
VENDOR_PREFIX = re.compile(r"^(openai|anthropic|google|mistralai|deepseek|x-ai)/")
DIMENSION_SUFFIX = re.compile(r"-\d+$")
DATE_SUFFIX = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
PER_CALL_SUFFIX, PER_MINUTE_SUFFIX = "/call", "/minute"
FREE_MODELS = "local/*=0"  # they run on this computer
FORMAT_HELP = (
    "write it as name=in/out or name=in/cached/out, in dollars for a million tokens, "
    "as name=0.04/call for one call, as name=0.006/minute for a minute of a recording, or name=0"
)


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens; `tokens_cached` applies to the cached ones of `tokens_in`.

    `per_call` is charged per call in addition.
    """

    tokens_in: float
    tokens_cached: float
    tokens_out: float
    per_call: float = 0.0

    def cost_of(self, call: ModelCall) -> float:
        """Return the cost of a call."""
        cached = min(call.tokens_cached, call.tokens_in)
        input_cost = (call.tokens_in - cached) * self.tokens_in + cached * self.tokens_cached
        return round(self.per_call + (input_cost + call.tokens_out * self.tokens_out) / MILLION, DOLLAR_DECIMALS)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by model: the operator's patterns (`llama*`) first, then the built-in list.

    `by_type` are assumed prices by model type of images and audio, for models without a price.
    """

    overrides: tuple[tuple[str, Price], ...]
    by_name: Mapping[str, Price]
    as_of: date
    by_type: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """Return the price of a model; None if it is unknown. Without a name it is known if all have the same."""
        name = model.strip().lower()
        if not name:
            return self.overrides[0][1] if self.overrides and self.overrides[0][0] == "*" else None
        for pattern, price in self.overrides:
            if fnmatchcase(name, pattern):
                return price
        return self.by_name.get(_normalize_model_name(name))

    def cost_of(self, call: ModelCall, *, assume_unknown: bool = False) -> float | None:
        """Return the cost of a call in US dollars; None if the price of its model is unknown.

        With `assume_unknown`, as a money limit needs it, image and audio models without a price get an assumed
        one.
        """
        price = self.find(call.model)
        if price is None and call.type == ModelType.TEXT_EMBEDDING:
            price = self.find(DIMENSION_SUFFIX.sub("", call.model))
        if price is None and assume_unknown:
            price = self.by_type.get(call.type)
        return None if price is None else price.cost_of(call)

    def max_cost_of(self, call: ModelCall) -> float:
        """Return the highest possible cost of a call, while its model is unknown."""
        prices = (*(price for _, price in self.overrides), *self.by_name.values(), *self.by_type.values())
        return max((price.cost_of(call) for price in prices), default=0.0)


def load_prices(overrides: Sequence[str] = ()) -> PriceList:
    """Return the built-in price list with the operator's overrides: see `parse_price`."""
    content = _load_bundled_prices()
    by_name = {name: _build_price(numbers) for name, numbers in content["prices"].items()}
    by_name |= {name: _price_per_call(dollars) for name, dollars in content["calls"].items()}
    by_name |= {name: _price_per_minute(dollars) for name, dollars in content["minutes"].items()}
    by_type = {kind: _price_per_call(dollars) for kind, dollars in content["unknown_calls"].items()}
    by_type |= {kind: _price_per_minute(dollars) for kind, dollars in content["unknown_minutes"].items()}
    return PriceList(tuple(map(parse_price, (*overrides, FREE_MODELS))), by_name, content["as_of"], by_type)


@cache
def _load_bundled_prices() -> Mapping[str, Any]:
    return tomllib.loads(files("bot.costs").joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_price(text: str) -> tuple[str, Price]:
    """Parse `pattern=in/cached/out`, `pattern=in/out`, `pattern=each/call`, `pattern=each/minute` or `pattern=0`.

    Raises ValueError for anything else.
    """
    pattern, separator, amounts = text.rpartition("=")
    unit = next((unit for unit in (PER_CALL_SUFFIX, PER_MINUTE_SUFFIX) if amounts.endswith(unit)), "")
    try:
        numbers = [float(amount) for amount in amounts.removesuffix(unit).split("/")]
    except ValueError:
        numbers = []
    if not (pattern.strip() and separator) or not all(0 <= amount < MILLION for amount in numbers):
        raise ValueError(f"{text!r} is no price: {FORMAT_HELP}")
    if unit and len(numbers) == 1:
        return pattern.strip().lower(), PRICE_BUILDERS[unit](numbers[0])
    if numbers == [0]:
        numbers = [0, 0]
    if len(numbers) not in (2, 3) or unit:
        raise ValueError(f"{text!r} is no price: {FORMAT_HELP}")
    return pattern.strip().lower(), _build_price(numbers)


def _build_price(numbers: Sequence[float]) -> Price:
    first, *_, last = numbers
    return Price(first, numbers[1] if len(numbers) == 3 else first, last)


def _price_per_call(dollars: float) -> Price:
    return Price(0, 0, 0, per_call=dollars)


def _price_per_minute(dollars: float) -> Price:
    per_token = dollars * MILLION / (SECONDS_PER_MINUTE * AUDIO_TOKENS)
    return Price(per_token, per_token, 0)


PRICE_BUILDERS: Mapping[str, Callable[[float], Price]] = {
    PER_CALL_SUFFIX: _price_per_call,
    PER_MINUTE_SUFFIX: _price_per_minute,
}


def _normalize_model_name(name: str) -> str:
    """Return a model's name without vendor and date, which do not change its price."""
    return DATE_SUFFIX.sub("", VENDOR_PREFIX.sub("", name).replace(".", "-"))
