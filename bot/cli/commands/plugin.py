"""`bot plugin`, `bot adapter`: list, search, add, check, test or create plugins and adapters."""

import asyncio
import importlib
import keyword
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from bot.characters import load_character, parse_character, write_character_source
from bot.characters.conversion import PATH_STARTS
from bot.cli.characters import CharacterConfig, trusted_plugins
from bot.cli.checks import check_plugin, contract_findings, print_finding
from bot.cli.options import AsJson, Output, Trusting, examples, is_confirmed, join_blocks, new_group, print_json
from bot.cli.plugins import (
    IndexEntry,
    PluginCard,
    find_origin,
    find_plugin_or_reason,
    index_lines,
    list_cards,
    load_bundled_index,
    load_index,
    normalize_distribution,
    permission_lines,
    permissions_to_json,
)
from bot.cli.process.shutdown import Exit, UsageError, explain_os_error, print_line, print_notice
from bot.errors import CharacterError, PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.installation import Installation, has_extra, install_command, install_extra, install_package
from bot.operate.tools import Finding, FindingStatus
from bot.plugin_system import loading
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import check_combination
from bot.plugin_system.trust import find_plugin_file, read_plugin_source
from bot.settings import load_settings
from bot.text import suggest

PACKAGE_PREFIX = "greenroom_"
NO_TERMINAL = "nothing was installed: there is no terminal to ask on; repeat the command with --yes"
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


plugin_app = new_group("List, search, add, check, test or create plugins.")
NAME_OR_PATH = "NAME|PATH"
PluginName = Annotated[str, typer.Argument(metavar=NAME_OR_PATH, help="A plugin's name, or its path: ./dice")]


@plugin_app.command("list", epilog=examples("bot plugin list", "bot plugin list -c mine.json --json"))
def list_plugins(config: CharacterConfig) -> Output:
    """List the installed plugins, their components, and why some are off."""
    cards, problem = list(list_cards(config)), ""
    try:
        check_combination(config.plugins)
    except PluginError as error:
        problem = str(error)
        print_notice(f"{config.path}: {problem}: the character does not start like this")
    document = {"plugins": [card.to_json() for card in cards], "problem": problem}
    header = ("plugin", "state", "what it does", "why it is off")
    lines = (line for card in cards for line in card.lines())
    return Output(document, lines, header, map(PluginCard.row, cards))


@plugin_app.command(epilog=examples("bot plugin search", "bot plugin search weather"))
def search(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="In their names, packages, descriptions or tags.")
    ] = None,
) -> Output:
    """List the plugins that can be added, those with the most stars first."""
    words = words or []
    index = load_index(load_settings()).search(words)
    for note in index.notes:
        print_notice(note)
    if not index.entries:
        print_notice(f"no plugin matches {' '.join(words)!r}; without a word, all are listed")
    installed = loading.plugin_names()
    plugins = [
        {
            **entry.model_dump(mode="json"),
            "bundled": entry.is_bundled,
            "installed": entry.is_bundled or entry.name in installed,
            "compatible": not entry.incompatibility,
        }
        for entry in index.entries
    ]
    return Output({"plugins": plugins}, join_blocks(index_lines(entry, installed) for entry in index.entries))


@plugin_app.command(epilog=examples("bot plugin add knowledge -c mine.json"))
def add(
    plugin: Annotated[str, typer.Argument(metavar="NAME")],
    character: Annotated[
        Path | None, typer.Option("-c", "--character", metavar="FILE", help="The character's JSON file to change.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Install what is missing without a question.")] = False,
) -> int:
    """Install a plugin, name it in a character's file, and print what it may do."""
    if "/" in plugin and not loading.ELIZAOS_PACKAGE.fullmatch(plugin):
        raise UsageError(
            f"{plugin!r} is a path, and needs no installation: name it among the plugins of a character's file"
        )
    name = _own_name(plugin)
    entry = _find_entry(name)
    if entry is not None and entry.incompatibility:
        raise PluginError(f"plugin {name!r} cannot be added: {entry.incompatibility}")
    if entry is not None and (installation := _plan_installation(entry)) is not None:
        if character is not None:
            _plan_edit(character, name)  # before anything is installed
        _install(entry, installation, answers_yes=yes)
        # The rest in a process that has imported nothing of what was replaced.
        rest = [sys.executable, "-P", "-m", "bot", "plugin", "add", name]
        rest += [f"--character={character}"] if character is not None else []
        return subprocess.run(rest, check=False).returncode
    found = _find_installed(name)
    _describe_permissions(found).print(as_json=False)
    required = _required_names(found)
    if character is None:
        print(f'to use it: "plugins": ["{name}"] in a character file, or bot plugin add {name} -c FILE')
        return Exit.OK
    text, added = _plan_edit(character, name, required)
    if added:
        path = character.resolve()
        write_character_source(path, text, mode=path.stat().st_mode & 0o777)
        print_line(f"added to the plugins of {character}: {', '.join(added)}")
    else:
        print_line(f"{character} names it already")
    return Exit.OK


