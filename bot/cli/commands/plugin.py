"""List, search, add, check, test or create plugins."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import load_character_config, trusted_plugins
from bot.cli.doctor.checks import check_plugin, contract_findings, finding_lines
from bot.cli.options import AsJson, CharacterFile, Trusting, examples, new_group, print_json, print_rows
from bot.cli.plugins import (
    CodeTarget,
    PluginCard,
    add_plugin,
    check_new_name,
    find_target,
    index_lines,
    index_to_json,
    list_cards,
    load_index,
    print_permissions,
    render_templates,
    run_pytest,
    trust_code,
    write_new_code,
)
from bot.cli.process.shutdown import Exit, print_notice
from bot.errors import PluginError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.loading import PLUGIN_GROUP, find_plugin, plugin_names
from bot.plugin_system.plugin import Plugin
from bot.settings import load_settings
from bot.text import strip_terminal_codes, suggest

PACKAGE_PREFIX = "greenroom_"


app = new_group("List, search, add, check, test or create plugins.")
NAME_OR_PATH = "NAME|PATH"
PluginName = Annotated[str, typer.Argument(metavar=NAME_OR_PATH, help="A plugin's name, or its path: ./dice")]


@app.command("list", epilog=examples("bot plugin list", "bot plugin list -c mine.json --json"))
def list_plugins(character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the installed plugins, their components, and why some are off."""
    cards = list(list_cards(load_character_config(character)))
    if as_json:
        print_json({"plugins": [card.to_json() for card in cards]}, ensure_ascii=True)
    else:
        lines = (line for card in cards for line in card.lines())
        print_rows(("plugin", "state", "what it does", "why it is off"), map(PluginCard.row, cards), lines)
    return Exit.OK


@app.command(epilog=examples("bot plugin search", "bot plugin search weather"))
def search(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="In their names, packages, descriptions or tags.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List the plugins that can be added, those with the most stars first."""
    words = words or []
    index = load_index(load_settings()).search(words)
    for note in index.notes:
        print_notice(note)
    installed = plugin_names()
    if as_json:
        print_json({"plugins": [index_to_json(entry, installed) for entry in index.entries]}, ensure_ascii=True)
        return Exit.OK
    print("\n\n".join("\n".join(map(strip_terminal_codes, index_lines(entry, installed))) for entry in index.entries))
    if not index.entries:
        print_notice(f"no plugin matches {' '.join(words)!r}; without a word, all are listed")
    return Exit.OK


@app.command(epilog=examples("bot plugin add knowledge -c mine.json"))
def add(
    plugin: Annotated[str, typer.Argument(metavar="NAME")],
    character: Annotated[
        Path | None, typer.Option("-c", "--character", metavar="FILE", help="The character's JSON file to change.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Install what is missing without a question.")] = False,
) -> int:
    """Install a plugin, name it in a character's file, and print what it may do."""
    return add_plugin(plugin, character, answers_yes=yes)


@app.command(epilog=examples("bot plugin show x_actions", "bot plugin show ./dice --json"))
def show(plugin: PluginName, as_json: AsJson = False) -> int:
    """Print what a plugin may do: actions, routes, settings, network."""
    print_permissions(_find_named(find_target(plugin, PLUGIN_GROUP).name), as_json=as_json)
    return Exit.OK


@app.command(epilog=examples("bot plugin check ./dice", "bot plugin check ./dice --json"))
def check(plugin: PluginName, as_json: AsJson = False) -> int:
    """Import a plugin and report what is wrong with it."""
    findings = list(check_plugin(_find_named(find_target(plugin, PLUGIN_GROUP).name)))
    is_fine = all(finding.status is not FindingStatus.FAIL for finding in findings)
    if as_json:
        print_json({"ok": is_fine, "findings": [finding.to_json() for finding in findings]})
    for finding in () if as_json else findings:
        print("\n".join(finding_lines(finding)))
    return Exit.OK if is_fine else Exit.CONFIG


@app.command("test", epilog=examples("bot plugin test ./dice", "bot plugin test ./dice --trust"))
def run_tests(plugin: PluginName, trust: Trusting = False) -> int:
    """Run a plugin's tests, and those that every plugin must pass."""
    target = find_target(plugin, PLUGIN_GROUP)
    if trust:
        trust_code(target.name)
    tested = _find_named(target.name)
    findings = [finding for finding in check_plugin(tested) if finding.status is FindingStatus.FAIL]
    if not findings:
        findings = asyncio.run(_run_suites(tested))
    if not target.tests and not tested.tests:
        advice = "bring some in Plugin(tests=…), or write a file beside it"
        findings.append(Finding(FindingStatus.WARN, "tests", f"{tested.name} has no tests of its own", advice))
    return report_tests(target, findings)


def report_tests(target: CodeTarget, findings: Sequence[Finding]) -> int:
    """Print what the checks found, run the tests beside the code, and return the exit code."""
    for finding in findings:
        print("\n".join(finding_lines(finding)), flush=True)
    has_passed = run_pytest(target)
    is_failed = not has_passed or any(finding.status is FindingStatus.FAIL for finding in findings)
    return Exit.CONFIG if is_failed else Exit.OK


@app.command(epilog=examples("bot plugin new dice", "bot plugin new dice --single-file"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    single_file: Annotated[bool, typer.Option("--single-file", help="As one module without a package.")] = False,
) -> int:
    """Write a small working plugin with its tests into this folder."""
    check_new_name(name, "a plugin", plugin_names())
    module = name if single_file else f"{PACKAGE_PREFIX}{name}"
    if single_file:
        templates = {f"{name}.py": "plugin.txt", f"test_{name}.py": "test_plugin.txt"}
    else:
        templates = {
            f"{name}/pyproject.toml": "plugin_pyproject.txt",
            f"{name}/README.md": "plugin_readme.txt",
            f"{name}/{module}/__init__.py": "plugin.txt",
            f"{name}/tests/test_{name}.py": "test_plugin.txt",
        }
    path = f"./{name}" if single_file else f"./{name}/{module}"
    write_new_code(render_templates(name, templates, module=module), path)
    names = ", ".join(sorted(file.removeprefix(f"{name}/") for file in templates))
    print(
        f"wrote {' and '.join(templates) if single_file else f'{name}/ with {names}'}\n"
        f"check it:  bot plugin check ./{name}\n"
        f"test it:   bot plugin test ./{name}\n"
        f'use it:    "plugins": ["{path}"] in a character file in this folder\n'
        f"trust it:  bot character trust {path}   (each time you have changed it)"
    )
    return Exit.OK


def _find_named(name: str) -> Plugin:
    plugin = find_plugin(name, approve=trusted_plugins().approval())
    if plugin is not None:
        return plugin
    if Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file():
        raise PluginError(f"plugin {name!r} is not installed; for the one in this folder use ./{name}")
    available = f"available: {', '.join(plugin_names())}; a path begins with ./"
    raise PluginError(f"plugin {name!r} is unknown: {suggest(name, plugin_names(), otherwise=available)}")


async def _run_suites(plugin: Plugin) -> list[Finding]:
    from bot.testing import check_plugin_contract, run_plugin_tests  # here, because help needs no test kit

    findings: list[Finding] = []
    for rule in await check_plugin_contract(plugin):
        findings += contract_findings(rule)
    for result in await run_plugin_tests(plugin):
        text = f"{result.suite}: {result.test}"
        if result.failure is not None:
            text = f"{text}: {type(result.failure).__name__}: {result.failure}"
        findings.append(Finding(FindingStatus.OK if result.failure is None else FindingStatus.FAIL, "test", text))
    return findings
