"""`bot post`: shows a post, and says that this version publishes none."""

import asyncio
import json
from pathlib import Path

import pytest

from bot.cli.cast import read_part
from bot.cli.exits import Exit
from bot.cli.main import entry
from bot.domain.places import ChannelType
from bot.runtime import Runtime
from bot.testing import RecordingAdapter, make_arrival

FOG = "Fog is just weather minding its own business."


@pytest.fixture
def file(desk: Path) -> Path:
    """Write a character that has one post of its own and one topic."""
    path = desk / "tamsin.json"
    path.write_text(json.dumps({"name": "Tamsin", "topics": ["tides"], "postExamples": [FOG]}))
    return path


def post(*args: str) -> int:
    return entry(["post", *args])


def test_without_dry_run_it_says_that_nothing_can_be_published(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file)) == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "bot: this version has no X adapter yet and cannot publish: add --dry-run to see the post\n"
    )


def test_a_dry_run_prints_a_post_and_keeps_nothing(
    file: Path, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file), "--dry-run") == Exit.OK
    assert 0 < len(capsys.readouterr().out.strip()) <= 280
    assert list(desk.iterdir()) == [file]


@pytest.mark.parametrize("text", ["", "  ", "\u200b"])
def test_an_empty_text_is_refused(text: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert post("-c", str(file), "--dry-run", "--text", text) == Exit.USAGE
    assert capsys.readouterr().err == "bot: --text holds nothing to post\n"


def test_a_secret_in_a_text_is_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("X_API_KEY", "very-secret-indeed")
    assert post("-c", str(file), "--dry-run", "--text", "It is very-secret-indeed") == Exit.OK
    assert capsys.readouterr().out == "It is [redacted]\n"


def test_what_was_posted_in_a_feed_is_not_posted_again(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written() -> str:
        assert post("-c", str(file), "--dry-run") == Exit.OK
        return capsys.readouterr().out.strip()

    async def publish(text: str) -> str:
        """Say it in a feed, and have a post written while that bot still runs."""
        async with Runtime([read_part(file).blueprint]) as runtime:
            await runtime.connect(RecordingAdapter())
            agent = runtime.residents[0].agent
            feed = make_arrival("", at=agent.clock(), kind=ChannelType.FEED)
            await agent.store.worlds.save_world(feed.world, [feed.room])
            await agent.say(feed.room, text)
            return await asyncio.to_thread(written)

    first = written()
    assert written() == first
    assert asyncio.run(publish(first)) != first
    assert written() != first


STORE = """
from bot import Plugin
from bot.testing import InMemoryStore
plugin = Plugin("shelf", store=lambda agent_id, settings: InMemoryStore())
"""


def test_where_recent_posts_cannot_be_read_it_says_so(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "shelf.py").write_text(STORE)
    (desk / "ada.json").write_text('{"name": "Ada", "plugins": ["./shelf"]}')
    assert post("-c", "ada.json", "--dry-run") == Exit.OK
    said = capsys.readouterr()
    assert said.out.strip()
    assert "recent posts are not known: " in said.err


def test_a_broken_database_is_named(
    file: Path, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "notes.db").write_text("no database")
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{desk / 'notes.db'}")
    assert post("-c", str(file), "--dry-run") == Exit.TRY_AGAIN
    assert "notes.db is no SQLite database" in capsys.readouterr().err


def test_without_a_usable_answer_it_says_try_again(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    assert post("-c", str(file), "--dry-run") == Exit.TRY_AGAIN
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") <= 3
