"""Reads `plugins.bundled`, the table of the plugins that come with this distribution.

The core names no plugin. It asks for the bundled plugins of a purpose.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from bot.plugin_system.imports import PLUGINS_PACKAGE, ROOT, import_by_name
from bot.settings import Settings

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
    return frozenset(
        name for plugin in bundled_plugins() if plugin.purpose is PluginPurpose.STORE for name in plugin.settings
    )


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
