"""Pytest fixtures for plugins, loaded through the entry point `greenroom`."""

from collections.abc import AsyncIterator

import pytest

from bot.testing.harness import AgentHarness, running_agent
from bot.testing.scripted_model import ScriptedModel


@pytest.fixture
def scripted_model() -> ScriptedModel:
    """Return a model that greets."""
    return ScriptedModel()


@pytest.fixture
async def stage(scripted_model: ScriptedModel) -> AsyncIterator[AgentHarness]:
    """Run an agent called Ada, with bootstrap and the scripted model."""
    async with running_agent(model=scripted_model) as harness:
        yield harness
