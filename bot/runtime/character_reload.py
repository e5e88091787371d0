"""`CharacterReloader`: takes up a changed character file in a running agent.

`CharacterPicture`: the picture of a running character, from a file beside its own or from the public web.

`AgentConfig`: what an agent is built from, with its secrets, templates and store.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import bot.store
from bot.adapter.adapter import RoomRules, parse_room_rules
from bot.care.settings import CareSettings
from bot.characters.cards import MAX_PICTURE_BYTES, read_data_address
from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import MemorySemaphore
from bot.costs.budget import BudgetSettings, DegradeSteps, parse_degrade
from bot.domain.character import Character
from bot.domain.environment import Entity
from bot.domain.events import CharacterReloaded
from bot.domain.ids import derived_id
from bot.domain.ledger import DegradeStep
from bot.errors import BotError, FetchError
from bot.fetch.response import FetchedBody, check_image, sniff_media_type
from bot.inbound.agent_handle import ReloadResult
from bot.models.handler import ModelHandler
from bot.models.types import ModelType
from bot.operate.tools import OperatorTools
from bot.outbound.outbox import VoiceReplies
from bot.outbound.proposals import Approval, ApprovalSettings
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.loading import PluginPurpose, bundled_names, find_plugin
from bot.plugin_system.plugin import Plugin, check_templates, find_storage, merge_templates
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS, merge_levels
from bot.settings import CoreSettings, Settings, SettingsModel
from bot.store.ledger import ProcessRole
from bot.store.protocols import Schemas, Store
from bot.turn import Agent, AgentDefinition, CurrentDefinition

logger = logging.getLogger(__name__)
MAX_AGE: Final = 3600.0  # seconds until a picture is read again, or tried again where it cannot be used


@dataclass(frozen=True, slots=True)
class _Reading:
    source: str
    at: float
    picture: FetchedBody | None


class CharacterPicture:
    """Reads the picture of one agent and remembers it for an hour; what cannot be used is logged once an hour.

    It is PNG, JPEG, GIF or WebP of at most 2 MB. A file must be in the folder of the character's file, since the file
    may come from a stranger; an address must be https and lead to the public web.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._last = _Reading("", 0.0, None)
        self._lock = asyncio.Lock()

    async def read(self) -> FetchedBody | None:
        """Return the picture; None for a character without one, or one that cannot be used."""
        source = self._agent.character.picture_source
        if not source:
            return None
        async with self._lock:  # many pages ask at once
            now = asyncio.get_running_loop().time()
            if self._last.source != source or now - self._last.at >= MAX_AGE:
                self._last = _Reading(source, now, await self._read_usable(source))
            return self._last.picture

    async def _read_usable(self, source: str) -> FetchedBody | None:
        try:
            if (data := read_data_address(source)) is not None:
                picture = _bounded("the picture in it", data)
            elif "://" in source:
                if not source.lower().startswith("https://"):
                    raise FetchError("its address must begin with https://")
                picture = await self._agent.fetcher.get(source, max_bytes=MAX_PICTURE_BYTES)
            else:
                picture = await asyncio.to_thread(_read_file, self._agent.folder, source)
            check_image(picture)
        except (FetchError, OSError, ValueError) as error:
            logger.warning("%s: its picture is not shown: %s", self._agent.name, error, extra={"once": True})
            return None
        return picture


def _read_file(folder: Path | None, name: str) -> FetchedBody:
    """Return a file of the folder. Raises FetchError for one outside of it or too large, OSError and ValueError."""
    root = None if folder is None else folder.resolve()
    path = None if root is None else (root / name).resolve()
    if root is None or path is None or not path.is_relative_to(root) or not path.is_file():
        raise FetchError(f"{name!r} is no file in the folder of the character's file")
    with path.open("rb") as file:
        return _bounded(name, file.read(MAX_PICTURE_BYTES + 1))


def _bounded(name: str, body: bytes) -> FetchedBody:
    if len(body) > MAX_PICTURE_BYTES:
        raise FetchError(f"{name!r} is larger than {MAX_PICTURE_BYTES // 2**20} MB")
    return FetchedBody(name, sniff_media_type(body, "application/octet-stream"), body, "utf-8")


