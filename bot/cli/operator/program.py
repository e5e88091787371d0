"""Plugins, variables and checks of the program around a running agent.

`build_operator_tools`: what `bot run` offers the operator of one running agent, made of the terminal's commands.

List the processes that share a character's database, and drain one for an upgrade.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import typer

from bot.cli.characters import (
    CharacterConfig,
    describe_variables,
    list_platforms,
    load_character_config,
    reload_character_config,
)
from bot.cli.doctor import checks
from bot.cli.doctor.checks import check_accounts
from bot.cli.doctor.command import check_configuration
from bot.cli.doctor.model_checks import SAMPLE_MESSAGE, ask_model, prompt_finding
from bot.cli.operator.characters import CharacterStore, CheckResult, check_text, compose_prompt, split_prompt, try_reply
from bot.cli.options import AsJson, CharacterFile, examples, find_settings_groups, new_command, print_result
from bot.cli.plugins import describe_unused_plugins, list_cards
from bot.cli.process.shutdown import Exit, UsageError
from bot.cli.running_bot import read_store, require_storage, run_with
from bot.domain.ledger import Receipt
from bot.errors import CharacterError, ConfigError, FileProblem, PluginError
from bot.models.types import TextRequest
from bot.operate.replay import ReplayBody
from bot.operate.tools import (
    CharacterCheck,
    CharacterText,
    Finding,
    FindingStatus,
    OperatorTools,
    PluginState,
    PromptSection,
    SectionShare,
    StoredVersion,
    TrialReply,
    VariableState,
)
from bot.plugin_system.plugin import Plugin, collect_schemas, merge_templates
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEFAULTS, merge_levels
from bot.runtime.character_reload import LIVE_SETTINGS, AgentConfig
from bot.runtime.replay import replay_turn
from bot.settings import CoreSettings, Settings
from bot.store.ledger import Members
from bot.store.protocols import Store
from bot.text import redact
from bot.turn import Agent, AgentDefinition, Turn

LOG_ADVICE = "the log says more; correct the cause and start the bot again"


async def read_installed_plugins(config: CharacterConfig) -> list[Mapping[str, Any]]:
    """Return what `bot plugin list --json` prints of the plugins that a character does not use, without their code.

    The libraries of plugins that are off would double the size of this process.
    """
    return await asyncio.to_thread(lambda: list(describe_unused_plugins(config)))


def list_plugin_states(
    config: CharacterConfig,
    inactive: Mapping[str, str],
    failures: Mapping[type, str],
    installed: Sequence[Mapping[str, Any]],
) -> list[PluginState]:
    """Return the installed plugins, those with a problem first.

    `failures` are those of services, by class; `installed` is what `read_installed_plugins` returns.
    """
    causes = find_failures(config, inactive, failures)
    used = [card.to_json() for card in list_cards(config, only_used=True)]
    states = [_plugin_state(card, causes.get(card["name"], ""), config) for card in (*used, *installed)]
    return sorted(states, key=lambda item: (item.name not in causes, item.state != "on", item.name))


def find_failures(config: CharacterConfig, inactive: Mapping[str, str], failures: Mapping[type, str]) -> dict[str, str]:
    """Return why plugins of a character are off, or what their services failed with, by their names."""
    causes = dict(inactive)
    for plugin in config.plugins:
        cause = next((failures[service] for service in plugin.services if service in failures), "")
        if cause:
            causes.setdefault(plugin.name, cause)
    return causes


def _plugin_state(card: Mapping[str, Any], cause: str, config: CharacterConfig) -> PluginState:
    advice = LOG_ADVICE if cause else ""
    if card["reason"] and not cause:
        advice = f"name {card['name']!r} among the plugins of {config.path.name}, and start the bot again"
        if card["missing"]:
            advice = "set it in .env or the environment, and start the bot again"
        if card.get("install"):
            advice = f"{advice}; packages of it are not installed: {card['install']}"
    return PluginState(
        name=card["name"],
        description=card["description"],
        state="failed" if cause else "off" if card["reason"] else "on",
        why=cause or card["reason"],
        fix=advice,
        package=card["package"],
        version=card["version"],
        brings=card["components"],
        settings=card["settings"],
    )


def list_variable_states(settings: Settings, plugins: Sequence[Plugin]) -> list[VariableState]:
    """Return every variable of the core, adapters and plugins; a secret has no value."""
    groups, _ = find_settings_groups(plugins, imports_others=False)
    return describe_variables(groups, settings.with_models(*(group.model for group in groups)))


def run_checks(config: CharacterConfig, settings: Settings) -> Iterator[Finding]:
    """Run the checks of `bot doctor` that make sense beside the running agent, but for that of the model."""
    yield from checks.check_python()
    try:
        config = reload_character_config(config)  # the file as it is now: the agent may run an earlier version of it
    except ConfigError as error:
        advice = "correct the file; the bot runs the last version that it could use"
        yield Finding(FindingStatus.FAIL, "character", "; ".join(_visible_lines(str(error))), advice)
    else:
        yield from checks.check_character(config.path, config.loaded)
    yield from check_configuration(settings, config, is_running=True)
    yield from check_accounts(config, list_platforms([config]))


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
    """`CharacterTools` of the file of one running character; files are read and written in threads."""

    _config: CharacterConfig
    _agent: Agent
    _registry: Registry
    _store: CharacterStore
    _lock: threading.Lock  # of the file

    async def read(self, version: str = "") -> CharacterText:
        return await asyncio.to_thread(self._store.read, version)

    async def versions(self) -> list[StoredVersion]:
        return await asyncio.to_thread(self._store.versions)

    async def check(self, text: str) -> CharacterCheck:
        return await asyncio.to_thread(self._check, text)

    async def save(self, text: str, version: str) -> CharacterText:
        return await asyncio.to_thread(self._save, text, version)

    async def preview(self, text: str, message: str) -> list[PromptSection]:
        turn, request = await self._compose(text, message)
        return split_prompt(turn, request, self._registry)

    async def try_reply(self, text: str, message: str) -> TrialReply:
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
            warnings=tuple(
                FileProblem(note.message, note.line, note.column, note.path)
                for note in (*report.warnings, *report.secrets)
            ),
            name=result.loaded.character.name,
            plugin_notes=result.plugins,
            untrusted_code=tuple(source.name for source in result.code if source not in result.trusted_code),
            sections={place: list(map(SectionShare.model_validate, uses)) for place, uses in result.sections.items()},
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
    """`ProgramTools` of the program around one running agent."""

    _config: CharacterConfig
    _agent: Agent
    _registry: Registry
    _inactive: Mapping[str, str]

    async def plugins(self) -> list[PluginState]:
        installed = await read_installed_plugins(self._config)
        failures = self._agent.services.failures
        return await asyncio.to_thread(list_plugin_states, self._config, self._inactive, failures, installed)

    def inactive_plugins(self) -> Mapping[str, str]:
        return find_failures(self._config, self._inactive, self._agent.services.failures)

    async def settings(self, current: Settings) -> list[VariableState]:
        return await asyncio.to_thread(list_variable_states, current, self._config.plugins)

    async def run_checks(self) -> list[Finding]:
        findings = await asyncio.to_thread(lambda: list(run_checks(self._config, self._agent.settings)))
        definition = self._agent.read_definition()
        turn, request = await compose_prompt(self._agent, self._registry, definition, SAMPLE_MESSAGE)
        size = sum(section.size for section in split_prompt(turn, request, self._registry))
        return [*findings, prompt_finding(size), *await ask_model(self._agent, self._agent.settings)]

    async def replay(self, receipt: Receipt) -> ReplayBody:
        current, config = self._agent.read_definition(), self._config.agent_config
        config = replace(
            config,
            character=current.character,
            settings=current.settings,
            file_version=current.version,
            clock=self._agent.clock,
        )
        body = await replay_turn(self._agent.store, receipt, config)
        return ReplayBody.model_validate_json(redact(body.model_dump_json(), self._config.secrets))


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


app = new_command(invoke_without_command=True)


@app.callback(epilog=examples("bot cluster", "bot cluster --json", "bot cluster drain 12"))
def list_members(context: typer.Context, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the processes that share a character's database: what each holds, and how late the work is."""
    if context.invoked_subcommand is not None:
        return Exit.OK
    config = load_character_config(character)
    members, lag = read_store(config, lambda store: _members(config, store).find())
    now = datetime.now(UTC)
    document = {"members": [asdict(member) for member in members], "lag": asdict(lag)}
    header = ("member", "role", "state", "rooms", "accounts", "host", "process", "version", "heartbeat")
    rows, lines = [], []
    for member in members:
        number, draining = str(member.number), ", draining" if member.is_draining else ""
        accounts, heartbeat = ", ".join(member.accounts), f"{_seconds(now, member.last_heartbeat)} ago"
        place = (member.host or "", str(member.process or ""), member.version)
        state = "draining" if member.is_draining else "on"
        rows.append((number, member.role, state, str(member.rooms), accounts, *place, heartbeat))
        where = f"{member.host}, process {member.process}" if member.host else "of a version that does not tell where"
        since = "" if member.since is None else f", since {member.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        lines += [
            f"{number}  {member.role}{draining}  {where}  {member.version}{since}, heartbeat {heartbeat}",
            f"  {member.rooms} room{'s' * (member.rooms != 1)}{accounts and f', {accounts}'}",
        ]
    lines = lines or ["no process runs this character"]
    print_result(document, lines, as_json=as_json, header=header, rows=rows)
    if not as_json:
        print(f"oldest unanswered message: {_age(now, lag.oldest_unanswered)}")
        print(f"oldest undelivered part: {_age(now, lag.oldest_undelivered)}")
    return Exit.OK


