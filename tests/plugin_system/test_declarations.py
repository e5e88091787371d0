"""What a plugin declares: its API version, its component types, what it replaces, its priority."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, create_model

from bot import (
    ActionResult,
    Agent,
    CommandContext,
    Component,
    Plugin,
    PluginError,
    ProviderKind,
    ProviderResult,
    Settings,
    SettingsModel,
    Task,
    Turn,
    command,
    derived_id,
    model,
    new_id,
    on,
    provider,
    worker,
)
from bot.plugin_system import ComponentType
from bot.plugin_system.components import Provider, action
from bot.plugin_system.loading import find_plugin
from bot.plugin_system.plugin import merge_templates
from bot.plugin_system.registry import Registry
from bot.store import ComponentDataError, InMemoryStore
from bot.testing import running_agent


class Pet(BaseModel):
    """A pet of a person."""

    name: str
    age: int = Field(ge=0)


JSON_PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


def a_provider(name: str, text: str = "") -> Provider:
    @provider(name, "x", kind=ProviderKind.HISTORY)
    def provide(turn: Turn) -> ProviderResult:
        return ProviderResult(text=text)

    return provide


@pytest.mark.parametrize(
    ("api", "advice"),
    [
        ("2", "upgrade Greenroom"),
        ("0", "install a newer version of the plugin"),
        ("1.5", 'write api="1"'),
        ("", 'write api="1"'),
    ],
)
def test_a_plugin_for_another_api_version_is_refused_with_the_supported_range_and_what_to_change(
    api: str, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "future.py").write_text(f"from bot import Plugin\nplugin = Plugin('future', api={api!r})\n")
    with pytest.raises(PluginError) as raised:
        find_plugin("./future", tmp_path)
    for part in ("'future'", repr(api), "supports 1", advice):
        assert part in str(raised.value)


def test_a_plugin_of_this_api_version_is_accepted() -> None:
    assert Plugin("today", api="1").api == Plugin("unstated").api == "1"


def test_a_plugin_replaces_a_component_of_another_by_declaring_it() -> None:
    own, other = a_provider("RECENT_MESSAGES"), a_provider("RECENT_MESSAGES")
    plugins = [Plugin("first", providers=[other]), Plugin("second", providers=[own], replaces=["RECENT_MESSAGES"])]
    for order in (plugins, plugins[::-1]):
        registry = Registry(order)
        assert registry.providers["RECENT_MESSAGES"] is own
        assert [spec.plugin for spec in registry.catalog.providers] == ["second"]


def test_a_component_of_another_kind_is_not_replaced() -> None:
    @action("SAME", "x")
    async def act(turn: Turn) -> None: ...

    first = Plugin("first", providers=[a_provider("SAME")], actions=[act])
    second = Plugin("second", providers=[a_provider("SAME")], replaces=["SAME"])
    assert Registry([first, second]).actions["SAME"] is act


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Plugin("second", replaces=["TIME"]), "replaces TIME and brings no component of this name"),
        (
            Plugin("second", providers=[a_provider("TIMES")], replaces=["TIMES"]),
            r"replaces TIMES, which no other plugin brings: did you mean TIME\?",
        ),
        (
            Plugin("second", providers=[a_provider("TIME")]),
            r"is brought by plugin 'first' and by .*replaces=\[\"TIME\"\]",
        ),
    ],
)
def test_a_wrong_replacement_is_refused_with_what_is_wrong(plugin: Plugin, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        Registry([Plugin("first", providers=[a_provider("TIME")]), plugin])


def test_two_plugins_cannot_replace_the_same_component() -> None:
    replacing = [Plugin(name, providers=[a_provider("TIME")], replaces=["TIME"]) for name in ("second", "third")]
    with pytest.raises(PluginError, match="TIME is replaced by plugin 'second' and by plugin 'third'"):
        Registry([Plugin("first", providers=[a_provider("TIME")]), *replacing])


async def test_a_replaced_provider_of_bootstrap_is_not_in_the_prompt_and_its_replacement_is() -> None:
    plugin = Plugin("short", providers=[a_provider("RECENT_MESSAGES", "# Only this")], replaces=["RECENT_MESSAGES"])
    async with running_agent(plugin) as harness:
        await harness.send("Hello there")
        prompt = harness.model.requests[-1].prompt
    assert "# Only this" in prompt
    assert "# Conversation" not in prompt


def test_of_two_templates_of_the_same_name_that_of_the_higher_priority_is_used() -> None:
    plugins = [
        Plugin("high", templates={"a": "high", "b": "high"}, priority=5),
        Plugin("low", templates={"a": "low"}),
        Plugin("later", templates={"b": "later"}, priority=5),
    ]
    assert merge_templates(plugins) == {"a": "high", "b": "later"}


@pytest.mark.parametrize("schema", [Pet, JSON_PET])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"name": "Rex", "age": 3}, ""),
        ({"name": "Rex"}, "age"),
        ({"name": "Rex", "age": -1}, "age"),
        ({"name": "Cat", "age": 1}, "not accepted"),
    ],
)
async def test_data_of_a_declared_component_type_are_checked_before_they_are_stored(
    schema: Any, data: Mapping[str, Any], problem: str
) -> None:
    pets = ComponentType("PET", "A pet.", schema, validator=lambda pet: pet["name"] != "Cat")
    component = Component(new_id(), derived_id("test", "entity", "Alice"), "PET", data)
    async with running_agent(Plugin("pets", component_types=[pets]), store=InMemoryStore()) as harness:
        entities = harness.agent.store.entities
        if problem:
            with pytest.raises(ComponentDataError, match=f"component PET: .*{problem}"):
                await entities.save_component(component)
        else:
            await entities.save_component(component)
        assert len(await entities.components(component.entity_id)) == (not problem)
        assert [spec.name for spec in harness.agent.catalog.component_types] == ["PET"]


async def test_the_database_checks_declared_component_types_too(tmp_path: Path) -> None:
    plugin = Plugin("pets", component_types=[ComponentType("PET", "A pet.", Pet)], requires=["sql"])
    async with running_agent(plugin, settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        entities = harness.agent.store.entities
        with pytest.raises(ComponentDataError, match="component PET: age"):
            await entities.save_component(Component(new_id(), harness.agent.id, "PET", {"name": "Rex"}))
        await entities.save_component(Component(new_id(), harness.agent.id, "OTHER", {"anything": 1}))
        assert [item.type for item in await entities.components(harness.agent.id)] == ["OTHER"]


def test_two_plugins_cannot_declare_the_same_component_type() -> None:
    plugins = [Plugin(name, component_types=[ComponentType("PET", "A pet.", Pet)]) for name in ("one", "two")]
    with pytest.raises(PluginError, match="component type PET is brought by plugin 'one' and by plugin 'two'"):
        Registry(plugins)


def test_a_component_type_with_a_broken_schema_or_name_is_refused() -> None:
    with pytest.raises(PluginError, match="component type PET: its schema is no JSON schema: 'pet' is not valid"):
        ComponentType("PET", "A pet.", {"type": "pet"})
    with pytest.raises(PluginError, match="component type 'pet'"):
        ComponentType("pet", "A pet.", Pet)


@pytest.mark.parametrize("name", ["log_level", "budget_usd", "default_max_tokens", "owner_mail", "https_proxy"])
def test_a_plugin_may_not_declare_a_variable_of_the_program(name: str) -> None:
    base = {"__base__": SettingsModel, "weather_city": (str, "")}
    taken = create_model("Taken", **base, **{name: (str, "")})  # type: ignore[call-overload]
    expected = f"plugin 'weather': its settings declare {name.upper()}, which the program itself reads"
    with pytest.raises(PluginError, match=expected):
        Plugin("weather", "Tells the weather.", settings=taken)


async def answering(turn: Turn) -> ActionResult:
    return ActionResult()


async def knowing(turn: Turn) -> ProviderResult:
    return ProviderResult("known")


async def working(agent: Agent, task: Task) -> None: ...


async def asking(context: CommandContext) -> str:
    return "asked"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: action("A_B", "x", role="ADMIN")(answering), "action A_B: role is 'ADMIN': it must be Role, such as"),
        (lambda: action("A_B", "x", authority="harmless")(answering), "authority is 'harmless': it must be Authority"),
        (lambda: action("A_B", "x", deadline="60")(answering), "deadline is '60': it must be int or float or None"),
        (lambda: action("A_B", "x", similes="SAY")(answering), "similes is 'SAY': it must be a list"),
        (lambda: action("A_B", "x", when=True)(answering), "when is True: it must be a function or None"),
        (lambda: provider("A_B", "x", position="5")(knowing), "provider A_B: position is '5'"),
        (lambda: provider("A_B", "x", timeout="5")(knowing), "provider A_B: timeout is '5'"),
        (lambda: worker("A_B", deadline="9")(working), "worker A_B: deadline is '9'"),
        (lambda: worker("A_B", deadline=0)(working), "worker A_B: its deadline is 0 s"),
        (lambda: worker("A_B", deadline=float("inf"))(working), "worker A_B: its deadline is inf s"),
        (lambda: command("ask-me", "x", role="ADMIN")(asking), "command ask-me: role is 'ADMIN'"),
        (lambda: on("MessageReceived"), "a listener of 'MessageReceived': write the class"),
        (lambda: model("TEXT", priority=1)(working), "kind is 'TEXT': it must be ModelType"),
        (lambda: Plugin(5), "plugin 5: name is 5: it must be str"),
        (lambda: Plugin("odd", api=1), "plugin 'odd': api is 1: it must be str"),
        (lambda: Plugin("odd", services=[3]), "an item of its services: it is 3: it must be a class"),
        (lambda: Plugin("odd", requires="sql"), "requires is 'sql': it must be a list"),
        (lambda: Plugin("odd", settings={"A": 1}), "settings is {'A': 1}: it must be a class or None"),
        (lambda: Plugin("odd", init=5), "init is 5: it must be a function or None"),
        (lambda: Plugin("odd", priority="high"), "priority is 'high': it must be int or float"),
    ],
)
def test_a_declaration_of_a_wrong_type_is_refused_where_it_is_written(make: Any, problem: str) -> None:
    with pytest.raises(PluginError, match=re.escape(problem)):
        make()


def _require(settings: Settings) -> str:
    settings.require("ODD_KEY")
    return ""


def _fail(settings: Settings) -> str:
    raise KeyError("secret detail")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (_require, "ODD_KEY is not set"),
        (_fail, "its missing_settings failed: KeyError"),
        (lambda settings: True, "its missing_settings returned True, not a text"),
        (lambda settings: None, ""),
    ],
)
def test_a_plugin_whose_missing_settings_fail_is_off_with_the_reason(missing: Any, expected: str) -> None:
    assert Plugin("odd", missing_settings=missing).why_off(Settings([])).startswith(expected)
