"""Finds plugins and adapters by name, path or entry point, and orders plugins by what they require.

Reads `plugins.bundled`, the table of the plugins that come with this distribution.

The core names no plugin. It asks for the bundled plugins of a purpose.

`LazyImport`, `LazyModule`, and imports of plugins and adapters whose errors say what to do.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import pkgutil
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from bot.characters.conversion import ADAPTER_ALIASES
from bot.domain.character import Character
from bot.errors import PluginCodeError, PluginError, SettingError
from bot.inbound.agent_handle import AdapterSpec, StartEmulator
from bot.installation import ROOT, install_command
from bot.models.types import ModelType
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.trust import (
    ESSENTIAL_PARTS,
    Approve,
    PluginSource,
    code_error,
    import_source,
    read_plugin_source,
)
from bot.settings import CoreSettings, Settings
from bot.text import suggest

PLUGINS_PACKAGE, ADAPTERS_PACKAGE = "plugins", "adapters"  # of this distribution
BUNDLED_PACKAGES = (f"{PLUGINS_PACKAGE}.", f"{ADAPTERS_PACKAGE}.")


def import_library(name: str) -> ModuleType:
    """Import a module; the limit of recursion stays as it is.

    Some libraries raise it (py_ecc, to 100,000), and then deeply nested JSON of strangers ends the process.
    """
    limit = sys.getrecursionlimit()
    try:
        return importlib.import_module(name)
    finally:
        sys.setrecursionlimit(limit)


def import_by_name(module: str, name: str) -> ModuleType:
    """Import the module of a plugin or adapter. Raises PluginError if that fails.

    Where it is none of this distribution, that is a PluginCodeError.
    """
    if module.startswith(BUNDLED_PACKAGES):
        import_bundled_package(module.partition(".")[0])
    try:
        return import_library(module)
    except SettingError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        message = f"{name!r} cannot be loaded: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            message = missing_package_message(name, str(error.name), module)
        if module.startswith(BUNDLED_PACKAGES):
            raise PluginError(message) from error
        caused = code_error(name, error, _read_installed(module, name))
        raise PluginCodeError(message, caused.cause, caused.may_bring) from error


def _read_installed(module: str, name: str) -> PluginSource | None:
    """Return the code of the distribution's package that contains a module; None where it cannot be read."""
    spec = importlib.util.find_spec(module.partition(".")[0])  # which imports nothing
    try:
        return read_plugin_source(Path(spec.origin), name) if spec is not None and spec.origin else None
    except PluginError:
        return None


def import_bundled_package(name: str) -> ModuleType:
    """Import `plugins` or `adapters` of this distribution, also if a user's folder of that name is first on the path.

    Raises PluginError if another package of that name is loaded already.
    """
    file = ROOT / name / "__init__.py"
    loaded_module = sys.modules.get(name)
    if loaded_module is None:
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
        if spec is None or spec.loader is None or not file.is_file():
            raise PluginError(f"{file} is missing: install Greenroom again")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    loaded_file = loaded_module.__file__ or "a folder without __init__.py"
    if loaded_file != str(file) and not (Path(loaded_file).is_file() and file.samefile(loaded_file)):
        raise PluginError(
            f"another package called {name!r} was imported from {loaded_file}, so the one that comes with Greenroom "
            f"cannot be: rename that folder, or import it under another name"
        )
    return loaded_module


def missing_package_message(name: str, missing: str, module: str, extra: str = "") -> str:
    """Return an error text for a missing library, which says what to install where that is known.

    A bundled module needs the extra `extra`, or that of its name.
    """
    text = f"{name!r} needs {missing}, which is not installed"
    if module.startswith(BUNDLED_PACKAGES) and not f"{missing}.".startswith(BUNDLED_PACKAGES):
        return f"{text}: {install_command(extra or name)}"
    return f"{text}: install the extra {extra!r} of its package" if extra else text


@dataclass(frozen=True, slots=True)
class LazyImport:
    """A function named as `"package.module:function"`, imported when it is first called."""

    target: str

    @property
    def module(self) -> str:
        """The name of the module that a call imports."""
        return self.target.partition(":")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return resolve_name(self.target)(*args, **kwargs)