@app.command(epilog=examples("bot cluster drain 12"))
def drain(
    member: Annotated[int, typer.Argument(metavar="MEMBER", help="The number that `bot cluster` shows.")],
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Request that a process release its rooms and accounts and take no others; then stop it."""
    config = load_character_config(character)
    schemas = collect_schemas(config.plugins)
    opened = require_storage(config).open(config.agent_config.agent_id, config.settings, schemas)
    if not run_with(config, opened, lambda store: _members(config, store).drain(member)):
        raise UsageError(f"there is no process {member}: `bot cluster` shows them")
    lines = [f"{member}: it releases its work; `bot cluster` shows what it still holds, stop it at 0 rooms"]
    return print_result({"member": member, "is_draining": True}, lines, as_json=as_json, indent=None)


def _members(config: CharacterConfig, store: Store) -> Members:
    if store.sharing is None:
        raise ConfigError(
            f"{config.name}: the database of this character is used by one process only; several share a PostgreSQL "
            "database: set POSTGRES_URL"
        )
    return store.sharing.members


def _age(now: datetime, since: datetime | None) -> str:
    return "none" if since is None else f"{_seconds(now, since)} old"


def _seconds(now: datetime, then: datetime) -> str:
    return f"{max((now - then) / timedelta(seconds=1), 0.0):.1f} s"
