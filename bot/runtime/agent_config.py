"""`AgentConfig`: what an agent is built from, with its secrets, templates and store."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from bot.agent import Agent, AgentDefinition
from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import MemorySemaphore
from bot.domain.character import Character
from bot.domain.ids import derived_id
from bot.errors import PluginError
from bot.inbound.operator_tools import OperatorTools
from bot.plugin_system.plugin import Plugin, check_templates, collect_schemas, find_storage, merge_templates
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS, merge_levels
from bot.settings import Settings, SettingsModel
from bot.store.inmemory import InMemoryStore
from bot.store.protocols import Schemas, Store
from bot.store.work_sharing import ProcessRole

BuildTools = Callable[[Agent, Registry, Mapping[str, str]], OperatorTools]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is built from; `folder` is where the character's file is.

    Without a `store` the one of a plugin is opened, else one in memory. An agent that `is_idle` runs no scheduled
    task: it was started for one operation, such as publishing a post. `role` is what this process does for it,
    where several share its store. `reload` reads the character's `file` again, with the same plugins, in another
    thread; it raises ConfigError. `file_version` is a hash of its text. `code` has a hash of the code of each
    plugin and adapter that is named by its path. `build_tools` builds what the program offers the agent's operator;
    it gets the running agent, and by name why plugins of it are off. `memory` is that of the process:
    `run_agent` sets it.
    """

    character: Character
    plugins: tuple[Plugin, ...]
    settings: Settings
    store: Store | None = None
    clock: Clock = system_clock
    folder: Path | None = None
    is_idle: bool = False
    role: ProcessRole = ProcessRole.ALL
    file: Path | None = None
    reload: Callable[[], "AgentConfig"] | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    file_version: str = ""
    build_tools: BuildTools | None = None
    memory: MemorySemaphore = field(default_factory=MemorySemaphore)

    @property
    def agent_id(self) -> UUID:
        """The agent's id: the character's own, else one derived from its name."""
        return self.character.id or derived_id("agent", self.character.name)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that must never be sent."""
        models: list[type[SettingsModel]] = [plugin.settings for plugin in self.plugins if plugin.settings]
        return self.settings.secrets(*models)

    @property
    def templates(self) -> dict[str, str]:
        """The prompt templates by name: the character's over the plugins' over the defaults.

        Raises PluginError for a template of a plugin that cannot be used.
        """
        check_templates(self.plugins)
        return merge_levels(DEFAULTS, merge_templates(self.plugins), self.character.templates)

    @property
    def definition(self) -> AgentDefinition:
        """What the character's file says of the agent, as it starts."""
        return AgentDefinition(self.character, self.settings, self.templates, self.file_version, self.clock())

    @asynccontextmanager
    async def open_store(self, schemas: Schemas) -> AsyncIterator[Store]:
        """Open the agent's store; raises PluginError where a plugin has tables and there is no database."""
        if self.store is not None:
            yield self.store
            return
        storage = find_storage(self.plugins)
        if storage is not None:
            async with storage.open(self.agent_id, self.settings, schemas) as store:
                yield store
            return
        if names := ", ".join(sorted(collect_schemas(self.plugins))):
            raise PluginError(f"{names} needs a database for its tables: give the character the sql plugin")
        yield InMemoryStore(self.clock)
