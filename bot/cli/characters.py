"""Load the characters named by `-c FILE` with their settings and plugins, and print notes on them."""

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import bot
from bot.characters import CHARACTER_SUFFIXES, Format, LoadedCharacter, load_character, suggest_file
from bot.characters.elizaos_names import PATH_STARTS
from bot.characters.source_text import text_version
from bot.cli.character_references import (
    add_reference_notes,
    check_character_templates,
    check_plugin_paths,
    read_local_plugins,
)
from bot.cli.process.shutdown import print_notice
from bot.cli.variables import CORE_GROUPS, find_settings_groups
from bot.errors import CharacterError, SettingError
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import ReportedWarnings
from bot.models.types import ModelType
from bot.plugin_system.loading import ELIZAOS_PACKAGE, load_local_adapter, load_plugins
from bot.plugin_system.plugin import Plugin, check_templates
from bot.plugin_system.source import Approve, PluginSource
from bot.plugin_system.trust import TrustedPlugins
from bot.runtime.agent_config import AgentConfig
from bot.settings import (
    MIN_SECRET_LENGTH,
    NETWORK_VARIABLES,
    CoreSettings,
    Layer,
    Settings,
    find_unreadable_lines,
    load_settings,
)
from bot.store.inmemory import InMemoryStore
from bot.store.work_sharing import ProcessRole
from bot.text import strip_terminal_codes

DEFAULT_CHARACTER = Path("characters", "default.json")
ENV_FILE = Path(".env")
MAX_NOTES = 8


