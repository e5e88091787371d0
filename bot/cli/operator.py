"""What `bot run` offers the operator of a running agent: the character's file, plugins, settings, checks."""

import asyncio
import filecmp
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, TypeVar

import bot.store
from bot import characters
from bot.characters import exchange
from bot.characters.cards import write_png_card
from bot.characters.secrets import HiddenSecrets, find_named_versions
from bot.characters.source import Format, Note, text_version
from bot.cli import checks
from bot.cli.characters import (
    CharacterConfig,
    add_reference_notes,
    check_character_templates,
    check_plugin_sources,
    check_room_rules,
    declare_settings,
    is_elizaos_file,
    list_platforms,
    local_plugins,
    measure_sections,
    operator_setting_notes,
    read_character_settings,
    read_local_plugins,
    reload_character_config,
    sections_to_json,
    trusted_plugins,
)
from bot.cli.checks import check_accounts, check_configuration
from bot.cli.model_checks import SAMPLE_MESSAGE, PromptPartKind, ask_model, compose_first_request, prompt_finding
from bot.cli.plugins import PluginCard, describe_unused_plugins, list_cards
from bot.cli.process.shutdown import explain_os_error
from bot.cli.variables import CORE_GROUPS, describe_variables, find_settings_groups
from bot.concurrency.clock import Clock
from bot.costs.budget import BudgetSettings, load_prices
from bot.domain.character import Character, ProviderKind
from bot.domain.ledger import ModelCall, Receipt
from bot.errors import CharacterError, ConfigError, FileProblem, PluginError, SettingError
from bot.models.types import ModelType, Purpose, TextRequest, TextResult
from bot.operate import tools
from bot.operate.results import ReplayBody
from bot.pipeline.respond import REPLY_ACTION, answer_context, build_reply
from bot.plugin_system.loading import LoadedPlugins, load_plugins
from bot.plugin_system.plugin import Plugin, collect_schemas, merge_templates
from bot.plugin_system.registry import Registry, check_combination, fold_name
from bot.plugin_system.trust import PluginSource
from bot.prompts.character_description import SectionUse
from bot.prompts.templates import DEFAULTS, merge_levels
from bot.runtime.character_reload import LIVE_SETTINGS, AgentConfig
from bot.settings import CoreSettings, Settings, load_settings
from bot.text import REDACTED, redact, strip_terminal_codes
from bot.turn import Agent, AgentDefinition, Turn

KINDS = {
    ProviderKind.PERSONA: PromptPartKind.CHARACTER,
    ProviderKind.STYLE: PromptPartKind.CHARACTER,
    ProviderKind.ACTIONS: PromptPartKind.ACTION,
}


async def compose_prompt(
    agent: Agent, registry: Registry, definition: AgentDefinition, message: str
) -> tuple[Turn, TextRequest]:
    """Return what the model would be asked with for a first private message of a person with all permissions.

    Its room and person exist in a store of its own only, where the tables of plugins are empty.
    """
    store = bot.store.InMemoryStore(agent.clock, collect_schemas(registry.plugins))
    trial_agent = replace(agent, read_definition=lambda: definition, store=store)
    return await compose_first_request(trial_agent, registry, message)


def split_prompt(turn: Turn, request: TextRequest, registry: Registry) -> list[tools.PromptSection]:
    """Return the parts of a prompt in its order: their texts are all of it, but for the space between them."""
    specs = {spec.name: spec for spec in registry.build_catalog().providers}
    sections = [tools.PromptSection(PromptPartKind.CHARACTER, "system", request.system)] if request.system else []
    position = 0
    texts = [(name, text) for name, result in turn.state.results.items() if (text := result.text.strip())]
    found = [(start, name, text) for name, text in texts if (start := request.prompt.find(text)) >= 0]
    for start, name, text in sorted(found):
        if start < position:
            continue  # it stands inside another text
        sections += _rules(request.prompt[position:start])
        spec = specs.get(name)
        kind = KINDS.get(spec.kind, PromptPartKind.PROVIDER) if spec is not None else PromptPartKind.PROVIDER
        sections.append(tools.PromptSection(kind, name, text, spec.plugin if spec is not None else ""))
        position = start + len(text)
    sections += _rules(request.prompt[position:])
    for tool in request.tools:
        described = json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False)
        sections.append(tools.PromptSection(PromptPartKind.ACTION, f"function {tool.name}", described))
    return sections


