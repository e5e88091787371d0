"""Load the characters named by `-c FILE` with their settings and plugins, and print notes on them.

Checks what a character file refers to: paths, adapters, settings, templates and their variables.

A path of a plugin that is missing or leads out of the file's folder is an error, and so is a plugin's broken
template. Other names that mean nothing here are notes, for they may be of another program.

The table of what of a character's file the description in the prompt holds, for chats and for feeds.

Which platforms are on, and why the others are off.
"""

import ast
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from os.path import normpath
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from uuid import UUID

import bot
import bot.store
from bot.adapter.adapter import RoomRuleError, lists_platform, parse_room_rules
from bot.characters import CHARACTER_SUFFIXES, Format, LoadedCharacter, Note, load_character, suggest_file
from bot.characters.conversion import ADAPTER_ALIASES, PATH_STARTS, PLATFORMS, SETTINGS_WITHOUT_EFFECT
from bot.characters.loader import FilePlaces
from bot.characters.source import text_version
from bot.cli.process.shutdown import UsageError, print_notice
from bot.cli.variables import CORE_GROUPS, find_settings_groups, known_variables
from bot.domain.character import AVATAR_SETTING, Character
from bot.errors import CharacterError, PluginError, SettingError, TemplateError
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import ReportedWarnings, configure_logging
from bot.models.types import ModelType
from bot.plugin_system import trust
from bot.plugin_system.loading import (
    ELIZAOS_PACKAGE,
    SCRIPT_SUFFIXES,
    PluginPurpose,
    adapter_names,
    bundled_names,
    find_adapter,
    find_adapters,
    load_local_adapter,
    load_plugins,
)
from bot.plugin_system.plugin import Plugin, check_templates, merge_templates
from bot.prompts.character_description import (
    MAX_DESCRIPTION_LENGTH,
    SectionUse,
    describe_character,
    describe_final_rules,
)
from bot.prompts.template_language import compile_template
from bot.prompts.templates import DEFAULTS, SYSTEM, TemplateProblem, find_problems
from bot.runtime.character_reload import AgentConfig
from bot.settings import (
    MIN_SECRET_LENGTH,
    NETWORK_VARIABLES,
    CoreSettings,
    Layer,
    Settings,
    find_unreadable_lines,
    load_settings,
)
from bot.store.ledger import ProcessRole
from bot.text import suggest, translate
from bot.user_texts import default_language

MAX_REFERENCE_NOTES = 40  # of one kind: each costs a search for the nearest name
SETTING_PATHS: tuple[tuple[str, ...], ...] = (("settings",), ("settings", "secrets"), ("secrets",))


def local_plugins(path: Path, loaded: LoadedCharacter) -> Iterator[tuple[tuple[str, int], str, Path]]:
    """Yield position, name and absolute path of each plugin and adapter that is named by its path."""
    folder = path.resolve().parent
    for key, names in (("plugins", loaded.character.plugins), ("adapters", loaded.character.adapters)):
        for index, name in enumerate(names):
            if name.startswith(PATH_STARTS) and Path(name).suffix not in SCRIPT_SUFFIXES:
                yield (key, index), name, Path(normpath(folder / Path(name).expanduser()))


def check_plugin_paths(path: Path, loaded: LoadedCharacter) -> None:
    """Raise CharacterError for paths of plugins that are missing or lead out of the character's folder."""
    folder = path.resolve().parent
    errors = []
    for position, name, location in local_plugins(path, loaded):
        problem, kind = "", position[0].removesuffix("s")
        file = trust.find_plugin_file(location)
        real_places = (location, location.resolve(), *([file.resolve()] if file else []))
        if not all(place.is_relative_to(folder) for place in real_places):
            problem = f"{name!r} is outside the character's folder, {folder}: move the {kind} into it, or install it"
        elif path.resolve().is_relative_to(trust.find_location(location) or location):
            problem = f"{kind} {name!r}: its folder holds the character's file: move its code into a folder of its own"
        elif file is None:
            parent = location.parent
            others = list(islice(parent.iterdir(), 1_000)) if parent.is_dir() else []
            names = [other.name.removesuffix(".py") for other in others if other.suffix == ".py" or other.is_dir()]
            hint = suggest(location.name, names, start="; ")
            problem = f"{kind} {name!r}: there is no {location}.py and no folder {location} with an __init__.py{hint}"
        if problem:
            errors.append(loaded.places.build_error(position, problem))
    if errors:
        raise CharacterError.combine(errors)


