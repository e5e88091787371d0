"""How large a prompt is, and which part of it comes from what: the answer to a first "Hello!"."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.domain.environment import Role
from bot.models.types import TextRequest
from bot.pipeline.compose import Composer
from bot.pipeline.respond import first_request
from bot.pipeline.run_actions import usable_actions
from bot.plugin_system.registry import Registry
from bot.runtime.agent_runtime import Resident
from bot.testing.making import make_turn
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