class LazyModule(ModuleType):
    """A module of a library, imported when a name of it is first used.

    So a plugin whose library is large is listed, with its settings and checks, without that library. Building one
    raises ModuleNotFoundError where `library`, else the module, is not installed, as the import would.
    """

    def __init__(self, name: str, library: str = "") -> None:
        library = library or name
        if importlib.util.find_spec(library) is None:  # it imports what contains the library
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        super().__init__(name)

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_library(self.__name__), name)
        setattr(self, name, value)  # so that it is looked up once
        return value


TABLE = f"{PLUGINS_PACKAGE}.bundled"
DESCRIPTIONS = ROOT / PLUGINS_PACKAGE / "bundled.json"  # what `.ci/describe_plugins.py` prints


class PluginPurpose(StrEnum):
    """When a bundled plugin is loaded for a character that does not name it."""

    BASE = "base"  # unless IGNORE_BASIC_CAPABILITIES is set
    STORE = "store"  # if one of its settings is set, or the character names no plugins
    DOCUMENTS = "documents"  # if the character's knowledge has files
    ACCOUNT = "account"  # if all its settings are set
    TOOLS = "tools"  # if one of its settings is set
    TELEMETRY = "telemetry"  # if one of its settings is set
    MODEL = "model"  # if one of its settings is set, and no named plugin serves large texts
    FALLBACK_MODEL = "fallback model"  # if no other plugin serves large texts


@dataclass(frozen=True, slots=True)
class BundledPlugin:
    """One row of the table; `settings` are the variables that enable the plugin, `alias` its name in elizaOS.

    A model that `is_on_this_computer` sends nothing to a server.
    """

    name: str
    purpose: PluginPurpose
    settings: tuple[str, ...] = ()
    alias: str = ""
    is_on_this_computer: bool = False

    def is_enabled(self, settings: Settings) -> bool:
        """Return whether these settings enable the plugin, without importing it."""
        are_set = [name in settings for name in self.settings]
        return all(are_set) if self.purpose is PluginPurpose.ACCOUNT else any(are_set)


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A kind of model server: its usual port, and the variables for its address, its key and its models.

    `path` is what the address ends with; an empty `key` is that of a kind without keys.
    """

    title: str
    port: int
    address: str
    models: tuple[str, ...]
    path: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A service whose key alone brings a model: its name, the variable, and the page on which keys are made."""

    title: str
    key: str
    page: str


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """How a model file is run on this computer: the extra, the variable for its path, and a page with such files.

    `tiny_model` is a distribution that ships a small one, and the value of the variable that names it.
    """

    extra: str
    variable: str
    tiny_model: str
    page: str