@plugin_app.command(epilog=examples("bot plugin show x_actions", "bot plugin show ./dice --json"))
def show(plugin: PluginName) -> Output:
    """Print what a plugin may do: actions, routes, settings, network."""
    return _describe_permissions(_find_named(find_target(plugin, loading.PLUGIN_GROUP).name))


@plugin_app.command(epilog=examples("bot plugin check ./dice", "bot plugin check ./dice --json"))
def check(plugin: PluginName, as_json: AsJson = False) -> int:
    """Import a plugin and report what is wrong with it."""
    findings = list(check_plugin(_find_named(find_target(plugin, loading.PLUGIN_GROUP).name)))
    is_fine = all(finding.status is not FindingStatus.FAIL for finding in findings)
    if as_json:
        print_json({"ok": is_fine, "findings": [finding.to_json() for finding in findings]})
    for finding in () if as_json else findings:
        print_finding(finding)
    return Exit.OK if is_fine else Exit.CONFIG


@plugin_app.command("test", epilog=examples("bot plugin test ./dice", "bot plugin test ./dice --trust"))
def run_tests(plugin: PluginName, trust: Trusting = False) -> int:
    """Run a plugin's tests, and those that every plugin must pass."""
    target = find_target(plugin, loading.PLUGIN_GROUP)
    if trust:
        trust_code(target.name)
    tested = _find_named(target.name)
    findings = [finding for finding in check_plugin(tested) if finding.status is FindingStatus.FAIL]
    if not findings:
        findings = asyncio.run(_run_suites(tested))
    if not target.tests and not tested.tests:
        advice = "bring some in Plugin(tests=…), or write a file beside it"
        findings.append(Finding.warn("tests", f"{tested.name} has no tests of its own", advice))
    return report_tests(target, findings)


def report_tests(target: CodeTarget, findings: Sequence[Finding]) -> int:
    """Print what the checks found, run the tests beside the code, and return the exit code."""
    for finding in findings:
        print_finding(finding)
    has_passed = run_pytest(target)
    is_failed = not has_passed or any(finding.status is FindingStatus.FAIL for finding in findings)
    return Exit.CONFIG if is_failed else Exit.OK


