"""docs/scenes.md is followed word by word: files are written, commands run, and what they print is compared."""

import re
import shlex
from pathlib import Path

import pytest

from bot.cli.main import entry
from tests.doc_blocks import ROOT, find_blocks
from tests.scenes.conftest import workdir

__all__ = ["workdir"]
NAMED = re.compile(r"`([\w/.-]+\.yaml)`")


def to_pattern(printed: str) -> str:
    """Return a pattern of what a command prints: `…` stands for any lines, and numbers differ."""
    pattern = re.escape(printed.rstrip()).replace(re.escape("…"), "(?s:.*)")
    return re.sub(r"\d+\\\.\d+", r"\\d+\\.\\d+", pattern)


@pytest.mark.long
def test_the_commands_of_the_tutorial_print_what_it_shows(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = 0
    for block in find_blocks(ROOT / "docs" / "scenes.md"):
        if block.kind == "yaml":
            path = workdir / NAMED.findall(block.before)[-1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body, encoding="utf-8")
            continue
        for part in re.split(r"^\$ bot ", block.body, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            entry(shlex.split(command))
            assert re.fullmatch(to_pattern(printed), capsys.readouterr().out.rstrip()), command
            commands += 1
    assert commands >= 5
