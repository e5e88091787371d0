"""The shell commands of the documents: their syntax, and that what they name exists. Nothing of them is run.

tests/test_docs.py compares those of `bot` with its commands and options.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from bot.plugin_system.loading import find_plugin, plugin_names
from tests.adapters.web.conftest import run_server
from tests.doc_blocks import PLUGIN, ROOT, find_blocks, write_blocks

DOCS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
SHELL = re.compile(r"^(?P<indent> *)```(?:sh|bash|shell)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"(?:^|`)make (?:[A-Z]+=\S+ )*(?P<target>[a-z][a-z-]*)", re.MULTILINE)
EXTRAS = re.compile(r"(?:(?<=['\"])\.|greenroom|\.whl)\[(?P<names>[\w,-]+)\]")
CURL = re.compile(r"\bcurl (?P<options>[^`\n]*?)['\"]?(?:\$URL|http://[\w.]+:3000)(?P<path>/[^\s?'\"`]*)")
SENDS = re.compile(r"(?:^| )(?:-d|-F) ")
FILE = re.compile(r"(?<![\w./-])(?:\.env\.example|(?:deploy|requirements|examples|benchmarks)/[\w./-]*\w)")


def read_text(doc: Path) -> str:
    """Return a document with each command on one line."""
    return doc.read_text(encoding="utf-8").replace("\\\n", " ")


def read_shell(doc: Path) -> list[str]:
    """Return the shell blocks of a document, also those within a list."""
    return [dedent(block["body"]) for block in SHELL.finditer(read_text(doc))]


def find_plugin_paths(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield method and path of the routes of bundled plugins, and of those that the documents have as one file."""
    blocks = [block for doc in DOCS for block in find_blocks(doc) if block.kind == "python"]
    documented = [block for block in blocks if PLUGIN.search(block.body) and "@route(" in block.body]
    write_blocks(folder, documented)
    names = [*plugin_names(), *(f"./{block.file.removesuffix('.py')}" for block in documented)]
    plugins = [plugin for name in names if (plugin := find_plugin(name, folder)) is not None]
    yield from ((route.method, f"/plugins/{plugin.name}{route.path}") for plugin in plugins for route in plugin.routes)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_every_shell_block_is_valid_syntax(doc: Path) -> None:
    for block in read_shell(doc):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, f"{done.stderr}{block}"


def test_every_target_of_make_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {doc.name: [*read_shell(doc), *re.findall(r"`[^`\n]+`", read_text(doc))] for doc in DOCS}
    named = {(doc, match["target"]) for doc, texts in shown.items() for text in texts for match in MAKE.finditer(text)}
    assert named
    assert not {(doc, target) for doc, target in named if target not in targets}


def test_every_installed_extra_is_an_extra_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [(doc.name, match["names"]) for doc in DOCS for match in EXTRAS.finditer(read_text(doc))]
    named = {(doc, extra) for doc, names in found for extra in names.split(",")}
    assert named
    assert not {(doc, extra) for doc, extra in named if extra not in project["optional-dependencies"]}


async def test_every_address_that_curl_requests_is_served(tmp_path: Path) -> None:
    async with run_server() as server:
        routes = [(route.method, route.resource) for route in server.adapter.app.router.routes()]
    known = {(method, resource.canonical) for method, resource in routes if resource is not None}
    known |= set(find_plugin_paths(tmp_path))
    patterns = [(method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path))) for method, path in known]
    requested = {
        (doc.name, "POST" if SENDS.search(match["options"]) else "GET", match["path"])
        for doc in DOCS
        for match in CURL.finditer(read_text(doc))
    }
    assert requested
    assert not {
        (doc, method, path)
        for doc, method, path in requested
        if not any(method == other and pattern.fullmatch(path) for other, pattern in patterns)
    }


def test_every_file_of_the_repository_that_a_shell_block_names_exists() -> None:
    named = {(doc.name, name) for doc in DOCS for block in read_shell(doc) for name in FILE.findall(block)}
    assert named
    assert not {(doc, name) for doc, name in named if not (ROOT / name).exists()}