BuildTools = Callable[[Agent, Registry, Mapping[str, str]], OperatorTools]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is built from; `folder` is where the character's file is.

    Without a `store` the one of a plugin is opened, else one in memory. An agent that `is_idle` runs no scheduled
    task: it was started for one operation, such as publishing a post. `role` is what this process does for it,
    where several share its store. `reload` reads the character's `file` again, with the same plugins, in another
    thread; it raises ConfigError. `file_version` is a hash of its text. `code` has a hash of the code of each
    plugin and adapter that is named by its path. `inactive` says why plugins are off that could not even be loaded.
    `build_tools` builds what the program offers the agent's operator;
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
    inactive: Mapping[str, str] = field(default_factory=dict)
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
        """Open the agent's store."""
        if self.store is None and (storage := find_storage(self.plugins)) is not None:
            async with storage.open(self.agent_id, self.settings, schemas) as opened:
                yield opened
            return
        store = self.store or bot.store.InMemoryStore(self.clock)
        if isinstance(store, bot.store.InMemoryStore):
            async with store:
                store.database.create_tables(schemas)
                yield store
        else:
            yield store


# Settings of the file that take effect while the agent runs; plugins and adapters read theirs when they start.
LIVE_MODELS = (CoreSettings, CareSettings, BudgetSettings, ApprovalSettings)
LIVE_SETTINGS = frozenset[str]().union(*(model.CHARACTER_SETTINGS or () for model in LIVE_MODELS)) - {
    "IGNORE_BASIC_CAPABILITIES"
}
STARTED_FIELDS = ("id", "plugins", "adapters")
# Not compared as a whole: settings one by one, secrets as settings, and what has no effect here.
OTHER_FIELDS = frozenset({"settings", "secrets", "client_config", "twitter_profile", "nft", "people", "extends"})
NO_FILE = "this character was not loaded from a file"


def apply_steps(agent: Agent, steps: DegradeSteps) -> None:
    """Apply the steps by which answers degrade from now on; `offline` gets the phrases of a bundled model."""
    agent.budget.steps = steps
    is_offline = any(step is DegradeStep.OFFLINE for _, step in steps)
    if not is_offline or agent.models.has_handler_for(ModelType.TEXT_OFFLINE):
        return
    for plugin in filter(None, map(find_plugin, bundled_names(PluginPurpose.FALLBACK_MODEL))):
        for model in (candidate for candidate in plugin.models if candidate.type is ModelType.TEXT_LARGE):
            agent.models.register(ModelHandler(ModelType.TEXT_OFFLINE, partial(model, agent), plugin.name))


