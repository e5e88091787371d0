"""Checks what a character file refers to: paths, adapters, settings, templates and their variables.

A path of a plugin that is missing or leads out of the file's folder is an error, and so is a plugin's broken
template. Other names that mean nothing here are notes, for they may be of another program.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from os.path import normpath
from pathlib import Path

from bot.adapter.room_rules import RoomRuleError, parse_room_rules
from bot.characters import LoadedCharacter, Note, suggest_file
from bot.characters.elizaos_names import ADAPTER_ALIASES, PATH_STARTS, SETTINGS_WITHOUT_EFFECT
from bot.characters.places import FilePlaces
from bot.cli.variables import find_settings_groups, known_variables
from bot.domain.character import AVATAR_SETTING
from bot.errors import CharacterError, PluginError, TemplateError
from bot.plugin_system.loading import SCRIPT_SUFFIXES, adapter_names
from bot.plugin_system.plugin import Plugin, merge_templates
from bot.plugin_system.source import PluginSource, find_location, find_plugin_file, read_plugin_source
from bot.prompts.template_parser import compile_template
from bot.prompts.templates import DEFAULTS, SYSTEM, TemplateProblem, find_problems
from bot.settings import Settings
from bot.text import suggest

MAX_NOTES = 40  # of one kind: each costs a search for the nearest name
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
        if not _is_inside(location, folder):
            problem = f"{name!r} is outside the character's folder, {folder}: move the {kind} into it, or install it"
        elif path.resolve().is_relative_to(find_location(location) or location):
            problem = f"{kind} {name!r}: its folder holds the character's file: move its code into a folder of its own"
        elif find_plugin_file(location) is None:
            hint = suggest(location.name, _python_names(location.parent), start="; ")
            problem = f"{kind} {name!r}: there is no {location}.py and no folder {location} with an __init__.py{hint}"
        if problem:
            errors.append(_error_at(path, loaded, position, problem))
    if errors:
        raise CharacterError.combine(errors)


def check_character_templates(path: Path, loaded: LoadedCharacter, plugins: Sequence[Plugin]) -> None:
    """Raise CharacterError for templates whose name or variable is a misspelling of a known one."""
    problems = _template_problems(loaded, plugins)
    errors = [
        _error_at(path, loaded, place, problem.message, variable=problem.variable)
        for place, problem in problems
        if problem.is_error
    ]
    if errors:
        raise CharacterError.combine(errors)


def check_room_rules(path: Path, loaded: LoadedCharacter) -> None:
    """Raise CharacterError for a rule of a platform's rooms that cannot be read."""
    try:
        parse_room_rules(loaded.character)
    except RoomRuleError as error:
        raise _error_at(path, loaded, ("settings", *error.path), error.problem) from None


def read_local_plugins(path: Path, loaded: LoadedCharacter) -> list[PluginSource]:
    """Return the code of each plugin that is named by its path. Raises ConfigError."""
    check_plugin_paths(path, loaded)
    return [read_plugin_source(location, name) for _, name, location in local_plugins(path, loaded)]


def check_plugin_sources(path: Path, loaded: LoadedCharacter) -> None:
    """Raise PluginError for syntax errors and broken templates in plugins of the folder, which are not run."""
    for _, name, location in local_plugins(path, loaded):
        file = find_plugin_file(location)
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
    if (places := loaded.places) is None:
        return loaded
    notes = [
        *islice(_adapter_notes(loaded, places), MAX_NOTES),
        *islice(_knowledge_notes(path, loaded, places), MAX_NOTES),
        *islice(_template_notes(loaded, places, plugins), MAX_NOTES),
        *islice(_setting_notes(places, plugins), MAX_NOTES),
    ]
    return replace(loaded, report=loaded.report.with_warnings(notes))


def _adapter_notes(loaded: LoadedCharacter, places: FilePlaces) -> Iterator[Note]:
    names = {*adapter_names(), *ADAPTER_ALIASES}
    field = "clients" if "clients" in places.keys_of() and "adapters" not in places.keys_of() else "adapters"
    for index, name in enumerate(loaded.character.adapters):
        if name not in names and not name.startswith(PATH_STARTS):
            message = f"{name}: no adapter is installed for this platform{suggest(name, names, start='; ')}"
            yield places.build_note((field, index), message)


def _knowledge_notes(path: Path, loaded: LoadedCharacter, places: FilePlaces) -> Iterator[Note]:
    folder = path.resolve().parent
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


def _template_notes(loaded: LoadedCharacter, places: FilePlaces, plugins: Sequence[Plugin]) -> Iterator[Note]:
    for place, problem in _template_problems(loaded, plugins):
        yield places.build_note(place, problem.message, variable=problem.variable)


def _setting_notes(places: FilePlaces, plugins: Sequence[Plugin]) -> Iterator[Note]:
    """Yield notes on settings that nothing reads; on a secret only where its name resembles a known one."""
    keys = [
        (*path, key)
        for path in SETTING_PATHS
        for key in places.keys_of(*path)
        if key not in SETTINGS_WITHOUT_EFFECT and key != AVATAR_SETTING and not places.is_object(*path, key)
    ]
    known = known_variables(plugins)
    if all(path[-1] in known for path in keys):
        return
    known |= known_variables((), find_settings_groups(imports_others=False)[0])  # also of what is not used
    allowed = sorted(variable.name for variable in known.values() if variable.is_character_setting)
    for path in keys:
        if path[-1] in known:
            continue
        nearest = suggest(path[-1], allowed, start="; ")
        if nearest or path[-2] != "secrets":
            yield places.build_note(path, f"no part of this bot reads a setting of this name{nearest}")


def operator_setting_notes(loaded: LoadedCharacter, settings: Settings) -> Iterator[Note]:
    """Yield a note on each variable that the file sets although it belongs to the operator."""
    if (places := loaded.places) is None:
        return
    for name in settings.ignored_names[:MAX_NOTES]:
        paths = ((*path, name) for path in SETTING_PATHS if name in places.keys_of(*path))
        message = "is ignored: only the operator sets it; if you want it, put it into .env"
        yield places.build_note(next(paths, ("settings", name)), message)


def _is_inside(location: Path, folder: Path) -> bool:
    """Return whether a plugin lies in a folder, also after symbolic links are followed."""
    file = find_plugin_file(location)
    places = (location, location.resolve(), *([file.resolve()] if file else []))
    return all(place.is_relative_to(folder) for place in places)


def _error_at(
    path: Path, loaded: LoadedCharacter, position: tuple[str | int, ...], message: str, *, variable: str = ""
) -> CharacterError:
    if loaded.places is None:
        return CharacterError(f"{path}: {message}")
    return loaded.places.build_error(position, message, variable=variable)


def _names(folder: Path) -> list[str]:
    return [file.name for file in islice(folder.iterdir(), 1_000)] if folder.is_dir() else []


def _python_names(folder: Path) -> list[str]:
    return [name.removesuffix(".py") for name in _names(folder) if name.endswith(".py") or (folder / name).is_dir()]


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
