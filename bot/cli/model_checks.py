"""What `bot doctor` says of the model: how large its prompts are, whether it answers, what it costs."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from bot.cli.cast import Part
from bot.cli.checks import CORRECT, Finding, Status
from bot.cli.prompt_size import PromptSize, Share, measure
from bot.costs.budget import MoneySettings, limits_of
from bot.costs.prices import read_prices
from bot.errors import ModelError, ModelRefused, SettingError
from bot.models.types import Purpose, TextRequest
from bot.plugin_system.loading import OFFLINE
from bot.runtime.agent_runtime import move_in
from bot.settings import FILE, Settings
from bot.text import shorten

DEADLINE = 20.0
REQUEST = TextRequest("Answer with one word: ready.", purpose=Purpose.CHECK, system="This is a check.")
LARGE = 16_384
MILLION = "for a million tokens"


async def check_model(part: Part) -> list[Finding]:
    """Measure the prompt of a first "Hello!", and have the model write a word, the way a reply is written."""
    outside = "look at the network, at OPENAI_BASE_URL and at the provider's status page, then try again"
    findings: list[Finding] = []
    started = time.monotonic()
    try:
        async with asyncio.timeout(DEADLINE), move_in(part.rehearsal) as one:
            findings += _off_findings(one.off)
            findings += _prompt_findings(await measure(one))
            started = time.monotonic()
            result = await one.agent.models.text(REQUEST)
    except TimeoutError:
        what = f"no answer within {DEADLINE:g} s"
        return [*findings, Finding(Status.FAIL, "model", what, outside, is_outside=True)]
    except ModelRefused as error:
        advice = "correct the key or the model's name in .env"
        return [*findings, Finding(Status.FAIL, "model", str(error), advice)]
    except ModelError as error:
        return [*findings, Finding(Status.FAIL, "model", str(error), outside, is_outside=True)]
    if result.model == OFFLINE:
        keys = "OPENAI_API_KEY or ANTHROPIC_API_KEY"
        advice = f"for a real one set {keys}, or OPENAI_BASE_URL for a server of your own"
        what = "offline: built-in patterns, no language model"
        return [*findings, Finding(Status.WARN, "model", what, advice)]
    took = (time.monotonic() - started) * 1000
    what = f"{result.model} wrote {shorten(result.text, 40)!r} in {took:.0f} ms"
    return [*findings, Finding(Status.OK, "model", what), *check_price(part.settings, result.model)]


def _off_findings(off: Mapping[str, str]) -> Iterator[Finding]:
    for name, cause in off.items():
        advice = "mend it, or take the plugin out of the character's file"
        yield Finding(Status.FAIL, "plugins", f"{name} cannot be set up: {cause}", advice)


def _prompt_findings(size: PromptSize) -> Iterator[Finding]:
    what = f'{size.total:,} bytes in all, for a first "Hello!" of somebody who may do everything'
    if size.total > LARGE:
        advice = "every answer pays for it: shorten what is largest below, or take plugins out"
        yield Finding(Status.WARN, "prompt", what, advice)
    else:
        yield Finding(Status.OK, "prompt", what)
    kinds = sorted(size.parts, key=lambda one: one.kind)
    for kind, parts in groupby(kinds, key=lambda one: one.kind):
        yield Finding(Status.OK, "prompt", _kind_line(kind, list(parts)))


def _kind_line(kind: str, parts: Sequence[Share]) -> str:
    largest = sorted(parts, key=lambda one: -one.size)
    each = ", ".join(f"{one.name} {one.size:,}" for one in largest)
    return f"{kind}, {sum(one.size for one in parts):,} bytes: {each}"


def check_budget(settings: Settings) -> Iterator[Finding]:
    """Look at what may be spent, and whether somebody has tried to say so where it has no effect."""
    for field in MoneySettings.model_fields:
        source = settings.source_of(field.upper())
        if source.startswith(FILE):
            what = f"{field.upper()} (in {source}) has no effect"
            yield Finding(Status.WARN, "costs", what, "set it in the environment or in .env")
    try:
        money = settings.of_operator().load(MoneySettings)
    except SettingError as error:
        yield Finding(Status.FAIL, "costs", str(error), CORRECT)
        return
    limits = [f"{limit.setting} {limit}" for limit in limits_of(money)]
    yield Finding(Status.OK, "costs", f"limits: {'; '.join(limits) or 'none (BUDGET_USD, BUDGET_TOKENS)'}")


def check_price(settings: Settings, model: str) -> Iterator[Finding]:
    """Look at what the model that has answered costs."""
    try:
        money = settings.of_operator().load(MoneySettings)
    except SettingError:
        return
    prices = read_prices(money.model_prices)
    price = prices.find(model)
    if price is not None:
        told = f"${price.tokens_in:g} in, ${price.cached:g} cached, ${price.tokens_out:g} out {MILLION}"
        told = f"${price.each:g} a call" if price.each else told
        yield Finding(Status.OK, "costs", f"{model}: {told} (MODEL_PRICES, or the list of {prices.as_of})")
        return
    what = f"the price of {model} is not known: its tokens are counted, its cost is not"
    if money.has_money_budget:
        what = f"the price of {model} is not known: no limit in dollars can hold for it"
    advice = f"MODEL_PRICES={model}=IN/OUT, in dollars {MILLION}; {model}=0 for a server of your own"
    yield Finding(Status.WARN, "costs", what, advice)