def check_character_templates(loaded: LoadedCharacter, plugins: Sequence[Plugin]) -> None:
    """Raise CharacterError for templates whose name or variable is a misspelling of a known one."""
    errors = [
        loaded.places.build_error(place, problem.message, variable=problem.variable)
        for place, problem in _template_problems(loaded, plugins)
        if problem.is_error
    ]
    if errors:
        raise CharacterError.combine(errors)


def check_room_rules(loaded: LoadedCharacter) -> None:
    """Raise CharacterError for a rule of a platform's rooms that cannot be read."""
    try:
        parse_room_rules(loaded.character)
    except RoomRuleError as error:
        raise loaded.places.build_error(("settings", *error.path), error.problem) from None


def read_local_plugins(path: Path, loaded: LoadedCharacter) -> list[trust.PluginSource]:
    """Return the code of each plugin that is named by its path. Raises ConfigError."""
    check_plugin_paths(path, loaded)
    return [trust.read_plugin_source(location, name) for _, name, location in local_plugins(path, loaded)]


def check_plugin_sources(path: Path, loaded: LoadedCharacter) -> None:
    """Raise PluginError for syntax errors and broken templates in plugins of the folder, which are not run."""
    for _, name, location in local_plugins(path, loaded):
        file = trust.find_plugin_file(location)
        if file is None:
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            raise PluginError(f"plugin {name!r} cannot be loaded: {file}{line}: {error}") from None
        for template, line_number, text in _literal_templates(tree):
            try:
                compile_template(text)
            except TemplateError as error:
                raise PluginError(f"plugin {name!r}: {file}:{line_number}: template {template!r}: {error}") from None


def add_reference_notes(path: Path, loaded: LoadedCharacter, plugins: Sequence[Plugin] = ()) -> LoadedCharacter:
    """Return the character with warnings about names that mean nothing here."""
    template_notes = (
        loaded.places.build_note(place, problem.message, variable=problem.variable)
        for place, problem in _template_problems(loaded, plugins)
    )
    kinds = (
        _adapter_notes(loaded),
        _knowledge_notes(path, loaded),
        template_notes,
        _setting_notes(loaded.places, plugins),
    )
    notes = [note for kind in kinds for note in islice(kind, MAX_REFERENCE_NOTES)]
    return replace(loaded, report=loaded.report.with_warnings(notes))


def _adapter_notes(loaded: LoadedCharacter) -> Iterator[Note]:
    names, keys = {*adapter_names(), *ADAPTER_ALIASES}, loaded.places.keys_of()
    field = "clients" if "clients" in keys and "adapters" not in keys else "adapters"
    for index, name in enumerate(loaded.character.adapters):
        if name not in names and not name.startswith(PATH_STARTS):
            message = f"{name}: no adapter is installed for this platform{suggest(name, names, start='; ')}"
            yield loaded.places.build_note((field, index), message)


def _knowledge_notes(path: Path, loaded: LoadedCharacter) -> Iterator[Note]:
    places, folder = loaded.places, path.resolve().parent
    for index, item in enumerate(loaded.character.knowledge):
        name = item.path or item.directory
        if item.content or not name:
            continue
        position = ("knowledge", index, "path" if item.path else "directory")
        try:
            location = (folder / name).resolve()
            exists = location.exists()
        except (OSError, ValueError, RuntimeError):
            yield places.build_note(position, f"{name!r} is no path that can be read")
            continue
        if not location.is_relative_to(folder):
            message = f"{name!r} is outside the character's folder, {folder}: no document is read until it is moved"
            yield places.build_note(position, message)
        elif not exists:
            yield places.build_note(position, f"{name!r}: there is no such file or folder{suggest_file(location)}")


