"""`bot character`."""

import base64
import json
from pathlib import Path

import pytest

from bot.cli.main import entry
from tests.characters.test_cards import V1, V2, png, save
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


def test_a_check_reports_every_error_with_the_file_and_what_else_is_unusual_in_it(workdir: Path, capsys: Out) -> None:
    wrong = {"RESPONSIVENESS": "sometimes", "CONVERSATION_LENGTH": "-4"}
    path = write(workdir, "ada.json", json.dumps({"name": "Ada", "stile": {}, "settings": wrong}))
    assert entry(["character", "check", path]) == 78
    out, err = capsys.readouterr()
    lines = err.removeprefix("bot: ").splitlines()
    assert all(line.startswith("ada.json: ") for line in lines)
    for name in ("RESPONSIVENESS", "CONVERSATION_LENGTH"):
        assert any(name in line for line in lines)
    assert "stile: is not a field; did you mean 'style'?" in out


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


def test_an_imported_card_is_a_character_that_passes_the_check(workdir: Path, capsys: Out) -> None:
    save(workdir, V2)
    assert entry(["character", "import", "card.json"]) == 0
    out = capsys.readouterr().out
    assert "card.json: Seraphine (card v2)" in out
    assert "ignored  line 1: data.character_book.entries[3]: is switched off" in out
    assert "bot chat -c seraphine.json" in out
    assert entry(["character", "check", "seraphine.json"]) == 0


def test_no_file_is_replaced(workdir: Path, capsys: Out) -> None:
    save(workdir, V1)
    (workdir / "bell.json").write_text("mine", encoding="utf-8")
    assert entry(["character", "import", "card.json"]) == 78
    assert "bell.json: the file exists" in capsys.readouterr().err
    assert (workdir / "bell.json").read_text(encoding="utf-8") == "mine"


