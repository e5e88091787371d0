"""New plugins and adapters from templates, and the projects they are: which module, which tests."""

import keyword
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from bot.cli.process.exit_codes import UsageError
from bot.errors import PluginError
from bot.plugin_system.imports import install_command
from bot.plugin_system.source import find_plugin_file

TEMPLATES = files("bot.cli").joinpath("templates")
PROJECT_FILE = "pyproject.toml"
NO_TESTS_COLLECTED = 5  # an exit code of pytest
# `python -m pytest`, but the folder is on the path only after the fixtures are loaded: its bot.py is not the core.
PYTEST = """
import os, sys, pytest

class FolderOnPath:
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        sys.path.insert(0, os.getcwd())

sys.exit(pytest.main(plugins=[FolderOnPath()]))
"""


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """Code that a command names: the path or name to load it by, its tests, and the folder in which they run."""

    name: str
    tests: tuple[Path, ...] = ()
    folder: Path = Path()


def render_templates(name: str, templates: Mapping[str, str], **words: str) -> dict[Path, str]:
    """Return the texts of new files by path; `templates` are the names of their templates by path."""
    values = {
        "name": name,
        "title": "".join(part.capitalize() for part in name.split("_")),
        "upper": name.upper(),
        "dashed": name.replace("_", "-"),
        **words,
    }
    return {
        Path(path): Template(TEMPLATES.joinpath(template).read_text(encoding="utf-8")).substitute(values)
        for path, template in templates.items()
    }


def check_new_name(name: str, kind: str, existing: list[str]) -> None:
    """Raise UsageError for a name that no module can have, or that is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is not a valid name of {kind}: use lower-case letters, digits and _")
    if name in existing:
        raise UsageError(f"{kind} named {name!r} exists already: choose another name")


def write_new_files(texts: Mapping[Path, str]) -> None:
    """Write new files, and the folders they need. Raises PluginError; no existing file is changed."""
    if existing_paths := [str(path) for path in texts if path.exists()]:
        raise PluginError(f"{' and '.join(existing_paths)} exist already and are not changed: choose another name")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PluginError(f"{path} cannot be written: {error.strerror or error}") from None


def find_target(name: str, group: str) -> CodeTarget:
    """Return what a name or path names: an installed name, a file, a package, or a project with an entry point.

    `group` is the group of entry points. Raises PluginError for a project that has none in it.
    """
    if "/" not in name and not name.endswith(".py"):
        return CodeTarget(name)
    name = name if name.startswith((".", "/", "~")) else f"./{name}"
    path = Path(name).expanduser()
    if (path / PROJECT_FILE).is_file():
        module = _entry_module(path / PROJECT_FILE, group)
        candidates = [folder / module.replace(".", "/") for folder in (path, path / "src")]
        location = next((place for place in candidates if find_plugin_file(place) is not None), candidates[0])
        prefix = "" if location.is_absolute() else "./"
        return CodeTarget(f"{prefix}{location}", _existing(path / "tests"), path)
    project = path.parent / PROJECT_FILE
    modules = _entry_modules(project, group) if project.is_file() else [path.stem]
    is_apart = path.stem not in (module.split(".")[-1] for module in modules)
    shared = () if is_apart else (path.parent / "tests",)  # else they are those of the project that it only lies in
    tests = _existing(path.parent / f"test_{path.stem}.py", path / "tests", *shared)
    return CodeTarget(name, tests, path.parent)


def run_pytest(target: CodeTarget) -> bool:
    """Run the tests beside the code in a process of their own; return whether they pass. Raises PluginError."""
    if not target.tests:
        return True
    if find_spec("pytest") is None:
        files = ", ".join(map(str, target.tests))
        raise PluginError(f"{files} need pytest, which is not installed: {install_command('testing')}")
    paths = [str(path.resolve()) for path in target.tests]
    command = [sys.executable, "-P", "-c", PYTEST, "-q", "-p", "no:cacheprovider", *paths]
    code = subprocess.run(command, cwd=target.folder, check=False).returncode
    return code in (0, NO_TESTS_COLLECTED)


def _existing(*paths: Path) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.exists())


def _entry_module(file: Path, group: str) -> str:
    modules = _entry_modules(file, group)
    if len(modules) != 1:
        raise PluginError(f"{file} must have one entry point in the group {group!r}, it has {len(modules)}")
    return modules[0]


def _entry_modules(file: Path, group: str) -> list[str]:
    """Return the modules of a project's entry points. Raises PluginError for a file that cannot be read."""
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        values = list(project.get("entry-points", {}).get(group, {}).values())
    except (OSError, ValueError, AttributeError) as error:
        raise PluginError(f"{file} cannot be read: {error}") from None
    return [value.partition(":")[0].strip() for value in values if isinstance(value, str)]
