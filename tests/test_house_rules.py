"""The rules of the house, read from the code itself: who imports whom, and how large anything may grow."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import bot

ROOT = Path(__file__).parents[1]
PACKAGES = ("bot", "adapters", "plugins")
PUBLIC = ("bot", "bot.events", "bot.models", "bot.platform", "bot.prompts", "bot.store", "bot.text")
LONGEST_FUNCTION = 60
LONGEST_RUNTIME = 250
MOST_PUBLIC_METHODS = 20
MUTATORS = frozenset({"append", "extend", "add", "update", "insert", "remove", "pop", "clear", "setdefault"})
# Spelled apart, so that this file does not name what it forbids.
REGISTRY_HOST = re.compile(
    r"\b(?:[\w-]+\.)*(?:py" r"pi|python" r"hosted|npm" r"js|yarn" r"pkg)\.(?:org|com)\b"
)
MOCK = re.compile(r"\b(?:unittest\.mo" r"ck|MagicMo" r"ck|AsyncMo" r"ck)\b")

MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(path)))


KNOWN = frozenset(map(_name, MODULES))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported name of ours as far as it is a module, with its line."""
    for node in _nodes(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in KNOWN:
                name = name.rpartition(".")[0]
            if name.split(".")[0] in PACKAGES:
                yield name, node.lineno


@cache
def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def of_every_module(rule: Callable[[Path], None]) -> Callable[[], None]:
    """Make a rule for a module a test of all of them, which names every one that breaks it."""

    def test() -> None:
        broken = []
        for path in MODULES:
            try:
                rule(path)
            except AssertionError as error:
                broken.append(f"{_id(path)}: {error}")
        assert not broken, "\n".join(broken)

    return test


@of_every_module
def test_a_module_imports_only_what_it_may(path: Path) -> None:
    own = _name(path).split(".")
    for target, line in _imports(path):
        parts = target.split(".")
        where = f"{_id(path)}:{line} imports {target}"
        if own[0] == "bot":
            assert parts[0] == "bot", f"{where}: bot knows no adapter and no plugin"
        elif parts[0] == "bot":
            assert target in PUBLIC or target.startswith("bot.testing"), f"{where}: only public modules"
        else:
            assert parts[:2] == own[:2] or len(parts) == 1, f"{where}: siblings meet through bot"


@of_every_module
def test_imports_stand_at_the_top_of_a_module(path: Path) -> None:
    if _name(path).startswith("bot.cli"):
        return  # commands are loaded when they are asked for
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [
                child.lineno for child in ast.walk(node) if isinstance(child, ast.Import | ast.ImportFrom)
            ]
            assert not inside, f"{_id(path)}:{inside[0]}: an import inside {node.name}"


def test_imports_run_in_no_circle_typing_included() -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for path in MODULES:
        targets = {target for target, _ in _imports(path)} - {_name(path)}
        if path.name != "__init__.py":
            sorter.add(_name(path), *targets)
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_nothing_but_the_command_line_and_the_package_starts_a_runtime() -> None:
    allowed = ("bot", "bot.cli", "bot.testing", "bot.runtime")
    for path in MODULES:
        name = _name(path)
        if name == "bot" or name.startswith(tuple(f"{one}." for one in allowed[1:])) or name in allowed:
            continue
        assert "bot.runtime.runtime" not in {target for target, _ in _imports(path)}, name


@of_every_module
def test_no_module_keeps_state_in_a_global(path: Path) -> None:
    tree = _tree(path)
    held = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in _nodes(path):
        where = f"{_id(path)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Global), f"{where}: a global statement"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            changed = isinstance(owner, ast.Name) and owner.id in held and node.func.attr in MUTATORS
            assert not changed, f"{where}: a module's value is changed"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            assert not (isinstance(node.value, ast.Name) and node.value.id in held), f"{where}: likewise"


@of_every_module
def test_functions_and_classes_stay_small(path: Path) -> None:
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno
            assert length <= LONGEST_FUNCTION, f"{_id(path)}:{node.lineno} {node.name} has {length} lines"
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            public = [one.name for one in methods if not one.name.startswith("_")]
            assert len(public) <= MOST_PUBLIC_METHODS, f"{_id(path)}:{node.lineno} {node.name}"


def test_the_runtime_only_wires() -> None:
    assert len((ROOT / "bot" / "runtime" / "runtime.py").read_text().splitlines()) <= LONGEST_RUNTIME


@of_every_module
def test_a_module_says_in_one_line_why_it_exists(path: Path) -> None:
    doc = ast.get_docstring(_tree(path))
    assert doc, f"{_id(path)} has no docstring"
    assert doc.splitlines()[0].endswith((".", "!", "?", ":")), f"{_id(path)}: {doc.splitlines()[0]}"


def test_what_is_public_is_listed_and_sorted() -> None:
    assert list(bot.__all__) == sorted(bot.__all__, key=lambda name: (not name.isupper(), name))
    assert all(getattr(bot, name) is not None for name in bot.__all__)


def test_no_file_names_a_package_registry_or_a_mock() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in filter(None, listed.splitlines()):
        path = ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not REGISTRY_HOST.search(text), f"{name} names a package registry"
        if path.suffix == ".py":
            assert not re.search(r"\b(?:unittest\.mo" r"ck|MagicMo" r"ck|AsyncMo" r"ck)\b", text), (
                f"{name} uses a mock"
            )
