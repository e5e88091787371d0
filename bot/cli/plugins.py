"""`PluginIndex`: the plugins that can be added, as `plugins.json` and the list at REGISTRY_URL describe them.

What stands in a list of others is hostile: only entries of the expected form are used. No text in them can change
a terminal, and no name can be anything else than one argument of the installer.

What people are shown of plugins: cards of those that are installed or can be added, and what one may do.
"""

import asyncio
import importlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from yarl import URL

import bot
from bot.cli.characters import CharacterConfig
from bot.cli.process.shutdown import explain_os_error
from bot.cli.variables import list_variables
from bot.domain.character import ActionSpec, Effect
from bot.domain.environment import AuthorityKind, Role
from bot.errors import FetchError, PluginError, SettingError
from bot.http import LOOPBACK_HOSTS
from bot.installation import DISTRIBUTION, find_distribution, has_extra, install_command
from bot.plugin_system import loading
from bot.plugin_system.plugin import MAX_API, MIN_API, Plugin
from bot.settings import CoreSettings, Settings, address_variables
from bot.text import is_blank, shorten, strip_terminal_codes

FILE_NAME = "plugins.json"
VARIABLE = "REGISTRY_URL"
MAX_INDEX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 10_000
MAX_NOTES = 3
FETCH_TIMEOUT = 20.0  # seconds
URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # of more than one letter: `C:` is a drive


def _check_visible(text: str) -> str:
    if strip_terminal_codes(text) != text or is_blank(text):
        raise ValueError("it is empty, or contains characters that cannot be seen")
    return text


def _check_source(text: str) -> str:
    if not text.startswith("https://"):
        raise ValueError("it must be an address that begins with https://")
    return text


Visible = AfterValidator(_check_visible)


class IndexEntry(BaseModel):
    """One plugin of a list; `api` is the version of the plugin API that it works with, or a range such as `1-2`.

    `package` is the distribution that brings it, with the extras that it needs; `source` is where its code can
    be read: a folder of this distribution for a bundled plugin.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)
    package: str = Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9][A-Za-z0-9_-]*(,[A-Za-z0-9][A-Za-z0-9_-]*)*\])?$",
        max_length=128,
    )
    description: Annotated[str, Visible] = Field(max_length=400)
    tags: tuple[Annotated[str, Visible, Field(max_length=40)], ...] = Field((), max_length=20)
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.!+_-]*$", max_length=64)
    api: str = Field(pattern=r"^[0-9]{1,3}(-[0-9]{1,3})?$")
    source: Annotated[str, Visible] = Field(max_length=300)
    stars: int | None = Field(None, ge=0, le=1_000_000_000)

    @property
    def distribution(self) -> str:
        """The name of the distribution, in the form in which names are compared."""
        return normalize_distribution(self.package.partition("[")[0])

    @property
    def extra(self) -> str:
        """The extras of the distribution that it needs, separated by commas; empty for none."""
        return self.package.partition("[")[2].rstrip("]")

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with this distribution."""
        return self.distribution == DISTRIBUTION

    @property
    def requirement(self) -> str:
        """The argument of an installer: the package in the version that the list describes."""
        return f"{self.package}=={self.version}"

    @property
    def incompatibility(self) -> str:
        """Why it does not work with the plugin API of this version; empty if it does."""
        first, _, last = self.api.partition("-")
        if int(first) <= MAX_API and int(last or first) >= MIN_API:
            return ""
        supported = str(MAX_API) if MIN_API == MAX_API else f"{MIN_API} to {MAX_API}"
        return f"it needs plugin API {self.api}, and this version supports {supported}"

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether each word stands in its name, package, description or tags, in any case."""
        text = "\n".join((self.name, self.package, self.description, *self.tags)).casefold()
        return all(word.casefold() in text for word in words)


class _ForeignEntry(IndexEntry):
    source: Annotated[str, Visible, AfterValidator(_check_source)] = Field(max_length=300)


class _IndexFile(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    plugins: list[Any] = Field(max_length=MAX_ENTRIES)


@dataclass(frozen=True, slots=True)
class PluginIndex:
    """The plugins of all lists: those with the most stars first, then by name; and notes on what was left out."""

    entries: tuple[IndexEntry, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> IndexEntry | None:
        """Return the plugin of this name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def search(self, words: Sequence[str]) -> "PluginIndex":
        """Return the plugins that match all words."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.matches(words)))


def load_bundled_index() -> PluginIndex:
    """Return the list that comes with this distribution: inside the code in a wheel, next to it in a checkout."""
    package = Path(bot.__file__).parent
    path = next((file for file in (package / FILE_NAME, package.parent / FILE_NAME) if file.is_file()), None)
    if path is None:
        raise PluginError(f"{FILE_NAME} is missing from this installation: install Greenroom again")
    entries = _parse_file(path.read_bytes(), str(path)).plugins
    return _build_index([IndexEntry.model_validate(entry) for entry in entries])


def load_index(settings: Settings) -> PluginIndex:
    """Return the bundled list together with the one at REGISTRY_URL, if that is set.

    Raises SettingError for a list that is none, FetchError for one that cannot be reached.
    """
    bundled = load_bundled_index()
    address = settings.load(CoreSettings).registry_url.strip()
    if not address:
        return bundled
    content = asyncio.run(_fetch(address, settings)) if URL_SCHEME.match(address) else _read(Path(address))
    entries: dict[str, IndexEntry] = {entry.name: entry for entry in bundled.entries}
    problems: list[str] = []
    for number, item in enumerate(_parse_file(content, VARIABLE).plugins, 1):
        try:
            entry = _ForeignEntry.model_validate(item)
        except ValidationError as error:
            problems.append(f"entry {number} is left out: {_describe(error)}")
            continue
        if entry.is_bundled:
            problems.append(f"entry {number} is left out: {DISTRIBUTION} itself is described by its own list only")
        elif entries.setdefault(entry.name, entry) is not entry:
            problems.append(f"entry {number} is left out: there is another plugin called {entry.name!r}")
    if len(problems) > MAX_NOTES:
        problems[MAX_NOTES:] = [f"and {len(problems) - MAX_NOTES} more are left out"]
    return _build_index(entries.values(), tuple(f"{VARIABLE}: {problem}" for problem in problems))


def normalize_distribution(name: str) -> str:
    """Return the name of a distribution in the form in which such names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build_index(entries: Iterable[IndexEntry], notes: tuple[str, ...] = ()) -> PluginIndex:
    return PluginIndex(tuple(sorted(entries, key=lambda entry: (-(entry.stars or 0), entry.name))), notes)