class CharacterReloader:
    """Reads the character's file of one running agent again and takes up what can change meanwhile.

    What cannot (the agent's id, plugins and their code, tokens and other settings that are read at a start) stays as
    it is and is named. A file that is wrong, or whose code is not trusted, changes nothing. `room_rules` are those of
    the agent; they are updated in place.
    """

    def __init__(
        self, config: AgentConfig, agent: Agent, definition: CurrentDefinition, pipeline: MessagePipeline
    ) -> None:
        self.room_rules: RoomRules = parse_room_rules(config.character)
        self._config = config  # what is in effect
        self._agent = agent
        self._definition = definition
        self._pipeline = pipeline
        self._lock = asyncio.Lock()

    async def reload(self) -> ReloadResult:
        """Take up the file as it is now; log and return what changed, or why nothing did."""
        if self._config.reload is None:
            return ReloadResult(error=NO_FILE)
        async with self._lock:
            try:
                result = await self._take_up(await asyncio.to_thread(self._config.reload))
            except (BotError, OSError) as error:
                # Without the quoted lines of the file: they may hold a secret.
                lines = [line for line in str(error).splitlines() if not line.startswith(" ")]
                name, file, problem = self._agent.name, str(self._config.file), "; ".join(lines)
                logger.error("%s: %s is not taken up, the last version runs on: %s", name, file, problem)
                return ReloadResult(file, error=problem)
        if result.changed:
            logger.info("%s: taken up from %s: %s", self._agent.name, result.file, ", ".join(result.changed))
        if result.needs_restart:
            names = ", ".join(result.needs_restart)
            logger.warning("%s: after the next start only, because the bot runs: %s", self._agent.name, names)
        return result

    async def _take_up(self, read: AgentConfig) -> ReloadResult:
        """Take up what was read. Raises BotError before anything changes."""
        current = self._config
        kept_fields = list(_started_fields(current, read))
        kept = {field: getattr(current.character, field) for field in kept_fields}
        character = read.character.model_copy(update=kept)
        taken_up = replace(
            current,
            character=character,
            settings=current.settings.with_character_values(read.settings, LIVE_SETTINGS),
            file_version=read.file_version,
        )
        changed = (*_changed_fields(current.character, character), *_changed_settings(current, taken_up))
        code = sorted(name for name in read.code if read.code[name] != current.code.get(name, read.code[name]))
        needs_restart = (
            *map(_field_name, kept_fields),
            *_differing_names(taken_up.settings, read.settings),
            *(f"the code of {name}" for name in code),
        )
        room_rules, templates = parse_room_rules(character), taken_up.templates
        settings = self._agent.settings.with_character_values(read.settings, LIVE_SETTINGS)
        core, steps = settings.load(CoreSettings), parse_degrade(settings.load(BudgetSettings).degrade)
        approval = Approval.of(settings)
        if character.name != self._agent.name:
            entity = Entity(self._agent.id, "greenroom", str(self._agent.id), (character.name,))
            await self._agent.store.entities.save_entities([entity])
        definition = AgentDefinition(character, settings, templates, read.file_version, self._agent.clock())
        self._definition.replace(definition)
        self.room_rules.update(room_rules)
        self._pipeline.apply_settings(core)
        apply_steps(self._agent, steps)
        self._agent.outbox.is_streaming = core.streaming
        self._agent.outbox.approval = approval
        self._agent.speech.mode = VoiceReplies(core.voice_replies)
        self._config = taken_up
        if changed:
            self._agent.events.emit(CharacterReloaded(self._agent.id, changed))
        return ReloadResult(str(current.file), changed, needs_restart)


def _started_fields(current: AgentConfig, read: AgentConfig) -> Iterator[str]:
    """Yield the fields that have changed and are used at a start only."""
    old, new = current.character, read.character
    yield from (field for field in STARTED_FIELDS if getattr(old, field) != getattr(new, field))
    if new.name != old.name and (new.id is None or new.id != old.id):
        yield "name"  # the agent's id is derived from it: under another one it has none of its conversations
    reads_documents = not {plugin.name for plugin in current.plugins}.isdisjoint(bundled_names(PluginPurpose.DOCUMENTS))
    if not reads_documents and any(item.needs_plugin for item in new.knowledge):
        yield "knowledge"


def _changed_fields(old: Character, new: Character) -> Iterator[str]:
    names = (name for name in Character.model_fields if name not in OTHER_FIELDS)
    yield from (_field_name(name) for name in names if getattr(old, name) != getattr(new, name))
    for name in sorted(old.settings.keys() | new.settings.keys()):  # such as the rules of a platform's rooms
        values = (old.settings.get(name), new.settings.get(name))
        if values[0] != values[1] and any(isinstance(value, dict) for value in values):
            yield f"settings.{name}"


def _changed_settings(current: AgentConfig, taken_up: AgentConfig) -> Iterator[str]:
    yield from (f"settings.{name}" for name in _differing_names(current.settings, taken_up.settings))


def _differing_names(settings: Settings, other: Settings) -> list[str]:
    """Return the variables whose values differ, without the values: some are secrets."""
    return sorted(name for name in {*settings, *other} if settings.get(name) != other.get(name))


def _field_name(field: str) -> str:
    """Return the name of a field as it stands in the file."""
    return Character.model_fields[field].alias or field
