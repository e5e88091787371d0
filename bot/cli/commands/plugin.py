"""List, check, test or create plugins."""

import argparse
import asyncio
import importlib.metadata
import importlib.util
import keyword
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from bot.cli.characters import CharacterConfig, add_character_option, load_character_config, trusted_plugins
from bot.cli.doctor.checks import Status, finding_lines
from bot.cli.doctor.plugin_checks import check_plugin, list_components
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.variables import list_variables
from bot.errors import PluginError
from bot.plugin_system.bundled import PluginPurpose, bundled_names
from bot.plugin_system.loading import PLUGIN_GROUP, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.source import read_plugin_source
from bot.testing import run_plugin_tests
from bot.text import find_closest, strip_terminal_codes

GREENROOM = "greenroom"
TEMPLATES = files("bot.cli").joinpath("templates")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|check|test|new")
    listing = verbs.add_parser("list", help="the installed plugins, their components, and why some are off")
    add_character_option(listing)
    check = verbs.add_parser("check", help="import one and report what is wrong with it")
    check.add_argument("plugin", metavar="NAME|PATH")
    test = verbs.add_parser("test", help="check one, and run the tests that it brings and those beside it")
    test.add_argument("plugin", metavar="NAME|PATH")
    new = verbs.add_parser("new", help="write a small working plugin with its test into this folder")
    new.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if args.verb == "list":
        return _print_list(load_character_config(args.character))
    if args.verb == "check":
        return _check(args.plugin)
    if args.verb == "test":
        return _test(args.plugin)
    return _write_files(args.name)


def _print_list(config: CharacterConfig) -> int:
    enabled_names = {plugin.name for plugin in config.plugins}
    plugins: dict[str, Plugin | str] = {name: _load_plugin(name) for name in plugin_names()}
    plugins |= {plugin.name: plugin for plugin in config.plugins}
    for name, plugin in plugins.items():
        if isinstance(plugin, str):
            print(strip_terminal_codes(f"{name:<12} off  {plugin}"))
            continue
        state = "on " if name in enabled_names else "off"
        print(strip_terminal_codes(f"{name:<12} {state}  {plugin.description}"))
        if name not in enabled_names:
            print(strip_terminal_codes(f"{'':<17} off because {_off_reason(plugin, config)}"))
        lines = [*_origin_lines(name), *list_components(plugin)]
        if plugin.settings is not None:
            lines.append(f"settings: {', '.join(variable.name for variable in list_variables(plugin.settings))}")
        for line in lines:
            print(strip_terminal_codes(f"{'':<17} {line}"))
    return Exit.OK


def _origin_lines(name: str) -> Iterator[str]:
    """Yield the distribution and version of a third-party plugin."""
    for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
        if entry.dist is not None and entry.dist.name != GREENROOM:
            yield f"installed with {entry.dist.name} {entry.dist.version}: {entry.value}"


def _load_plugin(name: str) -> Plugin | str:
    try:
        return find_plugin(name) or "it is no longer installed"
    except PluginError as error:
        return str(error)


def _off_reason(plugin: Plugin, config: CharacterConfig) -> str:
    if missing := plugin.missing_settings(config.settings):
        return f"a setting is missing: {missing}"
    if plugin.name in bundled_names(PluginPurpose.FALLBACK_MODEL):
        return "another plugin provides a model"
    return f"{config.path.name} does not name it among its plugins"


def _check(name: str) -> int:
    findings = list(check_plugin(_find_named(name)))
    for finding in findings:
        print("\n".join(finding_lines(finding)))
    return Exit.CONFIG if any(finding.status is Status.FAIL for finding in findings) else Exit.OK


def _test(name: str) -> int:
    """Check a plugin, run the tests that it brings, then the test files beside it."""
    plugin = _find_named(name)
    failures = [finding for finding in check_plugin(plugin) if finding.status is Status.FAIL]
    for finding in failures:
        print("\n".join(finding_lines(finding)))
    if failures:
        return Exit.CONFIG
    results = asyncio.run(run_plugin_tests(plugin))
    for result in results:
        cause = "" if result.failure is None else f": {type(result.failure).__name__}: {result.failure}"
        state = "ok   " if result.failure is None else "FAIL "
        print(strip_terminal_codes(f"{state} test       {result.suite}: {result.test}{cause}"))
    files = _find_test_files(name)
    if not results and not files:
        print(f"no tests: {plugin.name} brings none in Plugin(tests=…), and there is no test file beside it")
    is_ok = all(result.failure is None for result in results)
    return Exit.OK if (_run_pytest(files) if files else True) and is_ok else Exit.CONFIG


def _find_test_files(name: str) -> list[Path]:
    """Return the test files that stand beside a plugin named by its path, or in the folder `tests` there."""
    path = Path(name.removesuffix(".py")).expanduser()
    if not ("/" in name or name.endswith(".py")):
        return []
    candidates = (path.with_name(f"test_{path.name}.py"), path.parent / "tests", path / "tests")
    return [candidate for candidate in candidates if candidate.exists()]


def _run_pytest(files: Sequence[Path]) -> bool:
    """Run test files in a process of their own, in the folder of the first; return whether all have passed."""
    if importlib.util.find_spec("pytest") is None:
        raise PluginError(f"{', '.join(map(str, files))} need pytest, which is not installed: pip install pytest")
    paths = [str(file.resolve()) for file in files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]
    return subprocess.run(command, cwd=files[0].resolve().parent, check=False).returncode == 0


def _find_named(name: str) -> Plugin:
    if "/" in name or name.endswith(".py"):
        name = name if name.startswith((".", "/", "~")) else f"./{name}"
    plugin = find_plugin(name, approve=trusted_plugins().approval())
    if plugin is not None:
        return plugin
    if Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file():
        raise PluginError(f"plugin {name!r} is not installed; for the one in this folder use ./{name}")
    suggestion = find_closest(name, plugin_names())
    available = f"available: {', '.join(plugin_names())}; a path begins with ./"
    hint = f"did you mean {suggestion!r}?" if suggestion else available
    raise PluginError(f"plugin {name!r} is unknown: {hint}")


def _write_files(name: str) -> int:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is not a valid plugin name: use lower-case letters, digits and _")
    if name in plugin_names():
        raise UsageError(f"a plugin named {name!r} exists already: choose another name")
    texts = {Path(path): text for path, text in plugin_files(name).items()}
    if existing_paths := [str(path) for path in texts if path.exists()]:
        raise PluginError(f"{' and '.join(existing_paths)} exist already and are not changed: choose another name")
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PluginError(f"{path} cannot be written: {error.strerror or error}") from None
    trusted_plugins().trust([read_plugin_source(Path(f"{name}.py"), f"./{name}")])
    print(
        f"wrote {' and '.join(map(str, texts))}\n"
        f"check it:  bot plugin check ./{name}\n"
        f"test it:   bot plugin test ./{name}\n"
        f'use it:    "plugins": ["./{name}"] in a character file in this folder\n'
        f"trust it:  bot character trust ./{name}   (each time you have changed it)"
    )
    return Exit.OK


def plugin_files(name: str) -> dict[str, str]:
    """Return the files of a new plugin, by name."""
    words = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    templates = {f"{name}.py": "plugin.txt", f"test_{name}.py": "test_plugin.txt"}
    return {
        path: Template(TEMPLATES.joinpath(template).read_text(encoding="utf-8")).substitute(words)
        for path, template in templates.items()
    }
