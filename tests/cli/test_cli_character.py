"""`bot character`: check and new."""

import json
from pathlib import Path

import pytest

from bot.cli.main import entry
from tests.trust import write_clashing_plugins

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


def test_a_file_that_cannot_be_written_is_an_error_of_a_single_line(capsys: Out) -> None:
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
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    first, second = document["characters"]
    assert (first["ok"], first["name"], first["report"]["format"]) == (True, "Old", "v0")
    [note] = first["plugins"]
    assert note.startswith("@elizaos/plugin-x2: there is no counterpart here")
    assert second == {"path": "gone.json", "ok": False, "error": "gone.json: no such file"}


def test_an_unknown_plugin_is_an_error_of_the_file(workdir: Path, capsys: Out) -> None:
    path = write(workdir, "ada.json", '{"name": "Ada", "plugins": ["ofline"]}')
    assert entry(["character", "check", path]) == 78
    assert "plugin 'ofline' is not known: did you mean 'offline'?" in capsys.readouterr().err


def test_a_setting_with_which_the_bot_would_not_start_is_an_error_of_the_file(workdir: Path, capsys: Out) -> None:
    path = write(workdir, "ada.json", '{"name": "Ada", "settings": {"RESPONSIVENESS": "sometimes"}}')
    assert entry(["character", "check", path]) == 78
    assert "RESPONSIVENESS (in the character's settings): must be one of called" in capsys.readouterr().err


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
    output = capsys.readouterr()
    assert "it ran" not in output.out + output.err
    assert f"code     ./trap: {workdir / 'trap.py'}, 1 file, 26 bytes, sha256 " in output.out
    assert "runs only after `bot character trust ada.json`" in output.out


PLUGIN = "import pathlib\npathlib.Path('ran').touch()\nfrom bot import Plugin\nplugin = Plugin('mine')\n"
USES_PLUGIN = [
    ["chat", "-c", "ada.json"],
    ["run", "-c", "ada.json"],
    ["doctor", "-c", "ada.json"],
    ["plugin", "list", "-c", "ada.json"],
    ["plugin", "check", "./mine"],
    ["plugin", "check", "mine.py"],
    ["post", "-c", "ada.json", "--dry-run"],
    ["why", "-c", "ada.json"],
    ["db", "check", "-c", "ada.json"],
    ["outbox", "list", "-c", "ada.json"],
    ["inbox", "list", "-c", "ada.json"],
]


@pytest.mark.parametrize("command", USES_PLUGIN, ids=" ".join)
def test_no_command_runs_code_of_a_file_that_is_not_trusted(workdir: Path, capsys: Out, command: list[str]) -> None:
    write(workdir, "mine.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine"]}')
    assert entry(command) == 78
    output = capsys.readouterr()
    assert "bot character trust " in output.out + output.err
    assert "Traceback" not in output.err
    assert not (workdir / "ran").exists()


@pytest.mark.parametrize("command", [["character", "check", "ada.json"], ["settings", "-c", "ada.json"]], ids=" ".join)
def test_commands_that_only_read_a_file_run_none_of_its_code(workdir: Path, command: list[str]) -> None:
    write(workdir, "mine.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine"], "settings": {"MINE_UNIT": "C"}}')
    assert entry(command) == 0
    assert not (workdir / "ran").exists()


def test_a_trusted_file_runs_until_its_code_changes(workdir: Path, capsys: Out) -> None:
    write(workdir, "mine.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine"]}')
    assert entry(["character", "trust", "ada.json"]) == 0
    assert f"trusted for ada.json: ./mine: {workdir / 'mine.py'}, 1 file, " in capsys.readouterr().out
    assert not (workdir / "ran").exists()  # trust does not run it
    assert entry(["plugin", "list", "-c", "ada.json"]) == 0
    assert (workdir / "ran").exists()
    write(workdir, "ada.json", '{"name": "Ada", "bio": "Another.", "plugins": ["./mine.py"]}')
    assert entry(["plugin", "list", "-c", "ada.json"]) == 0
    write(workdir, "mine.py", f"{PLUGIN}# changed\n")
    capsys.readouterr()
    assert entry(["plugin", "list", "-c", "ada.json"]) == 78
    assert "has changed since you trusted it" in capsys.readouterr().err
    assert entry(["character", "check", "ada.json", "--json"]) == 0
    [checked] = json.loads(capsys.readouterr().out)["characters"]
    assert [(code["path"], code["files"], code["trusted"]) for code in checked["code"]] == [
        (str(workdir / "mine.py"), 1, False)
    ]


