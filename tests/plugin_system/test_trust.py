"""Which code named by its path may run: what the operator trusted, as it was then."""

import os
from pathlib import Path

import pytest

from bot.domain.character import Character
from bot.errors import PluginError
from bot.plugin_system.loading import find_plugin, load_plugins
from bot.plugin_system.trust import FILE_NAME, PluginSource, TrustedPlugins, read_plugin_source
from bot.settings import Settings

CODE = "from bot import Plugin\nplugin = Plugin('mine')\n"
TRAP = "raise SystemExit('it ran')\n"


@pytest.fixture
def trusted(tmp_path: Path) -> TrustedPlugins:
    return TrustedPlugins(tmp_path / "data")


def write(path: Path, code: str = CODE) -> PluginSource:
    path.write_text(code, encoding="utf-8")
    return read_plugin_source(path, f"./{path.stem}")


def test_nothing_is_trusted_before_the_operator_says_so(trusted: TrustedPlugins, tmp_path: Path) -> None:
    source, character = write(tmp_path / "mine.py", TRAP), tmp_path / "ada.json"
    assert not trusted.is_trusted(source, character)
    with pytest.raises(PluginError) as caught:
        find_plugin("./mine", tmp_path, trusted.approval(character))
    assert str(caught.value) == (
        f"plugin './mine' is code that you have not trusted yet: read {tmp_path / 'mine.py'}, then run "
        f"`bot character trust {character}`"
    )


def test_code_runs_as_it_was_trusted_and_no_further(trusted: TrustedPlugins, tmp_path: Path) -> None:
    source, character = write(tmp_path / "mine.py"), tmp_path / "ada.json"
    trusted.trust([source], character)
    assert find_plugin("./mine", tmp_path, trusted.approval(character)) is not None
    write(tmp_path / "mine.py", TRAP)
    with pytest.raises(PluginError, match="has changed since you trusted it"):
        find_plugin("./mine", tmp_path, trusted.approval(character))
    write(tmp_path / "mine.py")
    assert find_plugin("./mine.py", tmp_path, trusted.approval(character)) is not None


@pytest.mark.parametrize("name", ["./mine", "./mine.py", "../code/mine", "./../code/./mine.py", "./link", "./link.py"])
def test_trust_is_that_of_the_file_whatever_the_spelling_of_its_path(
    trusted: TrustedPlugins, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    character = folder / "ada.json"
    (folder / "link.py").symlink_to("mine.py")
    trusted.trust([write(folder / "mine.py")], character)
    assert find_plugin(name, folder, trusted.approval(character)) is not None
    assert find_plugin(str(folder / name), Path("/"), trusted.approval(character)) is not None
    trusted.revoke(folder / name)
    with pytest.raises(PluginError, match="not trusted"):
        find_plugin(name, folder, trusted.approval(character))


def test_trust_is_that_of_a_single_characters_file(trusted: TrustedPlugins, tmp_path: Path) -> None:
    source = write(tmp_path / "mine.py")
    trusted.trust([source], tmp_path / "ada.json")
    assert trusted.is_trusted(source, tmp_path / "ada.json")
    assert not trusted.is_trusted(source, tmp_path / "bob.json")
    assert not trusted.is_trusted(source, tmp_path / "ADA.json")
    with pytest.raises(PluginError, match="not trusted"):
        find_plugin("./mine", tmp_path, trusted.approval(tmp_path / "bob.json"))  # though it is imported already


def test_a_copy_elsewhere_is_not_trusted(trusted: TrustedPlugins, tmp_path: Path) -> None:
    trusted.trust([write(tmp_path / "mine.py")], tmp_path / "ada.json")
    (tmp_path / "other").mkdir()
    copy = write(tmp_path / "other" / "mine.py")
    assert not trusted.is_trusted(copy, tmp_path / "ada.json")
    assert not trusted.is_trusted(copy, tmp_path / "other" / "ada.json")


def test_a_character_reached_by_a_link_is_the_same_file(trusted: TrustedPlugins, tmp_path: Path) -> None:
    source = write(tmp_path / "mine.py")
    (tmp_path / "ada.json").write_text("{}", encoding="utf-8")
    (tmp_path / "link.json").symlink_to("ada.json")
    trusted.trust([source], tmp_path / "link.json")
    assert trusted.is_trusted(source, tmp_path / "ada.json")


def test_a_plugin_may_be_trusted_for_every_character_of_its_folder(trusted: TrustedPlugins, tmp_path: Path) -> None:
    first = write(tmp_path / "mine.py")
    trusted.trust([first])
    assert trusted.is_trusted(first, tmp_path / "ada.json")
    assert trusted.is_trusted(first)
    second = write(tmp_path / "mine.py", f"{CODE}# changed\n")
    trusted.trust([second], tmp_path / "ada.json")
    assert [entry.sha256 for entry in trusted.entries()] == [second.digest]


def test_trusting_a_character_again_ends_the_trust_in_plugins_it_no_longer_names(
    trusted: TrustedPlugins, tmp_path: Path
) -> None:
    old, new = write(tmp_path / "old.py"), write(tmp_path / "new.py")
    trusted.trust([old], tmp_path / "ada.json")
    trusted.trust([new], tmp_path / "ada.json")
    assert [trusted.is_trusted(source, tmp_path / "ada.json") for source in (old, new)] == [False, True]


def test_the_file_is_private_and_replaced_whole(trusted: TrustedPlugins, tmp_path: Path) -> None:
    trusted.trust([write(tmp_path / "mine.py")])
    file = tmp_path / "data" / FILE_NAME
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602])
def test_a_file_that_others_may_have_written_is_not_believed(
    trusted: TrustedPlugins, tmp_path: Path, mode: int
) -> None:
    source = write(tmp_path / "mine.py", TRAP)
    trusted.trust([source])
    (tmp_path / "data" / FILE_NAME).chmod(mode)
    with pytest.raises(PluginError, match="may have been written by others: remove it"):
        trusted.is_trusted(source)
    with pytest.raises(PluginError, match="may have been written by others: remove it"):
        find_plugin("./mine", tmp_path, trusted.approval())


