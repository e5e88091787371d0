"""Pytest fixtures for plugins, loaded through the entry point `greenroom`."""

import warnings
from collections.abc import AsyncIterator

import pytest

from bot.testing.harness import AgentHarness, running_agent
from bot.testing.scripted_model import ScriptedModel


@pytest.fixture
def scripted_model() -> ScriptedModel:
    """Return a model that greets."""
    return ScriptedModel()


@pytest.fixture
async def agent_harness(scripted_model: ScriptedModel) -> AsyncIterator[AgentHarness]:
    """Run an agent called Ada, with bootstrap and the scripted model."""
    async with running_agent(model=scripted_model) as harness:
        yield harness


@pytest.fixture
def stage(agent_harness: AgentHarness) -> AgentHarness:
    """Return `agent_harness`; its name in version 0.1.0, removed with the next release."""
    warnings.warn("the fixture stage is now agent_harness", DeprecationWarning, stacklevel=2)
    return agent_harness