def _template_problems(
    loaded: LoadedCharacter, plugins: Sequence[Plugin]
) -> Iterator[tuple[tuple[str, ...], TemplateProblem]]:
    """Yield what is wrong with each template and the system prompt, with its place; syntax is checked before."""
    known = {**DEFAULTS, **merge_templates(plugins)}
    variables = {name for plugin in plugins for name in plugin.template_variables}
    for name, text in loaded.character.templates.items():
        for problem in find_problems(name, text, known, variables):
            yield ("templates", name), problem
    if loaded.character.system:
        problems = find_problems(SYSTEM, loaded.character.system, {SYSTEM: ""}, variables)
        yield from ((("system",), replace(problem, is_error=False)) for problem in problems if problem.variable)


def _setting_notes(places: FilePlaces, plugins: Sequence[Plugin]) -> Iterator[Note]:
    """Yield notes on settings that nothing reads; on a secret only where its name resembles a known one."""
    keys = [
        (*path, key)
        for path in SETTING_PATHS
        for key in places.keys_of(*path)
        if key not in SETTINGS_WITHOUT_EFFECT and key != AVATAR_SETTING and not places.is_object(*path, key)
    ]
    keys += [("settings", key) for key in _list_groups(places) if key not in {*SETTINGS_WITHOUT_EFFECT, *PLATFORMS}]
    known = known_variables(plugins)
    if all(path[-1] in known for path in keys):
        return
    known |= known_variables((), find_settings_groups(imports_others=False)[0])  # also of what is not used
    allowed = sorted(variable.name for variable in known.values() if variable.is_character_setting)
    for path in keys:
        if path[-1] in known:
            continue
        successor = path[-1].replace("TWITTER_", "X_", 1)  # of elizaOS
        nearest = f"; here it is {successor}" if successor in allowed else suggest(path[-1], allowed, start="; ")
        if nearest or path[-2] != "secrets":
            yield places.build_note(path, f"no part of this bot reads a setting of this name{nearest}")


def _list_groups(places: FilePlaces) -> list[str]:
    """Return the names of the objects in the settings of a file, but for its secrets."""
    root = places.root.value
    settings = root["settings"].value if isinstance(root, dict) and "settings" in root else None
    members = settings.items() if isinstance(settings, dict) else ()
    return [key for key, node in members if key != "secrets" and isinstance(node.value, dict) and node.value]


def operator_setting_notes(loaded: LoadedCharacter, settings: Settings) -> Iterator[Note]:
    """Yield a note on each variable that the file sets although it belongs to the operator."""
    for name in settings.ignored_names[:MAX_REFERENCE_NOTES]:
        paths = ((*path, name) for path in SETTING_PATHS if name in loaded.places.keys_of(*path))
        message = "is ignored: only the operator sets it; if you want it, put it into .env"
        yield loaded.places.build_note(next(paths, ("settings", name)), message)


