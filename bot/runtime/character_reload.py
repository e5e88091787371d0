"""`CharacterReloader`: takes up a changed character file in a running agent."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

from bot.adapter.room_rules import RoomRules, parse_room_rules
from bot.agent import Agent, AgentDefinition, CurrentDefinition
from bot.domain.character import Character
from bot.domain.environment import Entity
from bot.domain.events import CharacterReloaded
from bot.errors import BotError
from bot.inbound.agent_handle import ReloadResult
from bot.outbound.speech import VoiceReplies
from bot.pipeline.process_message import MessagePipeline
from bot.plugin_system.bundled import PluginPurpose, bundled_names
from bot.runtime.agent_config import AgentConfig
from bot.settings import CoreSettings, Settings

logger = logging.getLogger(__name__)

# Settings of the file that take effect while the agent runs; plugins and adapters read theirs when they start.
LIVE_SETTINGS = (CoreSettings.CHARACTER_SETTINGS or frozenset()) - {"IGNORE_BASIC_CAPABILITIES"}
STARTED_FIELDS = ("id", "plugins", "adapters")
# Not compared as a whole: settings one by one, secrets as settings, and what has no effect here.
OTHER_FIELDS = frozenset({"settings", "secrets", "client_config", "twitter_profile", "nft", "people", "extends"})
NO_FILE = "this character was not loaded from a file"


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
        core = settings.load(CoreSettings)
        if character.name != self._agent.name:
            entity = Entity(self._agent.id, "greenroom", str(self._agent.id), (character.name,))
            await self._agent.store.entities.save_entities([entity])
        definition = AgentDefinition(character, settings, templates, read.file_version, self._agent.clock())
        self._definition.replace(definition)
        self.room_rules.update(room_rules)
        self._pipeline.apply_settings(core)
        self._agent.outbox.is_streaming = core.streaming
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
