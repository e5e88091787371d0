"""`bot knowledge`: documents are listed, added, searched and deleted, with and without a running bot."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot.cli.characters import load_character_config
from bot.cli.main import entry
from bot.runtime.runtime import Runtime

FILE = "ada.json"
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    plugins = ["sql", "bootstrap", "offline", "knowledge"]
    document = {"name": "Ada", "plugins": plugins, "knowledge": [{"path": "own.md"}]}
    (workdir / FILE).write_text(json.dumps(document), encoding="utf-8")
    (workdir / "own.md").write_text("The lamp burns oil.", encoding="utf-8")
    (workdir / "tides ö.md").write_text("Low water is at six.", encoding="utf-8")


def call(capsys: Out, *arguments: str, code: int = 0) -> Any:
    """Run a subcommand; return its JSON, or what it says on failure."""
    capsys.readouterr()
    assert entry(["knowledge", *arguments, "-c", FILE, "--json"]) == code
    output = capsys.readouterr()
    return output.err if code else json.loads(output.out)


def check_all(capsys: Out) -> None:
    [added] = call(capsys, "add", "tides ö.md")["documents"]
    assert (added["name"], added["added"], added["fragments"]) == ("tides ö.md", True, 1)
    listed = call(capsys, "list")["documents"]
    assert [document["name"] for document in listed] == ["own.md", "tides ö.md"]
    texts = [passage["text"] for passage in call(capsys, "search", "low", "water")["passages"]]
    assert "Low water is at six." in texts
    assert "it is of the character's file" not in call(capsys, "delete", "nothing", code=2)
    assert "is of the character's file" in call(capsys, "delete", "own.md", code=2)
    assert "'bad.docx': it is no DOCX that can be read" in call(capsys, "add", "bad.docx", code=2)
    assert "missing.md: it cannot be read: No such file" in call(capsys, "add", "missing.md", code=2)
    assert "is not public" in call(capsys, "add", "http://127.0.0.1/secret", code=2)
    assert call(capsys, "delete", "tides ö.md")["deleted"] == [added]
    assert [document["name"] for document in call(capsys, "list")["documents"]] == ["own.md"]


def test_of_several_documents_each_that_cannot_be_added_is_named(workdir: Path, capsys: Out) -> None:
    (workdir / "empty.md").write_text(" \n")
    (workdir / "noise.txt").write_bytes(b"\xff\xfe\0")
    problem = call(capsys, "add", "empty.md", "tides ö.md", "noise.txt", "gone.md", "http://127.0.0.1/a", code=2)
    *lines, added = problem.removeprefix("bot: ").splitlines()
    assert lines[:2] == ["'empty.md': it has no text", "'noise.txt': it is not UTF-8 text (byte 0): save it as UTF-8"]
    assert ["gone.md" in lines[2], "http://127.0.0.1/a" in lines[3], len(lines)] == [True, True, 4]
    assert added == "added: tides ö.md"
    assert [document["name"] for document in call(capsys, "list")["documents"]] == ["own.md", "tides ö.md"]


@pytest.mark.long
def test_documents_are_kept_while_no_bot_runs(workdir: Path, capsys: Out) -> None:
    (workdir / "bad.docx").write_bytes(b"no archive")
    check_all(capsys)


@pytest.mark.long
def test_the_running_bot_is_asked_where_it_uses_the_store(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    (workdir / "bad.docx").write_bytes(b"no archive")

    async def run() -> None:
        monkeypatch.setenv("SERVER_PORT", "0")
        config = load_character_config(Path(FILE)).agent_config
        async with Runtime([config], [web]) as runtime:
            [adapter] = runtime.adapters
            assert isinstance(adapter, WebAdapter)
            monkeypatch.setenv("SERVER_PORT", str(adapter.port))
            await asyncio.to_thread(check_all, capsys)

    asyncio.run(run())


@pytest.mark.long
def test_the_lines_name_id_source_and_passage(capsys: Out) -> None:
    assert entry(["knowledge", "add", "tides ö.md", "-c", FILE]) == 0
    assert capsys.readouterr().out.endswith("  tides ö.md  (added, 1 fragments)\n")
    assert entry(["knowledge", "list", "-c", FILE]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("  own.md  (of the character's file, 1 fragments)")
    assert entry(["knowledge", "search", "water", "-c", FILE]) == 0
    assert "tides ö.md: Low water is at six.\n" in capsys.readouterr().out
    assert entry(["knowledge", "delete", second.partition(" ")[0], "-c", FILE]) == 0
    assert capsys.readouterr().out == "deleted: tides ö.md\n"


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [(["sql", "offline"], 'add "knowledge" to the plugins in ada.json'), (["offline", "knowledge"], "in memory only")],
)
def test_a_character_without_documents_gets_an_error_that_says_what_to_change(
    workdir: Path, capsys: Out, plugins: list[str], problem: str
) -> None:
    (workdir / FILE).write_text(json.dumps({"name": "Ada", "plugins": plugins}), encoding="utf-8")
    assert problem in call(capsys, "list", code=78)