def _literal_templates(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Yield name, line and text of each template that a call names as `templates={"name": "text"}`."""
    texts = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for keyword in (keyword for call in calls for keyword in call.keywords if keyword.arg == "templates"):
        if not isinstance(keyword.value, ast.Dict):
            continue
        for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
            name, text = (_literal_text(node, texts) for node in (key, value))
            if name is not None and text is not None:
                yield name, value.lineno, text


def _literal_text(node: ast.expr | None, constants: Mapping[str, object]) -> str | None:
    value: object = None
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name):
        value = constants.get(node.id)
    return value if isinstance(value, str) else None


CHARACTERS = "characters"
ENV_FILE = Path(".env")
MAX_NOTES = 8


@dataclass(frozen=True, slots=True)
class CharacterConfig:
    """One character with its settings, its plugins, and notes about ignored or changed parts of its file.

    `adapters` are those that the file names by their paths, `added_adapters` the names of those that the run adds.
    `code` has a hash of the code of each plugin and adapter that has a path. `override` is a layer above the settings.
    `role` is what `bot run` does. `inactive` says why plugins are off whose code is broken, or that require such.
    """

    path: Path
    loaded: LoadedCharacter
    settings: Settings
    plugins: tuple[Plugin, ...]
    notes: tuple[str, ...] = ()
    adapters: Mapping[str, AdapterSpec] = field(default_factory=dict)
    added_adapters: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    override: Layer | None = None
    role: ProcessRole = ProcessRole.ALL
    inactive: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The character's name."""
        return self.loaded.character.name

    @property
    def agent_id(self) -> UUID:
        """The id of the agent, by the character's id or name."""
        return self.agent_config.agent_id

    @property
    def text_plugins(self) -> list[str]:
        """The plugins with a large text model, in order of preference."""
        return [
            plugin.name for plugin in self.plugins if any(model.type is ModelType.TEXT_LARGE for model in plugin.models)
        ]

    @property
    def has_model(self) -> bool:
        """Whether texts are written by a model, and not by what stands in for one."""
        return any(name not in bundled_names(PluginPurpose.FALLBACK_MODEL) for name in self.text_plugins)

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
            inactive=self.inactive,
        )

    def require_all_plugins(self) -> Self:
        """Return the configuration. Raises PluginError where broken code keeps a plugin off."""
        for name, cause in self.inactive.items():
            raise PluginError(f"plugin {name!r} is off: {cause}")
        return self

    @property
    def version(self) -> str:
        """A hash of the text of the file."""
        return text_version(self.loaded.places.source.text)

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
        return replace(self.agent_config, plugins=plugins, store=bot.store.InMemoryStore(), settings=settings)

    @property
    def idle_config(self) -> AgentConfig:
        """The configuration for one task on the character's own store, without the work of plugins beside it."""
        plugins = tuple(replace(item, workers=(), listeners=(), services=(), init=None) for item in self.plugins)
        return replace(self.agent_config, plugins=plugins, is_idle=True)

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
    """Return the path of the bundled character, in the language of the program where there is such a file."""
    package = Path(bot.__file__).parent
    folders = (package.parent / CHARACTERS, package / CHARACTERS)
    names = (f"default.{default_language()}.json", "default.json")
    candidates = (folder / name for folder in folders for name in names)
    existing_path = next((path for path in candidates if path.is_file()), None)
    if existing_path is None:
        raise CharacterError("the default character is missing from this installation: name one with -c FILE")
    return existing_path


def load_character_config(
    path: Path | None = None, override: Layer | None = None, *, is_isolated: bool = False
) -> CharacterConfig:
    """Load one character (default: the bundled one) with settings and plugins. Raises ConfigError.

    The layer `override` takes precedence over its settings. One that `is_isolated` has no settings of this machine.
    A SettingError names every wrong variable, as `bot doctor` does.
    """
    path = path or default_character()
    loaded = load_character(path)
    settings = _read_settings(loaded, override, is_isolated=is_isolated)
    try:
        return _load_config(path, loaded, settings, override)
    except SettingError as error:
        raise SettingError("\n".join(dict.fromkeys([*str(error).splitlines(), *_find_problems(settings)]))) from None


def _load_config(path: Path, loaded: LoadedCharacter, settings: Settings, override: Layer | None) -> CharacterConfig:
    settings.load(CoreSettings)
    check_plugin_paths(path, loaded)
    code: dict[str, str] = {}
    approve = _recording_approval(path, code)
    character, folder, is_foreign = loaded.character, path.resolve().parent, is_elizaos_file(loaded)
    found = load_plugins(character, settings, folder=folder, is_foreign_format=is_foreign, approve=approve)
    paths = [name for name in character.adapters if name.startswith(PATH_STARTS)]
    adapters = {name: load_local_adapter(name, folder, approve) for name in paths}
    check_templates(found.plugins)
    config = CharacterConfig(path, loaded, settings, found.plugins, found.notes, adapters, inactive=found.inactive)
    return _checked(replace(config, code=code, override=override))


