"""What people are shown of plugins: cards of those that are installed or can be added, and what one may do."""

import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bot.cli.characters import CharacterConfig
from bot.cli.plugin_index import IndexEntry, load_bundled_index
from bot.cli.variables import list_variables
from bot.domain.authority import AuthorityKind
from bot.domain.component_specs import ActionSpec, Effect
from bot.domain.environment import Role
from bot.errors import PluginError
from bot.plugin_system.bundled import PluginPurpose, bundled_descriptions, bundled_names, bundled_plugins
from bot.plugin_system.imports import DISTRIBUTION, find_distribution, has_extra, install_command
from bot.plugin_system.loading import PLUGIN_GROUP, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.settings import Settings, address_variables
from bot.text import shorten

MAX_TAGS = 3
MAX_REASON_LENGTH = 160
EFFECTS = {
    Effect.PURE: "changes nothing",
    Effect.IDEMPOTENT: "changes something, and may be repeated",
    Effect.KEYED: "sends or changes something once",
    Effect.UNSAFE: "changes something, and is never repeated",
}
NETWORK_NOTE = (
    "its code runs with your rights, in the process of the bot: it can connect anywhere, and nothing stops it"
)


@dataclass(frozen=True, slots=True)
class PluginCard:
    """One installed plugin: where it comes from, whether a character uses it, and why not.

    `plugin` is missing where it cannot be loaded. `version` is that of its distribution.
    """

    name: str
    plugin: Plugin | None
    reason: str = ""  # why it is off; empty if it is on
    package: str = ""
    version: str = ""
    target: str = ""  # its entry point in another distribution
    entry: IndexEntry | None = None  # in the bundled list
    missing: str = ""  # the settings that it needs and that are not set

    def lines(self) -> Iterator[str]:
        """Yield the card for the terminal; the text of a plugin's author may contain terminal codes."""
        if self.plugin is None:
            yield f"{self.name:<12} off  {self.reason}"
            return
        yield f"{self.name:<12} {'off' if self.reason else 'on '}  {self.plugin.description}"
        margin = " " * 17
        if self.reason:
            yield f"{margin} off because {self.reason}"
        if self.target:
            yield f"{margin} installed with {self.package} {self.version}: {self.target}"
        elif self.package:
            yield f"{margin} package: {self.package} {self.version}"
        if self.entry is not None and self.entry.tags:
            yield f"{margin} tags: {format_tags(self.entry.tags)}"
        for kind, names in component_names(self.plugin).items():
            yield f"{margin} {kind}: {', '.join(names)}"
        if self.plugin.settings is not None:
            yield f"{margin} settings: {', '.join(item.name for item in list_variables(self.plugin.settings))}"

    def row(self) -> tuple[str, ...]:
        """Return the card as a row of a table: name, state, description, and why it is off."""
        description = "" if self.plugin is None else self.plugin.description
        return (self.name, "off" if self.reason else "on", description, self.reason)

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON."""
        plugin, entry = self.plugin, self.entry
        settings = plugin.settings if plugin is not None else None
        return {
            "name": self.name,
            "on": not self.reason,
            "reason": self.reason,
            "missing": self.missing,
            "description": plugin.description if plugin is not None else "",
            "package": self.package,
            "version": self.version,
            "api": plugin.api if plugin is not None else "",
            "tags": list(entry.tags) if entry is not None else [],
            "source": entry.source if entry is not None else "",
            "components": component_names(plugin) if plugin is not None else {},
            "settings": [item.name for item in list_variables(settings)] if settings is not None else [],
        }


def list_cards(config: CharacterConfig, *, only_used: bool = False) -> Iterator[PluginCard]:
    """Yield a card for each installed plugin, and for those that the character names by path.

    With `only_used` those are left out that the character does not use, so that their code is not imported;
    `describe_unused_plugins` tells of them.
    """
    enabled = {plugin.name: plugin for plugin in config.plugins}
    index = load_bundled_index()
    for name in enabled if only_used else dict.fromkeys([*plugin_names(), *enabled]):
        found = enabled.get(name) or _load_plugin(name)
        plugin = found if isinstance(found, Plugin) else None
        reason = found if isinstance(found, str) else ""
        missing = ""
        if plugin is not None and name not in enabled:
            missing = plugin.missing_settings(config.settings)
            reason = f"a setting is missing: {missing}" if missing else _off_reason(name, config)
        entry = index.find(name)
        if entry is not None and entry.is_bundled:
            version = importlib.metadata.version(DISTRIBUTION)
            yield PluginCard(name, plugin, reason, entry.package, version, entry=entry, missing=missing)
        else:
            yield PluginCard(name, plugin, reason, *find_origin(name), missing=missing)


def describe_unused_plugins(config: CharacterConfig) -> Iterator[dict[str, Any]]:
    """Yield what `PluginCard.to_json` has of each installed plugin that the character does not use.

    None is imported: the bundled ones are described by a file, of another one only its distribution is known. `install`
    is the command that installs the packages of a bundled one, if they are missing.
    """
    index, descriptions = load_bundled_index(), bundled_descriptions()
    used = {plugin.name for plugin in config.plugins}
    rows = {row.name: row for row in bundled_plugins()}
    for name in plugin_names():
        entry = index.find(name)
        if name in used:
            continue
        if name not in rows or entry is None:
            package, version, _ = find_origin(name)
            found = find_distribution(package) if package else None
            description = (found.metadata["Summary"] if found is not None else None) or ""
            card = PluginCard(name, None, _off_reason(name, config), package, version).to_json()
            yield {**card, "description": description}
            continue
        described = descriptions[name]
        is_missing = bool(rows[name].settings) and not rows[name].is_enabled(config.settings)
        missing = described["missing"] if is_missing else ""
        reason = f"a setting is missing: {missing}" if missing else _off_reason(name, config)
        version = importlib.metadata.version(DISTRIBUTION)
        card = PluginCard(name, None, reason, entry.package, version, "", entry, missing).to_json()
        known = {key: described[key] for key in ("description", "api", "components")}
        install = "" if has_extra(entry.extra) else install_command(entry.extra)
        yield {**card, **known, "settings": [item["name"] for item in described["variables"]], "install": install}


def describe_bundled_plugins() -> str:
    """Return the text of the file that `bundled_descriptions` reads, made from the plugins."""
    parts = []
    for name in sorted(row.name for row in bundled_plugins()):
        plugin = find_plugin(name)
        assert plugin is not None
        known = {"description": plugin.description, "api": plugin.api, "missing": plugin.missing_settings(Settings())}
        head = json.dumps({**known, "components": component_names(plugin)}, ensure_ascii=False)
        variables = list_variables(plugin.settings) if plugin.settings is not None else ()
        lines = ",\n".join(json.dumps(asdict(item), ensure_ascii=False) for item in variables)  # easy to merge
        parts.append(f'"{name}": {head[:-1]}, "variables": [\n{lines}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def find_origin(name: str) -> tuple[str, str, str]:
    """Return distribution, version and entry point of a plugin of others; empty texts for any other."""
    for point in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
        if point.dist is not None and point.dist.name != DISTRIBUTION:
            return point.dist.name, point.dist.version, point.value
    return "", "", ""


def index_lines(entry: IndexEntry, installed: Sequence[str]) -> Iterator[str]:
    """Yield the card of a plugin that can be added."""
    stars = f"  ★ {entry.stars:,}" if entry.stars is not None else ""
    yield f"{entry.name}{stars}"
    yield f"  {entry.description}"
    yield f"  package: {entry.package} {entry.version}, plugin API {entry.api}"
    if entry.tags:
        yield f"  tags: {format_tags(entry.tags)}"
    yield f"  source: {entry.source}{' (in Greenroom)' if entry.is_bundled else ''}"
    if entry.incompatibility:
        yield f"  cannot be added: {entry.incompatibility}"
    elif entry.is_bundled:
        yield f"  comes with Greenroom: bot plugin add {entry.name} -c FILE"
    elif entry.name in installed:
        yield f"  installed: bot plugin add {entry.name} -c FILE"
    else:
        yield f"  not installed: bot plugin add {entry.name}"


def index_to_json(entry: IndexEntry, installed: Sequence[str]) -> dict[str, Any]:
    """Return a plugin that can be added as JSON."""
    return {
        **entry.model_dump(mode="json"),
        "bundled": entry.is_bundled,
        "installed": entry.is_bundled or entry.name in installed,
        "compatible": not entry.incompatibility,
    }


def format_tags(tags: Sequence[str]) -> str:
    """Return the first tags, and how many more there are."""
    more = f" +{len(tags) - MAX_TAGS} more" if len(tags) > MAX_TAGS else ""
    return f"{', '.join(tags[:MAX_TAGS])}{more}"


def component_names(plugin: Plugin) -> dict[str, list[str]]:
    """Return the names of a plugin's components by kind, for each kind that it has."""
    kinds = {
        "actions": [component.spec.name for component in plugin.actions],
        "providers": [component.spec.name for component in plugin.providers],
        "evaluators": [component.spec.name for component in plugin.evaluators],
        "services": [component.__name__ for component in plugin.services],
        "models": [component.type.value for component in plugin.models],
        "workers": [component.name for component in plugin.workers],
        "listeners": [component.kind.__name__ for component in plugin.listeners],
        "commands": [f"/{component.spec.name}" for component in plugin.commands],
        "component types": [component.name for component in plugin.component_types],
        "kinds of memories": list(plugin.memory_kinds),
        "templates": list(plugin.templates),
        "tests": [f"{suite.name} ({len(suite.tests)})" for suite in plugin.tests],
        "routes": [f"{component.method} /plugins/{plugin.name}{component.path}" for component in plugin.routes],
    }
    return {kind: names for kind, names in kinds.items() if names}


