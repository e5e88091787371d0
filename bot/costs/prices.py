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
NANO = 9  # what is written of a dollar's fractions
MAKERS = re.compile(r"^(openai|anthropic|google|mistralai|deepseek|x-ai)/")
DIMENSION = re.compile(r"-\d+$")
DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
CALL = "/call"
FORM = (
    "write it as name=in/out or name=in/cached/out, in dollars for a million tokens, "
    "as name=0.04/call for one call, or name=0"
)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens costs, in US dollars; `cached` are those of `tokens_in` that were known.

    `each` is what a call costs beside its tokens.
    """

    tokens_in: float
    cached: float
    tokens_out: float
    each: float = 0.0

    def cost(self, call: ModelCall) -> float:
        """Give what a call has cost."""
        cached = min(call.tokens_cached, call.tokens_in)
        paid = (call.tokens_in - cached) * self.tokens_in + cached * self.cached
        return round(self.each + (paid + call.tokens_out * self.tokens_out) / MILLION, NANO)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by model: patterns of the operator's own (`llama*`), else what is known by name.

    `assumed` are prices by type, for calls of models that nobody has said a price of.
    """

    own: tuple[tuple[str, Price], ...]
    known: Mapping[str, Price]
    as_of: date
    assumed: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """Find a model's price; None where nobody has said it."""
        name = model.strip().lower()
        for pattern, price in self.own:
            if fnmatchcase(name, pattern):
                return price
        return self.known.get(_plain(name))

    def cost(self, call: ModelCall) -> float | None:
        """Tell what a call has cost, in US dollars; None where the model's price is not known."""
        price = self.find(call.model)
        if price is None and call.type == ModelType.TEXT_EMBEDDING:
            price = self.find(DIMENSION.sub("", call.model))
        price = price or self.assumed.get(call.type)
        return None if price is None else price.cost(call)

    def most(self, call: ModelCall) -> float:
        """Tell what a call costs at most, as long as nobody knows by which model."""
        prices = (*(price for _, price in self.own), *self.known.values(), *self.assumed.values())
        return max((price.cost(call) for price in prices), default=0.0)


def read_prices(own: Sequence[str] = (), *, are_needed: bool = False) -> PriceList:
    """Read the list that comes along, and put prices of one's own over it: see `parse_price`.

    Where they `are_needed` for a limit, pictures and sound that nobody has said a price of get one as well.
    """
    content = _brought()
    known = {name: _price(numbers) for name, numbers in content["prices"].items()}
    known |= _by_call(content["calls"])
    assumed = _by_call(content["unknown_calls"]) if are_needed else {}
    return PriceList(tuple(map(parse_price, own)), known, content["as_of"], assumed)


@cache
def _brought() -> Mapping[str, Any]:
    return tomllib.loads(files("bot.costs").joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_price(text: str) -> tuple[str, Price]:
    """Read `pattern=in/cached/out`, `pattern=in/out`, `pattern=each/call` or `pattern=0`.

    Raises ValueError for anything else.
    """
    pattern, found, amounts = text.rpartition("=")
    try:
        numbers = [float(one) for one in amounts.removesuffix(CALL).split("/")]
    except ValueError:
        numbers = []
    if not (pattern.strip() and found) or not all(0 <= one < MILLION for one in numbers):
        raise ValueError(f"{text!r} is no price: {FORM}")
    if amounts.endswith(CALL) and len(numbers) == 1:
        return pattern.strip().lower(), Price(0, 0, 0, each=numbers[0])
    if numbers == [0]:
        numbers = [0, 0]
    if len(numbers) not in (2, 3) or amounts.endswith(CALL):
        raise ValueError(f"{text!r} is no price: {FORM}")
    return pattern.strip().lower(), _price(numbers)


def _price(numbers: Sequence[float]) -> Price:
    first, *_, last = numbers
    return Price(first, numbers[1] if len(numbers) == 3 else first, last)


def _by_call(prices: Mapping[str, float]) -> dict[str, Price]:
    return {name: Price(0, 0, 0, each=each) for name, each in prices.items()}


def _plain(name: str) -> str:
    """Leave out of a model's name what its price does not hang on."""
    return DATED.sub("", MAKERS.sub("", name).replace(".", "-"))