def reload_character_config(config: CharacterConfig) -> CharacterConfig:
    """Read the file of a character that runs again, with the same plugins and adapters. No code is imported.

    Raises ConfigError for a file that could not be started with, and for code that is not trusted as it is now.
    """
    loaded = load_character(config.path)
    settings = _read_settings(loaded, config.override)
    settings.load(CoreSettings)
    code: dict[str, str] = {}
    approve = _recording_approval(config.path, code)
    for source in read_local_plugins(config.path, loaded):
        approve(source)
    config = _checked(replace(config, loaded=loaded, settings=settings, code=code))
    return config.with_adapters(config.added_adapters)


def _read_settings(loaded: LoadedCharacter, override: Layer | None, *, is_isolated: bool = False) -> Settings:
    if is_isolated:
        settings = load_settings(loaded.character.settings, loaded.secrets, environment={}, env_file=Path(os.devnull))
        settings = settings.with_models(*(group.model for group in CORE_GROUPS))
    else:
        settings = read_character_settings(loaded)
        export_network_settings(settings)
    return settings.with_layer(override) if override else settings


def _find_problems(settings: Settings, plugins: Sequence[Plugin] = ()) -> list[str]:
    """Return what is wrong with the variables of all parts, whether they are used or not, as `bot doctor` does."""
    models = [group.model for group in find_settings_groups(plugins)[0]]
    return settings.with_models(*models).find_problems(models)


def check_settings(configs: Sequence[CharacterConfig], adapters: Sequence[AdapterSpec]) -> None:
    """Raise SettingError that names every wrong variable, where one of the core or of these adapters is wrong."""
    models = [*(group.model for group in CORE_GROUPS), *(spec.settings for spec in adapters)]
    problems: dict[str, None] = {}
    for config in configs:
        if own := config.settings.find_problems(models):
            problems |= dict.fromkeys([*own, *_find_problems(config.settings, config.plugins)])
    if problems:
        raise SettingError("\n".join(problems))


def _recording_approval(path: Path, code: dict[str, str]) -> trust.Approve:
    """Return a function that raises PluginError for code that is not trusted, and notes the hash of all other."""
    approve = trusted_plugins().approval(path)

    def approve_and_record(source: trust.PluginSource) -> None:
        approve(source)
        code[source.name] = source.digest

    return approve_and_record


def _checked(config: CharacterConfig) -> CharacterConfig:
    """Return the character with its settings declared, and the names of adapters instead of their paths.

    Raises ConfigError for settings of plugins and for templates that cannot be used.
    """
    loaded, plugins = config.loaded, config.plugins
    settings = config.settings.with_models(*(spec.settings for spec in config.adapters.values()))
    settings = declare_settings(settings, plugins)
    if problems := settings.find_problems(plugin.settings for plugin in plugins if plugin.settings is not None):
        raise SettingError("\n".join(problems))
    check_character_templates(loaded, plugins)
    loaded = add_reference_notes(config.path, loaded, plugins)
    local = {path: spec.name for path, spec in config.adapters.items()}
    names = tuple(local.get(name, name) for name in loaded.character.adapters)
    loaded = replace(loaded, character=loaded.character.model_copy(update={"adapters": names}))
    return replace(config, loaded=loaded, settings=settings)


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


def trusted_plugins() -> trust.TrustedPlugins:
    """Return what the operator trusts, in the operator's data folder. Raises SettingError if that is set wrongly."""
    return trust.TrustedPlugins(load_settings().load(CoreSettings).bot_data_dir)


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
    return any(loaded.places.is_object("plugins", index) for index in range(loaded.places.length("plugins")))


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


