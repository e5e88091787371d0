"""Prompt templates: their three levels, those without a default, and misspelled names and variables."""

from uuid import UUID

import pytest

from bot import ChannelType, Character, Plugin, PluginError, ProviderResult, Turn, World, action, provider
from bot.errors import TemplateError
from bot.models import Purpose
from bot.prompts.templates import DEFAULTS, PARTS, complete_template, find_missing_parts, find_template, merge_levels
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
        ({"continueTemplate": "<task>Continue as {{agentName}}</task>"}, "<task>Continue as Ada</task>"),
        ({"messageHandlerTemplate": "Only the template handler: {{recentMessages}}"}, "Only the template handler"),
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
        assert turn.find_template(used).startswith("{{agentName}} alone\n")
        assert harness.agent.render(used, {"agentName": "Ada"}).startswith("Ada alone\n")


def test_a_template_stands_in_for_another_level_by_level() -> None:
    assert (find_template("continueTemplate", {}, {"messageHandlerTemplate": "agent"}) or "").startswith("agent\n")
    world, agent = {"messageHandlerTemplate": "world"}, {"continueTemplate": "agent"}
    assert (find_template("continueTemplate", world, agent) or "").startswith("world\n")
    world, agent = {"evaluationTemplate": "world"}, {"reflectionTemplate": "agent"}
    assert (find_template("reflectionTemplate", world, agent) or "").startswith("world\n")
    assert find_template("otherTemplate", DEFAULTS) is None


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_templates_lack_nothing(name: str) -> None:
    assert find_missing_parts(name, DEFAULTS[name]) == []


@pytest.mark.parametrize("name", PARTS)
def test_a_template_that_is_completed_lacks_nothing(name: str) -> None:
    completed = complete_template(name, "{{agentName}} alone")
    assert completed.startswith("{{agentName}} alone\n\n")
    assert find_missing_parts(name, completed) == []
    assert complete_template(name, completed) == completed


HANDLER = "<output>\n<response>\n  <thought>Your thought</thought>\n  <text>Your text</text>\n</response>\n</output>"


@pytest.mark.parametrize(
    ("name", "source", "lacking"),
    [
        ("messageHandlerTemplate", "{{providers}}\n" + HANDLER, []),
        ("messageHandlerTemplate", '{{recentMessages}}\n```json\n{"text": "{{agentName}}\'s words"}\n```', []),
        ("messageHandlerTemplate", "{{#if providers}}Answer.{{/if}}" + HANDLER, ["the conversation"]),
        ("messageHandlerTemplate", "{{#each providers}}-{{/each}}" + HANDLER, ["the conversation"]),
        ("messageHandlerTemplate", "{{#if x}}{{else}}{{providers}}{{/if}}" + HANDLER, []),
        ("messageHandlerTemplate", "{{#providers}}{{this}}{{/providers}}" + HANDLER, []),
        ("messageHandlerTemplate", "Only <text>{{messageText}}</text>\n{{providers}}", ["the form of the answer"]),
        ("continueTemplate", "{{recentMessages}}" + HANDLER, ["the requested providers"]),
        ("shouldRespondTemplate", "{{providers}} Say RESPOND or IGNORE.", []),
        ("shouldRespondTemplate", "{{providers}} <response><action>?</action></response>", []),
        ("imageDescriptionTemplate", "<response><title>t</title><text>told</text></response>", []),
        ("replyTemplate", "{{providers}}" + HANDLER, ["the results of the actions"]),
        ("multiStepDecisionTemplate", "{{messageText}} {{actionResults}} <action>A</action>", []),
        ("reflectionTemplate", "{{providers}} {{recentMessages}} <fact><claim>c</claim></fact>", []),
        ("parameterRepairTemplate", "{{schema}} {{given}} {{problems}}: JSON", []),
        ("apologyTemplate", "Sorry.", []),
        ("otherTemplate", "x", []),
    ],
)
def test_what_a_template_lacks_for_its_purpose_is_found(name: str, source: str, lacking: list[str]) -> None:
    assert [part.name for part in find_missing_parts(name, source)] == lacking


@pytest.mark.parametrize("name", ["messageHandlerTemplate", "shouldRespondTemplate"])
async def test_a_bot_with_a_template_of_a_task_alone_sees_the_conversation_and_answers(name: str) -> None:
    character = Character(name="Ada", templates={name: "<task>As a tech support agent, {{agentName}} helps.</task>"})
    async with running_agent(character=character) as harness:
        await harness.send("My lamp flickers.", kind=ChannelType.GROUP)
        await harness.send("Can anybody help with that?", kind=ChannelType.GROUP)
        purpose = Purpose.REPLY if name.startswith("message") else Purpose.SHOULD_RESPOND
        if purpose is Purpose.REPLY:
            await harness.send("Ada, can you?", kind=ChannelType.GROUP)
        prompt = harness.model.requests_for(purpose)[-1].prompt
    assert prompt.startswith("<task>As a tech support agent, Ada helps.</task>")
    assert "My lamp flickers." in prompt
    assert "<response>" in prompt


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