def list_components(plugin: Plugin) -> Iterator[str]:
    """Yield one line for each kind of component of a plugin."""
    for kind, names in component_names(plugin).items():
        yield f"{kind}: {', '.join(names)}"


def permission_lines(plugin: Plugin, settings: Settings) -> Iterator[str]:
    """Yield what a plugin may do where a character names it, as far as it declares that."""
    package, version, _ = find_origin(plugin.name)
    yield f"{plugin.name}: {plugin.description}"
    yield f"  package: {package} {version}" if package else f"  plugin API: {plugin.api}"
    for action in plugin.actions:
        condition = ", where its own condition holds" if action.when is not None else ""
        yield f"  action {action.spec.name}: {_describe_action(action.spec)}{condition}"
    for command in plugin.commands:
        yield f"  command /{command.spec.name}: for {_describe_role(command.spec.role)}"
    for item in plugin.routes:
        signed = f", signed with {item.signature.setting}" if item.signature is not None else ""
        yield f"  route {item.method} /plugins/{plugin.name}{item.path}: scope {item.scope.value}{signed}"
    yield from _use_lines(plugin)
    yield from _setting_lines(plugin)
    yield f"  network: {NETWORK_NOTE}"
    if plugin.privacy_statement is not None and not plugin.missing_settings(settings):
        yield f"  privacy: {plugin.privacy_statement(settings)}"
    if missing := plugin.missing_settings(settings):
        yield f"  off until: {missing}"