def log_as_configured(
    configs: Sequence[CharacterConfig], specs: Sequence[AdapterSpec] = (), *, default_level: str = ""
) -> AbstractContextManager[None]:
    """Log during the block as the first character's settings say, without the secrets of the characters and adapters.

    `default_level` is for where LOG_LEVEL is not set.
    """
    settings = configs[0].settings
    core = settings.load(CoreSettings)
    models = [spec.settings for spec in specs]
    secrets = {secret for config in configs for secret in config.secrets | config.settings.secrets(*models)}
    level = core.log_level if settings.get("LOG_LEVEL") else default_level or core.log_level
    reported = reported_warnings(configs)
    return configure_logging(level=level, format=core.log_format, secrets=secrets, reported=reported)


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
            print_notice(f"{config.path.name}: {note}")
        if len(notes) > MAX_NOTES:
            remaining = len(notes) - MAX_NOTES
            print_notice(f"{config.path.name}: and {remaining} more: bot character check {config.path}")


def print_plugin_notices(configs: Sequence[CharacterConfig]) -> None:
    """Print what plugins tell the operator at each start."""
    for config in configs:
        for plugin in config.plugins:
            if plugin.notice:
                print_notice(translate(plugin.notice, name=config.name))


def _notes(config: CharacterConfig) -> Iterator[str]:
    if config.loaded.report.secrets:
        lines = ", ".join(str(note.line) for note in config.loaded.report.secrets)
        yield f"it contains secrets (line {lines}): move them to .env; everyone with the file can read them"
    yield from ignored_settings_note(config.settings)
    for note in config.loaded.report.warnings:
        yield str(note)
    yield from config.notes


KNOWLEDGE_PROVIDER = "KNOWLEDGE"  # searches the knowledge, which is then not in the description
EXAMPLE_SEED = "any room"


def measure_sections(character: Character, plugins: Sequence[Plugin] = ()) -> dict[str, tuple[SectionUse, ...]]:
    """Return what the description for one room holds of each section, in chats and in feeds."""
    has_index = any(provider.spec.name == KNOWLEDGE_PROVIDER for plugin in plugins for provider in plugin.providers)
    describe = partial(describe_character, character, seed=EXAMPLE_SEED, has_knowledge_index=has_index)
    return {
        place: (*describe(is_feed=is_feed).sections, *describe_final_rules(character).sections)
        for place, is_feed in (("chat", False), ("feed", True))
    }


def format_sections(sections: dict[str, tuple[SectionUse, ...]]) -> list[str]:
    """Return the table as lines; none for a character with nothing but a name."""
    rows: dict[str, dict[str, str]] = {}
    for place, uses in sections.items():
        for use in uses:
            is_cut = use.kept == use.count and not use.is_whole
            text = "{kept} of {count}, cut" if is_cut else "{kept} of {count}"
            rows.setdefault(use.name, {})[place] = translate(text, kept=use.kept, count=use.count)
    if not rows:
        return []
    lines = [f"{translate('section'):<16} {translate('chat'):<16} {translate('feed')}"]
    lines += [f"{name:<16} {row.get('chat', '-'):<16} {row.get('feed', '-')}" for name, row in rows.items()]
    if not all(use.is_whole for uses in sections.values() for use in uses):
        text = (
            "at most {length} characters in all; every room and every day another choice of the lines of bio, lore, "
            "adjectives and topics"
        )
        lines.append(translate(text, length=MAX_DESCRIPTION_LENGTH))
    return lines


def sections_to_json(sections: dict[str, tuple[SectionUse, ...]]) -> dict[str, Any]:
    """Return the table as JSON, lengths in characters."""
    document: dict[str, dict[str, Any]] = {place: {} for place in sections}
    for place, uses in sections.items():
        for use in uses:
            lengths = {"keptCharacters": use.kept_length, "characters": use.length}
            document[place][use.name] = {"kept": use.kept, "count": use.count, **lengths}
    return document


