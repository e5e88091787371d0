"""`bot reload`: the running bot takes up a changed character file, and the command prints what came of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot.cli.characters import load_character_config
from bot.cli.main import entry
from bot.platform import AccessTokens, TokenScope
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from tests.trust import trust_code

Out = pytest.CaptureFixture[str]
PLUGIN = "from bot import Plugin\nplugin = Plugin('mine')\n"
OWN_ID = "0b7e2b5e-6a9f-4a52-9d0e-3f1a5f0f2a11"


@pytest.fixture(autouse=True)
def _character(workdir: Path) -> None:
    write_text("mine.py", PLUGIN)
    trust_code(workdir)
    write()


def write(**changes: Any) -> None:
    write_text("ada.json", json.dumps({"name": "Ada", "plugins": ["./mine"]} | changes))


def write_text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


@asynccontextmanager
async def running_bot(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    """Run the character of `ada.json` with its HTTP server, where the command finds it."""
    config = load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": "0"}))
    async with Runtime([config.agent_config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        monkeypatch.setenv("SERVER_PORT", str(adapter.port))
        yield runtime


async def reload_character() -> int:
    return await asyncio.to_thread(entry, ["reload", "-c", "ada.json"])


async def test_it_prints_what_was_taken_up_and_what_waits(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    async with running_bot(monkeypatch) as runtime:
        write(bio="Counts gulls.", topics=["gulls"], adapters=["discord"])
        code = await reload_character()
        character = runtime.agents[0].agent.character
    assert code == 0
    assert character.bio == ("Counts gulls.",)
    assert capsys.readouterr().out.splitlines() == [
        "Ada  taken up from ada.json: bio, topics",
        "  after the next start only: adapters",
    ]


async def test_it_says_that_nothing_has_changed(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    async with running_bot(monkeypatch):
        assert await reload_character() == 0
    assert "Ada  runs as ada.json says: nothing has changed since it was last read" in capsys.readouterr().out


async def test_a_wrong_file_is_a_configuration_error_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    async with running_bot(monkeypatch) as runtime:
        before = runtime.agents[0].agent.character
        write_text("ada.json", '{"name": "Ada",\n "bio": [}')
        assert await reload_character() == 78
        assert runtime.agents[0].agent.character is before
    assert "bot: ada.json:2:10: " in capsys.readouterr().err


async def test_code_that_is_not_trusted_any_more_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    async with running_bot(monkeypatch) as runtime:
        write(bio="Counts gulls.")
        write_text("mine.py", PLUGIN + "raise SystemExit('it ran')\n")
        assert await reload_character() == 78
        result = await runtime.handles[0].reload()
        assert runtime.agents[0].agent.character.bio == ()
    assert "plugin './mine' has changed since you trusted it" in capsys.readouterr().err
    assert "plugin './mine' has changed since you trusted it" in result.error


async def test_a_document_outside_the_folder_is_left_out_and_the_rest_taken_up(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    async with running_bot(monkeypatch):
        write(bio="Counts gulls.", knowledge=[{"path": "../secret.md"}])
        assert await reload_character() == 0
    assert "taken up from ada.json: bio" in capsys.readouterr().out


async def test_a_character_is_found_by_its_name_where_the_file_has_a_new_id(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    async with running_bot(monkeypatch):
        write(id=OWN_ID)
        assert await reload_character() == 0
    assert "after the next start only: id" in capsys.readouterr().out


async def test_a_renamed_character_without_an_id_is_another_character(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    async with running_bot(monkeypatch):
        write(name="Bea")
        assert await reload_character() == 78
    assert "does not run Bea (ada.json), but Ada: one that is renamed and has no `id`" in capsys.readouterr().err


@pytest.mark.parametrize(("has_token", "code"), [(True, 75), (False, 78)])
def test_it_says_that_no_bot_runs(workdir: Path, capsys: Out, has_token: bool, code: int) -> None:
    if has_token:
        folder = workdir / "data"
        folder.mkdir(exist_ok=True)
        write_text("data/server-token", "a-token-of-an-earlier-run")
    write_text(".env", "SERVER_PORT=1")
    assert entry(["reload", "-c", "ada.json"]) == code
    assert "start it with `bot run`" in capsys.readouterr().err


async def test_only_an_operator_may_reload(monkeypatch: pytest.MonkeyPatch, capsys: Out, workdir: Path) -> None:
    async with running_bot(monkeypatch):
        tokens = AccessTokens(workdir / "data")
        _, token = tokens.create("a friend", TokenScope.READ_ONLY, datetime.now(UTC))
        write_text(".env", f"SERVER_TOKEN={token}")
        assert await reload_character() == 78
    assert "does not allow this" in capsys.readouterr().err
