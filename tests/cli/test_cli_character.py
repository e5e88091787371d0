"""`bot character`: check and new."""

import json
from pathlib import Path

import pytest

from bot.cli.main import entry

Out = pytest.CaptureFixture[str]


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def test_a_new_character_is_valid_and_named(workdir: Path, capsys: Out) -> None:
    assert entry(["character", "new", "--name", "Old  Hand"]) == 0
    assert "bot chat -c old_hand.json" in capsys.readouterr().out
    assert entry(["character", "check", "old_hand.json"]) == 0
    out, err = capsys.readouterr()
    first, *rest = out.splitlines()
    assert (first, err) == ("old_hand.json: ok: Old Hand (v1)", "")
    assert all(line.startswith("  prompt   ") for line in rest)  # no warning, nothing ignored


@pytest.mark.parametrize(
    ("arguments", "file", "name"),
    [
        ([], "ada.json", "Ada"),
        (["my-friend.json"], "my-friend.json", "My Friend"),
        (["x.json", "--name", 'Quote "Q" {{x}}'], "x.json", 'Quote "Q" {{x}}'),
    ],
)
def test_file_and_name_are_derived_from_each_other(workdir: Path, arguments: list[str], file: str, name: str) -> None:
    assert entry(["character", "new", *arguments]) == 0
    assert json.loads((workdir / file).read_text(encoding="utf-8"))["name"] == name


def test_an_existing_file_is_never_overwritten(workdir: Path, capsys: Out) -> None:
    write(workdir, "ada.json", "mine")
    assert entry(["character", "new"]) == 78
    assert (workdir / "ada.json").read_text(encoding="utf-8") == "mine"
    assert capsys.readouterr().err.startswith("bot: ada.json: the file exists")


def test_a_file_that_cannot_be_written_is_a_one_line_error(capsys: Out) -> None:
    assert entry(["character", "new", "no/such/folder.json"]) == 78
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_every_file_is_checked_even_after_an_error(workdir: Path, capsys: Out) -> None:
    bad = write(workdir, "bad.json", '{"name": "Bad",}\n{')
    good = write(workdir, "good.json", '{"name": "Good"}')
    assert entry(["character", "check", bad, "gone.json", good]) == 78
    out, err = capsys.readouterr()
    assert out == "good.json: ok: Good (v1)\n"
    assert "bot: bad.json:" in err
    assert "bot: gone.json: no such file" in err


def test_the_result_is_available_as_json(workdir: Path, capsys: Out) -> None:
    old = write(workdir, "old.json", '{"name": "Old", "clients": ["discord"], "plugins": ["@elizaos/plugin-x2"]}')
    assert entry(["character", "check", "--json", old, "gone.json"]) == 78
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    first, second = told["characters"]
    assert (first["ok"], first["name"], first["report"]["format"]) == (True, "Old", "v0")
    [note] = first["plugins"]
    assert note.startswith("@elizaos/plugin-x2: there is no counterpart here")
    assert second == {"path": "gone.json", "ok": False, "error": "gone.json: no such file"}


def test_an_unknown_plugin_is_an_error_of_the_file(workdir: Path, capsys: Out) -> None:
    path = write(workdir, "ada.json", '{"name": "Ada", "plugins": ["ofline"]}')
    assert entry(["character", "check", path]) == 78
    assert "plugin 'ofline' is not known: did you mean 'offline'?" in capsys.readouterr().err


def test_a_check_names_each_setting_that_only_the_operator_makes(workdir: Path, capsys: Out) -> None:
    text = """{"name": "Ada",
 "settings": {"SERVER_HOST": "0.0.0.0", "X_POST_ENABLE": true,
  "secrets": {"DATABASE_URL": "sqlite:////tmp/theirs.db"}},
 "secrets": {"SERVER_TOKEN": "the-attackers-token", "DISCORD_API_TOKEN": "its-own-token"}}"""
    assert entry(["character", "check", write(workdir, "ada.json", text)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  warning")]
    assert lines == [
        f"  warning  line {line}, column {column}: {path}.{name}: is ignored: only the operator sets it; "
        "if you want it, put it into .env"
        for line, column, path, name in (
            (2, 30, "settings", "SERVER_HOST"),
            (3, 31, "settings.secrets", "DATABASE_URL"),
            (4, 30, "secrets", "SERVER_TOKEN"),
        )
    ]


def test_a_check_does_not_run_local_plugins(workdir: Path, capsys: Out) -> None:
    write(workdir, "trap.py", "raise SystemExit('it ran')")
    path = write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./trap"]}')
    assert entry(["character", "check", path]) == 0
    assert "trap" not in capsys.readouterr().out