def permissions_to_json(plugin: Plugin, settings: Settings) -> dict[str, Any]:
    """Return what a plugin may do as JSON, as `permission_lines` tells it."""
    package, version, _ = find_origin(plugin.name)
    variables = list(list_variables(plugin.settings)) if plugin.settings is not None else []
    return {
        "name": plugin.name,
        "description": plugin.description,
        "package": package,
        "version": version,
        "api": plugin.api,
        "actions": [
            {
                "name": action.spec.name,
                "effect": action.spec.effect.value,
                "authority": action.spec.authority.kind.value,
                "role": action.spec.role.value,
                "has_condition": action.when is not None,
            }
            for action in plugin.actions
        ],
        "commands": [{"name": item.spec.name, "role": item.spec.role.value} for item in plugin.commands],
        "routes": [
            {
                "method": item.method,
                "path": f"/plugins/{plugin.name}{item.path}",
                "scope": item.scope.value,
                "signature": item.signature.setting if item.signature is not None else "",
            }
            for item in plugin.routes
        ],
        "components": component_names(plugin),
        "requires": list(plugin.requires),
        "replaces": list(plugin.replaces),
        "stores_everything": plugin.store is not None,
        "has_tables": plugin.schema is not None,
        "settings": [
            {"name": item.name, "secret": item.is_secret, "character": item.is_character_setting} for item in variables
        ],
        "addresses": list(address_variables(plugin.settings)) if plugin.settings is not None else [],
        "world_settings": [{"name": item.name, "secret": item.secret} for item in plugin.world_settings],
        "network": NETWORK_NOTE,
        "missing": plugin.missing_settings(settings),
    }


