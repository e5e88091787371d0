"""Checks of the model, the size of its prompt, and the price."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from bot.cli.characters import CharacterConfig
from bot.cli.checks import INACTIVE_ADVICE
from bot.costs.budget import BudgetSettings, build_limits, load_prices
from bot.domain.character import ProviderKind
from bot.errors import BudgetSpent, ModelError, ModelRefused, SettingError
from bot.models.listing import ModelListing
from bot.models.types import ModelType, Purpose, TextRequest
from bot.operate.tools import Finding, FindingStatus
from bot.pipeline.compose import Composer
from bot.pipeline.respond import build_first_request
from bot.pipeline.run_actions import list_usable_actions
from bot.plugin_system.loading import PluginPurpose, bundled_names, model_advice
from bot.plugin_system.registry import Registry
from bot.settings import Settings
from bot.text import shorten
from bot.turn import Agent, Turn

if TYPE_CHECKING:
    from bot.runtime.agent_runtime import AgentRuntime

SAMPLE_MESSAGE = "Hello!"
TIMEOUT_SECONDS, LOCAL_TIMEOUT_SECONDS = 20.0, 300.0
LOCAL_CHECK_TOKENS = 64
FILLER = "This line only measures how fast the model reads.\n"
MIN_WORDS = 3  # of which a speed is told
SLOW_SECONDS = 20.0  # until the first word
CHECK_REQUEST = TextRequest("Answer with one word: ready.", purpose=Purpose.CHECK, system="This is a check.")
LARGE_PROMPT_BYTES = 16_384
OUTSIDE_ADVICE = "check the network, OPENAI_BASE_URL and the provider's status page, then try again"
PER_MILLION_TOKENS = "for a million tokens"


class PromptPartKind(StrEnum):
    """The kind of a part of the prompt."""

    CHARACTER = "character"
    RULES = "rules"
    ACTION = "actions"
    PROVIDER = "providers"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of the prompt: its size in bytes and its plugin (empty for the character and the rules)."""

    kind: PromptPartKind
    name: str
    size: int
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class PromptSize:
    """The size of a prompt in bytes; the sizes of the parts add up to the total."""

    total: int
    parts: tuple[PromptPart, ...]


async def compose_first_request(agent: Agent, registry: Registry, message: str) -> tuple[Turn, TextRequest]:
    """Return what a model would be asked with for a first private message of a person with all permissions.

    The message is stored: use an agent that was created for this check.
    """
    turn = Turn.for_preview(agent, message)
    await agent.store.entities.save_entities([turn.author], turn.room.id)
    await agent.store.memories.add([turn.message])
    turn.actions = await list_usable_actions(turn, registry)
    return turn, await build_first_request(turn, Composer(registry))


async def measure_prompt(agent_runtime: "AgentRuntime") -> PromptSize:
    """Measure the prompt for a first message, as `compose_first_request` composes it."""
    registry = agent_runtime.registry
    turn, request = await compose_first_request(agent_runtime.agent, registry, SAMPLE_MESSAGE)
    tool_sizes = {  # of the actions that are offered as functions
        tool.name: _byte_length(json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False))
        for tool in request.tools
    }
    total = _byte_length(request.system) + _byte_length(request.prompt) + sum(tool_sizes.values())
    parts = [*_provider_parts(turn, registry), *await _action_parts(turn, registry, tool_sizes)]
    system = PromptPart(PromptPartKind.CHARACTER, "system", _byte_length(request.system))
    known_size = system.size + sum(part.size for part in parts)
    return PromptSize(total, (system, PromptPart(PromptPartKind.RULES, "instructions", total - known_size), *parts))


def _provider_parts(turn: Turn, registry: Registry) -> Iterator[PromptPart]:
    specs = {spec.name: spec for spec in registry.build_catalog().providers}
    for name, result in turn.state.results.items():
        spec = specs[name]
        if result.text and spec.kind is not ProviderKind.ACTIONS:
            is_persona = spec.kind is ProviderKind.PERSONA
            kind = PromptPartKind.CHARACTER if is_persona else PromptPartKind.PROVIDER
            yield PromptPart(kind, name, _byte_length(result.text), spec.plugin)


