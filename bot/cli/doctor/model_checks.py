"""Model call, prompt size, budget, price."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from bot.cli.characters import Part
from bot.cli.doctor.checks import CORRECT, Finding, Status
from bot.costs.budget import MoneySettings, limits_of
from bot.costs.prices import read_prices
from bot.domain.environment import Role
from bot.errors import ModelError, ModelRefused, SettingError
from bot.models.types import Purpose, TextRequest
from bot.pipeline.compose import Composer
from bot.pipeline.respond import first_request
from bot.pipeline.run_actions import usable_actions
from bot.plugin_system.loading import OFFLINE
from bot.plugin_system.registry import Registry
from bot.runtime.agent_runtime import Resident, move_in
from bot.settings import FILE, Settings
from bot.testing.harness import make_turn
from bot.text import shorten
from bot.turn import Turn

ACTIONS, CHARACTER = "ACTIONS", "CHARACTER"
HELLO = "Hello!"


class Kind(StrEnum):
    """What a part of the prompt is one of."""

    CHARACTER = "character"
    RULES = "rules"
    ACTION = "actions"
    PROVIDER = "providers"


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the prompt, the plugin that brings it (none for the character and the rules), its bytes."""

    kind: Kind
    name: str
    size: int
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class PromptSize:
    """What the model is handed, in bytes, and its parts: together they are all of it."""

    total: int
    parts: tuple[Share, ...]


async def measure(resident: Resident, role: Role = Role.OWNER) -> PromptSize:
    """Compose the prompt for a first message of somebody, by default one who may do everything.

    The message is kept: the agent is to be one that was made for this.
    """
    agent, registry = resident.agent, resident.registry
    turn = make_turn(agent, HELLO, role=role)
    await agent.store.entities.save_entities([turn.author], turn.room.id)
    await agent.store.memories.add([turn.message])
    turn.actions = await usable_actions(turn, registry)
    composer = Composer(registry)
    request = await first_request(turn, composer)
    total = size_of(request)
    parts = [*_providers(turn, registry), *await _actions(turn, registry, _tools(request))]
    system = Share(Kind.CHARACTER, "system", _bytes(request.system))
    known = system.size + sum(part.size for part in parts)
    return PromptSize(total, (system, Share(Kind.RULES, "how to answer", total - known), *parts))


def size_of(request: TextRequest) -> int:
    """Count what a request hands to the model: both prompts, and the actions where they are functions."""
    return _bytes(request.system) + _bytes(request.prompt) + sum(_tools(request).values())


def _providers(turn: Turn, registry: Registry) -> Iterator[Share]:
    plugins = {spec.name: spec.plugin for spec in registry.catalog().providers}
    for name, result in turn.state.results.items():
        if result.text and name != ACTIONS:
            kind = Kind.CHARACTER if name == CHARACTER else Kind.PROVIDER
            yield Share(kind, name, _bytes(result.text), plugins[name])


async def _actions(turn: Turn, registry: Registry, tools: Mapping[str, int]) -> list[Share]:
    """Measure each action by what their list lacks without it, and as a function where it is one."""
    plugins = {spec.name: spec.plugin for spec in registry.catalog().actions}
    parts = []
    listed = await _listed(turn, registry)
    for spec in turn.actions:
        others = replace(turn, actions=tuple(one for one in turn.actions if one is not spec))
        size = listed - await _listed(others, registry) + tools.get(spec.name, 0)
        parts.append(Share(Kind.ACTION, spec.name, size, plugins[spec.name]))
    return parts


async def _listed(turn: Turn, registry: Registry) -> int:
    listing = registry.provider(ACTIONS)
    return _bytes((await listing(turn)).text) if listing else 0


def _tools(request: TextRequest) -> dict[str, int]:
    return {
        one.name: _bytes(json.dumps([one.name, one.description, one.parameters], ensure_ascii=False))
        for one in request.tools
    }


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


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
