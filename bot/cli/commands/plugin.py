"""List, check, test or create plugins."""

import argparse
import asyncio
import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path

from bot.cli.characters import CharacterConfig, add_character_option, load_character_config, trusted_plugins
from bot.cli.doctor.checks import Finding, Status, finding_lines
from bot.cli.doctor.plugin_checks import check_plugin, contract_findings, list_components
from bot.cli.process.exit_codes import Exit
from bot.cli.scaffold import check_new_name, find_target, render_templates, run_pytest, write_new_files
from bot.cli.variables import list_variables
from bot.errors import PluginError
from bot.plugin_system.bundled import PluginPurpose, bundled_names
from bot.plugin_system.loading import PLUGIN_GROUP, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.source import read_plugin_source
from bot.testing import check_plugin_contract, run_plugin_tests
from bot.text import find_closest, strip_terminal_codes

GREENROOM = "greenroom"
PACKAGE_PREFIX = "greenroom_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|check|test|new")
    listing = verbs.add_parser("list", help="the installed plugins, their components, and why some are off")
    add_character_option(listing)
    check = verbs.add_parser("check", help="import one and report what is wrong with it")
    check.add_argument("plugin", metavar="NAME|PATH")
    test = verbs.add_parser("test", help="run its tests, and those that every plugin must pass")
    test.add_argument("plugin", metavar="NAME|PATH")
    test.add_argument("--trust", action="store_true", help="first trust the code as it is now, to run it here")
    new = verbs.add_parser("new", help="write a small working plugin with its tests into this folder")
    new.add_argument("name", metavar="NAME")
    new.add_argument("--single-file", action="store_true", help="as one module without a package")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if args.verb == "list":
        return _print_list(load_character_config(args.character))
    if args.verb == "check":
        return _check(args.plugin)
    if args.verb == "test":
        return _test(args.plugin, trusts=args.trust)
    return _new(args.name, is_single_file=args.single_file)


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
    findings = list(check_plugin(_find_named(find_target(name, PLUGIN_GROUP).name)))
    for finding in findings:
        print("\n".join(finding_lines(finding)))
    return Exit.CONFIG if any(finding.status is Status.FAIL for finding in findings) else Exit.OK


def _find_named(name: str) -> Plugin:
    plugin = find_plugin(name, approve=trusted_plugins().approval())
    if plugin is not None:
        return plugin
    if Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file():
        raise PluginError(f"plugin {name!r} is not installed; for the one in this folder use ./{name}")
    suggestion = find_closest(name, plugin_names())
    available = f"available: {', '.join(plugin_names())}; a path begins with ./"
    hint = f"did you mean {suggestion!r}?" if suggestion else available
    raise PluginError(f"plugin {name!r} is unknown: {hint}")


def _new(name: str, *, is_single_file: bool) -> int:
    check_new_name(name, "a plugin", plugin_names())
    texts = render_plugin(name, is_single_file=is_single_file)
    write_new_files(texts)
    module = f"./{name}" if is_single_file else f"./{name}/{PACKAGE_PREFIX}{name}"
    trusted_plugins().trust([read_plugin_source(Path(module), module)])
    files = " and ".join(map(str, texts)) if is_single_file else f"{name}/ with {', '.join(_names_in(name, texts))}"
    print(
        f"wrote {files}\n"
        f"check it:  bot plugin check ./{name}\n"
        f"test it:   bot plugin test ./{name}\n"
        f'use it:    "plugins": ["{module}"] in a character file in this folder\n'
        f"trust it:  bot character trust {module}   (each time you have changed it)"
    )
    return Exit.OK


def _names_in(folder: str, paths: Iterable[Path]) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in paths)


def render_plugin(name: str, *, is_single_file: bool) -> dict[Path, str]:
    """Return the files of a new plugin, by path."""
    module = name if is_single_file else f"{PACKAGE_PREFIX}{name}"
    if is_single_file:
        templates = {f"{name}.py": "plugin.txt", f"test_{name}.py": "test_plugin.txt"}
    else:
        templates = {
            f"{name}/pyproject.toml": "plugin_pyproject.txt",
            f"{name}/README.md": "plugin_readme.txt",
            f"{name}/{module}/__init__.py": "plugin.txt",
            f"{name}/tests/test_{name}.py": "test_plugin.txt",
        }
    return render_templates(name, templates, module=module)


def _test(name: str, *, trusts: bool) -> int:
    target = find_target(name, PLUGIN_GROUP)
    if trusts:
        trusted_plugins().trust([read_plugin_source(Path(target.name), target.name)])
    plugin = _find_named(target.name)
    findings = [finding for finding in check_plugin(plugin) if finding.status is Status.FAIL]
    if not findings:
        findings = asyncio.run(_run_suites(plugin))
    if not target.tests and not plugin.tests:
        advice = "bring some in Plugin(tests=…), or write a file beside it"
        findings.append(Finding(Status.WARN, "tests", f"{plugin.name} has no tests of its own", advice))
    for finding in findings:
        print("\n".join(finding_lines(finding)), flush=True)
    has_passed = run_pytest(target)
    is_failed = not has_passed or any(finding.status is Status.FAIL for finding in findings)
    return Exit.CONFIG if is_failed else Exit.OK


async def _run_suites(plugin: Plugin) -> list[Finding]:
    findings: list[Finding] = []
    for rule in await check_plugin_contract(plugin):
        findings += contract_findings(rule)
    for result in await run_plugin_tests(plugin):
        text = f"{result.suite}: {result.test}"
        if result.failure is not None:
            text = f"{text}: {type(result.failure).__name__}: {result.failure}"
        findings.append(Finding(Status.OK if result.failure is None else Status.FAIL, "test", text))
    return findings
