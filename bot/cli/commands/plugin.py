"""List, search, add, check, test or create plugins."""

import argparse
import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bot.cli.characters import CharacterConfig, add_character_option, load_character_config, trusted_plugins
from bot.cli.doctor.checks import finding_lines
from bot.cli.doctor.plugin_checks import check_plugin, contract_findings
from bot.cli.plugin_adding import add_plugin, print_permissions
from bot.cli.plugin_cards import index_lines, index_to_json, list_cards
from bot.cli.plugin_index import load_index
from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import print_notice
from bot.cli.scaffold import check_new_name, find_target, render_templates, run_pytest, write_new_files
from bot.errors import PluginError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.loading import PLUGIN_GROUP, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.source import read_plugin_source
from bot.settings import load_settings
from bot.testing import check_plugin_contract, run_plugin_tests
from bot.text import find_closest, strip_terminal_codes

PACKAGE_PREFIX = "greenroom_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|search|add|show|check|test|new")
    listing = verbs.add_parser("list", help="the installed plugins, their components, and why some are off")
    add_character_option(listing)
    listing.add_argument("--json", action="store_true", help="print the list as JSON")
    search = verbs.add_parser("search", help="the plugins that can be added, those with the most stars first")
    search.add_argument("words", nargs="*", metavar="WORD", help="in their names, packages, descriptions or tags")
    search.add_argument("--json", action="store_true", help="print them as JSON")
    add = verbs.add_parser("add", help="install a plugin, name it in a character's file, and print what it may do")
    add.add_argument("plugin", metavar="NAME")
    add.add_argument("-c", "--character", metavar="FILE", type=Path, help="the character's JSON file to change")
    add.add_argument("--yes", action="store_true", help="install what is missing without a question")
    show = verbs.add_parser("show", help="what a plugin may do: actions, routes, settings, network")
    show.add_argument("plugin", metavar="NAME|PATH")
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
        return _print_list(load_character_config(args.character), is_json=args.json)
    if args.verb == "search":
        return _search(args.words, is_json=args.json)
    if args.verb == "add":
        return add_plugin(args.plugin, args.character, is_confirmed=args.yes)
    if args.verb == "show":
        print_permissions(_find_named(find_target(args.plugin, PLUGIN_GROUP).name))
        return Exit.OK
    if args.verb == "check":
        return _check(args.plugin)
    if args.verb == "test":
        return _test(args.plugin, trusts=args.trust)
    return _new(args.name, is_single_file=args.single_file)


def _print_list(config: CharacterConfig, *, is_json: bool) -> int:
    cards = list(list_cards(config))
    if is_json:
        _print_json([card.to_json() for card in cards])
    else:
        print("\n".join(strip_terminal_codes(line) for card in cards for line in card.lines()))
    return Exit.OK


def _search(words: Sequence[str], *, is_json: bool) -> int:
    index = load_index(load_settings()).search(words)
    for note in index.notes:
        print_notice(strip_terminal_codes(note))
    installed = plugin_names()
    if is_json:
        _print_json([index_to_json(entry, installed) for entry in index.entries])
        return Exit.OK
    print("\n\n".join("\n".join(map(strip_terminal_codes, index_lines(entry, installed))) for entry in index.entries))
    if not index.entries:
        print_notice(strip_terminal_codes(f"no plugin matches {' '.join(words)!r}; without a word, all are listed"))
    return Exit.OK


def _print_json(plugins: Sequence[Mapping[str, Any]]) -> None:
    print(json.dumps({"plugins": plugins}, ensure_ascii=True, indent=2))


def _check(name: str) -> int:
    findings = list(check_plugin(_find_named(find_target(name, PLUGIN_GROUP).name)))
    for finding in findings:
        print("\n".join(finding_lines(finding)))
    return Exit.CONFIG if any(finding.status is FindingStatus.FAIL for finding in findings) else Exit.OK


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
    findings = [finding for finding in check_plugin(plugin) if finding.status is FindingStatus.FAIL]
    if not findings:
        findings = asyncio.run(_run_suites(plugin))
    if not target.tests and not plugin.tests:
        advice = "bring some in Plugin(tests=…), or write a file beside it"
        findings.append(Finding(FindingStatus.WARN, "tests", f"{plugin.name} has no tests of its own", advice))
    for finding in findings:
        print("\n".join(finding_lines(finding)), flush=True)
    has_passed = run_pytest(target)
    is_failed = not has_passed or any(finding.status is FindingStatus.FAIL for finding in findings)
    return Exit.CONFIG if is_failed else Exit.OK


async def _run_suites(plugin: Plugin) -> list[Finding]:
    findings: list[Finding] = []
    for rule in await check_plugin_contract(plugin):
        findings += contract_findings(rule)
    for result in await run_plugin_tests(plugin):
        text = f"{result.suite}: {result.test}"
        if result.failure is not None:
            text = f"{text}: {type(result.failure).__name__}: {result.failure}"
        findings.append(Finding(FindingStatus.OK if result.failure is None else FindingStatus.FAIL, "test", text))
    return findings
