import stat
from pathlib import Path

import pytest

from adapters.web.adapter import open_web
from adapters.web.auth import load_or_create_token
from bot import AgentConfig, Character, Runtime, SettingError, Settings
from bot.settings import Layer


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_creates_a_private_token_file(tmp_path: Path) -> None:
    token = load_or_create_token(tmp_path / "deep" / "data")
    path = tmp_path / "deep" / "data" / "server-token"
    assert len(token) >= 40
    assert path.read_text().strip() == token
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["server-token"]


def test_later_starts_reuse_the_token(tmp_path: Path) -> None:
    assert load_or_create_token(tmp_path) == load_or_create_token(tmp_path)


def test_a_readable_token_file_is_made_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = load_or_create_token(tmp_path)
    path = tmp_path / "server-token"
    path.chmod(0o644)
    assert load_or_create_token(tmp_path) == token
    assert mode(path) == 0o600
    assert "was readable by others" in caplog.text


def test_an_empty_token_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "server-token").touch(mode=0o600)
    assert len(load_or_create_token(tmp_path)) >= 40


def test_a_file_without_a_usable_token_is_reported(tmp_path: Path) -> None:
    (tmp_path / "server-token").write_text("two words")
    with pytest.raises(SettingError, match="server-token contains no usable token"):
        load_or_create_token(tmp_path)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("somebody-elses-secret")
    (tmp_path / "server-token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingError, match="BOT_DATA_DIR"):
        load_or_create_token(tmp_path)


def test_a_data_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(SettingError, match="choose another folder, or set SERVER_TOKEN"):
        load_or_create_token(tmp_path / "data")


async def test_the_adapter_stores_its_token_in_the_data_folder(tmp_path: Path) -> None:
    settings = Settings([Layer("the test", {"BOT_DATA_DIR": str(tmp_path), "SERVER_PORT": "0"})])
    async with Runtime([AgentConfig(Character(name="Ada"), (), settings)]) as runtime:
        adapter = open_web(runtime.handles)
        await runtime.connect(adapter)
        assert adapter.url == f"http://127.0.0.1:{adapter.port}/?token={load_or_create_token(tmp_path)}"


async def test_different_server_settings_are_refused() -> None:
    plans = [
        AgentConfig(Character(name=name), (), Settings([Layer("the test", {"SERVER_PORT": port})]))
        for name, port in (("Ada", "3001"), ("Bea", "3002"))
    ]
    async with Runtime(plans) as runtime:
        with pytest.raises(SettingError, match="differ"):
            open_web(runtime.handles)