@dataclass(frozen=True, slots=True)
class EmbeddingPackage:
    """A model for embeddings that comes as a package: its extra, and the variable that switches it on by its name."""

    extra: str
    variable: str
    model: str


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What a plugin needs to create embeddings.

    `scope` says where that helps: where the plugin is loaded ("own"), where none of these is ("new"), "always".
    """

    plugin: str
    variables: tuple[str, ...]
    scope: str
    note: str = ""


@lru_cache(maxsize=1)
def bundled_plugins() -> tuple[BundledPlugin, ...]:
    """Return the rows of the table in order."""
    rows = import_by_name(TABLE, PLUGINS_PACKAGE).BUNDLED
    return tuple(BundledPlugin(**{**row, "purpose": PluginPurpose(row["purpose"])}) for row in rows)


@lru_cache(maxsize=1)
def bundled_descriptions() -> Mapping[str, Mapping[str, Any]]:
    """Return what each bundled plugin is, brings and reads, by its name; none is imported for it.

    `missing` is the setting without which it does not work, `variables` has what `bot.cli.variables.Variable` has.
    """
    descriptions: Mapping[str, Mapping[str, Any]] = json.loads(DESCRIPTIONS.read_text(encoding="utf-8"))
    return descriptions


def bundled_name(name: str) -> str:
    """Return the name here of a plugin that has another one in elizaOS; any other name as it is."""
    return next((plugin.name for plugin in bundled_plugins() if plugin.alias == name), name)


def bundled_names(purpose: PluginPurpose) -> tuple[str, ...]:
    """Return the names of the bundled plugins of a purpose."""
    return tuple(plugin.name for plugin in bundled_plugins() if plugin.purpose is purpose)


def store_settings() -> frozenset[str]:
    """Return the variables that name a database."""
    stores = (plugin for plugin in bundled_plugins() if plugin.purpose is PluginPurpose.STORE)
    return frozenset(name for plugin in stores for name in plugin.settings)


def model_advice() -> str:
    """Return what enables a model for text."""
    return str(import_by_name(TABLE, PLUGINS_PACKAGE).TEXT_MODEL_ADVICE)


def embedding_advice(settings: Settings, loaded: Collection[str], *, is_named: bool) -> str:
    """Return what enables a model for embeddings beside the loaded plugins, without what is set already.

    `is_named` says that a plugin is loaded only where the character's file names it.
    """
    rows = [EmbeddingModel(**row) for row in import_by_name(TABLE, PLUGINS_PACKAGE).EMBEDDING_MODELS]
    own = [row for row in rows if "own" in row.scope and row.plugin in loaded]
    chosen = own or [row for row in rows if "new" in row.scope]
    steps = []
    for row in [*chosen, *(row for row in rows if "always" in row.scope)]:
        missing = [name for name in row.variables if name not in settings]
        parts = [f"set {' and '.join(missing)} {row.note}".rstrip()] if missing else []
        if is_named and row.plugin not in loaded:
            parts.insert(0, f"name the plugin {row.plugin} in the character's file")
        steps.append(" and ".join(parts))
    return ", or ".join(filter(None, steps))


def model_servers() -> tuple[ModelServer, ...]:
    """Return the kinds of model server; the last is any other with the API that most of them have."""
    return tuple(ModelServer(**row) for row in import_by_name(TABLE, PLUGINS_PACKAGE).MODEL_SERVERS)


def model_keys() -> tuple[ModelKey, ...]:
    """Return the services whose key alone brings a model."""
    return tuple(ModelKey(**row) for row in import_by_name(TABLE, PLUGINS_PACKAGE).MODEL_KEYS)


def model_files() -> ModelFiles:
    """Return how a model file is run on this computer."""
    return ModelFiles(**import_by_name(TABLE, PLUGINS_PACKAGE).MODEL_FILES)


def embedding_package() -> EmbeddingPackage:
    """Return the model for embeddings that comes as a package."""
    return EmbeddingPackage(**import_by_name(TABLE, PLUGINS_PACKAGE).EMBEDDING_PACKAGE)


PLUGIN_GROUP, ADAPTER_GROUP = "greenroom.plugins", "greenroom.adapters"
NO_EMBEDDINGS_NOTE = "no plugin here creates embeddings, so memories are searched by words only"
SCRIPT_SUFFIXES = frozenset({".cjs", ".js", ".mjs", ".ts", ".tsx"})
ELIZAOS_PACKAGE = re.compile(r"@[\w.-]+/(?:plugin-|adapter-|client-)?([\w.-]+)")


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """The plugins of one character in their order, and a note on each that is left out.

    `inactive` has those that are off because of broken code, as the file names them, and those that require another
    plugin which is then missing; each with the cause.
    """

    plugins: tuple[Plugin, ...]
    notes: tuple[str, ...] = ()
    inactive: Mapping[str, str] = field(default_factory=dict)


def load_plugins(
    character: Character,
    settings: Settings,
    *,
    folder: Path,
    is_foreign_format: bool = False,
    approve: Approve | None = None,
) -> LoadedPlugins:
    """Load the plugins that a character names, and the bundled ones that it needs.

    Paths are relative to `folder`. Names of elizaOS packages are mapped; those without a counterpart are
    noted. With `is_foreign_format` (a file of another program) any unknown name is only noted. Before the code
    of a path runs, `approve` is called with it and may raise; without `approve` the caller vouches for the folder.

    A plugin whose code is broken is off, with all that require it, unless it may bring the store or the only model
    for text. Raises PluginError for an unknown name, another plugin that cannot be loaded, a cycle, two of one name.
    """
    by_name: dict[str, Plugin] = {}
    notes: list[str] = []
    broken: dict[str, PluginCodeError] = {}
    for name in _requested_names(character, settings):
        try:
            plugin, note = _resolve(name, folder, approve, is_foreign_format=is_foreign_format)
        except PluginCodeError as error:
            broken[name] = error
            continue
        if plugin is not None and plugin.settings is not None:
            settings = settings.with_models(plugin.settings)
        if plugin is not None and by_name.get(plugin.name, plugin) is not plugin:
            raise _duplicate_error(plugin.name)
        if plugin is not None:
            note = _missing_settings_note(plugin, settings)
            if not note:
                by_name[plugin.name] = plugin
        if note:
            notes.append(note)
    plugins, inactive = _without_broken(list(by_name.values()), broken, settings)
    models, more_notes = _complete_models(plugins, settings)
    return LoadedPlugins(sort_plugins([*plugins, *models]), (*notes, *more_notes), inactive)


def _without_broken(
    plugins: Sequence[Plugin], broken: Mapping[str, PluginCodeError], settings: Settings
) -> tuple[list[Plugin], dict[str, str]]:
    """Return the plugins that need none of the broken ones, and why each of the others is off.

    Raises the error of a broken plugin without which there may be no store, or none of the named models for text.
    """
    inactive = {name: error.cause for name, error in broken.items()}
    active, lost = list(plugins), {part for error in broken.values() for part in error.may_bring}
    while broken and (found := _find_incomplete(active)) is not None:
        plugin, missing = found
        active = [item for item in active if item is not plugin]
        lost |= _essential_parts(plugin)
        cause = f"which is off: {inactive[missing]}" if missing in inactive else "which is not loaded"
        inactive[plugin.name] = f"it requires {missing!r}, {cause}"
    if "store" in lost or ("models" in lost and not _serves_text(active, settings)):
        raise next((error for error in broken.values() if error.may_bring), next(iter(broken.values())))
    return active, inactive


def _find_incomplete(plugins: Sequence[Plugin]) -> tuple[Plugin, str] | None:
    """Return the first plugin that requires one which is not among them, and the name of that one."""
    names = {plugin.name for plugin in plugins}
    return next(((plugin, name) for plugin in plugins for name in plugin.requires if name not in names), None)


def _essential_parts(plugin: Plugin) -> set[str]:
    return {part for part in ESSENTIAL_PARTS if getattr(plugin, part)}


def _complete_models(plugins: Sequence[Plugin], settings: Settings) -> tuple[Sequence[Plugin], list[str]]:
    """Return the models to add to those of the named plugins, with notes on what is left out or cannot be done."""
    models: Sequence[Plugin] = ()
    notes: list[str] = []
    is_named = _serves_text(plugins, settings)
    if not is_named:
        found, note = _default_models(settings)
        models = [plugin for plugin in found if plugin not in plugins]
        notes += [note] if note else []
    complete = [*plugins, *models]
    if not any(_serves_model(plugin, ModelType.TEXT_EMBEDDING, settings) for plugin in complete):
        advice = embedding_advice(settings, [plugin.name for plugin in complete], is_named=is_named)
        notes.append(f"{NO_EMBEDDINGS_NOTE}: {advice}")
    return models, notes


def sort_plugins(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Return plugins in the given order, each after those it requires.

    Raises PluginError that names the cycle, the missing plugin, or two plugins of one name.
    """
    by_name: dict[str, Plugin] = {}
    for plugin in plugins:
        if by_name.setdefault(plugin.name, plugin) is not plugin:
            raise _duplicate_error(plugin.name)
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for plugin in by_name.values():
        for name in plugin.requires:
            if name not in by_name:
                raise PluginError(
                    f"plugin {plugin.name!r} requires {name!r}, which is not loaded: "
                    f"add {name!r} to the character's plugins"
                )
        sorter.add(plugin.name, *plugin.requires)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise PluginError(f"plugins require each other in a circle: {cycle}") from None
    ordered: dict[str, Plugin] = {}
    stack = list(by_name)[::-1]  # the sorter's own order would not be the given one
    while stack:
        plugin = by_name[stack[-1]]
        missing = [name for name in plugin.requires if name not in ordered]
        if missing:
            stack += reversed(missing)
        else:
            ordered.setdefault(stack.pop(), plugin)
    return tuple(ordered.values())


