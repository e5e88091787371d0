"""Which files a character may name, and what is read from them."""

import logging
from pathlib import Path

import pytest

from bot import Character
from plugins.knowledge import documents
from plugins.knowledge.documents import MAX_FILE_BYTES, UnreadableDocument, extract_text, list_sources


def character(*knowledge: object) -> Character:
    return Character.model_validate({"name": "Robin", "knowledge": list(knowledge)})


def names(who: Character, folder: Path | None) -> list[str]:
    return [source.name for source in list_sources(who, folder)]


def test_text_files_and_folders_are_sources(tmp_path: Path) -> None:
    (tmp_path / "tides.md").write_text("Twice a day.")
    (tmp_path / "log" / "old").mkdir(parents=True)
    for name in ("b.txt", "a.md", "old/c.MARKDOWN", "picture.png", ".hidden.md"):
        (tmp_path / "log" / name).write_text(name)
    who = character("Low water is at six.", {"path": "tides.md"}, {"directory": "./log"})
    words, *files = names(who, tmp_path)
    assert words.startswith("knowledge ")
    assert files == ["tides.md", "log/a.md", "log/b.txt", "log/old/c.MARKDOWN"]


def test_a_document_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "tides.md").write_text("Twice a day.")
    who = character("One.", "One.", {"path": "tides.md"}, {"path": "./tides.md"}, {"directory": "."})
    assert len(names(who, tmp_path)) == 2


@pytest.mark.parametrize("field", ["path", "directory"])
@pytest.mark.parametrize("named", ["../secret.md", "/etc", "a/../../b", "~/../../x/../../../etc", "link"])
def test_files_outside_the_characters_folder_are_rejected(
    field: str, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (home / "link").symlink_to(tmp_path)
    (home / "tides.md").write_text("Twice a day.")
    with caplog.at_level(logging.WARNING):
        assert names(character({field: named}, {"path": "tides.md"}), home) == ["tides.md"]
    assert f"knowledge[0]: '{named}' is skipped: it is outside the character's folder" in caplog.text


def test_a_link_that_leads_outside_the_folder_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (home / "link.md").symlink_to(tmp_path / "secret.md")
    (home / "folder").symlink_to(tmp_path, target_is_directory=True)
    assert names(character({"directory": "."}), home) == []
    assert "leads outside the character's folder" in caplog.text


def test_a_character_without_a_file_can_only_have_inline_knowledge(caplog: pytest.LogCaptureFixture) -> None:
    assert len(names(character("Known.", {"path": "tides.md"}), None)) == 1
    assert "has no folder" in caplog.text


@pytest.mark.parametrize("named", ["gone.md", "picture.png"])
def test_missing_files_and_unknown_types_are_logged(
    named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "tides.md").write_text("Twice a day.")
    assert names(character({"path": named}, {"path": "tides.md"}), tmp_path) == ["tides.md"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert named in caplog.text


def test_the_number_of_files_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(documents, "MAX_FILES", 2)
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text(name)
    assert names(character({"directory": "."}, "Known."), tmp_path)[:2] == ["a.md", "b.md"]
    assert "c.md is skipped" in caplog.text


@pytest.mark.parametrize(
    ("suffix", "data", "why"),
    [
        (".md", b"\xff\xfe\x00", "not UTF-8 text"),
        (".txt", b"a\x00b", "a binary file"),
        (".txt", b"a" * (MAX_FILE_BYTES + 1), "larger than 10 MiB"),
        (".txt", b"a" * (documents.MAX_TEXT_LENGTH + 1), "longer than 2000000 characters"),
    ],
)
def test_an_unreadable_document_has_a_reason(suffix: str, data: bytes, why: str) -> None:
    with pytest.raises(UnreadableDocument, match=why):
        extract_text(suffix, data)
