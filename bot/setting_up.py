"""Setting plugins up: one whose `init` fails is off, and so is whatever cannot do without it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from bot.agent import Agent
from bot.concurrency.isolation import Failure, contained
from bot.errors import PluginError
from bot.models.types import ModelType
from bot.plugin_system.plugin import Plugin

INIT_DEADLINE = 30.0


class NotSetUp(PluginError):
    """A plugin whose `init` has failed, and why."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"plugin {name!r} could not be set up: {cause}")
        self.name = name
        self.cause = cause


async def set_up(agent: Agent, plugins: Sequence[Plugin]) -> None:
    """Run every plugin's `init`; raises NotSetUp at the first that fails."""
    for plugin in plugins:
        if plugin.init is None:
            continue
        what = f"init of plugin {plugin.name}"
        done = await contained(_begun(plugin.init, agent), what=what, deadline=INIT_DEADLINE)
        if isinstance(done, Failure):
            raise NotSetUp(plugin.name, done.cause)


async def _begun(init: Callable[[Agent], Awaitable[None]], agent: Agent) -> None:
    await init(agent)


def off_without(plugins: Sequence[Plugin], name: str, cause: str) -> dict[str, str]:
    """Say of every plugin why it is off where this one is: by its own cause, or by the chain down to it.

    Plugins come after those they require.
    """
    off = {name: cause}
    for plugin in plugins:
        needed = next((one for one in plugin.requires if one in off), None)
        if needed is not None and plugin.name not in off:
            off[plugin.name] = f"it requires {needed!r}, which is off: {off[needed]}"
    return off


def without(plugins: Sequence[Plugin], off: Mapping[str, str]) -> tuple[Plugin, ...]:
    """Leave of plugins that are off what their names, their secrets and their tables are known by."""
    return tuple(_husk(plugin) if plugin.name in off else plugin for plugin in plugins)


def is_vital(plugins: Sequence[Plugin], off: Mapping[str, str]) -> bool:
    """Tell whether nothing is kept, or nobody writes, where these plugins are off."""
    lost = [plugin for plugin in plugins if plugin.name in off]
    rest = [plugin for plugin in plugins if plugin.name not in off]
    return any(plugin.store is not None for plugin in lost) or (_writes(lost) and not _writes(rest))


def _writes(plugins: Sequence[Plugin]) -> bool:
    return any(model.type is ModelType.TEXT_LARGE for plugin in plugins for model in plugin.models)


def _husk(plugin: Plugin) -> Plugin:
    return Plugin(plugin.name, plugin.description, settings=plugin.settings, schema=plugin.schema)