WEB = "web"
CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform, its adapter if installed, why it is off (empty if it is on), and the emulator's URL."""

    name: str
    spec: AdapterSpec | None
    off_reason: str = ""
    emulator_url: str = ""

    @property
    def is_on(self) -> bool:
        """Whether the platform will be connected."""
        return not self.off_reason


def list_platforms(
    configs: Sequence[CharacterConfig],
    only: Collection[str] = (),
    emulator_urls: Mapping[str, str] = MappingProxyType({}),
) -> list[Platform]:
    """Return the state of every installed platform, and load the adapters of those that are on.

    With `only`, just those are on. With `emulator_urls`, just the emulated platforms and the web page are.
    """
    local = {spec.name: spec for config in configs for spec in config.adapters.values()}
    adapters = {**find_adapters(), **local}
    return [
        _platform(name, adapters[name], configs, only, emulator_urls, is_local=name in local)
        for name in _sort_platforms(adapters)
    ]


def parse_platforms(text: str) -> list[str]:
    """Parse the value of `--only`. Raises UsageError for an unknown platform."""
    available = _sort_platforms(adapter_names())
    if CONSOLE in _split_names(text):
        raise UsageError("--only: use `bot chat` for the console")
    return _check_names(text, available, "--only", "is not a platform")


def parse_emulators(text: str) -> list[AdapterSpec]:
    """Parse the value of `--emulate`. Raises UsageError for a platform without an emulator."""
    adapters = find_adapters()
    for name in _split_names(text):
        if isinstance(problem := adapters.get(name), str):
            raise PluginError(f"{name} cannot be emulated: {problem}")
    available = {name: spec for name, spec in adapters.items() if isinstance(spec, AdapterSpec) and spec.emulator}
    return [
        available[name]
        for name in _check_names(text, list(available), "--emulate", "is not a platform with an emulator")
    ]


def _sort_platforms(names: Iterable[str]) -> list[str]:
    """Return the platforms that `bot run` connects, the page first."""
    return sorted((name for name in names if name != CONSOLE), key=lambda name: name != WEB)


def _split_names(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return list(dict.fromkeys(ADAPTER_ALIASES.get(name, name) for name in names))


def _check_names(text: str, available: Sequence[str], option: str, problem: str) -> list[str]:
    names = _split_names(text)
    for name in names:
        if name not in available:
            hint = suggest(name, available, otherwise=f"available: {', '.join(available)}")
            raise UsageError(f"{option}: {name!r} {problem}: {hint}")
    if not names:
        raise UsageError(f"{option} needs one or more of {','.join(available)}")
    return names


def _platform(
    name: str,
    adapter: AdapterSpec | str,
    configs: Sequence[CharacterConfig],
    only: Collection[str],
    emulator_urls: Mapping[str, str],
    *,
    is_local: bool,
) -> Platform:
    spec = adapter if isinstance(adapter, AdapterSpec) else None
    if only and name not in only:
        return Platform(name, spec, f"not among --only {','.join(only)}")
    if emulator_urls and name not in (WEB, *emulator_urls):
        return Platform(name, spec, "not emulated: an emulated run connects to no real platform")
    if spec is None:
        return Platform(name, None, str(adapter))
    lists = ([name for name in spec.needs if name not in config.settings] for config in configs)
    if missing := min(lists, key=len, default=list(spec.needs)):  # of the character that lacks the fewest
        return Platform(
            name, spec, f"{translate(' and ').join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        )
    is_listed = any(lists_platform(config.loaded.character, name) for config in configs)
    if not only and name != WEB and not is_listed:
        return Platform(name, spec, "the character's file names only other platforms (`adapters`)")
    # Imports its libraries now: later it would block the event loop.
    loaded_adapter = adapter if is_local else find_adapter(name)
    if isinstance(loaded_adapter, str):
        return Platform(name, None, loaded_adapter)
    return Platform(name, loaded_adapter, emulator_url=emulator_urls.get(name, ""))
