"""Prompt templates: their three levels, those without a default, and misspelled names and variables."""

from uuid import UUID

import pytest

from bot import Character, Plugin, PluginError, ProviderResult, Turn, World, action, provider
from bot.errors import TemplateError
from bot.models import Purpose
from bot.prompts.templates import DEFAULTS, find_template, merge_levels
from bot.testing import AgentHarness, ScriptedModel, make_message, make_turn, model_answer, running_agent

NAMED = "Only the template {name}: {{{{providers}}}}"
SOURCE_NAMES = (
    "messageHandlerTemplate",
    "shouldRespondTemplate",
    "reflectionTemplate",
    "postCreationTemplate",
    "imageDescriptionTemplate",
    "continueTemplate",
    "evaluationTemplate",
    "replyTemplate",
)


@action("FAIL", "Fail.")
async def fail(turn: Turn) -> None:
    raise ValueError("no")


@provider("TIDES", "The tides.", dynamic=True)
def tides(turn: Turn) -> ProviderResult:
    return ProviderResult(text="High water at six.", values={"tide": "6"})


def a_template(name: str) -> str:
    return NAMED.format(name=name)


async def world_id_of(harness: AgentHarness) -> UUID:
    world_id = make_message("", sent_at=harness.agent.clock()).world.id
    await harness.agent.store.worlds.save_world(World(world_id, "test", "world"))
    return world_id


async def test_a_template_of_a_world_wins_over_the_character_and_the_character_over_plugins() -> None:
    plugin = Plugin("p", templates={"messageHandlerTemplate": a_template("plugin"), "spentTemplate": "plugin"})
    character = Character(name="Ada", templates={"messageHandlerTemplate": a_template("character")})
    async with running_agent(plugin, character=character) as harness:
        assert harness.agent.templates["spentTemplate"] == "plugin"
        world_id = await world_id_of(harness)
        await harness.send("one")
        await harness.agent.set_template(world_id, "messageHandlerTemplate", a_template("world"))
        await harness.send("two")
        await harness.agent.set_template(world_id, "messageHandlerTemplate", "")
        await harness.send("three")
        prompts = [request.prompt for request in harness.model.requests_for(Purpose.REPLY)]
    assert [prompt.partition(":")[0] for prompt in prompts] == [
        f"Only the template {name}" for name in ("character", "world", "character")
    ]


async def test_the_templates_of_a_world_are_in_no_prompt_and_not_among_its_settings() -> None:
    async with running_agent() as harness:
        await harness.agent.set_template(await world_id_of(harness), "apologyTemplate", "Sorry, said the world.")
        turn = make_turn(harness.agent)
        stored = await harness.agent.store.worlds.world(turn.world.id)
        assert stored is not None
        state = await harness.agent.rooms.compose(turn.room, ["SETTINGS"])
        assert "said the world" not in state.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("messageHandlrTemplate", "x", "did you mean 'messageHandlerTemplate'"),
        ("otherTemplate", "x", "no part of this bot uses a template of this name"),
        ("apologyTemplate", "{{usrName}}", "did you mean 'userName'"),
        ("apologyTemplate", "{{#if x}}", "line 1"),
    ],
)
async def test_a_template_of_a_world_that_cannot_be_used_is_refused(name: str, text: str, message: str) -> None:
    async with running_agent() as harness:
        with pytest.raises(TemplateError, match=message):
            await harness.agent.set_template(await world_id_of(harness), name, text)


async def test_the_reply_template_writes_the_message_after_actions_without_a_text() -> None:
    character = Character(name="Ada", templates={"replyTemplate": a_template("reply")})
    model = ScriptedModel([model_answer(actions=["FAIL"]), model_answer("It failed.")])
    async with running_agent(Plugin("failing", actions=[fail]), character=character, model=model) as harness:
        await harness.send("Do it")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
    assert request.prompt.startswith("Only the template reply")


@pytest.mark.parametrize(
    ("templates", "beginning"),
    [
        ({"continueTemplate": a_template("continue")}, "Only the template continue"),
        ({"messageHandlerTemplate": a_template("handler")}, "Only the template handler"),
    ],
)
async def test_the_continue_template_asks_again_once_requested_providers_are_read(
    templates: dict[str, str], beginning: str
) -> None:
    model = ScriptedModel([model_answer(providers=["TIDES"]), model_answer("At six.")])
    character = Character(name="Ada", templates=templates)
    async with running_agent(Plugin("tides", providers=[tides]), character=character, model=model) as harness:
        await harness.send("When is high water?")
        first, second = harness.model.requests_for(Purpose.REPLY)
    assert second.prompt.startswith(beginning)
    assert "High water at six." in second.prompt
    assert first.prompt.startswith("Only the template handler") is ("messageHandlerTemplate" in templates)


def test_the_evaluation_template_is_that_of_reflection_unless_its_level_sets_both() -> None:
    levels = ({"reflectionTemplate": "default"}, {"evaluationTemplate": "plugin"})
    assert merge_levels(*levels)["reflectionTemplate"] == "plugin"
    both = {"evaluationTemplate": "first", "reflectionTemplate": "second"}
    assert merge_levels(*levels, both)["reflectionTemplate"] == "second"


@pytest.mark.parametrize("name", SOURCE_NAMES)
async def test_every_template_of_the_sources_has_an_effect(name: str) -> None:
    character = Character(name="Ada", templates={name: "{{agentName}} alone"})
    async with running_agent(character=character) as harness:
        turn = make_turn(harness.agent)
        used = {"evaluationTemplate": "reflectionTemplate"}.get(name, name)
        assert turn.find_template(used) == "{{agentName}} alone"
        assert harness.agent.render(used, {"agentName": "Ada"}) == "Ada alone"


def test_a_template_stands_in_for_another_level_by_level() -> None:
    assert find_template("continueTemplate", {}, {"messageHandlerTemplate": "agent"}) == "agent"
    world, agent = {"messageHandlerTemplate": "world"}, {"continueTemplate": "agent"}
    assert find_template("continueTemplate", world, agent) == "world"
    assert find_template("otherTemplate", DEFAULTS) is None


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"mesageHandlerTemplate": "x"}, "did you mean 'messageHandlerTemplate'"),
        (
            {"spentTemplate": "{{agentNam}}"},
            "{{agentNam}} is no variable here and stays empty; did you mean 'agentName'",
        ),
        ({"spentTemplate": "{{#if"}, "line 1"),
    ],
)
async def test_a_plugin_with_a_misspelled_template_is_refused_when_the_agent_starts(
    templates: dict[str, str], message: str
) -> None:
    with pytest.raises(PluginError) as raised:
        async with running_agent(Plugin("wrong", templates=templates)):
            pass
    assert "plugin 'wrong': template" in str(raised.value)
    assert message in str(raised.value)


async def test_a_plugin_may_bring_templates_and_declare_variables_of_its_own() -> None:
    templates = {"tideTemplate": "{{anything}}", "spentTemplate": "{{agentNames}} {{tide}}"}
    plugin = Plugin("own", templates=templates, template_variables=["agentNames"])
    async with running_agent(plugin) as harness:
        assert harness.agent.templates["tideTemplate"] == "{{anything}}"
