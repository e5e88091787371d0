"""Adds a plugin: installs its distribution if the operator wants that, and names it in a character's file."""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.characters import LoadedCharacter, load_character, parse_character, write_character_source
from bot.cli.plugin_cards import find_origin, index_lines, permission_lines, permissions_to_json
from bot.cli.plugin_index import IndexEntry, load_bundled_index, load_index, normalize_distribution
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.process.shutdown import print_notice
from bot.errors import CharacterError, PluginError
from bot.plugin_system.bundled import PluginPurpose, bundled_name, bundled_names
from bot.plugin_system.imports import Installation, has_extra, install_extra, install_package
from bot.plugin_system.loading import ELIZAOS_PACKAGE, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.settings import load_settings
from bot.text import strip_terminal_codes, suggest


@dataclass(frozen=True, slots=True)
class CharacterEdit:
    """The new text of a character's file that names more plugins."""

    path: Path
    text: str
    added: tuple[str, ...]

    def write(self) -> None:
        """Replace the file atomically, with the permissions that it has. Raises CharacterError."""
        path = self.path.resolve()
        write_character_source(path, self.text, mode=path.stat().st_mode & 0o777)


def add_plugin(name: str, character: Path | None, *, is_confirmed: bool) -> int:
    """Add a plugin to this environment and to a character's file, print what it may do, and return the exit code.

    Nothing is installed before the operator has confirmed the command. Raises ConfigError, FetchError, UsageError.
    """
    if "/" in name and not ELIZAOS_PACKAGE.fullmatch(name):
        raise UsageError(
            f"{name!r} is a path, and needs no installation: name it among the plugins of a character's file"
        )
    name = _own_name(name)
    entry = _find_entry(name)
    if entry is not None and entry.incompatibility:
        raise PluginError(f"plugin {name!r} cannot be added: {entry.incompatibility}")
    if entry is not None and (installation := _plan_installation(entry)) is not None:
        if character is not None:
            _plan_edit(character, name)  # before anything is installed
        _install(entry, installation, is_confirmed=is_confirmed)
        # The rest in a process that has imported nothing of what was replaced.
        rest = [sys.executable, "-P", "-m", "bot", "plugin", "add", name]
        rest += [f"--character={character}"] if character is not None else []
        return subprocess.run(rest, check=False).returncode
    plugin = _find_installed(name)
    print_permissions(plugin)
    required = _required_names(plugin)
    if character is None:
        print(f'to use it: "plugins": ["{name}"] in a character file, or bot plugin add {name} -c FILE')
        return Exit.OK
    edit = _plan_edit(character, name, required)
    if edit.added:
        edit.write()
        print(strip_terminal_codes(f"added to the plugins of {edit.path}: {', '.join(edit.added)}"))
    else:
        print(strip_terminal_codes(f"{edit.path} names it already"))
    return Exit.OK


def print_permissions(plugin: Plugin, *, as_json: bool = False) -> None:
    """Print what a plugin may do."""
    settings = load_settings()
    settings = settings.with_models(plugin.settings) if plugin.settings is not None else settings
    if as_json:
        print(json.dumps(permissions_to_json(plugin, settings), ensure_ascii=False, indent=2))
        return
    print("\n".join(map(strip_terminal_codes, permission_lines(plugin, settings))), flush=True)


def _own_name(name: str) -> str:
    """Return the name here of a plugin that may be named as in elizaOS."""
    match = ELIZAOS_PACKAGE.fullmatch(name)
    return bundled_name(match[1] if match else name)


def _find_entry(name: str) -> IndexEntry | None:
    """Return what the lists say of a plugin; None for one that is installed and in no list of ours.

    The list at REGISTRY_URL is read only for a plugin that is not here yet.
    """
    bundled = load_bundled_index()
    if (entry := bundled.find(name)) is not None or name in plugin_names():
        return entry
    index = load_index(load_settings())
    for note in index.notes:
        print_notice(strip_terminal_codes(note))
    if (entry := index.find(name)) is not None:
        return entry
    names = [*plugin_names(), *(entry.name for entry in index.entries)]
    hint = suggest(name, names, otherwise="`bot plugin search` lists them")
    raise PluginError(f"plugin {name!r} is in no list of plugins: {hint}")


