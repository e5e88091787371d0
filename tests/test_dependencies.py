"""What is installed: every import is declared, and every locked file has a hash and the version of constraints.txt."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("bot", "adapters", "plugins")
EXTRAS = PROJECT["project"]["optional-dependencies"]
# A folder in adapters/ or plugins/ may use the extra of its name. The first pattern that fits adds these extras.
EXTRAS_OF_FILES = (
    (r".*/fixtures\.py", ("dev",)),  # loaded by pytest only
    (r"adapters/web/(exposition|overview_api)\.py", ("metrics",)),
    (r"bot/cli/commands/access\.py", ("mcp",)),
    (r"bot/cli/(commands/(run|plugin)|pytest_plugin)\.py", ("testing",)),
    (r"bot/fetch/document_worker\.py", ("knowledge", "feeds", "links")),
    (r"bot/models/openai_compatible/.*", ("openai",)),
    (r"bot/settings/model\.py", ("secrets",)),
    (r"bot/store/sql/.*", ("postgres", "vectors")),
    (r"bot/imports/elizaos\.py", ("postgres",)),
)
IMPORTERS = ("import_module", "find_spec", "__import__")
PYTHONS = re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
LOCKS = {f"py{version.replace('.', '')}.txt": version for version in PYTHONS}
SYSTEMS = ("linux", "darwin", "win32")
LOCKED = re.compile(r"(?P<requirement>[^\s;]+==[^\s;]+(?: ; [^\\]+)?)(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def _declared(*extras: str) -> set[str]:
    """Return the names that the core and these extras require; an extra that names others of ours is followed."""
    names = set()
    for line in (*PROJECT["project"]["dependencies"], *(line for extra in extras for line in EXTRAS[extra])):
        requirement = Requirement(line)
        if requirement.name == PROJECT["project"]["name"]:
            names |= _declared(*requirement.extras)
        else:
            names.add(canonicalize_name(requirement.name))
    return names


def _extras_of(file: str) -> tuple[str, ...]:
    folder = file.split("/")[1]
    added = next((extras for pattern, extras in EXTRAS_OF_FILES if re.fullmatch(pattern, file)), ())
    return (*added, *({folder} & set(EXTRAS) if not file.startswith("bot/") else ()))


def _imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module of each import, also of those by a function with a literal name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in IMPORTERS:
            names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from ((node.lineno, str(name)) for name in names)


@pytest.mark.long
@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_belongs_to_a_dependency_that_is_declared_for_its_part(package: str) -> None:
    distributions = packages_distributions()
    undeclared = []
    for path in sorted((ROOT / package).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        declared = _declared(*_extras_of(file))
        for line, module in _imported_modules(path):
            top = module.partition(".")[0]
            if top in sys.stdlib_module_names or top in PACKAGES:
                continue
            owners = {canonicalize_name(name) for name in distributions.get(top, ())}
            if not owners & declared:
                undeclared.append(f"{file}:{line} imports {module} of {', '.join(owners) or 'an unknown package'}")
    assert not undeclared, "\n".join(["not declared in pyproject.toml for this part:", *undeclared])


@cache
def _constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def _locked(file: str) -> list[Requirement]:
    """Return what a lock file requires; a line in it that is not of such an entry with hashes fails the test."""
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    rest = LOCKED.sub("", text)
    assert not rest, f"{file} holds more than names, versions and hashes: {rest[:200]!r}"
    return [Requirement(found["requirement"].strip()) for found in LOCKED.finditer(text)]


def _versions(file: str, *, python: str, system: str) -> dict[str, str]:
    """Return the versions that a lock file installs for a version of Python on a system."""
    environment = {"python_full_version": f"{python}.0", "python_version": python, "sys_platform": system}
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in _locked(file)
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


def test_there_is_a_lock_file_for_each_python_version_of_the_metadata() -> None:
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert {path.name for path in (ROOT / "requirements").iterdir()} == {*LOCKS, "release.txt"}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("file", LOCKS)
def test_a_lock_file_installs_the_versions_of_the_constraints_and_every_dependency(file: str, system: str) -> None:
    versions = _versions(file, python=LOCKS[file], system=system)
    differing = {name: version for name, version in versions.items() if _constraints().get(name) != version}
    assert not differing, "run `make lock`, and put what is new into constraints.txt"
    assert _declared("all") <= set(versions), "run `make lock`"


def test_the_release_tools_are_locked_in_the_versions_of_the_constraints() -> None:
    versions = _versions("release.txt", python=PYTHONS[0], system="linux")
    wanted = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependency-groups"]["release"]}
    assert wanted <= set(versions), "run `make lock`"
    differing = {name for name in versions if _constraints().get(name, versions[name]) != versions[name]}
    assert not differing, "run `make lock`"


def test_locked_versions_are_those_that_the_metadata_allows() -> None:
    requirements = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    requirements += [Requirement(line) for extra in EXTRAS.values() for line in extra]
    own = PROJECT["project"]["name"]
    refused = [
        str(requirement)
        for requirement in requirements
        if requirement.name != own and _constraints()[canonicalize_name(requirement.name)] not in requirement.specifier
    ]
    assert not refused


def test_the_wheel_states_its_licence_and_contains_its_text() -> None:
    project = PROJECT["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
