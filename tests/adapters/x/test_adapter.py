"""The X adapter has one account per character with keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.x import spec
from adapters.x.adapter import XAdapter
from adapters.x.emulator import Emulator
from bot import AgentConfig, Character, ConfigError, Runtime, Settings
from bot.settings import Layer
from bot.testing import ManualClock, ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap


@asynccontextmanager
async def together(folder: Path, *characters: tuple[Character, dict[str, str]]) -> AsyncIterator[Runtime]:
    """Run these characters in one process, each with its own variables."""
    plans = [
        AgentConfig(
            character,
            (bootstrap, ScriptedModel(model_answer(f"{character.name} says hello.")).plugin),
            Settings([Layer("the test", {"BOT_DATA_DIR": str(folder), **values})]),
        )
        for character, values in characters
    ]
    async with Runtime(plans) as runtime:
        yield runtime


async def test_each_character_posts_with_its_own_keys(emulator: Emulator, tmp_path: Path) -> None:
    keys = emulator.add_account("grace_bot")
    ada = (Character(name="Ada"), {**emulator.environment, "X_REPLY_ENABLE": "false"})
    grace = (Character(name="Grace"), {**emulator.environment_of(keys), "X_REPLY_ENABLE": "false"})
    async with together(tmp_path, ada, grace) as runtime:
        await runtime.connect(spec.open(runtime.handles))
        for agent_runtime in runtime.agents:
            [feed] = agent_runtime.agent.outbox.feeds()
            await agent_runtime.agent.store.worlds.save_world(feed.world, [feed.room])
            await agent_runtime.agent.say(feed.room, f"This is {agent_runtime.agent.name}.")
            await agent_runtime.agent.outbox.drain(60.0)
    assert [post.text for post in emulator.state.posts_by(emulator.user_id)] == ["This is Ada."]
    assert [post.text for post in emulator.state.posts_by(keys.user_id)] == ["This is Grace."]


async def test_two_characters_cannot_share_an_account(emulator: Emulator, tmp_path: Path) -> None:
    both = [(Character(name=name), emulator.environment) for name in ("Ada", "Grace")]
    async with together(tmp_path, *both) as runtime:
        with pytest.raises(ConfigError, match="Ada and Grace have the same X_ACCESS_TOKEN"):
            spec.open(runtime.handles)


async def test_a_character_without_keys_or_with_other_platforms_has_no_timeline(
    emulator: Emulator, clock: ManualClock, tmp_path: Path
) -> None:
    keyless: tuple[Character, dict[str, str]] = (Character(name="Ada"), {})
    elsewhere = (Character(name="Grace", adapters=["telegram"]), emulator.environment)
    async with together(tmp_path, keyless, elsewhere) as runtime:
        adapter = XAdapter(runtime.handles, time_source=clock.time_source)
        await runtime.connect(adapter)
        assert [adapter.feed(handle.agent_id) for handle in runtime.handles] == [None, None]
        assert emulator.calls == []