def test_a_plugin_that_the_file_names_later_is_not_trusted_with_the_others(workdir: Path) -> None:
    write(workdir, "mine.py", "from bot import Plugin\nplugin = Plugin('mine')\n")
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine"]}')
    assert entry(["character", "trust", "ada.json"]) == 0
    write(workdir, "late.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine", "./late"]}')
    assert entry(["plugin", "list", "-c", "ada.json"]) == 78
    assert not (workdir / "ran").exists()


def test_trust_is_listed_and_revoked(workdir: Path, capsys: Out) -> None:
    assert entry(["character", "trust", "--list"]) == 0
    assert capsys.readouterr().out == "no code is trusted but that of installed plugins\n"
    write(workdir, "mine.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["./mine"]}')
    assert entry(["character", "trust", "ada.json", "./mine"]) == 0
    write(workdir, "mine.py", f"{PLUGIN}# changed\n")
    capsys.readouterr()
    assert entry(["character", "trust", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in listed] == [
        f"{workdir / 'mine.py'} for {workdir / 'ada.json'}",
        f"{workdir / 'mine.py'} for any character in its folder",
    ]
    assert all(line.endswith("changed: not run before it is trusted again") for line in listed)
    (workdir / "ada.json").unlink()
    assert entry(["character", "trust", "--revoke", "ada.json"]) == 0
    assert entry(["character", "trust", "--revoke", "ada.json"]) == 78
    assert "none of its code was trusted" in capsys.readouterr().err


def test_a_file_without_code_needs_no_trust(workdir: Path, capsys: Out) -> None:
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["bootstrap"]}')
    assert entry(["character", "trust", "ada.json"]) == 0
    assert capsys.readouterr().out == "ada.json brings no code: there is nothing to trust\n"


@pytest.mark.parametrize("arguments", [[], ["ada.json", "--list"], ["--list", "--revoke", "ada.json"]], ids=" ".join)
def test_trust_requires_an_operation(arguments: list[str]) -> None:
    assert entry(["character", "trust", *arguments]) == 2


def test_what_leads_out_of_the_folder_cannot_be_trusted(workdir: Path, capsys: Out) -> None:
    (workdir / "inner").mkdir()
    write(workdir, "outside.py", PLUGIN)
    (workdir / "inner" / "link.py").symlink_to(workdir / "outside.py")
    (workdir / "inner" / "folder").symlink_to(workdir)
    for name in ("../outside", str(workdir / "outside.py"), "./link", "./link.py", "./folder/outside"):
        write(workdir / "inner", "ada.json", json.dumps({"name": "Ada", "plugins": [name]}))
        for command in (["character", "trust"], ["character", "check"], ["chat", "-c"]):
            assert entry([*command, "inner/ada.json"]) == 78
            assert "is outside the character's folder" in capsys.readouterr().err
    assert not (workdir / "ran").exists()


def test_a_plugin_in_the_folder_of_the_character_itself_is_refused(workdir: Path, capsys: Out) -> None:
    write(workdir, "__init__.py", PLUGIN)
    write(workdir, "ada.json", '{"name": "Ada", "plugins": ["."]}')
    assert entry(["character", "trust", "ada.json"]) == 78
    assert "its folder holds the character's file" in capsys.readouterr().err


def test_trust_is_stored_in_the_operators_data_folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workdir, "mine.py", PLUGIN)
    settings = {"BOT_DATA_DIR": str(workdir / "theirs")}
    write(workdir, "ada.json", json.dumps({"name": "Ada", "plugins": ["./mine"], "settings": settings}))
    monkeypatch.setenv("BOT_DATA_DIR", str(workdir / "ours"))
    assert entry(["character", "trust", "ada.json"]) == 0
    assert (workdir / "ours" / "trusted-plugins.json").is_file()
    assert not (workdir / "theirs").exists()
    assert entry(["plugin", "list", "-c", "ada.json"]) == 0


def test_plugins_that_cannot_be_used_together_are_an_error_once_their_code_is_trusted(
    workdir: Path, capsys: Out
) -> None:
    write_clashing_plugins(workdir)
    assert entry(["character", "check", "ada.json"]) == 78
    assert "action ROLL_DICE is brought by plugin 'one' and by plugin 'two'" in capsys.readouterr().err
    (workdir / "data" / "trusted-plugins.json").unlink()
    assert entry(["character", "check", "ada.json"]) == 0
    assert capsys.readouterr().out.count("runs only after") == 2