async def try_reply(turn: Turn, request: TextRequest) -> tools.TrialReply:
    """Ask the model for an answer; the call is counted in the costs of the agent. Raises ModelError."""
    started = time.monotonic()
    result = await turn.agent.models.text(replace(request, purpose=Purpose.CHECK), ModelType.TEXT_LARGE)
    reply = build_reply(result, answer_context(turn, request))
    usage = result.usage
    return tools.TrialReply(
        text=reply.text,
        actions=tuple(name for name in reply.actions if fold_name(name) != REPLY_ACTION),
        model=result.model,
        seconds=time.monotonic() - started,
        tokens_in=usage.tokens_in if usage is not None else 0,
        tokens_out=usage.tokens_out if usage is not None else 0,
        cost=_cost_of(turn.agent, result),
    )


def _rules(text: str) -> list[tools.PromptSection]:
    return [tools.PromptSection(PromptPartKind.RULES, "instructions", text.strip("\n"))] if text.strip() else []


def _cost_of(agent: Agent, result: TextResult) -> float | None:
    if result.usage is None:
        return None
    settings = agent.settings.operator_only().load(BudgetSettings)
    prices = load_prices(settings.model_prices)
    usage = result.usage
    call = ModelCall(
        ModelType.TEXT_LARGE,
        Purpose.CHECK,
        result.model,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
    )
    return prices.cost_of(call)


T = TypeVar("T")
FOLDER = "character-versions"
MAX_VERSIONS = 20
TIME_FORMAT = "%Y%m%dT%H%M%S%f"
VERSION_NAME = re.compile(r"(\d{8}T\d{12})-([0-9a-f]{16})\.json")


