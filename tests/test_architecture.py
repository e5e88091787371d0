"""The structure of the code: who may import whom, what no module does, which words are not used.

Each test prints every place that breaks its rule. Nothing here limits the size of anything.
"""

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from plugins.bundled import BUNDLED

ROOT = Path(__file__).parents[1]
PACKAGES = ("bot", "adapters", "plugins")
PUBLIC = (
    "bot",
    "bot.events",
    "bot.models",
    "bot.models.openai_compatible",
    "bot.platform",
    "bot.plugin_system",
    "bot.prompts",
    "bot.store",
    "bot.testing",
    "bot.text",
)
MAX_BROAD_EXCEPTS_PER_1000_LINES = 1.0
NOT_BUILT = frozenset({"L-18", "O-14"})  # as docs/failures.md says
# Strings in bot that are called like a bundled plugin: a field of character files, the logger of a library.
OTHER_MEANINGS = frozenset(
    {
        ("bot/characters/lorebooks.py", "knowledge"),
        ("bot/characters/conversion.py", "knowledge"),
        ("bot/characters/exchange.py", "knowledge"),
        ("bot/cli/characters.py", "knowledge"),
        ("bot/cli/main.py", "mcp"),
        ("bot/cli/main.py", "knowledge"),
        ("bot/cli/commands/access.py", "mcp"),
        ("bot/domain/instructions.py", "idle_talk"),
        ("bot/domain/ledger.py", "offline"),
        ("bot/logs.py", "openai"),
        ("bot/models/openai_compatible/__init__.py", "embeddings"),
        ("bot/models/openai_compatible/__init__.py", "openai"),
        ("bot/models/types.py", "embeddings"),
        ("bot/runtime/character_reload.py", "knowledge"),
        ("bot/store/sql/core/schema.py", "embeddings"),
        ("bot/store/sql/core/upgrade.py", "sql"),
    }
)
# They run the test kit.
TEST_COMMANDS = (
    *(f"bot.cli.commands.{name}" for name in ("adapter", "plugin", "rehearse", "scene")),
    "bot.cli.pytest_plugin",
    "bot.cli.scene_reports",
    "bot.rehearsal.rehearse",
)
TEST_KIT = ("bot.testing", "bot.scenes")
MUTATORS = frozenset({"append", "extend", "add", "update", "insert", "remove", "pop", "clear", "setdefault"})
# Spelled in two parts, so that this file does not contain what it forbids.
REGISTRY_HOST = re.compile(r"\b(?:[\w-]+\.)*(?:py" r"pi|python" r"hosted|npm" r"js|yarn" r"pkg)\.(?:org|com)\b")
MOCK = re.compile(r"\b(?:unittest\.mo" r"ck|MagicMo" r"ck|AsyncMo" r"ck)\b")

# Words that name nothing a reader of this field knows; docs/glossary.md has the term for each.
BANNED_IN_NAMES = frozenset(
    [
        "one",
        "nobody",
        "somebody",
        "whoever",
        "errand",
        "errands",
        "desk",
        "mouth",
        "company",
        "town",
        "beside",
        "neighbour",
        "leftovers",
        "patience",
        "stay",
        "upkeep",
        "moments",
        "nesting",
        "deed",
        "deeds",
        "tie",
        "ties",
        "wish",
        "wishes",
        "mend",
        "mends",
        "weighed",
        "blotted",
        "withheld",
        "unasked",
        "told",
        "anew",
        "surely",
        "underway",
        "house",
        "road",
        "door",
        "doors",
        "books",
        "lessen",
        "unbroken",
        "salvage",
        "gathering",
        "floors",
        "ears",
    ]
)
BANNED_IN_PROSE = re.compile(
    r"\b(?:nobody|somebody|whoever|the books|the house|the road|the door|leave of|in so many words"
    r"|as it likes|of its own accord|comes along)\b",
    re.IGNORECASE,
)
BANNED_DOCSTRING_VERBS = re.compile(r"(?:Give|Tell|Say|Have|Let|Put|Keeps|Knows|Sees)s?\b")

MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TEST_MODULES = sorted(path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(path)))


@cache
def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Release the syntax trees of all files once these tests are done."""
    yield
    for cached in (_text, _tree, _nodes):
        cached.cache_clear()


KNOWN = frozenset(map(_name, MODULES))


@cache
def _imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the modules of this project that a file imports, each with its line."""
    imports = []
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
                imports.append((name, node.lineno))
    return tuple(imports)


