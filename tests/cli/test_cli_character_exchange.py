"""`bot character import` and `export`."""

import base64
import json
from pathlib import Path

import pytest

from bot.cli.main import entry
from tests.characters.test_cards import V1, V2, png, save

Out = pytest.CaptureFixture[str]


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