@dataclass(frozen=True, slots=True)
class CharacterConfig:
    """One character with its settings, its plugins, and notes about ignored or changed parts of its file.

    `adapters` are those that the file names by `adapter_paths`, `added_adapters` the names of those that the run adds.
    `code` has a hash of the code of each plugin and adapter that has a path. `override` is a layer above the settings.
    `role` is what `bot run` does.
    """

    path: Path
    loaded: LoadedCharacter
    settings: Settings
    plugins: tuple[Plugin, ...]
    notes: tuple[str, ...] = ()
    adapters: tuple[AdapterSpec, ...] = ()
    adapter_paths: tuple[str, ...] = ()
    added_adapters: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    override: Layer | None = None
    role: ProcessRole = ProcessRole.ALL

    @property
    def name(self) -> str:
        """The character's name."""
        return self.loaded.character.name

    @property
    def text_plugins(self) -> list[str]:
        """The plugins with a large text model, in order of preference."""
        return [
            plugin.name for plugin in self.plugins if any(model.type is ModelType.TEXT_LARGE for model in plugin.models)
        ]

    @property
    def agent_config(self) -> AgentConfig:
        """The configuration for a runtime."""
        return AgentConfig(
            self.loaded.character,
            self.plugins,
            self.settings,
            folder=self.path.resolve().parent,
            file=self.path,
            reload=lambda: reload_character_config(self).agent_config,
            code=self.code,
            file_version=self.version,
            role=self.role,
        )

    @property
    def version(self) -> str:
        """A hash of the text of the file; empty where the text is not known."""
        places = self.loaded.places
        return text_version(places.source.text) if places is not None else ""

    def with_adapters(self, names: Sequence[str]) -> "CharacterConfig":
        """Return the configuration with these platforms added to those that the file lists, if it lists any."""
        character = self.loaded.character
        if not character.adapters or not names:
            return self
        character = character.model_copy(update={"adapters": (*character.adapters, *names)})
        return replace(self, loaded=replace(self.loaded, character=character), added_adapters=tuple(names))

    @property
    def dry_run_config(self) -> AgentConfig:
        """The configuration for a check or a draft: in memory, without workers, listeners and retries."""
        plugins = tuple(replace(plugin, workers=(), listeners=()) for plugin in self.plugins)
        settings = self.settings.with_layer(Layer("a check", {"MODEL_RETRIES": "0"}))  # report at once
        return replace(self.agent_config, plugins=plugins, store=InMemoryStore(), settings=settings)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that must not appear in logs."""
        models = [plugin.settings for plugin in self.plugins if plugin.settings]
        values = [*self.loaded.secrets.values()]
        values += [value for name in NETWORK_VARIABLES if "@" in (value := self.settings.get(name) or "")]
        return self.settings.secrets(*models) | {secret for secret in values if len(secret) >= MIN_SECRET_LENGTH}


def default_character() -> Path:
    """Return the path of the character that BOT_CHARACTER names. Raises SettingError if there is no such file.

    By default it is the bundled one: next to the code in a checkout, inside it in a wheel.
    """
    if not (name := load_settings().get("BOT_CHARACTER")):
        return bundled_character()
    if not Path(name).is_file():
        hint = suggest_file(Path(name), CHARACTER_SUFFIXES)
        raise SettingError(f"BOT_CHARACTER: there is no file {name}{hint}: correct it, or run `bot init`")
    return Path(name)


def bundled_character() -> Path:
    """Return the path of the bundled character."""
    package = Path(bot.__file__).parent
    candidates = (package.parent / DEFAULT_CHARACTER, package / DEFAULT_CHARACTER)
    existing_path = next((path for path in candidates if path.is_file()), None)
    if existing_path is None:
        raise CharacterError("the default character is missing from this installation: name one with -c FILE")
    return existing_path


def load_character_config(path: Path | None = None, override: Layer | None = None) -> CharacterConfig:
    """Load one character (default: the bundled one) with settings and plugins. Raises ConfigError.

    The layer `override` takes precedence over its settings.
    """
    path = path or default_character()
    loaded = load_character(path)
    settings = _read_settings(loaded, override)
    check_plugin_paths(path, loaded)
    code: dict[str, str] = {}
    approve = _recording_approval(path, code)
    loaded_plugins = load_plugins(
        loaded.character,
        settings,
        folder=path.resolve().parent,
        is_foreign_format=is_elizaos_file(loaded),
        approve=approve,
    )
    folder, names = path.resolve().parent, loaded.character.adapters
    adapters = {name: load_local_adapter(name, folder, approve) for name in names if name.startswith(PATH_STARTS)}
    check_templates(loaded_plugins.plugins)
    config = CharacterConfig(
        path,
        loaded,
        settings,
        loaded_plugins.plugins,
        loaded_plugins.notes,
        tuple(adapters.values()),
        code=code,
        override=override,
    )
    return _checked(config, {name: spec.name for name, spec in adapters.items()})


def reload_character_config(config: CharacterConfig) -> CharacterConfig:
    """Read the file of a character that runs again, with the same plugins and adapters. No code is imported.

    Raises ConfigError for a file that could not be started with, and for code that is not trusted as it is now.
    """
    loaded = load_character(config.path)
    settings = _read_settings(loaded, config.override)
    code: dict[str, str] = {}
    approve = _recording_approval(config.path, code)
    for source in read_local_plugins(config.path, loaded):
        approve(source)
    names = dict(zip(config.adapter_paths, (spec.name for spec in config.adapters), strict=True))
    config = _checked(replace(config, loaded=loaded, settings=settings, code=code), names)
    return config.with_adapters(config.added_adapters)


def _read_settings(loaded: LoadedCharacter, override: Layer | None) -> Settings:
    settings = read_character_settings(loaded)
    export_network_settings(settings)
    settings = settings.with_layer(override) if override else settings
    settings.load(CoreSettings)
    return settings


def _recording_approval(path: Path, code: dict[str, str]) -> Approve:
    """Return a function that raises PluginError for code that is not trusted, and notes the hash of all other."""
    approve = trusted_plugins().approval(path)

    def approve_and_record(source: PluginSource) -> None:
        approve(source)
        code[source.name] = source.digest

    return approve_and_record


def _checked(config: CharacterConfig, adapter_names: Mapping[str, str]) -> CharacterConfig:
    """Return the character with its settings declared, and the names of adapters instead of their paths.

    Raises ConfigError for settings of plugins and for templates that cannot be used.
    """
    path, loaded, plugins = config.path, config.loaded, config.plugins
    settings = config.settings.with_models(*(spec.settings for spec in config.adapters))
    settings = declare_settings(settings, plugins)
    for plugin in plugins:
        if plugin.settings is not None:
            settings.load(plugin.settings)
    check_character_templates(path, loaded, plugins)
    loaded = add_reference_notes(path, loaded, plugins)
    names = tuple(adapter_names.get(name, name) for name in loaded.character.adapters)
    loaded = replace(loaded, character=loaded.character.model_copy(update={"adapters": names}))
    return replace(config, loaded=loaded, settings=settings, adapter_paths=tuple(adapter_names))


def load_character_configs(files: Sequence[Path], overrides: Sequence[Layer] = ()) -> list[CharacterConfig]:
    """Load all characters of one process, each with its override layer if there is one.

    Raises ConfigError, also if two of them are the same.
    """
    configs = [
        load_character_config(*arguments) for arguments in zip_longest(files or [default_character()], overrides)
    ]
    seen: dict[str, CharacterConfig] = {}
    for config in configs:
        identity = str(config.loaded.character.id or config.name)
        if (other := seen.setdefault(identity, config)) is not config:
            raise CharacterError(
                f"{other.path} and {config.path} are the same character ({identity!r}): "
                "give one of them another name or id"
            )
    return configs


def read_character_settings(loaded: LoadedCharacter | None) -> Settings:
    """Return the environment and `.env` settings, with the character's own settings on top."""
    if loaded is None:
        return load_settings()
    return load_settings(loaded.character.settings, loaded.secrets).with_models(*(group.model for group in CORE_GROUPS))


