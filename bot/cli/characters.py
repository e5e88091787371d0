"""From `-c FILE` options to characters that can move in, and what a person should know beforehand."""

import argparse
import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import bot
from bot.characters import Format, LoadedCharacter, load_character
from bot.cli.process.shutdown import aside
from bot.errors import CharacterError
from bot.logs import harmless
from bot.models.types import ModelType
from bot.plugin_system.loading import FOREIGN, PLATFORMS, adapter_names, load_plugins
from bot.plugin_system.plugin import Plugin
from bot.runtime.agent_runtime import OUTSIDE, Blueprint
from bot.settings import SHORTEST_SECRET, CoreSettings, Layer, Settings, read_settings
from bot.store.inmemory import InMemoryStore

DEFAULT_CHARACTER = Path("characters", "default.json")
ENV_FILE = Path(".env")
MOST_NOTES = 8


@dataclass(frozen=True, slots=True)
class Part:
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
    def writers(self) -> list[str]:
        """The plugins whose models write what it says, the first before those that stand in for it."""
        return [
            plugin.name
            for plugin in self.plugins
            if any(model.type is ModelType.TEXT_LARGE for model in plugin.models)
        ]

    @property
    def blueprint(self) -> Blueprint:
        """What a runtime needs of it."""
        folder = self.path.resolve().parent
        return Blueprint(self.loaded.character, self.plugins, self.settings, folder=folder)

    @property
    def rehearsal(self) -> Blueprint:
        """What it takes to ask its model: nothing is kept, and no plugin begins work of its own."""
        quiet = tuple(replace(plugin, workers=(), listeners=()) for plugin in self.plugins)
        once = self.settings.under(Layer("a check", {"MODEL_RETRIES": "0"}))  # it tells what it finds at once
        return replace(self.blueprint, plugins=quiet, store=InMemoryStore(), settings=once)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that no log may show."""
        models = [plugin.settings for plugin in self.plugins if plugin.settings]
        values = [*self.loaded.secrets.values()]
        values += [value for name in OUTSIDE if "@" in (value := self.settings.get(name) or "")]
        return self.settings.secrets(*models) | {one for one in values if len(one) >= SHORTEST_SECRET}


def add_character_option(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Let a command be told whose part it is."""
    about = "the character's JSON file (default: the one that comes along)"
    if several:
        about += "; repeat it for several characters in one process"
        parser.add_argument("-c", "--character", metavar="FILE", type=Path, action="append", help=about)
    else:
        parser.add_argument("-c", "--character", metavar="FILE", type=Path, help=about)


def default_character() -> Path:
    """Find the character that comes along: in a checkout beside the code, in a wheel inside it."""
    package = Path(bot.__file__).parent
    places = (package.parent / DEFAULT_CHARACTER, package / DEFAULT_CHARACTER)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise CharacterError("the default character is missing from this installation: name one with -c FILE")
    return found


def read_part(path: Path | None = None, over: Layer | None = None) -> Part:
    """Read one character's file (the default's) and settings, and load its plugins; raises ConfigError.

    With `over` that layer is put over its settings.
    """
    path = path or default_character()
    loaded = load_character(path)
    settings = settings_of(loaded)
    adopt_network(settings)
    settings = settings.under(over) if over else settings
    settings.load(CoreSettings)
    plugins = load_plugins(
        loaded.character, settings, folder=path.resolve().parent, is_foreign=is_foreign(loaded)
    )
    for plugin in plugins.plugins:
        if plugin.settings is not None:
            settings.load(plugin.settings)
    return Part(path, loaded, settings, plugins.plugins, plugins.notes)


def read_parts(files: Sequence[Path], over: Sequence[Layer] = ()) -> list[Part]:
    """Read all characters of one process, with a layer over the settings of each where there are any.

    Raises ConfigError, also where two are the same.
    """
    parts = [read_part(*one) for one in zip_longest(files or [default_character()], over)]
    seen: dict[str, Part] = {}
    for part in parts:
        identity = str(part.loaded.character.id or part.name)
        if (other := seen.setdefault(identity, part)) is not part:
            raise CharacterError(
                f"{other.path} and {part.path} are the same character ({identity!r}): "
                "give one of them another name or id"
            )
    return parts


def settings_of(loaded: LoadedCharacter | None) -> Settings:
    """Put a character's settings over the environment and the `.env` of the working directory."""
    if loaded is None:
        return read_settings()
    return read_settings(loaded.character.settings, loaded.secrets)


def is_foreign(loaded: LoadedCharacter) -> bool:
    """Whether a file was written for elizaOS rather than for us, so that some of its plugins are not here."""
    names = loaded.character.plugins
    return loaded.report.format is Format.V0 or any(FOREIGN.fullmatch(name) for name in names)


def adopt_network(settings: Settings, environment: MutableMapping[str, str] = os.environ) -> None:
    """Put proxies and certificates that only `.env` names where every client library looks for them.

    A character's own settings stay out of it: a file from elsewhere must not redirect this process.
    """
    for name in OUTSIDE:
        value = settings.get(name) if settings.source_of(name) == str(ENV_FILE) else None
        if value and name.lower() not in environment:
            environment[name] = value


def tell_notes(parts: Sequence[Part]) -> None:
    """Tell the operator, in few lines, what of the files is not as it may seem."""
    for part in parts:
        notes = list(_notes(part))
        for note in notes[:MOST_NOTES]:
            aside(harmless(f"{part.path.name}: {note}"))
        if len(notes) > MOST_NOTES:
            more = len(notes) - MOST_NOTES
            aside(harmless(f"{part.path.name}: and {more} more: bot character check {part.path}"))


def _notes(part: Part) -> Iterator[str]:
    if part.loaded.report.secrets:
        lines = ", ".join(str(note.line) for note in part.loaded.report.secrets)
        yield f"it holds secrets (line {lines}): move them to .env, for whoever has the file has them"
    for note in part.loaded.report.warnings:
        yield str(note)
    yield from part.notes
    there = {*adapter_names(), *PLATFORMS}
    for name in part.loaded.character.adapters:
        if name not in there:
            yield f"{name}: there is no adapter for this platform here"
