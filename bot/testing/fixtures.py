"""Pytest fixtures for plugins, loaded through the entry point `greenroom`; asynchronous tests run without settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction

import pytest

from bot.testing.harness import AgentHarness, running_agent
from bot.testing.running_emulator import EmulatedChat, running_emulator
from bot.testing.scripted_model import ScriptedModel


class EventLoop:
    """The event loop of asynchronous tests and fixtures."""

    @pytest.fixture(scope="session")
    @classmethod
    def anyio_backend(cls) -> str:
        """Return asyncio, on which the bot runs; a conftest.py may choose another one."""
        return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """Register the event loop after the plugins that pytest loads, so that it is used instead of anyio's choice."""
    config.pluginmanager.register(EventLoop())


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Mark an asynchronous test to be run by anyio, unless it is marked for pytest-asyncio or trio."""
    if not collector.istestfunction(obj, name) or not iscoroutinefunction(obj):
        return
    own_markers = {marker.name for marker in getattr(obj, "pytestmark", ())}
    has_other = any(name in own_markers or collector.get_closest_marker(name) for name in ("asyncio", "trio"))
    manager = collector.config.pluginmanager
    is_pytest_asyncio = manager.has_plugin("asyncio") and collector.config.getini("asyncio_mode") == "auto"
    if not has_other and not is_pytest_asyncio:
        pytest.mark.usefixtures("anyio_backend")(obj)


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
async def start_emulator() -> AsyncIterator[Callable[..., Awaitable[EmulatedChat]]]:
    """Return a function that starts an emulator as `running_emulator` does; it stops after the test."""
    async with AsyncExitStack() as stack:

        async def start(platform: str, *bots: str) -> EmulatedChat:
            return await stack.enter_async_context(running_emulator(platform, *bots))

        yield start
