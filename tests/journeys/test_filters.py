"""Filters on Discord, Telegram and X, with the words of the operator and a plugin from a file."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot import AgentConfig, Character, Outcome, Plugin, Runtime, Settings
from bot.cli.plugins import component_names, permission_lines
from bot.plugin_system.loading import find_plugin
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.journeys.test_three_platforms import Discord, Platform, Telegram, X

PLATFORMS = [Discord, Telegram, X]
PLUGIN = '''"""Politeness: lets nothing impolite out."""

from bot import Agent, FilterDecision, FilterInput, Plugin, filter


@filter("out")
async def politeness(agent: Agent, given: FilterInput) -> FilterDecision | None:
    """Softens what the character says."""
    if "Aye" in given.text:
        return FilterDecision.replace(given.text.replace("Aye", "Yes, please"), "it was impolite")
    return None


plugin = Plugin("politeness", "Lets nothing impolite out.", filters=[politeness])
'''


@asynccontextmanager
async def running_on(
    platform: Platform, store: InMemoryStore, *plugins: Plugin, **given: str
) -> AsyncIterator[ScriptedModel]:
    """Run the bot on an emulated platform with these settings and plugins."""
    settings = Settings([Layer("the test", {**platform.settings, "AI_NOTICE": "off", **given})])
    model = ScriptedModel(model_answer("Aye."))
    config = AgentConfig(Character(name="Ada"), (bootstrap, *plugins, model.plugin), settings, store)
    async with Runtime([config]) as runtime:
        await runtime.connect(platform.build_adapter(runtime.handles))
        yield model


def write_plugin(folder: Path) -> Plugin:
    (folder / "politeness.py").write_text(PLUGIN, encoding="utf-8")
    plugin = find_plugin("./politeness", folder)
    assert plugin is not None
    return plugin


@pytest.mark.parametrize("kind", PLATFORMS)
async def test_a_message_with_a_listed_word_is_not_read_and_the_next_is_answered(kind: Callable[[], Platform]) -> None:
    store = InMemoryStore()
    async with kind() as platform:
        async with running_on(platform, store, FILTER_WORDS="0") as model:
            await platform.write(0)
            await platform.write(1)
            await platform.wait_for(1)
            assert len(platform.answers()) == 1
            assert not any("hello 0" in request.prompt for request in model.requests)
        receipts = await store.ledger.receipts()
        assert sorted(receipt.outcome for receipt in receipts) == [Outcome.ANSWERED, Outcome.IGNORED]
        assert {receipt.rule for receipt in receipts if receipt.outcome is Outcome.IGNORED} == {"filter"}


@pytest.mark.parametrize("kind", PLATFORMS)
async def test_a_plugin_from_a_file_replaces_what_is_sent(kind: Callable[[], Platform], tmp_path: Path) -> None:
    async with kind() as platform, running_on(platform, InMemoryStore(), write_plugin(tmp_path)):
        await platform.write(0)
        await platform.wait_for(1)
        assert "Yes, please." in platform.answers()[0]


def test_the_list_of_plugins_names_the_filters_of_a_plugin_and_what_they_may_do(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    assert component_names(plugin) == {"filters": ["POLITENESS (out)"]}
    lines = list(permission_lines(plugin, Settings([])))
    assert "  may replace, hold and stop messages (in) and replies (out): POLITENESS (out)" in lines