def _use_lines(plugin: Plugin) -> Iterator[str]:
    kinds = component_names(plugin)
    uses = {
        "models": "gets prompts, and so the conversations, as the model for",
        "providers": "adds to prompts",
        "evaluators": "reads each message after its answer",
        "listeners": "is told of events",
        "services": "runs in the background",
        "workers": "runs tasks",
        "templates": "changes prompts",
    }
    for kind, use in uses.items():
        if kind in kinds:
            yield f"  {use}: {', '.join(kinds[kind])}"
    if plugin.requires:
        yield f"  requires the plugins: {', '.join(plugin.requires)}"
    if plugin.replaces:
        yield f"  replaces components of other plugins: {', '.join(plugin.replaces)}"
    if plugin.store is not None or plugin.schema is not None:
        yield "  stores: everything" if plugin.store is not None else "  stores: tables of its own in the database"


def _setting_lines(plugin: Plugin) -> Iterator[str]:
    if plugin.settings is not None:
        variables = list(list_variables(plugin.settings))
        names = [f"{item.name} (secret)" if item.is_secret else item.name for item in variables]
        yield f"  settings: {', '.join(names)}"
        if own := [item.name for item in variables if item.is_character_setting]:
            yield f"  a character's file may set: {', '.join(own)}"
        if addresses := address_variables(plugin.settings):
            yield f"  servers and files: as {', '.join(addresses)} name them"
    for item in plugin.world_settings:
        yield f"  setting of worlds {item.name}: {item.description}{' (secret)' if item.secret else ''}"


def _describe_action(spec: ActionSpec) -> str:
    return f"{EFFECTS[spec.effect]} ({spec.effect.value}); {_describe_authority(spec)}; for {_describe_role(spec.role)}"


def _describe_authority(spec: ActionSpec) -> str:
    authority = spec.authority
    if authority.kind is AuthorityKind.HARMLESS:
        return f"runs at once, since {shorten(authority.reason, MAX_REASON_LENGTH)}"
    if authority.kind is AuthorityKind.CONFIRMED:
        return "its asker must confirm it"
    default = ", as its author did not decide" if authority.is_default else ""
    return f"its asker must name or confirm it{default}"


def _describe_role(role: Role) -> str:
    return "everybody" if role is Role.NONE else f"the role {role.value} or higher"


def _load_plugin(name: str) -> Plugin | str:
    try:
        return find_plugin(name) or "it is no longer installed"
    except PluginError as error:
        return str(error)


def _off_reason(name: str, config: CharacterConfig) -> str:
    if name in bundled_names(PluginPurpose.FALLBACK_MODEL):
        return "another plugin provides a model"
    return f"{config.path.name} does not name it among its plugins"
