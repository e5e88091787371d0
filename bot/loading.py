"""Finding plugins and adapters by name, path or entry point, and putting plugins into order."""

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

from bot.domain.character import Character
from bot.errors import PluginError, SettingError
from bot.models.types import ModelType
from bot.platform.connections import AdapterSpec
from bot.plugin import Plugin
from bot.settings import CoreSettings, Settings
from bot.text import nearest

PLUGIN_GROUP, ADAPTER_GROUP = "greenroom.plugins", "greenroom.adapters"
BOOTSTRAP, OFFLINE = "bootstrap", "offline"
MODEL_PLUGINS = {"openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL")}  # any of these variables calls for it
PLATFORMS = frozenset({"discord", "telegram", "twitter", "x", "web", "console"})
FOREIGN = re.compile(r"@[\w.-]+/(?:plugin-|adapter-|client-)?([\w.-]+)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The plugins of one character in the order in which they come, and a note on each left out."""

    plugins: tuple[Plugin, ...]
    notes: tuple[str, ...] = ()


def load_plugins(
    character: Character, settings: Settings, *, folder: Path, is_foreign: bool = False
) -> Loaded:
    """Load what a character names, and what it cannot do without: bootstrap and a model.

    Paths are relative to `folder`. A name of an elizaOS package maps to ours; where there is none it
    is noted. With `is_foreign` (a file of another program's format) any unknown name is only noted.
    Raises PluginError for an unknown name, a plugin that cannot be imported, a cycle, two of a name.
    """
    found: dict[str, Plugin] = {}
    notes: list[str] = []
    for name in _wanted(character, settings.load(CoreSettings)):
        plugin, note = _resolve(name, folder, is_foreign=is_foreign)
        if plugin is not None and plugin.name in found and found[plugin.name] is not plugin:
            raise PluginError(f"two plugins are called {plugin.name!r}: rename or remove one of them")
        if plugin is not None:
            note = _lacks(plugin, settings)
            if not note:
                found[plugin.name] = plugin
        if note:
            notes.append(note)
    if not any(_serves_text(plugin) for plugin in found.values()):
        plugin = _default_model(settings)
        found[plugin.name] = plugin
    return Loaded(sort_plugins(list(found.values())), tuple(notes))


def sort_plugins(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Put plugins after those they require, otherwise as given.

    Raises PluginError naming the cycle, or the plugin that is required and missing.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for plugin in plugins:
        for name in plugin.requires:
            if name not in by_name:
                raise PluginError(
                    f"plugin {plugin.name!r} requires {name!r}, which is not loaded: "
                    f"add {name!r} to the character's plugins"
                )
        sorter.add(plugin.name, *plugin.requires)
    try:
        return tuple(by_name[name] for name in sorter.static_order())
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise PluginError(f"plugins require each other in a circle: {circle}") from None


def find_plugin(name: str, folder: Path = Path()) -> Plugin | None:
    """Find a plugin by path (`./my_plugin`, relative to `folder`), by name, or by entry point."""
    if name.startswith((".", "/", "~")):
        return _only_plugin(_module_at((folder / Path(name).expanduser()).resolve(), name), name)
    if re.fullmatch(r"\w+", name) and importlib.util.find_spec(f"plugins.{name}") is not None:
        return _only_plugin(_imported(f"plugins.{name}", name), name)
    for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
        return _only_plugin(_imported(entry.module, name), name)
    return None


def plugin_names() -> list[str]:
    """List every plugin that can be named, ours first."""
    return list(dict.fromkeys([*_submodules("plugins"), *_entries(PLUGIN_GROUP)]))


def find_adapters() -> dict[str, AdapterSpec | str]:
    """Find every adapter there is: its description, or the reason why it cannot be loaded."""
    found: dict[str, AdapterSpec | str] = {}
    modules = {name: f"adapters.{name}" for name in _submodules("adapters")}
    for entry in importlib.metadata.entry_points(group=ADAPTER_GROUP):
        modules.setdefault(entry.name, entry.module)
    for name, module in modules.items():
        try:
            spec = getattr(_imported(module, name), "adapter", None)
        except PluginError as error:
            found[name] = f"{error}; install it with: pip install 'greenroom[{name}]'"
            continue
        found[name] = spec if isinstance(spec, AdapterSpec) else f"{module} has no AdapterSpec `adapter`"
    return found


def _wanted(character: Character, settings: CoreSettings) -> Iterator[str]:
    if not settings.ignore_basic_capabilities:
        yield BOOTSTRAP
    yield from character.plugins


def _resolve(name: str, folder: Path, *, is_foreign: bool) -> tuple[Plugin | None, str]:
    foreign = FOREIGN.fullmatch(name)
    bare = foreign[1] if foreign else name
    if (plugin := find_plugin(bare, folder)) is not None:
        return plugin, ""
    if bare in PLATFORMS:
        return None, f"{name}: {bare} is an adapter here; it runs where its token is set"
    if foreign or is_foreign:
        return None, f"{name}: there is no counterpart here; the character works without it"
    near = nearest(name, plugin_names())
    hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(plugin_names())}"
    raise PluginError(f"plugin {name!r} is not known: {hint} (`bot plugin list` shows them)")


def _lacks(plugin: Plugin, settings: Settings) -> str:
    missing = plugin.lacks(settings)
    return f"plugin {plugin.name} is off: {missing}" if missing else ""


def _serves_text(plugin: Plugin) -> bool:
    return any(model.type is ModelType.TEXT_LARGE for model in plugin.models)


def _default_model(settings: Settings) -> Plugin:
    called = (name for name, variables in MODEL_PLUGINS.items() if any(one in settings for one in variables))
    name = next(called, OFFLINE)
    plugin = find_plugin(name)
    if plugin is None:
        raise PluginError(f"the model plugin {name!r} is not installed: pip install 'greenroom[{name}]'")
    return plugin


def _only_plugin(module: ModuleType, name: str) -> Plugin:
    named = getattr(module, "plugin", None)
    if isinstance(named, Plugin):
        return named
    found = [value for value in vars(module).values() if isinstance(value, Plugin)]
    if len(found) != 1:
        raise PluginError(f"plugin {name!r}: {module.__name__} must hold one Plugin, best named `plugin`")
    return found[0]


def _imported(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except SettingError:
        raise
    except Exception as error:  # anything may go wrong in somebody else's module
        raise PluginError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _module_at(path: Path, name: str) -> ModuleType:
    candidates = (path, path.with_name(f"{path.name}.py"), path / "__init__.py")
    file = next((one for one in candidates if one.is_file()), None)
    if file is None:
        raise PluginError(f"plugin {name!r}: there is no {path}.py and no folder {path} with an __init__.py")
    alias = f"greenroom_plugin_{re.sub(r'[^a-z0-9]+', '_', str(path).lower())}"
    if alias in sys.modules:
        return sys.modules[alias]
    is_package = file.name == "__init__.py"
    spec = importlib.util.spec_from_file_location(
        alias, file, submodule_search_locations=[str(file.parent)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise PluginError(f"plugin {name!r}: {file} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything may go wrong in somebody else's module
        del sys.modules[alias]
        raise PluginError(f"plugin {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _submodules(package: str) -> list[str]:
    module = importlib.import_module(package)
    return [one.name for one in pkgutil.iter_modules(module.__path__) if one.ispkg]


def _entries(group: str) -> list[str]:
    return [entry.name for entry in importlib.metadata.entry_points(group=group)]