@pytest.mark.parametrize("content", [b"", b"{", b'{"trusted": [{"plugin": "x"}]}', b"[]", b"\xff", b'{"trusted": 1}'])
def test_a_damaged_file_is_an_error_and_not_trust(trusted: TrustedPlugins, tmp_path: Path, content: bytes) -> None:
    source = write(tmp_path / "mine.py")
    trusted.trust([source])
    (tmp_path / "data" / FILE_NAME).write_bytes(content)
    with pytest.raises(PluginError, match="is damaged: remove it"):
        trusted.is_trusted(source)


def test_a_link_in_place_of_the_file_is_not_followed(trusted: TrustedPlugins, tmp_path: Path) -> None:
    source = write(tmp_path / "mine.py")
    trusted.trust([source])
    file = tmp_path / "data" / FILE_NAME
    file.rename(tmp_path / "moved.json")
    file.symlink_to(tmp_path / "moved.json")
    with pytest.raises(PluginError, match="cannot be read"):
        trusted.is_trusted(source)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PluginError, match="cannot be written"):
        TrustedPlugins(tmp_path / "data").trust([])


def test_revoking_a_character_ends_all_trust_in_the_code_next_to_it(trusted: TrustedPlugins, tmp_path: Path) -> None:
    own, other = write(tmp_path / "own.py"), write(tmp_path / "other.py")
    trusted.trust([own], tmp_path / "ada.json")
    trusted.trust([other])
    assert len(trusted.revoke(tmp_path / "ada.json")) == 2
    assert trusted.entries() == ()
    assert trusted.revoke(tmp_path / "ada.json") == ()


@pytest.mark.parametrize("name", ["own", "own.py"])
def test_revoking_a_plugin_ends_it_for_all_characters(trusted: TrustedPlugins, tmp_path: Path, name: str) -> None:
    own, other = write(tmp_path / "own.py"), write(tmp_path / "other.py")
    trusted.trust([own, other], tmp_path / "ada.json")
    trusted.trust([own], tmp_path / "bob.json")
    assert len(trusted.revoke(tmp_path / name)) == 2
    assert [entry.plugin for entry in trusted.entries()] == [str(other.location)]


@pytest.mark.parametrize("name", ["@evil/plugin-.mine", "@evil/.mine", "@evil/..mine", "@evil/plugin-..", "@evil/."])
def test_the_name_of_a_package_is_never_a_path(tmp_path: Path, name: str) -> None:
    for file in (".mine.py", "..mine.py", "..py", "__init__.py"):
        (tmp_path / file).write_text(TRAP, encoding="utf-8")
    (tmp_path / "inner").mkdir()
    found = load_plugins(Character(name="Ada", plugins=(name,)), Settings([]), folder=tmp_path / "inner")
    assert any("there is no counterpart here" in note for note in found.notes)
    assert "mine" not in [plugin.name for plugin in found.plugins]