def each_module(rule: Callable[[Path], Iterator[str]], paths: Sequence[Path] = MODULES) -> Callable[[], None]:
    """Turn a function that yields what a module breaks into a test of all modules."""

    def test() -> None:
        broken = [f"{_id(path)}{place}" for path in paths for place in rule(path)]
        assert not broken, "\n".join(["", *broken])

    test.__doc__ = rule.__doc__
    return test


each_module_and_test = partial(each_module, paths=[*MODULES, *TEST_MODULES])


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@each_module
def test_a_module_imports_only_what_its_package_may(path: Path) -> Iterator[str]:
    package = _name(path).split(".")
    for target, line in _imports(path):
        parts = target.split(".")
        if package[0] == "bot":
            if parts[0] != "bot":
                yield f":{line} imports {target}: bot knows no adapter and no plugin"
        elif parts[0] == "bot":
            if target not in PUBLIC and not target.startswith("bot.testing."):
                yield f":{line} imports {target}: only the public modules {', '.join(PUBLIC)}"
        elif parts[:2] != package[:2] and len(parts) > 1:
            yield f":{line} imports {target}: adapters and plugins do not import each other"


@each_module
def test_the_core_names_no_bundled_plugin(path: Path) -> Iterator[str]:
    if not _name(path).startswith("bot."):
        return
    names = {str(row["name"]) for row in BUNDLED}
    paths = re.compile(rf"\bplugins\.(?:{'|'.join(sorted(names))})\b")
    for node in _nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_name = node.value in names and (_id(path), node.value) not in OTHER_MEANINGS
            if is_name or paths.search(node.value):
                yield f":{node.lineno} names the plugin {node.value}: ask bot.plugin_system.loading"


def test_the_table_of_bundled_plugins_lists_every_package_in_plugins() -> None:
    packages = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
    assert {row["name"] for row in BUNDLED} == packages


@each_module
def test_no_module_of_bot_imports_the_public_modules_that_collect_names(path: Path) -> Iterator[str]:
    allowed = ("bot", "bot.events", "bot.platform", "bot.cli.commands.plugin", "bot.testing")
    if _name(path).split(".")[0] != "bot" or _name(path).startswith(allowed[3:]):
        return
    for target, line in _imports(path):
        if target in allowed[:3] and not (target == "bot" and _imports_module_itself(path, line)):
            yield f":{line} imports {target}"


def _imports_module_itself(path: Path, line: int) -> bool:
    return any(isinstance(node, ast.Import) and node.lineno == line for node in _nodes(path))


@pytest.mark.long
@each_module
def test_imports_stand_at_the_top_of_a_module(path: Path) -> Iterator[str]:
    if _name(path).startswith("bot.cli"):
        return  # commands are loaded when they are asked for
    for node in _functions(path):
        for child in ast.walk(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield f":{child.lineno} imports inside {node.name}"


def _check_no_cycle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = {
        _name(path): {target for target, _ in _imports(path)} - {_name(path)}
        for path in MODULES
        if path.name != "__init__.py"
    }
    _check_no_cycle(graph)


def test_no_folders_import_each_other_in_a_cycle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        folder = _name(path).rpartition(".")[0]
        if path.name == "__init__.py" or folder in PACKAGES:
            continue  # public modules and the two context objects import from every folder
        for target, _ in _imports(path):
            of_target = target.rpartition(".")[0]
            if of_target not in PACKAGES and target != of_target:
                graph[folder].add(of_target)
        graph[folder].discard(folder)
    _check_no_cycle(graph)


@each_module
def test_only_the_command_line_and_the_test_kit_start_a_runtime(path: Path) -> Iterator[str]:
    if _name(path) == "bot" or _name(path).startswith(("bot.cli", "bot.runtime", *TEST_KIT)):
        return
    for target, line in _imports(path):
        if target.startswith("bot.runtime.runtime"):
            yield f":{line} imports {target}"


@each_module
def test_production_code_does_not_import_the_test_kit(path: Path) -> Iterator[str]:
    name = _name(path)
    if name.startswith(TEST_KIT) or ".emulator" in name or name in TEST_COMMANDS:
        return
    for target, line in _imports(path):
        if target.startswith(TEST_KIT):
            yield f":{line} imports {target}"


@pytest.mark.long
@each_module
def test_no_module_changes_a_value_of_its_own_at_run_time(path: Path) -> Iterator[str]:
    values = {
        target.id
        for node in _tree(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in _nodes(path):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Global):
            yield f":{line} has a global statement"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in values and node.func.attr in MUTATORS:
                yield f":{line} changes the module's value {owner.id}"
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and isinstance(node.value, ast.Name)
            and node.value.id in values
        ):
            yield f":{node.lineno} changes the module's value {node.value.id}"


def test_broad_excepts_are_rare() -> None:
    broad = [
        f"{_id(path)}:{node.lineno}"
        for path in MODULES
        for node in _nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in BROAD))
    ]
    lines = sum(_text(path).count("\n") for path in MODULES)
    assert 1000 * len(broad) / lines <= MAX_BROAD_EXCEPTS_PER_1000_LINES, "\n".join(["", *broad])


