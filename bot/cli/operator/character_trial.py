"""Prompts and replies of a running agent as another version of its character: nothing is stored, sent or done."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

from bot.agent import Agent, AgentDefinition
from bot.costs.budget import BudgetSettings
from bot.costs.prices import load_prices
from bot.domain.component_specs import ProviderKind
from bot.domain.ledger import ModelCall
from bot.inbound.operator_tools import PromptSection, TrialReply
from bot.models.types import ModelType, Purpose, TextRequest, TextResult
from bot.pipeline.answer_context import answer_context
from bot.pipeline.compose import Composer
from bot.pipeline.reply_plan import REPLY
from bot.pipeline.respond import build_first_request, build_reply
from bot.pipeline.run_actions import list_usable_actions
from bot.plugin_system.registry import Registry, fold_name
from bot.store.inmemory import InMemoryStore
from bot.turn import Turn

CHARACTER, ACTIONS, RULES, PROVIDERS = "character", "actions", "rules", "providers"
KINDS = {ProviderKind.PERSONA: CHARACTER, ProviderKind.STYLE: CHARACTER, ProviderKind.ACTIONS: ACTIONS}


async def compose_prompt(
    agent: Agent, registry: Registry, definition: AgentDefinition, message: str
) -> tuple[Turn, TextRequest]:
    """Return what the model would be asked with for a first private message of a person with all permissions.

    Its room and person exist in a store of its own only.
    """
    trial_agent = replace(agent, read_definition=lambda: definition, store=InMemoryStore(agent.clock))
    turn = Turn.for_preview(trial_agent, message)
    await trial_agent.store.entities.save_entities([turn.author], turn.room.id)
    await trial_agent.store.memories.add([turn.message])
    turn.actions = await list_usable_actions(turn, registry)
    return turn, await build_first_request(turn, Composer(registry))


def split_prompt(turn: Turn, request: TextRequest, registry: Registry) -> list[PromptSection]:
    """Return the parts of a prompt in its order: their texts are all of it, but for the space between them."""
    specs = {spec.name: spec for spec in registry.build_catalog().providers}
    sections = [PromptSection(CHARACTER, "system", request.system)] if request.system else []
    position = 0
    for start, name, text in sorted(_find_texts(turn, request.prompt)):
        if start < position:
            continue  # it stands inside another text
        sections += _rules(request.prompt[position:start])
        spec = specs.get(name)
        kind = KINDS.get(spec.kind, PROVIDERS) if spec is not None else PROVIDERS
        sections.append(PromptSection(kind, name, text, spec.plugin if spec is not None else ""))
        position = start + len(text)
    sections += _rules(request.prompt[position:])
    for tool in request.tools:
        described = json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False)
        sections.append(PromptSection(ACTIONS, f"function {tool.name}", described))
    return sections


async def try_reply(turn: Turn, request: TextRequest) -> TrialReply:
    """Ask the model for an answer; the call is counted in the costs of the agent. Raises ModelError."""
    started = time.monotonic()
    result = await turn.agent.models.text(replace(request, purpose=Purpose.CHECK), ModelType.TEXT_LARGE)
    reply = build_reply(result, answer_context(turn, request))
    usage = result.usage
    return TrialReply(
        text=reply.text,
        actions=tuple(name for name in reply.actions if fold_name(name) != REPLY),
        model=result.model,
        seconds=time.monotonic() - started,
        tokens_in=usage.tokens_in if usage is not None else 0,
        tokens_out=usage.tokens_out if usage is not None else 0,
        cost=_cost_of(turn.agent, result),
    )


def _find_texts(turn: Turn, prompt: str) -> Iterator[tuple[int, str, str]]:
    """Yield position, provider and text of what providers wrote into a prompt."""
    for name, result in turn.state.results.items():
        text = result.text.strip()
        if text and (start := prompt.find(text)) >= 0:
            yield start, name, text


def _rules(text: str) -> list[PromptSection]:
    return [PromptSection(RULES, "instructions", text.strip("\n"))] if text.strip() else []


def _cost_of(agent: Agent, result: TextResult) -> float | None:
    if result.usage is None:
        return None
    settings = agent.settings.operator_only().load(BudgetSettings)
    prices = load_prices(settings.model_prices)
    usage = result.usage
    call = ModelCall(
        ModelType.TEXT_LARGE,
        Purpose.CHECK,
        result.model,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
    )
    return prices.cost_of(call)