@plugin_app.command(epilog=examples("bot plugin new dice", "bot plugin new dice --single-file"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    single_file: Annotated[bool, typer.Option("--single-file", help="As one module without a package.")] = False,
) -> int:
    """Write a small working plugin with its tests into this folder."""
    check_new_name(name, "a plugin", loading.plugin_names())
    if single_file and (name in sys.stdlib_module_names or _is_installed_module(name)):
        raise UsageError(
            f"{name!r} is a module of Python or of an installed package, which is imported instead of a file of this "
            "name: choose another name, or leave out --single-file"
        )
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


def _is_installed_module(name: str) -> bool:
    """Return whether an import finds a module of this name outside of this folder."""
    spec = PathFinder.find_spec(name)
    return spec is not None and spec.origin is not None and not Path(spec.origin).is_relative_to(Path.cwd())


def _find_named(name: str) -> Plugin:
    plugin = loading.find_plugin(name, approve=trusted_plugins().approval())
    if plugin is not None:
        return plugin
    if Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file():
        raise PluginError(f"plugin {name!r} is not installed; for the one in this folder use ./{name}")
    available = f"available: {', '.join(loading.plugin_names())}; a path begins with ./"
    raise PluginError(f"plugin {name!r} is unknown: {suggest(name, loading.plugin_names(), otherwise=available)}")


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


def _describe_permissions(plugin: Plugin) -> Output:
    """Return what a plugin may do."""
    settings = load_settings()
    settings = settings.with_models(plugin.settings) if plugin.settings is not None else settings
    return Output(permissions_to_json(plugin, settings), permission_lines(plugin, settings))


def _own_name(name: str) -> str:
    """Return the name here of a plugin that may be named as in elizaOS."""
    match = loading.ELIZAOS_PACKAGE.fullmatch(name)
    return loading.bundled_name(match[1] if match else name)


def _find_entry(name: str) -> IndexEntry | None:
    """Return what the lists say of a plugin; None for one that is installed and in no list of ours.

    The list at REGISTRY_URL is read only for a plugin that is not here yet.
    """
    bundled = load_bundled_index()
    if (entry := bundled.find(name)) is not None or name in loading.plugin_names():
        return entry
    index = load_index(load_settings())
    for note in index.notes:
        print_notice(note)
    if (entry := index.find(name)) is not None:
        return entry
    names = [*loading.plugin_names(), *(entry.name for entry in index.entries)]
    hint = suggest(name, names, otherwise="`bot plugin search` lists them")
    raise PluginError(f"plugin {name!r} is in no list of plugins: {hint}")


def _plan_edit(path: Path, name: str, required: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Return the new text of a character's file, which names a plugin and those that it requires, and the new names.

    Raises CharacterError for a file that cannot be changed safely.
    """
    loaded = load_character(path)
    named = [_own_name(known) for known in loaded.character.plugins]
    names = [added for added in (*required, name) if added not in named]
    if name in names and not named:
        # A file without plugins has the default store. One with plugins must name it.
        stores = [store for store in loading.bundled_names(loading.PluginPurpose.STORE) if store not in names]
        names = [*(store for store in stores if isinstance(find_plugin_or_reason(store), Plugin)), *names]
    text = loaded.places.append_texts("plugins", names) if names else loaded.places.source.text
    edited = parse_character(text, source=str(path))
    expected = loaded.character.model_copy(update={"plugins": (*loaded.character.plugins, *names)})
    if edited.character != expected or edited.secrets != loaded.secrets:
        raise CharacterError(f"{loaded.path}: its form cannot be changed safely: add {', '.join(names)} to its plugins")
    return text, names


def _plan_installation(entry: IndexEntry) -> Installation | None:
    """Return what must be installed for a plugin; None for nothing."""
    if entry.is_bundled:
        return None if not entry.extra or has_extra(entry.extra) else install_extra(entry.extra)
    return install_package(entry.requirement)


def _install(entry: IndexEntry, installation: Installation, *, answers_yes: bool) -> None:
    """Install a plugin with the installer of this environment. Raises PluginError if that does not bring it."""
    for line in index_lines(entry, ()):
        print_line(line)
    print_line(f"to be installed with: {installation}")
    if not entry.is_bundled:
        print_line("its code then runs with your rights: read it first")
    if not answers_yes and not is_confirmed("install it?", without_terminal=NO_TERMINAL):
        raise UsageError("nothing was installed and nothing was changed")
    code = installation.run()
    if code != 0:
        raise PluginError(f"{entry.requirement} was not installed: the installer ended with exit code {code}")
    importlib.invalidate_caches()
    if entry.is_bundled and _plan_installation(entry) is not None:
        raise PluginError(
            f"{entry.package} is installed, but this Python does not find it: see what the installer printed"
        )
    package, _, _ = find_origin(entry.name)
    if not entry.is_bundled and normalize_distribution(package) != entry.distribution:
        provider = f"that is a plugin of {package}" if package else "it has no entry point of that name"
        raise PluginError(
            f"{entry.package} is installed now, but does not bring the plugin {entry.name!r}: {provider}; "
            f"remove it again: {sys.executable} -m pip uninstall {entry.distribution}"
        )


def _find_installed(name: str) -> Plugin:
    plugin = loading.find_plugin(name)
    if plugin is None:
        raise PluginError(f"plugin {name!r} is not installed")
    return plugin


def _required_names(plugin: Plugin) -> list[str]:
    """Return the plugins that one requires, and those that they require, but for those that are always loaded."""
    names: dict[str, None] = {}
    waiting = [*plugin.requires]
    while waiting:
        name = waiting.pop()
        if name not in names and name not in loading.bundled_names(loading.PluginPurpose.BASE):
            names[name] = None
            waiting += _find_installed(name).requires
    return sorted(names)


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
    if keyword.iskeyword(name):
        raise UsageError(f"{name!r} is a keyword of Python, which cannot be a name: choose another name")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(f"{name!r} is not a valid name of {kind}: use lower-case letters, digits and _")
    if name in existing:
        raise UsageError(f"{kind} named {name!r} exists already: choose another name")


def write_new_code(texts: Mapping[Path, str], module: str) -> None:
    """Write new files, and the folders they need, and trust their code. Raises PluginError for files that exist."""
    if existing_paths := [str(path) for path in texts if path.exists()]:
        raise PluginError(f"{' and '.join(existing_paths)} exist already and are not changed: choose another name")
    for path, text in texts.items():
        with explain_os_error(PluginError, f"{path} cannot be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    trust_code(module)


def trust_code(path: str) -> None:
    """Trust the code at a path as it is now, to run it here."""
    trusted_plugins().trust([read_plugin_source(Path(path), path)])


def find_target(name: str, group: str) -> CodeTarget:
    """Return what a name or path names: an installed name, a file, a package, or a project with an entry point.

    `group` is the group of entry points. Raises PluginError for a project that has none in it.
    """
    if "/" not in name and not name.endswith(".py"):
        return CodeTarget(name)
    name = name if name.startswith((".", "/", "~")) else f"./{name}"
    path = Path(name).expanduser()
    if (path / PROJECT_FILE).is_file():
        modules = _entry_modules(path / PROJECT_FILE, group)
        if len(modules) != 1:
            raise PluginError(
                f"{path / PROJECT_FILE} must have one entry point in the group {group!r}, it has {len(modules)}"
            )
        candidates = [folder / modules[0].replace(".", "/") for folder in (path, path / "src")]
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


def _entry_modules(file: Path, group: str) -> list[str]:
    """Return the modules of a project's entry points. Raises PluginError for a file that cannot be read."""
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        values = list(project.get("entry-points", {}).get(group, {}).values())
    except (OSError, ValueError, AttributeError) as error:
        raise PluginError(f"{file} cannot be read: {error}") from None
    return [value.partition(":")[0].strip() for value in values if isinstance(value, str)]


adapter_app = new_group("Test adapters, or write a new one.")


@adapter_app.command(
    "test", epilog=examples("bot adapter test telegram", "bot adapter test ./line/greenroom_line --trust")
)
def run_adapter_tests(
    adapter: Annotated[str, typer.Argument(metavar="NAME|PATH", help="An adapter's name, or its path.")],
    trust: Trusting = False,
) -> int:
    """Run an adapter's tests, and those that every adapter must pass."""
    target = find_target(adapter, loading.ADAPTER_GROUP)
    if trust:
        trust_code(target.name)
    spec = _find_adapter(target.name)
    if spec.emulator is None:
        raise PluginError(
            f"adapter {spec.name!r} has no emulator, so it cannot be tested: set emulator= of its AdapterSpec to a "
            "function that starts one which yields a PlatformControl of bot.testing"
        )
    from bot.testing import check_adapter_contract  # here, because help needs no test kit

    results = asyncio.run(check_adapter_contract(spec))
    findings = [finding for result in results for finding in contract_findings(result)]
    if not target.tests:
        findings.append(Finding.warn("tests", f"{spec.name} has no tests of its own", "write a file beside it"))
    return report_tests(target, findings)


@adapter_app.command("new", epilog=examples("bot adapter new line"))
def new_adapter(name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Write a small working adapter with its emulator and tests into this folder."""
    check_new_name(name, "an adapter", loading.adapter_names())
    texts = render_adapter(name)
    path = f"./{name}/{PACKAGE_PREFIX}{name}"
    write_new_code(texts, path)
    names = ", ".join(sorted(str(file.relative_to(name)) for file in texts))
    print(
        f"wrote {name}/ with {names}\n"
        f"test it:   bot adapter test ./{name}\n"
        f'use it:    "adapters": ["{path}"] in a character file in this folder\n'
        f"trust it:  bot character trust {path}   (each time you have changed it)"
    )
    return Exit.OK


def _find_adapter(name: str) -> AdapterSpec:
    if name.startswith(PATH_STARTS):
        return loading.load_local_adapter(name, approve=trusted_plugins().approval())
    spec = loading.find_adapter(name)
    if isinstance(spec, AdapterSpec):
        return spec
    names = [] if name in loading.adapter_names() else loading.adapter_names()
    raise PluginError(f"{spec}: {suggest(name, names, otherwise='a path begins with ./')}")


def render_adapter(name: str) -> dict[Path, str]:
    """Return the files of a new adapter, by path."""
    module = f"{PACKAGE_PREFIX}{name}"
    templates = {
        f"{name}/pyproject.toml": "adapter_pyproject.txt",
        f"{name}/{module}/__init__.py": "adapter.txt",
        f"{name}/{module}/emulator.py": "adapter_emulator.txt",
        f"{name}/tests/test_{name}.py": "test_adapter.txt",
    }
    return render_templates(name, templates, module=module)
