"""What authors of plugins and adapters rely on: names of the public modules, entry points, documented plugins."""

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import bot
from bot.plugin_system.loading import ADAPTER_GROUP, PLUGIN_GROUP, find_plugin
from bot.plugin_system.plugin import COMPONENT_KINDS
from bot.store import LogKind
from tests.contracts.snapshot import check_snapshot
from tests.doc_blocks import write_blocks
from tests.test_architecture import MODULES, PUBLIC, ROOT
from tests.test_docs import PLUGINS


def test_the_public_modules_offer_the_recorded_names() -> None:
    check_snapshot("names.json", {module: list(importlib.import_module(module).__all__) for module in PUBLIC})


def test_an_unknown_name_of_the_main_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bot' has no attribute 'Nothing'"):
        bot.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_entry_points_are_the_recorded_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = {"console_scripts": project["scripts"], **project["entry-points"]}
    check_snapshot("entry_points.json", {"loaded": [PLUGIN_GROUP, ADAPTER_GROUP], "declared": points})


def test_the_kinds_of_log_entries_are_the_recorded_ones() -> None:
    kinds = {str(kind) for path in MODULES for kind in find_log_kinds(path)}
    check_snapshot("log_kinds.json", sorted(kinds | {kind.value for kind in LogKind}))


def find_log_kinds(path: Path) -> Iterator[str]:
    """Yield the constant kinds with which a module makes log entries."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "logs.log(" in text or "LogEntry(" in text else ():
        if not (isinstance(node, ast.Call) and node.args):
            continue
        if ast.unparse(node.func) == "LogEntry" or ast.unparse(node.func).endswith("logs.log"):
            kind = node.args[0]
            if isinstance(kind, ast.Constant):
                yield kind.value
            elif isinstance(kind, ast.Name) and kind.id.isupper():
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield getattr(importlib.import_module(module), kind.id)


def test_the_documented_plugins_are_written_as_recorded() -> None:
    """Their behaviour is tested by `tests/test_docs.py`, from the same blocks."""
    parts = [f"=== {block.doc.name}: {block.file}\n{block.body}" for _, block in sorted(PLUGINS.items())]
    check_snapshot("documented_plugins.txt", "\n".join(parts))


def test_a_plugin_of_every_kind_is_documented(tmp_path: Path) -> None:
    write_blocks(tmp_path, list(PLUGINS.values()))
    plugins = [find_plugin(f"./{name}", tmp_path) for name in PLUGINS]
    assert [kind for kind in COMPONENT_KINDS if not any(getattr(plugin, kind) for plugin in plugins)] == []