def find_plugin(name: str, folder: Path = Path(), approve: Approve | None = None) -> Plugin | None:
    """Find a plugin by path (`./my_plugin`, relative to `folder`), by name, or by entry point.

    Before the code of a path runs, `approve` is called with it and may raise.
    """
    if name.startswith((".", "/", "~")):
        source = read_plugin_source((folder / Path(name).expanduser()).resolve(), name)
        if approve is not None:
            approve(source)
        return _single_plugin(import_source(source), name)
    bundled = f"{PLUGINS_PACKAGE}.{name}"
    import_bundled_package(PLUGINS_PACKAGE)
    if re.fullmatch(r"\w+", name) and bundled != TABLE and importlib.util.find_spec(bundled) is not None:
        plugin = _single_plugin(import_by_name(bundled, name), name)
        return _as_trusted(plugin) if any(name == row.name for row in bundled_plugins()) else plugin
    for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
        module = import_by_name(entry.module, name)
        exported = getattr(module, entry.attr, None) if entry.attr else None
        return exported if isinstance(exported, Plugin) else _single_plugin(module, name)
    return None


@lru_cache(maxsize=64)  # the same plugin must stay the same object
def _as_trusted(plugin: Plugin) -> Plugin:
    return replace(plugin, is_trusted=True)


