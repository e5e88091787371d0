"""`build_operator_tools`: what `bot run` offers the operator of one running agent, made of the terminal's commands."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bot.agent import Agent, AgentDefinition
from bot.characters import Note
from bot.cli.characters import CharacterConfig
from bot.cli.doctor.model_checks import SAMPLE_MESSAGE, ask_model, prompt_finding
from bot.cli.operator.character_check import CheckResult, check_text
from bot.cli.operator.character_store import CharacterStore
from bot.cli.operator.character_trial import compose_prompt, split_prompt, try_reply
from bot.cli.operator.program import (
    find_failures,
    list_plugin_states,
    list_variable_states,
    read_installed_plugins,
    run_checks,
)
from bot.errors import CharacterError, FileProblem, PluginError
from bot.inbound.operator_tools import (
    CharacterCheck,
    CharacterText,
    Finding,
    OperatorTools,
    PluginState,
    PromptSection,
    SectionShare,
    StoredVersion,
    TrialReply,
    VariableState,
)
from bot.models.types import TextRequest
from bot.plugin_system.plugin import merge_templates
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS, merge_levels
from bot.runtime.agent_config import AgentConfig
from bot.runtime.character_reload import LIVE_SETTINGS
from bot.settings import CoreSettings, Settings
from bot.turn import Turn


def with_operator_tools(config: CharacterConfig) -> AgentConfig:
    """Return the configuration for a runtime, with the tools of the agent's operator."""
    return replace(config.agent_config, build_tools=partial(build_operator_tools, config))


def build_operator_tools(
    config: CharacterConfig, agent: Agent, registry: Registry, inactive: Mapping[str, str]
) -> OperatorTools:
    """Return the tools for a running agent; `inactive` says why plugins of it are off."""
    data_folder = config.settings.load(CoreSettings).bot_data_dir
    store = CharacterStore(config.path, data_folder, config.secrets, agent.clock)
    character = CharacterFileTools(config, agent, registry, store, threading.Lock())
    return OperatorTools(character, RunningProgram(config, agent, registry, inactive))


@dataclass(frozen=True, slots=True)
class CharacterFileTools:
    """The file of one running character; files are read and written in threads."""

    _config: CharacterConfig
    _agent: Agent
    _registry: Registry
    _store: CharacterStore
    _lock: threading.Lock  # of the file

    async def read(self, version: str = "") -> CharacterText:
        """Return the file as it is, or an older version of it."""
        return await asyncio.to_thread(self._store.read, version)

    async def versions(self) -> list[StoredVersion]:
        """List the stored versions, the newest first."""
        return await asyncio.to_thread(self._store.versions)

    async def check(self, text: str) -> CharacterCheck:
        """Return what `bot character check` would say of a text."""
        return await asyncio.to_thread(self._check, text)

    async def save(self, text: str, version: str) -> CharacterText:
        """Replace the file that has this version, and store the old one."""
        return await asyncio.to_thread(self._save, text, version)

    async def preview(self, text: str, message: str) -> list[PromptSection]:
        """Return the prompt for a message, in its order."""
        turn, request = await self._compose(text, message)
        return split_prompt(turn, request, self._registry)

    async def try_reply(self, text: str, message: str) -> TrialReply:
        """Ask the model to answer a message as the character of this text."""
        turn, request = await self._compose(text, message)
        return await try_reply(turn, request)

    async def _compose(self, text: str, message: str) -> tuple[Turn, TextRequest]:
        definition = await asyncio.to_thread(self._read_definition, text)
        return await compose_prompt(self._agent, self._registry, definition, message)

    def _read_definition(self, text: str) -> AgentDefinition:
        """Return the agent as the text would make it without a restart. Raises ConfigError."""
        result = self._check_text(text)
        if result.loaded is None or result.settings is None or result.error is not None:
            raise result.error or CharacterError(result.error_text)
        character = result.loaded.character
        settings = self._agent.settings.with_character_values(result.settings, LIVE_SETTINGS)
        templates = merge_levels(DEFAULTS, merge_templates(self._config.plugins), character.templates)
        return AgentDefinition(character, settings, templates)

    def _check_text(self, text: str) -> CheckResult:
        return check_text(self._config.path, self._store.restore_secrets(text))

    def _check(self, text: str) -> CharacterCheck:
        try:
            result = self._check_text(text)
        except CharacterError as error:
            return CharacterCheck(_problems_of(error))
        if result.error is not None:
            return CharacterCheck(_problems_of(result.error))
        assert result.loaded is not None
        report = result.loaded.report
        return CharacterCheck(
            warnings=tuple(map(_to_problem, (*report.warnings, *report.secrets))),
            name=result.loaded.character.name,
            plugin_notes=result.plugins,
            untrusted_code=tuple(source.name for source in result.code if source not in result.trusted_code),
            sections={
                place: [SectionShare(use.name, use.kept, use.count, use.kept_length, use.length) for use in uses]
                for place, uses in result.sections.items()
            },
        )

    def _save(self, text: str, version: str) -> CharacterText:
        with self._lock:
            self._store.check_version(version)
            result = self._check_text(text)
            if result.error is not None:
                raise result.error
            self._store.replace(text)
            return self._store.read()


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """The program around one running agent."""

    _config: CharacterConfig
    _agent: Agent
    _registry: Registry
    _inactive: Mapping[str, str]

    async def plugins(self) -> list[PluginState]:
        """List the installed plugins, and those that the character names by path."""
        installed = await read_installed_plugins(self._config)
        failures = self._agent.services.failures
        return await asyncio.to_thread(list_plugin_states, self._config, self._inactive, failures, installed)

    def inactive_plugins(self) -> Mapping[str, str]:
        """Return why plugins that the character uses are off or have failed, by their names."""
        return find_failures(self._config, self._inactive, self._agent.services.failures)

    async def settings(self, current: Settings) -> list[VariableState]:
        """List every variable of the program, with the values of these settings."""
        return await asyncio.to_thread(list_variable_states, current, self._config.plugins)

    async def run_checks(self) -> list[Finding]:
        """Run the checks of `bot doctor` that make sense beside the running agent."""
        findings = await asyncio.to_thread(lambda: list(run_checks(self._config, self._agent.settings)))
        definition = self._agent.read_definition()
        turn, request = await compose_prompt(self._agent, self._registry, definition, SAMPLE_MESSAGE)
        size = sum(section.size for section in split_prompt(turn, request, self._registry))
        return [*findings, prompt_finding(size), *await ask_model(self._agent, self._agent.settings)]


def _problems_of(error: Exception) -> tuple[FileProblem, ...]:
    """Return what an error says of a file; without a place where it knows none."""
    if isinstance(error, CharacterError) and error.problems:
        return error.problems
    if isinstance(error, PluginError):
        return (FileProblem(str(error), path="plugins"),)
    return tuple(FileProblem(line) for line in _visible_lines(str(error)))


def _visible_lines(text: str) -> Iterator[str]:
    """Yield the lines of an error without those that quote the file."""
    yield from (line for line in text.splitlines() if not line.startswith(" "))


def _to_problem(note: Note) -> FileProblem:
    return FileProblem(note.message, note.line, note.column, note.path)
