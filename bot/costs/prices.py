"""What a model call costs: a dated list of prices, and the operator's own over it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from bot.domain.ledger import ModelCall
from bot.models.types import ModelType

MILLION = 1_000_000
DOLLAR_DECIMALS = 9  # what is written of a dollar's fractions
VENDOR_PREFIX = re.compile(r"^(openai|anthropic|google|mistralai|deepseek|x-ai)/")
DIMENSION_SUFFIX = re.compile(r"-\d+$")
DATE_SUFFIX = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
PER_CALL_SUFFIX = "/call"
FORMAT_HELP = (
    "write it as name=in/out or name=in/cached/out, in dollars for a million tokens, "
    "as name=0.04/call for one call, or name=0"
)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens costs, in US dollars; `cached` are those of `tokens_in` that were known.

    `each` is what a call costs beside its tokens.
    """

    tokens_in: float
    tokens_cached: float
    tokens_out: float
    per_call: float = 0.0

    def cost_of(self, call: ModelCall) -> float:
        """Give what a call has cost."""
        cached = min(call.tokens_cached, call.tokens_in)
        input_cost = (call.tokens_in - cached) * self.tokens_in + cached * self.tokens_cached
        return round(
            self.per_call + (input_cost + call.tokens_out * self.tokens_out) / MILLION, DOLLAR_DECIMALS
        )


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by model: patterns of the operator's own (`llama*`), else what is known by name.

    `assumed` are prices by type, for calls of models that nobody has said a price of.
    """

    overrides: tuple[tuple[str, Price], ...]
    by_name: Mapping[str, Price]
    as_of: date
    by_type: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """Find a model's price; None where nobody has said it."""
        name = model.strip().lower()
        for pattern, price in self.overrides:
            if fnmatchcase(name, pattern):
                return price
        return self.by_name.get(_normalize_model_name(name))

    def cost_of(self, call: ModelCall) -> float | None:
        """Tell what a call has cost, in US dollars; None where the model's price is not known."""
        price = self.find(call.model)
        if price is None and call.type == ModelType.TEXT_EMBEDDING:
            price = self.find(DIMENSION_SUFFIX.sub("", call.model))
        price = price or self.by_type.get(call.type)
        return None if price is None else price.cost_of(call)

    def max_cost_of(self, call: ModelCall) -> float:
        """Tell what a call costs at most, as long as nobody knows by which model."""
        prices = (*(price for _, price in self.overrides), *self.by_name.values(), *self.by_type.values())
        return max((price.cost_of(call) for price in prices), default=0.0)


def load_prices(overrides: Sequence[str] = (), *, assume_unknown: bool = False) -> PriceList:
    """Read the list that comes along, and put prices of one's own over it: see `parse_price`.

    Where they `are_needed` for a limit, pictures and sound that nobody has said a price of get one as well.
    """
    content = _load_bundled_prices()
    by_name = {name: _build_price(numbers) for name, numbers in content["prices"].items()}
    by_name |= _build_call_prices(content["calls"])
    by_type = _build_call_prices(content["unknown_calls"]) if assume_unknown else {}
    return PriceList(tuple(map(parse_price, overrides)), by_name, content["as_of"], by_type)


@cache
def _load_bundled_prices() -> Mapping[str, Any]:
    return tomllib.loads(files("bot.costs").joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_price(text: str) -> tuple[str, Price]:
    """Read `pattern=in/cached/out`, `pattern=in/out`, `pattern=each/call` or `pattern=0`.

    Raises ValueError for anything else.
    """
    pattern, separator, amounts = text.rpartition("=")
    try:
        numbers = [float(amount) for amount in amounts.removesuffix(PER_CALL_SUFFIX).split("/")]
    except ValueError:
        numbers = []
    if not (pattern.strip() and separator) or not all(0 <= amount < MILLION for amount in numbers):
        raise ValueError(f"{text!r} is no price: {FORMAT_HELP}")
    if amounts.endswith(PER_CALL_SUFFIX) and len(numbers) == 1:
        return pattern.strip().lower(), Price(0, 0, 0, per_call=numbers[0])
    if numbers == [0]:
        numbers = [0, 0]
    if len(numbers) not in (2, 3) or amounts.endswith(PER_CALL_SUFFIX):
        raise ValueError(f"{text!r} is no price: {FORMAT_HELP}")
    return pattern.strip().lower(), _build_price(numbers)


def _build_price(numbers: Sequence[float]) -> Price:
    first, *_, last = numbers
    return Price(first, numbers[1] if len(numbers) == 3 else first, last)


def _build_call_prices(prices: Mapping[str, float]) -> dict[str, Price]:
    return {name: Price(0, 0, 0, per_call=per_call) for name, per_call in prices.items()}


def _normalize_model_name(name: str) -> str:
    """Leave out of a model's name what its price does not hang on."""
    return DATE_SUFFIX.sub("", VENDOR_PREFIX.sub("", name).replace(".", "-"))