def _parse_file(content: bytes, label: str) -> _IndexFile:
    try:
        return _IndexFile.model_validate_json(content)
    except ValidationError as error:
        raise SettingError(
            f"{label}: it is not a list of plugins: {_describe(error)}; "
            "docs/writing-a-plugin.md shows the form that it must have"
        ) from None


def _describe(error: ValidationError) -> str:
    """Return the first problem. It names no value and no key that is not one of ours."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = "".join(f"{step}: " for step in problem["loc"] if step in IndexEntry.model_fields or step == "plugins")
    return strip_terminal_codes(f"{place}{problem['msg']}")


def _read(path: Path) -> bytes:
    path = path.expanduser()
    if not path.is_file():
        raise SettingError(f"{VARIABLE}: there is no file {path}: correct the variable, or remove it")
    with explain_os_error(SettingError, f"{VARIABLE}: {path} cannot be read"), path.open("rb") as file:
        content = file.read(MAX_INDEX_BYTES + 1)
    if len(content) > MAX_INDEX_BYTES:
        raise SettingError(f"{VARIABLE}: {path} is larger than {MAX_INDEX_BYTES} bytes: it is no list of plugins")
    return content


async def _fetch(address: str, settings: Settings) -> bytes:
    from bot.fetch.client import Fetcher  # here, because help needs no HTTP client

    try:
        url = URL(address)
    except ValueError:
        url = URL()
    is_local = url.scheme == "http" and (url.host or "") in {host.strip("[]") for host in LOOPBACK_HOSTS}
    if not url.host or (url.scheme != "https" and not is_local):
        raise SettingError(f"{VARIABLE} must be an address that begins with https://, or the path of a file")
    environment = settings.network_environment()
    try:
        async with Fetcher(environment=environment, max_bytes=MAX_INDEX_BYTES, timeout=FETCH_TIMEOUT) as fetcher:
            return (await fetcher.get(address, trusted_origin=address)).body
    except FetchError as error:
        raise FetchError(f"{VARIABLE}: {error}") from None


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
    """One installed plugin: where it comes from, and why a character does not use it (`reason`; empty if it does).

    `missing` is the setting that it needs and that is not set, `version` that of its distribution, `target` its entry
    point in another distribution, `install` the command that installs the packages of a bundled one, if they are
    missing. Of one that `is_broken` no code could be loaded.
    """

    name: str
    reason: str = ""
    missing: str = ""
    description: str = ""
    package: str = ""
    version: str = ""
    api: str = ""
    tags: Sequence[str] = ()
    source: str = ""
    components: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Sequence[str] = ()
    target: str = ""
    install: str = ""
    is_broken: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the card for the terminal; the text of a plugin's author may contain terminal codes."""
        if self.is_broken:
            yield f"{self.name:<12} off  {self.reason}"
            return
        yield f"{self.name:<12} {'off' if self.reason else 'on '}  {self.description}"
        margin = " " * 17
        if self.reason:
            yield f"{margin} off because {self.reason}"
        if self.target:
            yield f"{margin} installed with {self.package} {self.version}: {self.target}"
        elif self.package:
            yield f"{margin} package: {self.package} {self.version}"
        if self.tags:
            yield f"{margin} tags: {format_tags(self.tags)}"
        for kind, names in (*self.components.items(), ("settings", self.settings)):
            if names:
                yield f"{margin} {kind}: {', '.join(names)}"

    def row(self) -> tuple[str, ...]:
        """Return the card as a row of a table: name, state, description, and why it is off."""
        return (self.name, "off" if self.reason else "on", self.description, self.reason)

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON."""
        hidden = ("target", "install", "is_broken")
        return {"on": not self.reason, **{name: item for name, item in asdict(self).items() if name not in hidden}}


def list_cards(config: CharacterConfig, *, only_used: bool = False) -> Iterator[PluginCard]:
    """Yield a card for each installed plugin, and for those that the character names by path, broken ones included.

    With `only_used` those are left out that the character does not use, so that their code is not imported;
    `describe_unused_plugins` tells of them.
    """
    enabled = {plugin.name: plugin for plugin in config.plugins}
    index = load_bundled_index()
    used = dict.fromkeys([*enabled, *config.inactive])
    for name in used if only_used else dict.fromkeys([*loading.plugin_names(), *used]):
        card = _build_card(name, index.find(name))
        found = config.inactive.get(name) or enabled.get(name) or find_plugin_or_reason(name)
        if isinstance(found, str):
            yield replace(card, reason=found, is_broken=True)
            continue
        missing = "" if name in enabled else found.why_off(config.settings)
        yield replace(
            card,
            reason="" if name in enabled else _off_reason(name, config, missing),
            missing=missing,
            description=found.description,
            api=found.api,
            components=component_names(found),
            settings=[item.name for item in list_variables(found.settings)],
        )


def describe_unused_plugins(config: CharacterConfig) -> Iterator[PluginCard]:
    """Yield a card for each installed plugin that the character does not use.

    None is imported: the bundled ones are described by a file, of another one only its distribution is known.
    """
    index, descriptions = load_bundled_index(), loading.bundled_descriptions()
    used = {*(plugin.name for plugin in config.plugins), *config.inactive}
    rows = {row.name: row for row in loading.bundled_plugins()}
    for name in loading.plugin_names():
        entry = index.find(name)
        card = _build_card(name, entry)
        if name in used:
            continue
        if name not in rows or entry is None:
            found = find_distribution(card.package) if card.package else None
            description = (found.metadata["Summary"] if found is not None else None) or ""
            yield replace(card, reason=_off_reason(name, config), description=description)
            continue
        described = descriptions[name]
        is_missing = bool(rows[name].settings) and not rows[name].is_enabled(config.settings)
        missing = described["missing"] if is_missing else ""
        yield replace(
            card,
            reason=_off_reason(name, config, missing),
            missing=missing,
            description=described["description"],
            api=described["api"],
            components=described["components"],
            settings=[item["name"] for item in described["variables"]],
            install="" if has_extra(entry.extra) else install_command(entry.extra),
        )


def _build_card(name: str, entry: IndexEntry | None) -> PluginCard:
    """Return the card of a plugin with what is known of its distribution; `entry` is that of the bundled list."""
    if entry is not None and entry.is_bundled:
        version = importlib.metadata.version(DISTRIBUTION)
        return PluginCard(name, package=entry.package, version=version, tags=entry.tags, source=entry.source)
    package, version, target = find_origin(name)
    return PluginCard(name, package=package, version=version, target=target)


def describe_bundled_plugins() -> str:
    """Return the text of the file that `bundled_descriptions` reads, made from the plugins."""
    parts = []
    for name in sorted(row.name for row in loading.bundled_plugins()):
        plugin = loading.find_plugin(name)
        assert plugin is not None
        known = {"description": plugin.description, "api": plugin.api, "missing": plugin.why_off(Settings())}
        head = json.dumps({**known, "components": component_names(plugin)}, ensure_ascii=False)
        variables = [json.dumps(asdict(item), ensure_ascii=False) for item in list_variables(plugin.settings)]
        lines = ",\n".join(variables)  # easy to merge
        parts.append(f'"{name}": {head[:-1]}, "variables": [\n{lines}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def find_origin(name: str) -> tuple[str, str, str]:
    """Return distribution, version and entry point of a plugin of others; empty texts for any other."""
    for point in importlib.metadata.entry_points(group=loading.PLUGIN_GROUP, name=name):
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
        "filters": [f"{component.spec.name} ({component.spec.direction})" for component in plugin.filters],
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


def permission_lines(plugin: Plugin, settings: Settings) -> Iterator[str]:
    """Yield what a plugin may do where a character names it, as far as it declares that."""
    package, version, _ = find_origin(plugin.name)
    yield f"{plugin.name}: {plugin.description}"
    yield f"  package: {package} {version}" if package else f"  plugin API: {plugin.api}"
    for action in plugin.actions:
        spec, condition = action.spec, ", where its own condition holds" if action.when is not None else ""
        effect, authority = f"{EFFECTS[spec.effect]} ({spec.effect.value})", _describe_authority(spec)
        yield f"  action {spec.name}: {effect}; {authority}; for {_describe_role(spec.role)}{condition}"
    for command in plugin.commands:
        yield f"  command /{command.spec.name}: for {_describe_role(command.spec.role)}"
    for item in plugin.routes:
        signed = f", signed with {item.signature.setting}" if item.signature is not None else ""
        yield f"  route {item.method} /plugins/{plugin.name}{item.path}: scope {item.scope.value}{signed}"
    yield from _use_lines(plugin)
    yield from _setting_lines(plugin)
    yield f"  network: {NETWORK_NOTE}"
    if plugin.privacy_statement is not None and not plugin.why_off(settings):
        yield f"  privacy: {plugin.privacy_statement(settings)}"
    if missing := plugin.why_off(settings):
        yield f"  off until: {missing}"


def permissions_to_json(plugin: Plugin, settings: Settings) -> dict[str, Any]:
    """Return what a plugin may do as JSON, as `permission_lines` tells it."""
    package, version, _ = find_origin(plugin.name)
    variables = list(list_variables(plugin.settings))
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
        "missing": plugin.why_off(settings),
    }


def _use_lines(plugin: Plugin) -> Iterator[str]:
    kinds = component_names(plugin)
    uses = {
        "models": "gets prompts, and so the conversations, as the model for",
        "providers": "adds to prompts",
        "evaluators": "reads each message after its answer",
        "filters": "may replace, hold and stop messages (in) and replies (out)",
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


def find_plugin_or_reason(name: str) -> Plugin | str:
    """Return an installed plugin, or why there is none."""
    try:
        return loading.find_plugin(name) or "it is no longer installed"
    except PluginError as error:
        return str(error)


def _off_reason(name: str, config: CharacterConfig, missing: str = "") -> str:
    if missing:
        return f"a setting is missing: {missing}"
    if name in loading.bundled_names(loading.PluginPurpose.FALLBACK_MODEL):
        return "another plugin provides a model"
    return f"{config.path.name} does not name it among its plugins"