def _plan_edit(path: Path, name: str, required: Sequence[str] = ()) -> CharacterEdit:
    """Return the new text of a character's file, which names a plugin and those that it requires.

    Raises CharacterError for a file that cannot be changed safely.
    """
    loaded = load_character(path)
    named = [_own_name(known) for known in loaded.character.plugins]
    names = [added for added in (*required, name) if added not in named]
    if name in names and not named:
        # A file without plugins has the default store. One with plugins must name it.
        stores = bundled_names(PluginPurpose.STORE)
        names = [*(store for store in stores if store not in names and _is_loadable(store)), *names]
    if loaded.places is None:
        raise CharacterError(f"{path}: add {name!r} to its plugins by hand")
    text = loaded.places.append_texts("plugins", names) if names else loaded.places.source.text
    _check_edit(loaded, parse_character(text, source=str(path)), names)
    return CharacterEdit(path, text, tuple(names))


def _check_edit(old: LoadedCharacter, new: LoadedCharacter, names: list[str]) -> None:
    """Raise CharacterError if an edit changes anything else than the names of plugins."""
    expected = old.character.model_copy(update={"plugins": (*old.character.plugins, *names)})
    if new.character != expected or new.secrets != old.secrets:
        raise CharacterError(f"{old.path}: its form cannot be changed safely: add {', '.join(names)} to its plugins")


def _plan_installation(entry: IndexEntry) -> Installation | None:
    """Return what must be installed for a plugin; None for nothing."""
    if entry.is_bundled:
        return None if not entry.extra or has_extra(entry.extra) else install_extra(entry.extra)
    return install_package(entry.requirement)


def _install(entry: IndexEntry, installation: Installation, *, is_confirmed: bool) -> None:
    """Install a plugin with the installer of this environment. Raises PluginError if that does not bring it."""
    for line in index_lines(entry, ()):
        print(strip_terminal_codes(line))
    print(strip_terminal_codes(f"to be installed with: {installation}"), flush=True)
    if not entry.is_bundled:
        print("its code then runs with your rights: read it first", flush=True)
    if not is_confirmed and not _ask():
        raise UsageError("nothing was installed and nothing was changed")
    code = installation.run()
    if code != 0:
        raise PluginError(f"{entry.requirement} was not installed: the installer ended with exit code {code}")
    importlib.invalidate_caches()
    if entry.is_bundled and _plan_installation(entry) is not None:
        raise PluginError(
            f"{entry.package} is installed, but this Python does not find it: see what the installer printed"
        )
    package, _, _ = find_origin(entry.name)
    if not entry.is_bundled and normalize_distribution(package) != entry.distribution:
        provider = f"that is a plugin of {package}" if package else "it has no entry point of that name"
        raise PluginError(
            f"{entry.package} is installed now, but does not bring the plugin {entry.name!r}: {provider}; "
            f"remove it again: {sys.executable} -m pip uninstall {entry.distribution}"
        )


def _ask() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nothing was installed: there is no terminal to ask on; repeat the command with --yes")
    print_notice("install it? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _find_installed(name: str) -> Plugin:
    plugin = find_plugin(name)
    if plugin is None:
        raise PluginError(f"plugin {name!r} is not installed")
    return plugin


def _required_names(plugin: Plugin) -> list[str]:
    """Return the plugins that one requires, and those that they require, but for those that are always loaded."""
    names: dict[str, None] = {}
    waiting = [*plugin.requires]
    while waiting:
        name = waiting.pop()
        if name not in names and name not in bundled_names(PluginPurpose.BASE):
            names[name] = None
            waiting += _find_installed(name).requires
    return sorted(names)


def _is_loadable(name: str) -> bool:
    try:
        return find_plugin(name) is not None
    except PluginError:
        return False