def test_a_folder_is_imported_whole_and_reported_as_json(workdir: Path, capsys: Out) -> None:
    cards = workdir / "cards"
    cards.mkdir()
    save(cards, V1, "a.json")
    save(cards, {"name": "Robin", "bio": "x", "knowledge": [{"path": "tides.md"}, {"path": "../secret.md"}]}, "b.json")
    (cards / "tides.md").write_text("Low water is at six.", encoding="utf-8")
    (workdir / "secret.md").write_text("x", encoding="utf-8")
    assert entry(["character", "import", "cards", "--to", "mine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["characters"]
    assert [(item["name"], item["files"]) for item in found] == [
        ("Bell", ["mine/bell.json"]),
        ("Robin", ["mine/robin.json", "mine/tides.md"]),
    ]
    assert {path.name for path in (workdir / "mine").iterdir()} == {"bell.json", "robin.json", "tides.md"}


PICTURES = {
    "beside the character": ("./face.png", "characters/face.png"),
    "in the project's folder": ("images/face.png", "images/face.png"),
    "by the address of a page": ("/face.png", "public/face.png"),
    "above its folder": ("../images/face.png", "images/face.png"),
}


@pytest.mark.parametrize(("named", "place"), PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("field", ["avatar", "picture"])
def test_the_picture_of_an_elizaos_project_is_copied(workdir: Path, field: str, named: str, place: str) -> None:
    characters = workdir / "project" / "characters"
    characters.mkdir(parents=True)
    file = workdir / "project" / place
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(png())
    picture = {"picture": named} if field == "picture" else {"settings": {"avatar": named, "LOG_LEVEL": "info"}}
    save(characters, {"name": "Robin", "bio": "x", **picture}, "robin.json")
    assert entry(["character", "import", "project", "--to", "mine"]) == 0
    assert json.loads((workdir / "mine" / "robin.json").read_text("utf-8"))["picture"] == "robin.png"
    assert (workdir / "mine" / "robin.png").read_bytes() == png()


def test_a_picture_in_the_character_file_itself_becomes_a_file(workdir: Path) -> None:
    avatar = "data:image/png;base64," + base64.b64encode(png()).decode()
    save(workdir, {"name": "Robin", "bio": "x", "settings": {"avatar": avatar}})
    assert entry(["character", "import", "card.json"]) == 0
    assert (workdir / "robin.png").read_bytes() == png()
    assert avatar not in (workdir / "robin.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("avatar", "problem"),
    [
        ("gone.png", "there is no such file"),
        ("../secret.png", "there is no such file"),
        ("notes.txt", "it is no PNG, JPEG, GIF or WebP"),
        ("data:image/png;base64,AAAA", "the picture in the file is damaged"),
        ("a" * 5_000, "cannot be read"),
    ],
)
def test_a_picture_that_cannot_be_copied_is_reported(workdir: Path, capsys: Out, avatar: str, problem: str) -> None:
    (workdir / "secret.png").write_bytes(png())
    (workdir / "old").mkdir()
    (workdir / "old" / "notes.txt").write_text("x", encoding="utf-8")
    save(workdir / "old", {"name": "Robin", "bio": "x", "settings": {"avatar": avatar}}, "robin.json")
    assert entry(["character", "import", "old/robin.json"]) == 0
    assert problem in capsys.readouterr().out
    assert [path.name for path in workdir.glob("robin*")] == ["robin.json"]


def test_a_character_is_exported_as_a_card_in_a_picture_and_read_back(workdir: Path, capsys: Out) -> None:
    save(workdir, V2)
    (workdir / "face.png").write_bytes(png())
    assert entry(["character", "import", "card.json"]) == 0
    assert entry(["character", "export", "seraphine.json", "--picture", "face.png"]) == 0
    assert "wrote seraphine.card.png" in capsys.readouterr().out
    assert entry(["character", "import", "seraphine.card.png", "--to", "again"]) == 0
    again = workdir / "again"
    first, second = (json.loads((folder / "seraphine.json").read_text("utf-8")) for folder in (workdir, again))
    assert second.pop("picture") == "seraphine.png"
    assert second == first
    assert (again / "seraphine.png").is_file()


def test_an_export_does_not_need_another_name_than_its_source(workdir: Path, capsys: Out) -> None:
    save(workdir, {"name": "Robin", "bio": ["x"]}, "robin.json")
    assert entry(["character", "export", "robin.json"]) == 0
    assert capsys.readouterr().out == "wrote robin.elizaos.json\n"
    save(workdir, {"name": "Robin", "bio": ["x"]}, "mine.json")
    (workdir / "robin.json").unlink()
    assert entry(["character", "export", "mine.json"]) == 0
    assert capsys.readouterr().out == "wrote robin.json\n"


def test_an_export_holds_no_secret(workdir: Path) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    save(workdir, {"name": "Robin", "bio": "x", "settings": {"secrets": {"OPENAI_API_KEY": key}}}, "robin.json")
    assert entry(["character", "export", "robin.json", "--to", "out.json"]) == 0
    assert entry(["character", "export", "robin.json", "--card"]) == 0
    assert key not in (workdir / "out.json").read_text(encoding="utf-8")
    assert key not in (workdir / "robin.card.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["import", "missing.png"], "no such file"),
        (["import", "damaged.png"], "a damaged PNG picture"),
        (["import", "empty"], "no card"),
        (["export", "robin.json", "--to", "x.png", "--card"], "--picture"),
        (["export", "robin.json", "--picture", "robin.json"], "not a PNG"),
        (["export", "robin.json", "--picture", "none.png"], "cannot be read"),
        (["export", "robin.json", "--to", "robin.json"], "the file exists"),
    ],
)
def test_a_mistake_is_named_in_a_single_line(workdir: Path, capsys: Out, arguments: list[str], problem: str) -> None:
    (workdir / "empty").mkdir()
    (workdir / "damaged.png").write_bytes(b"\x89PNG\r\n")
    save(workdir, {"name": "Robin"}, "robin.json")
    assert entry(["character", *arguments]) == 78
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("\n") == 1


def test_a_character_never_gets_the_documents_of_another_character(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, fact in (("Ann", "Ann was born in Lisbon."), ("Bert", "Bert was born in Graz.")):
        folder = workdir / name
        (folder / "knowledge").mkdir(parents=True)
        (folder / "knowledge" / "facts.md").write_text(fact)
        character = {"name": name, "bio": ["Somebody."], "knowledge": [{"path": "knowledge/facts.md"}]}
        (folder / "character.json").write_text(json.dumps(character))
    assert entry(["character", "import", "Ann/character.json", "--to", "out"]) == 0
    assert entry(["character", "import", "Bert/character.json", "--to", "out"]) == 78
    assert "another document stands there" in capsys.readouterr().err
    assert not (workdir / "out" / "bert.json").exists()
    assert entry(["character", "import", "Bert/character.json", "--to", "other"]) == 0
    (workdir / "other" / "bert.json").unlink()
    (workdir / "Bert" / "knowledge" / "again").symlink_to(".")
    assert entry(["character", "import", "Bert/character.json", "--to", "other"]) == 0  # the same document
    assert "Graz" in (workdir / "other" / "knowledge" / "facts.md").read_text()


def test_documents_that_are_not_copied_are_named(workdir: Path, capsys: Out) -> None:
    knowledge = [{"path": "../elsewhere.md"}, {"path": "gone.md"}, {"path": "here.md"}]
    (workdir / "old").mkdir()
    save(workdir, {"name": "Robin", "bio": ["x"], "knowledge": knowledge}, "old/robin.json")
    (workdir / "elsewhere.md").write_text("x")
    (workdir / "old" / "here.md").write_text("x")
    assert entry(["character", "import", "old/robin.json", "--to", "new"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "is not copied" in line]
    assert ["elsewhere.md" in lines[0], "gone.md" in lines[1], len(lines)] == [True, True, 2]


def test_what_an_elizaos_file_names_and_this_bot_lacks_is_reported_by_its_import(workdir: Path, capsys: Out) -> None:
    character = {
        "name": "Robin",
        "clients": ["discord", "lens"],
        "plugins": ["@elizaos/plugin-openai", "@elizaos/plugin-binance"],
        "settings": {
            "TWITTER_POST_INTERVAL_MIN": 60,
            "ENABLE_ACTION_PROCESSING": True,
            "internetSearch": {"depth": 1},
            "discord": {"autoJoinVoice": True},
        },
        "templates": {"twitterPostTemplate": "Post about {{topic}}."},
    }
    save(workdir, character, "old.json")
    assert entry(["character", "import", "old.json", "--to", "new", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["characters"]
    notes = {note["path"]: note["what"] for name in ("warnings", "ignored") for note in found["report"][name]}
    assert "no adapter is installed" in notes["clients[1]"]
    assert notes["settings.TWITTER_POST_INTERVAL_MIN"].endswith("here it is X_POST_INTERVAL_MIN")
    for name in ("ENABLE_ACTION_PROCESSING", "internetSearch"):
        assert "no part of this bot reads a setting of this name" in notes[f"settings.{name}"]
    assert notes["settings.discord.autoJoinVoice"] == "has no counterpart here"
    assert "'postCreationTemplate'" in notes["templates.twitterPostTemplate"]
    assert any("plugin-binance: there is no counterpart" in note for note in found["plugins"])


def test_code_that_a_file_names_is_not_copied_and_reported(workdir: Path, capsys: Out) -> None:
    folder = workdir / "old"
    folder.mkdir()
    (folder / "dice.py").write_text("raise SystemExit", encoding="utf-8")
    save(folder, {"name": "Robin", "plugins": ["./dice.py"]}, "robin.json")
    assert entry(["character", "import", "old/robin.json", "--to", "new"]) == 0
    assert "dice.py: its code is not copied" in capsys.readouterr().out
    assert {path.name for path in (workdir / "new").iterdir()} == {"robin.json"}