def plugin_names() -> list[str]:
    """Return the names of all installed plugins, bundled ones first."""
    others = [entry.name for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP)]
    return list(dict.fromkeys([*_list_subpackages(PLUGINS_PACKAGE), *others]))


def find_adapters(*, needs_libraries: bool = True) -> dict[str, AdapterSpec | str]:
    """Return every installed adapter by name: its spec, or the reason why it cannot be loaded.

    Lazy imports of an adapter are not resolved, so no platform library is loaded. Without `needs_libraries`, as for an
    emulator, a library that is not installed is no reason.
    """
    modules = _adapter_modules().items()
    return {name: _load_adapter(name, module, needs_libraries=needs_libraries) for name, module in modules}


def find_adapter(name: str) -> AdapterSpec | str:
    """Return one adapter as `find_adapters` does, after importing the module that opens it."""
    module = _adapter_modules().get(name)
    if module is None:
        return f"there is no adapter called {name!r}"
    spec = _load_adapter(name, module)
    if isinstance(spec, AdapterSpec) and isinstance(spec.open, LazyImport):
        try:
            import_by_name(spec.open.module, name)
        except PluginError as error:
            return str(error)
    return spec


def load_local_adapter(name: str, folder: Path = Path(), approve: Approve | None = None) -> AdapterSpec:
    """Import an adapter by its path (`./line_chat`, relative to `folder`); `approve` is as for `find_plugin`.

    Raises PluginError for one that cannot be loaded or has the name of an installed adapter.
    """
    source = read_plugin_source((folder / Path(name).expanduser()).resolve(), name)
    if approve is not None:
        approve(source)
    spec = _single_spec(import_source(source), name)
    if isinstance(spec, str):
        raise PluginError(spec)
    if spec.name in _adapter_modules():
        raise PluginError(f"adapter {name!r}: there is an installed adapter called {spec.name!r}: rename one of them")
    return spec


def find_emulator(spec: AdapterSpec) -> StartEmulator:
    """Return the function that starts a platform's emulator; raises PluginError if it cannot be loaded."""
    if spec.emulator is None:
        raise PluginError(f"{spec.name} has no emulator")
    if isinstance(spec.emulator, LazyImport):
        import_by_name(spec.emulator.module, spec.name)
    return spec.emulator


def adapter_names() -> list[str]:
    """Return the names of all installed adapters, bundled ones first."""
    return list(_adapter_modules())


def _duplicate_error(name: str) -> PluginError:
    return PluginError(f"two plugins are called {name!r}: rename or remove one of them")


def _adapter_modules() -> dict[str, str]:
    modules = {name: f"{ADAPTERS_PACKAGE}.{name}" for name in _list_subpackages(ADAPTERS_PACKAGE)}
    for name, module in _adapter_entry_points(tuple(sys.path)):
        modules.setdefault(name, module)
    return modules