def trusted_plugins() -> TrustedPlugins:
    """Return what the operator trusts, in the operator's data folder. Raises SettingError if that is set wrongly."""
    return TrustedPlugins(load_settings().load(CoreSettings).bot_data_dir)


def declare_settings(settings: Settings, plugins: Sequence[Plugin]) -> Settings:
    """Return the settings with the models that declare them: those of the plugins, and of others if need be.

    Only a file that sets variables of other parts makes adapters be imported; other plugins never are.
    """
    settings = settings.with_models(*(plugin.settings for plugin in plugins if plugin.settings))
    if settings.undeclared_names:
        settings = settings.with_models(*(group.model for group in find_settings_groups(imports_others=False)[0]))
    return settings


def is_elizaos_file(loaded: LoadedCharacter) -> bool:
    """Return whether a file was written for elizaOS, so that some of its plugins do not exist here."""
    names = loaded.character.plugins
    if loaded.report.format is Format.V0 or any(ELIZAOS_PACKAGE.fullmatch(name) for name in names):
        return True
    return loaded.places is not None and any(
        loaded.places.is_object("plugins", index) for index in range(loaded.places.length("plugins"))
    )


def export_network_settings(settings: Settings, environment: MutableMapping[str, str] = os.environ) -> None:
    """Export the proxies and certificates of `.env` to the environment, where client libraries read them.

    A character's own settings are not exported: a downloaded file must not redirect this process.
    """
    for name in NETWORK_VARIABLES:
        value = settings.get(name) if settings.source_of(name) == str(ENV_FILE) else None
        if value and name.lower() not in environment:
            environment[name] = value


def ignored_settings_note(settings: Settings) -> Iterator[str]:
    """Yield one line if the character's file sets variables that belong to the operator."""
    if names := settings.ignored_names:
        more = f" and {len(names) - MAX_NOTES} more" if len(names) > MAX_NOTES else ""
        yield (
            f"only the operator sets {', '.join(names[:MAX_NOTES])}{more}: ignored in the character's file; "
            "put into .env what you want of it"
        )


def reported_warnings(configs: Sequence[CharacterConfig]) -> ReportedWarnings:
    """Return the warnings that were reported at earlier starts of these characters."""
    return ReportedWarnings(configs[0].settings.load(CoreSettings).bot_data_dir if configs else None)


def print_notes(configs: Sequence[CharacterConfig]) -> None:
    """Print a few notes for each character about ignored or changed parts of its file, and of `.env`.

    Each is printed once; `bot character check` and `bot doctor` show them all.
    """
    reported = reported_warnings(configs)
    numbers = ", ".join(map(str, find_unreadable_lines(ENV_FILE)[:MAX_NOTES]))
    lines = [f"{ENV_FILE}: not NAME=value, so it sets nothing: line {numbers}"] if numbers else []
    for line in reported.admit_all(lines, str(ENV_FILE.absolute())):
        print_notice(line)
    for config in configs:
        notes = reported.admit_all(list(_notes(config)), str(config.path.absolute()))
        for note in notes[:MAX_NOTES]:
            print_notice(strip_terminal_codes(f"{config.path.name}: {note}"))
        if len(notes) > MAX_NOTES:
            remaining = len(notes) - MAX_NOTES
            print_notice(
                strip_terminal_codes(f"{config.path.name}: and {remaining} more: bot character check {config.path}")
            )


def print_plugin_notices(configs: Sequence[CharacterConfig]) -> None:
    """Print what plugins tell the operator at each start."""
    for config in configs:
        for plugin in config.plugins:
            if plugin.notice:
                print_notice(strip_terminal_codes(plugin.notice.format(name=config.name)))


def _notes(config: CharacterConfig) -> Iterator[str]:
    if config.loaded.report.secrets:
        lines = ", ".join(str(note.line) for note in config.loaded.report.secrets)
        yield f"it contains secrets (line {lines}): move them to .env; everyone with the file can read them"
    yield from ignored_settings_note(config.settings)
    for note in config.loaded.report.warnings:
        yield str(note)
    yield from config.notes
