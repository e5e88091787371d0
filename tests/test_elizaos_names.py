"""docs/elizaos-names.md maps every name of elizaOS, and the tests that it names exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from bot import ChannelType, ModelType
from bot.events import event_class

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "elizaos-names.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in DOCUMENT.splitlines()
    if line.startswith("| ") and not line.startswith("| elizaOS |")
]
NAMES = (ROOT / "tests" / "elizaos_names.txt").read_text(encoding="utf-8").split()
PACKAGE = "@elizaos/plugin-"


def _find_file(name: str) -> Path:
    """Return a file of tests/, or of examples/ where its name begins with that."""
    return ROOT / name if name.startswith("examples/") else ROOT / "tests" / name


@cache
def _tests_in(file: str) -> frozenset[str]:
    tree = ast.parse(_find_file(file).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


def _is_mapped(name: str) -> bool:
    if name.startswith(PACKAGE):
        short_name = name.removeprefix(PACKAGE)
        return any(re.search(rf"(?:plugin)?-{re.escape(short_name)}`", row[0]) for row in ROWS)
    words = name.replace("elizaos-", "elizaos ").replace("plugins-", "plugins ")
    word = words if words.startswith("elizaos ") else words.rpartition(".")[2]
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", row[0]) for row in ROWS)


def test_every_name_of_the_sources_is_mapped() -> None:
    assert len(NAMES) == 246
    assert [name for name in NAMES if not _is_mapped(name)] == []


def test_every_row_says_what_the_name_is_here_how_it_differs_and_which_test_shows_it() -> None:
    broken = [row for row in ROWS if len(row) != 4 or not all(row)]
    assert broken == []


def test_every_test_that_is_named_exists() -> None:
    named = [row[3].strip("` ").partition("::") for row in ROWS]
    missing = [
        f"{file}::{function}"
        for file, _, function in named
        if not _find_file(file).is_file() or function not in _tests_in(file)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name", re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", DOCUMENT.partition("## Events")[2].partition("## Model")[0])
)
def test_every_event_of_the_mapping_has_a_class(name: str) -> None:
    assert name in {"STOP", "OK"} or event_class(name) is not None


def test_channel_types_and_model_types_of_the_sources_are_known() -> None:
    for name in ("dm", "group", "thread", "broadcast"):
        assert ChannelType(name).value == name.upper()
    for name in (
        "text_small",
        "object_large",
        "image_generation",
        "speech_to_text",
        "text_to_speech",
        "text_embedding",
    ):
        assert ModelType(name)