async def _action_parts(turn: Turn, registry: Registry, tools: Mapping[str, int]) -> list[PromptPart]:
    """Return the size of each action: by how much the list is shorter without it, plus its function."""
    plugins = {spec.name: spec.plugin for spec in registry.build_catalog().actions}
    parts = []
    full_size = await _action_list_size(turn, registry)
    for spec in turn.actions:
        reduced_turn = replace(turn, actions=tuple(action for action in turn.actions if action is not spec))
        size = full_size - await _action_list_size(reduced_turn, registry) + tools.get(spec.name, 0)
        parts.append(PromptPart(PromptPartKind.ACTION, spec.name, size, plugins[spec.name]))
    return parts


async def _action_list_size(turn: Turn, registry: Registry) -> int:
    names = registry.provider_names(ProviderKind.ACTIONS)
    return sum([_byte_length((await registry.providers[name](turn)).text) for name in names])


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


async def check_model(config: CharacterConfig, *, shows_prompt: bool = True) -> list[Finding]:
    """Measure the prompt of a first "Hello!", and make the model write one word."""
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    findings: list[Finding] = []
    async with run_agent(config.dry_run_config) as agent_runtime:
        for name, cause in agent_runtime.inactive.items():
            if name in config.inactive:
                continue  # which the check of the plugins reports
            findings.append(Finding.fail("plugins", f"{name} cannot be initialized: {cause}", INACTIVE_ADVICE))
        size = await measure_prompt(agent_runtime)
        prompt_findings = [prompt_finding(size.total)]
        for kind, parts in groupby(sorted(size.parts, key=attrgetter("kind")), key=attrgetter("kind")):
            largest = sorted(parts, key=lambda part: -part.size)
            sizes = ", ".join(f"{part.name} {part.size:,}" for part in largest)
            message = f"{kind}, {sum(part.size for part in largest):,} bytes: {sizes}"
            prompt_findings.append(Finding.ok("prompt", message))
        findings += prompt_findings if shows_prompt else []
        findings += await ask_model(agent_runtime.agent, config.settings, size.total)
    return findings