@lru_cache(maxsize=4)  # it reads a file of every installed package
def _adapter_entry_points(path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the name and the module of each adapter in the packages on a path, which is `sys.path`."""
    entries = importlib.metadata.entry_points(group=ADAPTER_GROUP)
    return [(entry.name, entry.module) for entry in entries]


def _load_adapter(name: str, module: str, *, needs_libraries: bool = True) -> AdapterSpec | str:
    try:
        return _single_spec(import_by_name(module, name), name, needs_libraries=needs_libraries)
    except PluginError as error:
        return str(error)


def _single_spec(module: ModuleType, name: str, *, needs_libraries: bool = True) -> AdapterSpec | str:
    specs = [value for value in vars(module).values() if isinstance(value, AdapterSpec)]
    if len(specs) != 1:
        return f"adapter {name!r}: {module.__name__} must hold one AdapterSpec, it holds {len(specs)}"
    [spec] = specs
    libraries = spec.libraries if needs_libraries else ()
    missing = next((library for library in libraries if importlib.util.find_spec(library) is None), "")
    return missing_package_message(name, missing, module.__name__, spec.extra) if missing else spec


def _requested_names(character: Character, settings: Settings) -> Iterator[str]:
    if not settings.load(CoreSettings).ignore_basic_capabilities:
        yield from bundled_names(PluginPurpose.BASE)
    yield from _default_stores(character, settings)
    yield from character.plugins
    if any(item.needs_plugin for item in character.knowledge):
        yield from bundled_names(PluginPurpose.DOCUMENTS)
    for purpose in (PluginPurpose.ACCOUNT, PluginPurpose.TOOLS, PluginPurpose.TELEMETRY):
        yield from _enabled_names(purpose, settings)


def _default_stores(character: Character, settings: Settings) -> Sequence[str]:
    """Return the names of the storage plugins of a character that names none."""
    stores = bundled_names(PluginPurpose.STORE)
    if not set(stores).isdisjoint(character.plugins):
        return ()
    return _enabled_names(PluginPurpose.STORE, settings) or (() if character.plugins else stores)


def _enabled_names(purpose: PluginPurpose, settings: Settings) -> list[str]:
    return [item.name for item in bundled_plugins() if item.purpose is purpose and item.is_enabled(settings)]


def _resolve(name: str, folder: Path, approve: Approve | None, *, is_foreign_format: bool) -> tuple[Plugin | None, str]:
    if Path(name).suffix in SCRIPT_SUFFIXES:
        return None, f"{name}: a plugin in JavaScript cannot run here; the character works without it"
    match = ELIZAOS_PACKAGE.fullmatch(name)
    package = match[1].lstrip(".") if match else ""  # the name of a package is no path
    short_name = (package and bundled_name(package)) if match else name
    if short_name and (plugin := find_plugin(short_name, folder, approve)) is not None:
        return plugin, ""
    if ADAPTER_ALIASES.get(short_name, short_name) in _adapter_modules():
        return None, f"{name}: {short_name} is an adapter here; it runs where its token is set"
    if match or is_foreign_format:
        return None, f"{name}: there is no counterpart here; the character works without it"
    hint = suggest(name, plugin_names(), otherwise=f"there are: {', '.join(plugin_names())}")
    raise PluginError(f"plugin {name!r} is not known: {hint} (`bot plugin list` shows them)")


def _missing_settings_note(plugin: Plugin, settings: Settings) -> str:
    missing = plugin.why_off(settings)
    return f"plugin {plugin.name} is off: {missing}" if missing else ""


def _serves_text(plugins: Sequence[Plugin], settings: Settings) -> bool:
    return any(_serves_model(plugin, ModelType.TEXT_LARGE, settings) for plugin in plugins)


def _serves_model(plugin: Plugin, kind: ModelType, settings: Settings) -> bool:
    return any(model.type is kind and model.when(settings) for model in plugin.models)


def _default_models(settings: Settings) -> tuple[Sequence[Plugin], str]:
    """Return the model plugins that the settings enable; the fallback, with a note, if none can work."""
    plugins: list[Plugin] = []
    note = ""
    for name in _enabled_names(PluginPurpose.MODEL, settings):
        plugin = _find_model_plugin(name)
        missing = _missing_settings_note(plugin, settings)
        note = note or missing
        plugins += [] if missing else [plugin]
    if not _serves_text(plugins, settings):
        plugins += [_find_model_plugin(name) for name in bundled_names(PluginPurpose.FALLBACK_MODEL)]
    return plugins, note


def _find_model_plugin(name: str) -> Plugin:
    plugin = find_plugin(name)
    if plugin is None:
        raise PluginError(f"the model plugin {name!r} is missing from this installation: install Greenroom again")
    return plugin


def _single_plugin(module: ModuleType, name: str) -> Plugin:
    exported = getattr(module, "plugin", None)
    if isinstance(exported, Plugin):
        return exported
    plugins = [value for value in vars(module).values() if isinstance(value, Plugin)]
    if len(plugins) != 1:
        found = f"{len(plugins)} values are" if plugins else "none is"
        cause = f"its module must have one Plugin, best named `plugin`: {found} a Plugin"
        lost = {part for plugin in plugins for part in _essential_parts(plugin)}
        raise PluginCodeError(f"plugin {name!r}: {cause}", cause, lost)
    return plugins[0]


def _list_subpackages(package: str) -> list[str]:
    module = import_bundled_package(package)
    return [submodule.name for submodule in pkgutil.iter_modules(module.__path__) if submodule.ispkg]