@dataclass(frozen=True, slots=True)
class CharacterStore:
    """One character's file, and in the data folder the last twenty versions that it replaced, the owner's alone.

    Texts go out without the secrets of the file and without `known_secrets`. Methods block; they raise
    CharacterError for what cannot be read or written.
    """

    path: Path
    data_folder: Path
    known_secrets: frozenset[str]
    clock: Clock

    def read(self, version: str = "") -> tools.CharacterText:
        """Return the file, or a stored version. Raises LookupError for an unknown version."""
        text = self._read_version(version) if version else characters.read_character_source(self.path)
        is_writable = os.access(self.path, os.W_OK) and os.access(self.path.resolve().parent, os.W_OK)
        visible_text = HiddenSecrets(text, self.known_secrets, version).visible_text
        return tools.CharacterText(str(self.path), visible_text, text_version(text), is_writable)

    def versions(self) -> list[tools.StoredVersion]:
        """List the stored versions, the newest first."""
        return [stored for _, stored in self._stored()]

    def restore_secrets(self, visible_text: str) -> str:
        """Return an edited text with the secrets of the file, and of stored versions, in their places."""
        return self._restore(visible_text, characters.read_character_source(self.path))

    def check_version(self, version: str) -> None:
        """Raise FileConflict if the file has another version."""
        if text_version(characters.read_character_source(self.path)) != version:
            raise tools.FileConflict(
                f"{self.path} has changed since it was opened here: nothing was saved; copy what you wrote, and open "
                "the file again"
            )

    def replace(self, visible_text: str) -> None:
        """Replace the file by an edited text, and store the old one."""
        old_text = characters.read_character_source(self.path)
        text = self._restore(visible_text, old_text)
        if REDACTED in text and REDACTED not in old_text:
            raise CharacterError(f"{REDACTED} stands for a secret that is not in the file: write what belongs there")
        if "\r\n" in old_text and "\r" not in text:
            text = text.replace("\n", "\r\n")  # a browser has changed the line ends
        if text != old_text:
            self._store_version(old_text)
            characters.write_character_source(self.path.resolve(), text, mode=self.path.stat().st_mode & 0o777)

    def _restore(self, visible_text: str, text: str) -> str:
        for version in find_named_versions(visible_text):
            try:
                stored = HiddenSecrets(self._read_version(version), self.known_secrets, version)
            except LookupError:
                raise CharacterError(f"[secret … of {version}]: that version is not stored any more") from None
            visible_text = stored.restore(visible_text)
        return HiddenSecrets(text, self.known_secrets).restore(visible_text)

    def _read_version(self, version: str) -> str:
        file = next((file for file, stored in self._stored() if stored.version == version), None)
        if file is None:
            raise LookupError(version)
        return characters.read_character_source(file)

    @property
    def _folder(self) -> Path:
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()
        return self.data_folder / FOLDER / f"{self.path.stem}-{digest[:8]}"

    def _stored(self) -> list[tuple[Path, tools.StoredVersion]]:
        """Return the stored versions with their files, the newest first."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for file in sorted(self._folder.iterdir(), reverse=True):
                if match := VERSION_NAME.fullmatch(file.name):
                    replaced_at = datetime.strptime(match[1], TIME_FORMAT).replace(tzinfo=UTC)
                    found.append((file, tools.StoredVersion(match[2], replaced_at, file.stat().st_size)))
        return found

    def _store_version(self, text: str) -> None:
        name = f"{self.clock().astimezone(UTC).strftime(TIME_FORMAT)}-{text_version(text)}.json"
        with explain_os_error(CharacterError, f"{self._folder} cannot be created"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.data_folder / FOLDER).chmod(0o700)
        earlier = [file for file, stored in self._stored() if stored.version == text_version(text)]
        characters.write_character_source(self._folder / name, text, mode=0o600)
        for file in (*earlier, *(file for file, _ in self._stored()[MAX_VERSIONS:])):
            with suppress(OSError):
                file.unlink()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of checking one file: the character, notes on its plugins, its use in prompts; or an error.

    `settings` are those of the machine with the file's above them.
    """

    path: Path
    loaded: characters.LoadedCharacter | None = None
    settings: Settings | None = None
    plugins: tuple[str, ...] = ()
    code: tuple[PluginSource, ...] = ()
    trusted_code: tuple[PluginSource, ...] = ()
    sections: dict[str, tuple[SectionUse, ...]] = field(default_factory=dict)
    error: ConfigError | None = None

    @property
    def error_text(self) -> str:
        """What is wrong, a line for each cause, with the path of the file; empty if the file can be used."""
        lines = str(self.error).splitlines() if self.error is not None else ()
        known = (str(self.path), " ")  # an indented line continues the one before it
        return "\n".join(line if line.startswith(known) else f"{self.path}: {line}" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        if self.loaded is None:
            return {"path": str(self.path), "ok": False, "error": self.error_text}
        return {
            **self.loaded.to_json(),
            "ok": not self.error,
            "plugins": self.plugins,
            "code": [
                {
                    "plugin": source.name,
                    "path": str(source.location),
                    "files": source.file_count,
                    "bytes": source.byte_count,
                    "sha256": source.digest,
                    "trusted": source in self.trusted_code,
                }
                for source in self.code
            ],
            "prompt": sections_to_json(self.sections),
            "error": self.error_text,
        }


def check_file(path: Path) -> CheckResult:
    """Check a file as `bot character check` does; code that it brings runs only where all of it is trusted."""
    try:
        loaded = characters.load_character(path)
    except CharacterError as error:
        return CheckResult(path, error=error)
    return _check_loaded(path, loaded, imports_trusted=True)


def check_text(path: Path, text: str) -> CheckResult:
    """Check a text as if it were the file at this path, without running code that it brings."""
    try:
        loaded = characters.parse_character(text, source=str(path))
    except CharacterError as error:
        return CheckResult(path, error=error)
    return _check_loaded(path, loaded)


def _check_loaded(path: Path, loaded: characters.LoadedCharacter, *, imports_trusted: bool = False) -> CheckResult:
    own_settings = load_settings(loaded.character.settings, loaded.secrets, environment={}, env_file=Path(os.devnull))
    errors: list[ConfigError] = []

    def attempt(check: Callable[[], T]) -> T | None:
        try:
            return check()
        except ConfigError as error:
            errors.append(error)
            return None

    for group in CORE_GROUPS:
        attempt(partial(own_settings.load, group.model))
    attempt(partial(check_room_rules, loaded))
    code = attempt(lambda: tuple(read_local_plugins(path, loaded))) or ()
    trusted = trusted_plugins()
    trusted_code = tuple(source for source in code if trusted.is_trusted(source, path))
    imports_local = imports_trusted and code == trusted_code
    found = attempt(partial(_find_plugins, path, loaded, imports_local=imports_local))
    if found is None or errors:
        [error] = errors if len(errors) == 1 else [ConfigError("\n".join(map(str, errors)))]
        return CheckResult(path, loaded, error=error)
    sections = measure_sections(loaded.character, found.plugins)
    loaded = add_reference_notes(path, loaded, found.plugins)
    settings = declare_settings(read_character_settings(loaded), found.plugins)
    report = loaded.report.with_warnings(operator_setting_notes(loaded, settings))
    loaded = replace(loaded, report=report)
    return CheckResult(path, loaded, settings, found.notes, code, trusted_code, sections)


def _find_plugins(path: Path, loaded: characters.LoadedCharacter, *, imports_local: bool) -> LoadedPlugins:
    """Return the named plugins with notes; without `imports_local` those that have a path are checked only.

    Raises PluginError for plugins that cannot be used together.
    """
    check_plugin_sources(path, loaded)
    local_names = set() if imports_local else {name for _, name, _ in local_plugins(path, loaded)}
    names = tuple(name for name in loaded.character.plugins if name not in local_names)
    character = loaded.character.model_copy(update={"plugins": names})
    try:
        settings = read_character_settings(loaded)
        found = load_plugins(
            character,
            settings,
            folder=path.resolve().parent,
            is_foreign_format=is_elizaos_file(loaded),
            approve=trusted_plugins().approval(path),
        )
    except SettingError:  # wrong settings of this machine are not an error of the file
        return LoadedPlugins(())
    for name, cause in found.inactive.items():
        raise PluginError(f"plugin {name!r} is off: {cause}")
    check_combination(found.plugins)
    check_character_templates(loaded, found.plugins)
    return found


MISSING_DOCUMENT = "{name} is not copied: there is no such file beside the character's, or it is not below its folder"


@dataclass(frozen=True, slots=True)
class WrittenCharacter:
    """An imported character, the files that were written for it (first its own), and notes on its plugins."""

    imported: exchange.ImportedCharacter
    files: tuple[Path, ...]
    plugins: tuple[str, ...] = ()

    def lost(self) -> list[str]:
        """Return what of the file was left out, and what should be looked at."""
        report = self.imported.report
        return [
            f"{note.path}: {note.message}" if note.path else note.message for note in report.warnings + report.ignored
        ]

    def format_lines(self) -> list[str]:
        """Return what became of each part of the file, and what was written, for the terminal."""
        imported = self.imported
        plugins = (f"plugin   {note}" for note in self.plugins)
        lines = (*imported.report.format_lines(), *plugins, *(f"wrote    {file}" for file in self.files))
        heading = f"{imported.path}: {imported.name} ({imported.report.format})"
        return [strip_terminal_codes(line) for line in (heading, *(f"  {line}" for line in lines))]


def write_imported(path: Path, folder: Path, lorebooks: Sequence[Path] = ()) -> list[WrittenCharacter]:
    """Import a file, or each character of a folder, into `folder`. No file is replaced. Raises CharacterError."""
    paths = exchange.find_characters(path) if path.is_dir() else [path]
    if len(paths) > 1 and lorebooks:
        raise CharacterError(f"{path}: a lorebook belongs to one character: name its file, not the folder")
    imported = [exchange.import_character(item, lorebooks) for item in paths]
    return [_check_source(_write(item, folder)) for item in imported]


def _check_source(written: WrittenCharacter) -> WrittenCharacter:
    """Add what `bot character check` finds in a file of elizaOS: names that mean nothing here, and its plugins."""
    imported = written.imported
    if imported.report.format not in (Format.V0, Format.V1):
        return written
    checked = check_file(imported.path)
    report = checked.loaded.report if checked.loaded is not None else imported.report
    known = {note.message for note in imported.report.warnings}
    notes = [note for note in report.warnings if note.message not in known and not note.path.startswith("knowledge[")]
    notes += [
        Note("plugins", 1, f"{code.name}: its code is not copied: copy it beside the file") for code in checked.code
    ]
    if checked.error is not None:
        notes.append(Note("", 1, f"cannot run as it is: {checked.error}"))
    report = imported.report.with_warnings(notes)
    return replace(written, imported=replace(imported, report=report), plugins=checked.plugins)


def write_starter(path: Path, name: str) -> Path:
    """Write a short complete character file as an example to replace, and three scenes of it; return their folder.

    Raises CharacterError; no file is replaced.
    """
    template = files("bot.cli").joinpath("templates", "character.txt").read_text(encoding="utf-8")
    text = Template(template).substitute(name=json.dumps(name, ensure_ascii=False)[1:-1])
    characters.parse_character(text, source=str(path))
    _write_new(path, text.encode(), creates_folder=False)
    folder = path.parent / "scenes" / path.stem
    scenes = files("bot.cli").joinpath("templates", "scenes.txt").read_text(encoding="utf-8")
    for part in scenes.split("=== ")[1:]:
        file, _, content = part.partition("\n")
        values = {"name": json.dumps(name, ensure_ascii=False)[1:-1], "file": f"../../{path.name}"}
        _write_new(folder / file, Template(content).substitute(values).encode(), creates_folder=True)
    return folder


def write_exported(path: Path, target: Path | None, *, is_card: bool, picture: Path | None) -> Path:
    """Write a character as an elizaOS file, or as a card in JSON or in a picture. Raises CharacterError.

    Without a target it is NAME.json, NAME.card.json or NAME.card.png; NAME.elizaos.json where that is the file itself.
    """
    character = characters.load_character(path).character
    if is_card or picture:
        return _write_card(character, target, picture)
    if target is None:
        stem = exchange.file_stem(character.name)
        target = Path(f"{stem}.json")
        target = Path(f"{stem}.elizaos.json") if target.resolve() == path.resolve() else target
    _write_new(target, _to_text(exchange.export_character(character)).encode())
    return target


def _write_card(character: Character, target: Path | None, picture: Path | None) -> Path:
    text = _to_text(exchange.export_card(character)).encode()
    suffix = ".png" if picture else ".json"
    target = target or Path(f"{exchange.file_stem(character.name)}.card{suffix}")
    if target.suffix.lower() == ".png" and picture is None:
        raise CharacterError(f"{target}: a card in a picture needs one: name it with --picture FILE.png")
    if picture is None:
        _write_new(target, text)
        return target
    with explain_os_error(CharacterError, f"{picture}: cannot be read"):
        data = picture.read_bytes()
    _write_new(target, write_png_card(data, text))
    return target


def _write(imported: exchange.ImportedCharacter, folder: Path) -> WrittenCharacter:
    file = folder / f"{exchange.file_stem(imported.name)}.json"
    found = {name: _find_places(imported.path.parent, name, folder) for name in imported.documents}
    places = [place for place in found.values() if place]
    missing = [Note("", 1, MISSING_DOCUMENT.format(name=name)) for name, place in found.items() if not place]
    imported = replace(imported, report=imported.report.with_warnings(missing))
    for origin, target in places:
        if _differs(origin, target):
            raise CharacterError(f"{target}: another document stands there: name another folder with --to")
    _write_new(file, imported.text.encode())
    files = [file]
    picture = folder / imported.picture_name
    if imported.picture and not (picture.is_file() and picture.read_bytes() == imported.picture):
        files.append(picture)
        _write_new(picture, imported.picture)
    files += [_copy_document(origin, target) for origin, target in places if not target.exists()]
    return WrittenCharacter(imported, tuple(files))


def _find_places(source: Path, name: str, folder: Path) -> tuple[Path, Path] | None:
    """Return where a document or folder of documents is, and where below `folder` it belongs; None outside of them."""
    origin, target = (source / name).resolve(), folder / name
    is_inside = origin.is_relative_to(source.resolve()) and target.resolve().is_relative_to(folder.resolve())
    return (origin, target) if is_inside and origin.exists() else None


def _differs(origin: Path, target: Path) -> bool:
    """Return whether something else stands at the place of a document or a folder of documents."""
    if not os.path.lexists(target) or origin == target.resolve():
        return False
    if origin.is_symlink() or target.is_symlink():
        return not (origin.is_symlink() and target.is_symlink() and origin.readlink() == target.readlink())
    if origin.is_dir() and target.is_dir():
        return any(_differs(child, target / child.name) for child in origin.iterdir())
    return origin.is_dir() or target.is_dir() or not filecmp.cmp(origin, target, shallow=False)


def _copy_document(origin: Path, target: Path) -> Path:
    """Copy a document or a folder of documents; return the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if origin.is_dir():
        shutil.copytree(origin, target, symlinks=True)
    else:
        shutil.copyfile(origin, target)
    return target


def _write_new(path: Path, data: bytes, *, creates_folder: bool = True) -> None:
    try:
        if creates_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise CharacterError(f"{path}: the file exists and is not changed; move it, or name another place") from None
    except OSError as error:
        raise CharacterError(f"{path}: cannot be written: {error.strerror or error}") from None


def _to_text(fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, indent=2) + "\n"


LOG_ADVICE = "the log says more; correct the cause and start the bot again"


def list_plugin_states(
    config: CharacterConfig, inactive: Mapping[str, str], failures: Mapping[type, str]
) -> list[tools.PluginState]:
    """Return the installed plugins, those with a problem first; `failures` are those of services, by class.

    None is imported that is off: the libraries of all plugins would double the size of this process.
    """
    causes = find_failures(config, inactive, failures)
    cards = (*list_cards(config, only_used=True), *describe_unused_plugins(config))
    states = [_plugin_state(card, causes.get(card.name, ""), config) for card in cards]
    return sorted(states, key=lambda item: (item.name not in causes, item.state != "on", item.name))


def find_failures(config: CharacterConfig, inactive: Mapping[str, str], failures: Mapping[type, str]) -> dict[str, str]:
    """Return why plugins of a character are off, or what their services failed with, by their names."""
    causes = dict(inactive)
    for plugin in config.plugins:
        cause = next((failures[service] for service in plugin.services if service in failures), "")
        if cause:
            causes.setdefault(plugin.name, cause)
    return causes


def _plugin_state(card: PluginCard, cause: str, config: CharacterConfig) -> tools.PluginState:
    advice = LOG_ADVICE if cause else ""
    if card.reason and not cause:
        advice = f"name {card.name!r} among the plugins of {config.path.name}, and start the bot again"
        if card.missing:
            advice = "set it in .env or the environment, and start the bot again"
        if card.install:
            advice = f"{advice}; packages of it are not installed: {card.install}"
    state = "failed" if cause else "off" if card.reason else "on"
    return tools.PluginState.build(card, state=state, why=cause or card.reason, fix=advice, brings=card.components)


def list_variable_states(settings: Settings, plugins: Sequence[Plugin]) -> list[tools.VariableState]:
    """Return every variable of the core, adapters and plugins; a secret has no value."""
    groups, _ = find_settings_groups(plugins, imports_others=False)
    return describe_variables(groups, settings.with_models(*(group.model for group in groups)))


def run_checks(config: CharacterConfig, settings: Settings) -> Iterator[tools.Finding]:
    """Run the checks of `bot doctor` that make sense beside the running agent, but for that of the model."""
    yield from checks.check_python()
    try:
        config = reload_character_config(config)  # the file as it is now: the agent may run an earlier version of it
    except ConfigError as error:
        advice = "correct the file; the bot runs the last version that it could use"
        yield tools.Finding.fail("character", "; ".join(_visible_lines(str(error))), advice)
    else:
        yield from checks.check_character(config.path, config.loaded)
    yield from check_configuration(settings, config, is_running=True)
    yield from check_accounts(config, list_platforms([config]))


def with_operator_tools(config: CharacterConfig) -> AgentConfig:
    """Return the configuration for a runtime, with the tools of the agent's operator."""
    return replace(config.agent_config, build_tools=partial(build_operator_tools, config))


def build_operator_tools(
    config: CharacterConfig, agent: Agent, registry: Registry, inactive: Mapping[str, str]
) -> tools.OperatorTools:
    """Return the tools for a running agent; `inactive` says why plugins of it are off."""
    data_folder = config.settings.load(CoreSettings).bot_data_dir
    store = CharacterStore(config.path, data_folder, config.secrets, agent.clock)
    character = CharacterFileTools(config, agent, registry, store, threading.Lock())
    return tools.OperatorTools(character, RunningProgram(config, agent, registry, inactive))


@dataclass(frozen=True, slots=True)
class CharacterFileTools:
    """`CharacterTools` of the file of one running character; files are read and written in threads."""

    _config: CharacterConfig
    _agent: Agent
    _registry: Registry
    _store: CharacterStore
    _lock: threading.Lock  # of the file

    async def read(self, version: str = "") -> tools.CharacterText:
        return await asyncio.to_thread(self._store.read, version)

    async def versions(self) -> list[tools.StoredVersion]:
        return await asyncio.to_thread(self._store.versions)

    async def check(self, text: str) -> tools.CharacterCheck:
        return await asyncio.to_thread(self._check, text)

    async def save(self, text: str, version: str) -> tools.CharacterText:
        return await asyncio.to_thread(self._save, text, version)

    async def preview(self, text: str, message: str) -> list[tools.PromptSection]:
        turn, request = await self._compose(text, message)
        return split_prompt(turn, request, self._registry)

    async def try_reply(self, text: str, message: str) -> tools.TrialReply:
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

    def _check(self, text: str) -> tools.CharacterCheck:
        try:
            result = self._check_text(text)
        except CharacterError as error:
            return tools.CharacterCheck(_problems_of(error))
        if result.error is not None:
            return tools.CharacterCheck(_problems_of(result.error))
        assert result.loaded is not None
        report = result.loaded.report
        return tools.CharacterCheck(
            warnings=tuple(
                FileProblem(note.message, note.line, note.column, note.path)
                for note in (*report.warnings, *report.secrets)
            ),
            name=result.loaded.character.name,
            plugin_notes=result.plugins,
            untrusted_code=tuple(source.name for source in result.code if source not in result.trusted_code),
            sections={
                place: list(map(tools.SectionShare.model_validate, uses)) for place, uses in result.sections.items()
            },
        )

    def _save(self, text: str, version: str) -> tools.CharacterText:
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

    async def plugins(self) -> list[tools.PluginState]:
        failures = self._agent.services.failures
        return await asyncio.to_thread(list_plugin_states, self._config, self._inactive, failures)

    def inactive_plugins(self) -> Mapping[str, str]:
        return find_failures(self._config, self._inactive, self._agent.services.failures)

    async def settings(self, current: Settings) -> list[tools.VariableState]:
        return await asyncio.to_thread(list_variable_states, current, self._config.plugins)

    async def run_checks(self) -> list[tools.Finding]:
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
        from bot.runtime.replay import replay_turn  # here, because help needs no pipeline

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
