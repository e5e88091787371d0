"""From `-c FILE` options to characters that can move in, and what a person should know beforehand."""

import argparse
import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import bot
from bot.characters import Format, LoadedCharacter, load_character
from bot.cli.process.shutdown import print_notice
from bot.errors import CharacterError
from bot.logs import strip_terminal_codes
from bot.models.types import ModelType
from bot.plugin_system.loading import ELIZAOS_PACKAGE, PLATFORMS, adapter_names, load_plugins
from bot.plugin_system.plugin import Plugin
from bot.runtime.agent_runtime import NETWORK_VARIABLES, AgentConfig
from bot.settings import MIN_SECRET_LENGTH, CoreSettings, Layer, Settings, load_settings
from bot.store.inmemory import InMemoryStore

DEFAULT_CHARACTER = Path("characters", "default.json")
ENV_FILE = Path(".env")
MAX_NOTES = 8


@dataclass(frozen=True, slots=True)
class CharacterConfig:
    """One character with its settings and plugins, and notes on what of its file is not as it may seem."""

    path: Path
    loaded: LoadedCharacter
    settings: Settings
    plugins: tuple[Plugin, ...]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The character's name."""
        return self.loaded.character.name

    @property
    def text_plugins(self) -> list[str]:
        """The plugins whose models write what it says, the first before those that stand in for it."""
        return [
            plugin.name
            for plugin in self.plugins
            if any(model.type is ModelType.TEXT_LARGE for model in plugin.models)
        ]

    @property
    def agent_config(self) -> AgentConfig:
        """What a runtime needs of it."""
        folder = self.path.resolve().parent
        return AgentConfig(self.loaded.character, self.plugins, self.settings, folder=folder)

    @property
    def dry_run_config(self) -> AgentConfig:
        """What it takes to ask its model: nothing is kept, and no plugin begins work of its own."""
        plugins = tuple(replace(plugin, workers=(), listeners=()) for plugin in self.plugins)
        settings = self.settings.with_layer(
            Layer("a check", {"MODEL_RETRIES": "0"})
        )  # it tells what it finds at once
        return replace(self.agent_config, plugins=plugins, store=InMemoryStore(), settings=settings)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that no log may show."""
        models = [plugin.settings for plugin in self.plugins if plugin.settings]
        values = [*self.loaded.secrets.values()]
        values += [value for name in NETWORK_VARIABLES if "@" in (value := self.settings.get(name) or "")]
        return self.settings.secrets(*models) | {
            secret for secret in values if len(secret) >= MIN_SECRET_LENGTH
        }


def add_character_option(parser: argparse.ArgumentParser, *, is_repeatable: bool = False) -> None:
    """Let a command be told whose part it is."""
    help_text = "the character's JSON file (default: the one that comes along)"
    if is_repeatable:
        help_text += "; repeat it for several characters in one process"
        parser.add_argument("-c", "--character", metavar="FILE", type=Path, action="append", help=help_text)
    else:
        parser.add_argument("-c", "--character", metavar="FILE", type=Path, help=help_text)


def default_character() -> Path:
    """Find the character that comes along: in a checkout beside the code, in a wheel inside it."""
    package = Path(bot.__file__).parent
    candidates = (package.parent / DEFAULT_CHARACTER, package / DEFAULT_CHARACTER)
    existing_path = next((path for path in candidates if path.is_file()), None)
    if existing_path is None:
        raise CharacterError("the default character is missing from this installation: name one with -c FILE")
    return existing_path


def load_character_config(path: Path | None = None, override: Layer | None = None) -> CharacterConfig:
    """Read one character's file (the default's) and settings, and load its plugins; raises ConfigError.

    With `over` that layer is put over its settings.
    """
    path = path or default_character()
    loaded = load_character(path)
    settings = read_character_settings(loaded)
    export_network_settings(settings)
    settings = settings.with_layer(override) if override else settings
    settings.load(CoreSettings)
    loaded_plugins = load_plugins(
        loaded.character, settings, folder=path.resolve().parent, is_foreign_format=is_elizaos_file(loaded)
    )
    for plugin in loaded_plugins.plugins:
        if plugin.settings is not None:
            settings.load(plugin.settings)
    return CharacterConfig(path, loaded, settings, loaded_plugins.plugins, loaded_plugins.notes)


def load_character_configs(files: Sequence[Path], overrides: Sequence[Layer] = ()) -> list[CharacterConfig]:
    """Read all characters of one process, with a layer over the settings of each where there are any.

    Raises ConfigError, also where two are the same.
    """
    configs = [
        load_character_config(*arguments)
        for arguments in zip_longest(files or [default_character()], overrides)
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
    """Put a character's settings over the environment and the `.env` of the working directory."""
    if loaded is None:
        return load_settings()
    return load_settings(loaded.character.settings, loaded.secrets)


def is_elizaos_file(loaded: LoadedCharacter) -> bool:
    """Whether a file was written for elizaOS rather than for us, so that some of its plugins are not here."""
    names = loaded.character.plugins
    return loaded.report.format is Format.V0 or any(ELIZAOS_PACKAGE.fullmatch(name) for name in names)


def export_network_settings(settings: Settings, environment: MutableMapping[str, str] = os.environ) -> None:
    """Put proxies and certificates that only `.env` names where every client library looks for them.

    A character's own settings stay out of it: a file from elsewhere must not redirect this process.
    """
    for name in NETWORK_VARIABLES:
        value = settings.get(name) if settings.source_of(name) == str(ENV_FILE) else None
        if value and name.lower() not in environment:
            environment[name] = value


def print_notes(configs: Sequence[CharacterConfig]) -> None:
    """Tell the operator, in few lines, what of the files is not as it may seem."""
    for config in configs:
        notes = list(_notes(config))
        for note in notes[:MAX_NOTES]:
            print_notice(strip_terminal_codes(f"{config.path.name}: {note}"))
        if len(notes) > MAX_NOTES:
            remaining = len(notes) - MAX_NOTES
            print_notice(
                strip_terminal_codes(
                    f"{config.path.name}: and {remaining} more: bot character check {config.path}"
                )
            )


def _notes(config: CharacterConfig) -> Iterator[str]:
    if config.loaded.report.secrets:
        lines = ", ".join(str(note.line) for note in config.loaded.report.secrets)
        yield f"it holds secrets (line {lines}): move them to .env, for whoever has the file has them"
    for note in config.loaded.report.warnings:
        yield str(note)
    yield from config.notes
    available = {*adapter_names(), *PLATFORMS}
    for name in config.loaded.character.adapters:
        if name not in available:
            yield f"{name}: there is no adapter for this platform here"
