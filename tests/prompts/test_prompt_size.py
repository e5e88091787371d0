"""How much of a prompt is ours: measured through the real composer, held against an allowance.

A plugin that needs more than its allowance says why where it raises it.
"""

import json
from datetime import UTC, datetime

import pytest

from bot.characters import load_character
from bot.cli.characters import default_character
from bot.cli.model_checks import PromptPartKind, PromptSize, measure_prompt
from bot.domain.character import Character
from bot.domain.environment import ChannelType, Role
from bot.models.types import TextRequest
from bot.plugin_system.loading import find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.testing import ManualClock, ScriptedModel, running_agent

KB = 1024
MOST_IN_ALL = 10 * KB

LONGEST_WEEKDAY = datetime(2026, 3, 4, 9, tzinfo=UTC)  # a Wednesday: the prompt names the day

RULES = 1_280  # how to answer, and the template around it
FORMS = TAGS, FUNCTIONS = ("actions in tags", "actions as functions")

# What a bundled plugin may add to the first prompt of an owner, in bytes.
ALLOWANCES = {
    "bootstrap": {TAGS: 2_304, FUNCTIONS: 3_200},  # in tags up to 400 bytes show examples of actions
    "evm": {TAGS: 320, FUNCTIONS: 576},  # off by default
    "farcaster": {TAGS: 192, FUNCTIONS: 384},  # off by default
    "feeds": {TAGS: 512, FUNCTIONS: 768},  # off by default
    "knowledge": {TAGS: 128, FUNCTIONS: 128},
    "links": {TAGS: 384, FUNCTIONS: 640},  # off by default
    "reminders": {TAGS: 768, FUNCTIONS: 1_408},  # off by default
    "solana": {TAGS: 320, FUNCTIONS: 576},  # off by default
    "x_actions": {TAGS: 0, FUNCTIONS: 0},  # in rooms on X alone
}


def marlo() -> Character:
    return load_character(default_character()).character


def a_model(form: str) -> ScriptedModel:
    return ScriptedModel(can_call_tools=form == FUNCTIONS)


async def measured(*plugins: Plugin, form: str = TAGS) -> PromptSize:
    clock = ManualClock(LONGEST_WEEKDAY).now
    async with running_agent(*plugins, character=marlo(), model=a_model(form), clock=clock) as harness:
        return await measure_prompt(harness.agent_runtime)


def bytes_of(request: TextRequest) -> int:
    """Count by itself what goes to the model, so that the measure is held against something."""
    tools = "".join(json.dumps([tool.name, tool.description, dict(tool.parameters)]) for tool in request.tools)
    return len((request.system + request.prompt + tools).encode())


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
@pytest.mark.parametrize("form", FORMS)
async def test_the_first_prompt_of_the_default_character_has_at_most_8_kb(role: Role, form: str) -> None:
    clock = ManualClock(LONGEST_WEEKDAY).now
    async with running_agent(character=marlo(), model=a_model(form), clock=clock) as harness:
        await harness.send("Hello!", role=role)
        [request] = harness.model.requests
    assert bytes_of(request) <= MOST_IN_ALL


async def test_the_first_prompts_in_a_group_have_at_most_8_kb_with_the_decision() -> None:
    clock = ManualClock(LONGEST_WEEKDAY).now
    async with running_agent(character=marlo(), clock=clock) as harness:
        await harness.send("Hello!", kind=ChannelType.GROUP)
        sizes = [bytes_of(request) for request in harness.model.requests]
    assert max(sizes) <= MOST_IN_ALL


@pytest.mark.parametrize("form", FORMS)
async def test_the_measured_size_is_that_of_the_request(form: str) -> None:
    size = await measured(form=form)
    clock = ManualClock(LONGEST_WEEKDAY).now
    async with running_agent(character=marlo(), model=a_model(form), clock=clock) as harness:
        await harness.send("Hello!", role=Role.OWNER)
        [request] = harness.model.requests
    assert size.total == bytes_of(request)
    assert size.total == sum(part.size for part in size.parts)
    assert all(part.size > 0 for part in size.parts)
    assert {PromptPartKind.CHARACTER, PromptPartKind.RULES, PromptPartKind.ACTION, PromptPartKind.PROVIDER} == {
        part.kind for part in size.parts
    }


@pytest.mark.parametrize("form", FORMS)
async def test_the_rules_are_within_their_size_limit(form: str) -> None:
    size = await measured(form=form)
    assert sum(part.size for part in size.parts if part.kind is PromptPartKind.RULES) <= RULES


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", sorted(plugin_names()))
@pytest.mark.parametrize("form", FORMS)
async def test_a_bundled_plugin_adds_at_most_its_limit_to_the_prompt(name: str, form: str) -> None:
    plugin = find_plugin(name)
    assert plugin is not None
    if not (plugin.actions or plugin.providers):
        assert name not in ALLOWANCES, "an allowance for nothing"
        return
    assert name in ALLOWANCES, "it brings components: give it an allowance"
    brought = [] if name == "bootstrap" else [plugin]
    size = await measured(*brought, form=form)
    ours = [part for part in size.parts if part.plugin == name and part.kind is not PromptPartKind.CHARACTER]
    assert sum(part.size for part in ours) <= ALLOWANCES[name][form], sorted(
        ((part.size, part.name) for part in ours), reverse=True
    )


@pytest.mark.parametrize("form", FORMS)
async def test_all_bundled_plugins_together_take_at_most_10_kb(form: str) -> None:
    plugins = [
        bundled for name in plugin_names() if (bundled := find_plugin(name)) and (bundled.actions or bundled.providers)
    ]
    for_few = ("bootstrap", "evm", "farcaster", "solana")
    others = [plugin for plugin in plugins if plugin.name not in for_few]
    assert (await measured(*others, form=form)).total <= MOST_IN_ALL


async def test_the_size_of_an_action_includes_its_parameters_or_its_tool_schema() -> None:
    tags, functions = [await sizes_of_actions(form) for form in FORMS]
    assert tags["SEND_MESSAGE"] > 2 * tags["IGNORE"]
    assert functions["SEND_MESSAGE"] > tags["SEND_MESSAGE"]
    assert functions["REPLY"] == tags["REPLY"]


async def sizes_of_actions(form: str) -> dict[str, int]:
    size = await measured(form=form)
    return {part.name: part.size for part in size.parts if part.kind is PromptPartKind.ACTION}


async def test_measuring_calls_no_model() -> None:
    model = ScriptedModel()
    async with running_agent(model=model, character=marlo()) as harness:
        await measure_prompt(harness.agent_runtime)
    assert model.requests == []