async def ask_model(agent: Agent, settings: Settings, prompt_bytes: int = 4_000) -> list[Finding]:
    """Make the model of a running agent write one word.

    A model on this machine reads as many bytes as the prompt of a reply has, so that its speed is known.
    """
    profile = await agent.models.profile(ModelType.TEXT_LARGE)
    is_local = profile is not None and profile.is_local
    seconds, request = TIMEOUT_SECONDS, CHECK_REQUEST
    if is_local:
        filler = FILLER * max(0, (prompt_bytes - len(CHECK_REQUEST.prompt)) // len(FILLER))
        seconds = LOCAL_TIMEOUT_SECONDS
        request = replace(CHECK_REQUEST, prompt=f"{filler}{CHECK_REQUEST.prompt}", max_tokens=LOCAL_CHECK_TOKENS)
    speed = _SpeedSink()
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            result = await agent.models.text(replace(request, sink=speed))
    except TimeoutError:
        return [Finding.fail("model", f"no answer within {seconds:g} s", OUTSIDE_ADVICE, is_outside=True)]
    except ModelRefused as error:
        return [Finding.fail("model", str(error), "correct the key or the model's name in .env")]
    except BudgetSpent as error:
        return [Finding.warn("model", f"not tried: {error}", f"raise {error.setting}, or wait until midnight UTC")]
    except ModelError as error:
        return [Finding.fail("model", str(error), OUTSIDE_ADVICE, is_outside=True)]
    ended = time.monotonic()
    listings = (getattr(service, "listing", None) for service in agent.services.values())
    texts = [listing.describe() for listing in listings if isinstance(listing, ModelListing)]
    findings = [Finding.ok("model", text) for text in texts if text]
    if result.model in bundled_names(PluginPurpose.FALLBACK_MODEL):
        message = f"{result.model}: built-in patterns, no language model"
        return [*findings, Finding.warn("model", message, model_advice())]
    message = f"{result.model} wrote {shorten(result.text, 40)!r} in {(ended - started) * 1000:.0f} ms"
    findings.append(Finding.ok("model", message))
    if is_local and speed.first_at is not None:
        findings.append(_speed_finding(speed.first_at - started, speed.count_words(), ended - speed.first_at))
    findings += check_price(settings, result.model, is_local=is_local)
    unlimited = await find_unlimited_models(agent, settings)
    return [*findings, *(finding for finding in unlimited if finding not in findings)]


class _SpeedSink:
    """Notes when the first piece of a text came."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self._pieces: list[str] = []

    async def write(self, text: str) -> None:
        if self.first_at is None:
            self.first_at = time.monotonic()
        self._pieces.append(text)

    async def restart(self) -> None:
        self._pieces.clear()

    def count_words(self) -> int:
        """Return the number of words."""
        return len("".join(self._pieces).split())


def _speed_finding(first_seconds: float, words: int, seconds: float) -> Finding:
    """Return how long a reply of this model takes: until its first word, and for each further one."""
    message = f"on this machine: about {max(first_seconds, 0.1):.1f} s until the first word of a reply"
    if words >= MIN_WORDS and seconds > 0:
        message += f", then {words / seconds:.1f} words a second"
    if first_seconds <= SLOW_SECONDS:
        return Finding.ok("model", message)
    return Finding.warn("model", message, "a smaller model, a shorter character or fewer plugins make it faster")


def prompt_finding(size: int) -> Finding:
    """Return what to think of the size of a first prompt, in bytes."""
    message = f'{size:,} bytes in total, for a first "Hello!" from a user with all permissions'
    if size <= LARGE_PROMPT_BYTES:
        return Finding.ok("prompt", message)
    return Finding.warn("prompt", message, "every answer pays for it: shorten the largest parts, or remove plugins")


async def find_unlimited_models(agent: Agent, settings: Settings) -> list[Finding]:
    """Return a warning for each model of the agent on which limits in dollars have no effect: its price is unknown.

    A model of which the plugin says nothing is known after its first answer only, and left out.
    """
    if not any(limit.is_money for limit in build_limits(settings.operator_only().load(BudgetSettings))):
        return []
    profiles = {profile.name: profile for profile in await agent.models.described_profiles()}
    findings = (check_price(settings, name, is_local=profile.is_local) for name, profile in profiles.items())
    return [finding for finding in chain.from_iterable(findings) if finding.status is FindingStatus.WARN]


def check_price(settings: Settings, model: str, *, is_local: bool = False) -> Iterator[Finding]:
    """Check that the price of a model is known; one of a server on this machine or in its network needs none."""
    try:
        money = settings.operator_only().load(BudgetSettings)
    except SettingError:
        return
    prices = load_prices(money.model_prices)
    price = prices.find(model)
    if price is not None:
        price_text = f"${price.per_call:g} a call"
        if not price.per_call:
            tokens = f"${price.tokens_in:g} in, ${price.tokens_cached:g} cached, ${price.tokens_out:g} out"
            price_text = f"{tokens} {PER_MILLION_TOKENS}"
        yield Finding.ok("costs", f"{model}: {price_text} (MODEL_PRICES, or the list of {prices.as_of})")
        return
    limits = [limit.setting for limit in build_limits(money) if limit.is_money]
    if is_local and not limits:
        yield Finding.ok("costs", f"{model}: your own server, without a price (MODEL_PRICES sets one)")
        return
    effect = f"limits in dollars have no effect on it ({', '.join(limits)})"
    message = f"the price of {model} is unknown: {effect if limits else 'its tokens are counted, its cost is not'}"
    advice = f"MODEL_PRICES={model}=IN/OUT, in dollars {PER_MILLION_TOKENS}; {model}=0 for your own server"
    yield Finding.warn("costs", message, advice)