BROAD = frozenset({"Exception", "BaseException"})


@each_module
def test_no_decision_hangs_on_the_beginning_of_a_name(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            owner = ast.unparse(node.func.value)
            if owner.split(".")[-1] in {"__name__", "__module__", "rule"} or owner.endswith("layer.name"):
                yield f":{node.lineno} {ast.unparse(node)}"


@each_module
def test_tasks_and_bounded_dictionaries_come_from_bot_concurrency(path: Path) -> Iterator[str]:
    if _name(path).startswith("bot.concurrency"):
        return
    for node in _nodes(path):
        if isinstance(node, ast.Name) and node.id == "OrderedDict" and ".emulator" not in _name(path):
            yield f":{node.lineno} OrderedDict: use BoundedDict"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.left) == "2.0":
            yield f":{node.lineno} an exponential delay: use Backoff"


@each_module
def test_a_module_says_in_its_first_line_what_it_is_for(path: Path) -> Iterator[str]:
    doc = ast.get_docstring(_tree(path))
    if not doc:
        yield " has no docstring"
    elif not doc.splitlines()[0].endswith((".", "!", "?", ":")):
        yield f": {doc.splitlines()[0]}"


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_lists_its_names_in_order(module: str) -> None:
    public = importlib.import_module(module)
    assert list(public.__all__) == sorted(public.__all__, key=lambda name: (not name.isupper(), name))
    assert all(getattr(public, name) is not None for name in public.__all__)


def test_a_public_name_is_defined_in_a_single_module() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            places[name].append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert set(twice) <= {"Adapter", "ModelType"}, twice


@pytest.mark.long
@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_can_be_imported_alone(module: str) -> None:
    command = [sys.executable, "-W", "error", "-c", f"import {module}"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.long
@each_module_and_test
def test_names_use_the_words_of_the_glossary(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        name = ""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        if name and BANNED_IN_NAMES & {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}:
            yield f":{getattr(node, 'lineno', 0)} {name}"


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in _nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


@pytest.mark.long
@each_module_and_test
def test_docstrings_and_comments_use_plain_words(path: Path) -> Iterator[str]:
    comments = [
        (number, comment.group())
        for number, line in enumerate(_text(path).splitlines(), 1)
        if (comment := re.search(r"(?:^|\s)#\s.*", line))
    ]
    for number, prose in [*comments, *_docstrings(path)]:
        if phrase := BANNED_IN_PROSE.search(prose):
            yield f":{number} {phrase.group()}"


@each_module
def test_a_docstring_begins_with_what_is_done_or_returned(path: Path) -> Iterator[str]:
    for node in _functions(path):
        if (doc := ast.get_docstring(node)) and BANNED_DOCSTRING_VERBS.match(doc):
            yield f":{node.lineno} begins with {doc.split()[0]!r}"


def test_the_documentation_uses_plain_words() -> None:
    broken = [
        f"{_id(path)}:{number} {phrase.group()}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (phrase := BANNED_IN_PROSE.search(line))
    ]
    assert not broken, "\n".join(["", *broken])


def test_every_failure_of_the_catalogue_has_a_test_and_every_marker_a_failure() -> None:
    rows = set(re.findall(r"^\| ([A-Z]-\d\d) \|", _text(ROOT / "docs" / "failures.md"), re.MULTILINE))
    tested = {
        failure
        for path in (ROOT / "tests").rglob("*.py")
        for marker in re.findall(r"^ *@pytest\.mark\.failure\((.*)\)$", _text(path), re.MULTILINE)
        for failure in re.findall(r'"([A-Z]-\d\d)"', marker)
    }
    assert tested <= rows, sorted(tested - rows)
    assert rows - tested == NOT_BUILT


@pytest.mark.long
def test_no_file_names_a_package_registry_or_a_mock() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in filter(None, listed.splitlines()):
        path = ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not REGISTRY_HOST.search(text), f"{name} names a package registry"
        if path.suffix == ".py":
            assert not MOCK.search(text), f"{name} uses a mock"
