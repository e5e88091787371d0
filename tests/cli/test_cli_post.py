"""`bot post`: shows a post, and publishes it on X."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.web.adapter import WebAdapter
from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.cli.characters import load_character_config
from bot.cli.commands import post as post_command
from bot.cli.main import entry
from bot.cli.process.shutdown import Exit
from bot.cli.running_bot import open_store_for_reading
from bot.domain.environment import ChannelType
from bot.domain.ledger import DeliveryState
from bot.inbound.agent_handle import AdapterSpec, Publishing
from bot.outbound import sender
from bot.plugin_system.loading import find_adapter
from bot.runtime.runtime import Runtime
from bot.testing import RecordingAdapter, make_message
from tests.adapters.x.threaded import emulated
from tests.cli.stored_character import FILE, answer_messages, write_character
from tests.rehearsal.loopback_model import loopback_model
from tests.trust import trust_code

PIXEL = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
FOG = "Fog is just weather minding its own business."


@pytest.fixture
def file(workdir: Path) -> Path:
    """Write a character with one example post and one topic."""
    path = workdir / "tamsin.json"
    path.write_text(json.dumps({"name": "Tamsin", "topics": ["tides"], "postExamples": [FOG]}))
    return path


def post(*args: str) -> int:
    return entry(["post", *args])


def test_missing_keys_are_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert post("-c", str(file)) == Exit.CONFIG
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bot: X_API_KEY, X_API_SECRET, X_ACCESS_TOKEN, X_ACCESS_TOKEN_SECRET are not set")


def test_the_adapter_with_publishing_publishes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = find_adapter("x")
    assert isinstance(x, AdapterSpec)
    quill = replace(x, name="quill", needs=(), publishing=Publishing("https://quill.example/{}".format))
    adapters = {"x": x, "silent": replace(x, name="silent", needs=(), publishing=None), "quill": quill}
    monkeypatch.setattr(post_command, "find_adapters", lambda: adapters)
    monkeypatch.setattr(post_command, "find_adapter", adapters.get)
    publisher = post_command.require_publisher(load_character_config(file))
    assert publisher.spec is quill
    parts = [post_command.PublishedPart(id="part", part=0, state=DeliveryState.SENT, external_id="7", cause="")]
    assert publisher.post_url(parts) == "https://quill.example/7"


def test_without_a_publishing_adapter_the_reasons_are_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(post_command, "find_adapters", lambda: {"x": "'x' needs tweepy"})
    assert post("-c", str(file), "--text", FOG) == Exit.CONFIG
    assert "no installed adapter can publish a post" in (err := capsys.readouterr().err)
    assert "'x' needs tweepy" in err


def test_a_dry_run_prints_a_post_and_stores_nothing(
    file: Path, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file), "--dry-run") == Exit.OK
    assert 0 < len(capsys.readouterr().out.strip()) <= 280
    assert list(workdir.iterdir()) == [file]


def test_what_a_draft_costs_is_in_the_sums_of_the_day_also_if_nothing_is_published(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_character(workdir)
    answer_messages("hello")  # creates the database
    with loopback_model(lambda prompt: "The tide is out.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("MODEL_PRICES", "*=1/1")  # a call of 1,100 tokens costs $0.0011
        assert post("-c", FILE, "--dry-run") == Exit.OK
    capsys.readouterr()
    assert entry(["why", "--costs", "--by", "purpose", "-c", FILE, "--json"]) == Exit.OK
    item = next(item for item in json.loads(capsys.readouterr().out)["sums"] if item["name"] == "post")
    assert item["calls"] == len(server.prompts) > 0
    assert item["usd"] == pytest.approx(0.0011 * len(server.prompts))


@pytest.mark.parametrize("text", ["", "  ", "\u200b"])
def test_an_empty_text_is_refused(text: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert post("-c", str(file), "--dry-run", "--text", text) == Exit.USAGE
    assert capsys.readouterr().err == "bot: --text is empty\n"


def test_a_secret_in_a_text_is_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("X_API_KEY", "very-secret-indeed")
    assert post("-c", str(file), "--dry-run", "--text", "It is very-secret-indeed") == Exit.OK
    assert capsys.readouterr().out == "It is [redacted]\n"


@pytest.mark.long
def test_an_earlier_post_is_not_repeated(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written() -> str:
        assert post("-c", str(file), "--dry-run") == Exit.OK
        return capsys.readouterr().out.strip()

    async def publish(text: str) -> str:
        """Store a post in a feed; run the command while that bot still runs."""
        async with Runtime([load_character_config(file).agent_config]) as runtime:
            await runtime.connect(RecordingAdapter())
            agent = runtime.agents[0].agent
            feed = make_message("", sent_at=agent.clock(), kind=ChannelType.FEED)
            await agent.store.worlds.save_world(feed.world, [feed.room])
            await agent.say(feed.room, text)
            return await asyncio.to_thread(written)

    first = written()
    assert written() == first
    assert asyncio.run(publish(first)) != first
    assert written() != first


STORE = """
from bot import Plugin
from bot.store import InMemoryStore
plugin = Plugin("shelf", store=lambda agent_id, settings: InMemoryStore())
"""


def test_unreadable_recent_posts_are_reported(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "shelf.py").write_text(STORE)
    trust_code(workdir)
    (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["./shelf"]}')
    assert post("-c", "ada.json", "--dry-run") == Exit.OK
    captured = capsys.readouterr()
    assert captured.out.strip()
    assert "recent posts cannot be read: " in captured.err


def test_a_broken_database_is_reported(
    file: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "notes.db").write_text("no database")
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{workdir / 'notes.db'}")
    assert post("-c", str(file), "--dry-run") == Exit.TRY_AGAIN
    assert "notes.db is no SQLite database" in capsys.readouterr().err


@pytest.mark.long
def test_an_unusable_answer_is_a_temporary_failure(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    monkeypatch.setenv("MODEL_RETRIES", "0")
    assert post("-c", str(file), "--dry-run") == Exit.TRY_AGAIN
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") <= 3


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Start an emulated X and set the variables that point to it."""
    with emulated() as emulator:
        for name, value in emulator.environment.items():
            monkeypatch.setenv(name, value)
        yield emulator


def test_a_post_is_shown_published_and_its_url_printed(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file), "--text", FOG, "--yes") == Exit.OK
    [made] = emulator.state.posts_by(emulator.user_id)
    captured = capsys.readouterr()
    assert captured.out == f"https://x.com/i/status/{made.id}\n"
    assert FOG in captured.err
    assert made.text == FOG


def test_a_post_is_written_in_the_characters_voice_and_published(file: Path, emulator: Emulator) -> None:
    assert post("-c", str(file), "--yes") == Exit.OK
    [text] = emulator.bot_texts
    assert 0 < len(text) <= 280


def test_without_a_terminal_nothing_is_published(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file), "--text", FOG) == Exit.USAGE
    assert "--yes" in capsys.readouterr().err
    assert emulator.calls == []


@pytest.mark.parametrize("switch", ["--dry-run", "X_DRY_RUN"])
def test_a_dry_run_sends_no_request_to_x(
    switch: str, file: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if switch == "X_DRY_RUN":
        monkeypatch.setenv("X_DRY_RUN", "true")
    options = ["--dry-run"] if switch == "--dry-run" else ["--yes"]
    assert post("-c", str(file), "--text", FOG, *options) == Exit.OK
    assert capsys.readouterr().out == f"{FOG}\n"
    assert emulator.calls == []


def test_a_long_text_is_shown_and_published_as_a_thread(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(f"This is sentence number {number} of a long post." for number in range(14))
    assert post("-c", str(file), "--text", text, "--yes") == Exit.OK
    first, second, third = emulator.state.posts_by(emulator.user_id)
    assert (first.reply_to_id, second.reply_to_id, third.reply_to_id) == ("", first.id, second.id)
    assert " ".join(emulator.bot_texts) == text
    captured = capsys.readouterr()
    assert "a thread of 3 posts" in captured.err
    assert captured.out == f"https://x.com/i/status/{first.id}\n"


def test_an_interrupted_thread_is_reported_and_can_be_resumed(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(f"This is sentence number {number} of a long post." for number in range(14))
    emulator.add_faults(*[Fault("POST /2/tweets", FaultKind.PASSED)], Fault("POST /2/tweets", status=403, body="{}"))
    assert post("-c", str(file), "--text", text, "--yes") == Exit.CONFIG
    captured = capsys.readouterr()
    [first] = emulator.state.posts_by(emulator.user_id)
    assert captured.out == f"https://x.com/i/status/{first.id}\n"
    assert "part 2 of 3" in captured.err
    assert "part 3 of 3" in captured.err
    assert "bot post --resume" in captured.err
    assert post("-c", str(file), "--resume") == Exit.OK
    _, second, third = emulator.state.posts_by(emulator.user_id)
    assert (second.reply_to_id, third.reply_to_id) == (first.id, second.id)
    assert " ".join(emulator.bot_texts) == text


@pytest.mark.long
def test_a_part_that_was_dropped_is_not_sent_by_resuming(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    emulator.add_faults(Fault("POST /2/tweets", status=403, body="{}"))
    assert post("-c", str(file), "--text", FOG, "--yes") == Exit.CONFIG
    assert entry(["outbox", "list", "-c", str(file), "--json"]) == Exit.OK
    [part] = json.loads(capsys.readouterr().out)["parts"]
    assert entry(["outbox", "drop", "-c", str(file), part["id"]]) == Exit.OK
    assert post("-c", str(file), "--resume") == Exit.OK
    assert not emulator.state.posts_by(emulator.user_id)
    assert entry(["outbox", "send", "-c", str(file), part["id"]]) == Exit.OK, "by name it can still be sent"


def test_a_picture_is_published_with_its_description(file: Path, workdir: Path, emulator: Emulator) -> None:
    picture = workdir / "fog.png"
    picture.write_bytes(PIXEL)
    command = ("-c", str(file), "--text", FOG, "--yes", "--media", str(picture), "--alt", "A grey field")
    assert post(*command) == Exit.OK
    [made] = emulator.state.posts_by(emulator.user_id)
    [key] = made.pictures
    assert emulator.state.pictures[key] == {"data": PIXEL, "type": "image/png", "alt": "A grey field"}


@pytest.mark.parametrize("name", ["there-is-none.png", "notes.txt", "empty.png"])
def test_a_file_that_is_no_picture_is_refused_first(
    name: str, file: Path, workdir: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "notes.txt").write_text("no picture")
    (workdir / "empty.png").touch()
    assert post("-c", str(file), "--text", FOG, "--yes", "--media", str(workdir / name)) == Exit.USAGE
    assert name in capsys.readouterr().err
    assert emulator.calls == []


def test_refused_keys_are_reported_at_once(file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    emulator.is_revoked = True
    assert post("-c", str(file), "--text", FOG, "--yes") == Exit.TRY_AGAIN
    captured = capsys.readouterr()
    assert "X refuses the keys" in captured.err
    assert [call.endpoint for call in emulator.calls] == ["POST /2/tweets", "GET /2/users/me"]


REFUSAL = Fault("POST /2/tweets", status=403, body='{"errors": [{"detail": "Your app may only read."}]}')
OUTAGE = Fault("POST /2/tweets", status=429, body="{}")


@pytest.mark.parametrize(
    ("fault", "code", "problem"),
    [
        (REFUSAL, Exit.CONFIG, "was not sent: X says 403: Your app may only read.\n"),
        pytest.param(OUTAGE, Exit.TRY_AGAIN, "was not sent: X says 429", marks=pytest.mark.long),
    ],
)
def test_a_refusal_for_good_has_another_exit_code_than_a_limit(
    fault: Fault, code: Exit, problem: str, file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    emulator.add_faults(fault, fault, fault)
    assert post("-c", str(file), "--text", FOG, "--yes") == code
    assert problem in capsys.readouterr().err
    assert emulator.bot_texts == []


THREAD = " ".join(f"This is sentence number {number} of a long post." for number in range(14))
NOT_NOW = Fault("POST /2/tweets", status=503, body="{}")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next attempt at once."""
    monkeypatch.setattr(sender, "FIRST_DELAY_SECONDS", 0.0)


@pytest.mark.long
@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("command", [("--resume",), ("--text", "Rain.", "--yes")])
def test_a_part_that_has_had_many_attempts_is_sent_once_x_accepts_it(
    command: Sequence[str], file: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("X_POST_DAILY_CAP", "5000")
    monkeypatch.setenv("X_MONTHLY_POSTS", "5000")
    emulator.add_faults(*[NOT_NOW] * 2000)
    assert post("-c", str(file), "--text", "Fog.", "--yes") == Exit.TRY_AGAIN
    assert post("-c", str(file), "--resume") == Exit.TRY_AGAIN
    emulator.faults.clear()
    assert post("-c", str(file), *command) == Exit.OK
    assert emulator.bot_texts[0] == "Fog."


@pytest.mark.long
@pytest.mark.usefixtures("no_pauses")
def test_resuming_names_each_post_and_its_own_parts(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    emulator.add_faults(REFUSAL, Fault("POST /2/tweets", FaultKind.PASSED), *[REFUSAL] * 3)
    assert post("-c", str(file), "--text", "One line.", "--yes") == Exit.CONFIG
    assert post("-c", str(file), "--text", THREAD, "--yes") == Exit.CONFIG
    emulator.faults.clear()
    emulator.add_faults(*[REFUSAL] * 3)
    capsys.readouterr()
    assert post("-c", str(file), "--resume") == Exit.CONFIG
    captured = capsys.readouterr()
    first, *_ = emulator.state.posts_by(emulator.user_id)
    assert captured.out == f"https://x.com/i/status/{first.id}\n"
    assert "the post (" in captured.err
    assert [line.partition(" (")[0] for line in captured.err.splitlines() if " of " in line.partition(" (")[0]] == [
        "part 2 of 3",
        "part 3 of 3",
    ]


def test_a_post_in_quiet_hours_that_the_operator_makes_is_sent(
    file: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("X_QUIET_HOURS", "00:00-23:59")
    assert post("-c", str(file), "--text", THREAD, "--yes") == Exit.OK
    assert len(emulator.bot_texts) == 3


PostWithBot = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def post_with_bot(file: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> PostWithBot:
    """Return a function that runs the command in another process than the bot that uses the store."""
    monkeypatch.setenv("X_REPLY_ENABLE", "false")
    monkeypatch.setenv("SERVER_TOKEN", "a-token-for-tests")

    async def run(args: Sequence[str]) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("SERVER_PORT", "0")
        part = load_character_config(file)
        specs = [find_adapter("web"), find_adapter("x")]
        async with Runtime([part.agent_config], [spec for spec in specs if isinstance(spec, AdapterSpec)]) as runtime:
            [port] = [adapter.port for adapter in runtime.adapters if isinstance(adapter, WebAdapter)]
            monkeypatch.setenv("SERVER_PORT", str(port))
            command = [sys.executable, "-m", "bot", "post", "-c", str(file), *args]
            return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)

    return lambda *args: asyncio.run(run(args))


@pytest.mark.long
def test_a_running_bot_reports_a_refusal_for_good(post_with_bot: PostWithBot, emulator: Emulator) -> None:
    emulator.add_faults(REFUSAL)
    result = post_with_bot("--text", FOG, "--yes")
    assert "was not sent: X says 403: Your app may only read.\n" in result.stderr
    assert result.returncode == Exit.CONFIG


@pytest.mark.long
def test_a_text_that_a_running_bot_does_not_take_is_refused_for_good(
    post_with_bot: PostWithBot, emulator: Emulator
) -> None:
    result = post_with_bot("--text", "fog " * 1_100, "--yes")
    assert "the running bot did not do it: not a valid post" in result.stderr
    assert result.returncode == Exit.CONFIG
    assert emulator.writes == []


@pytest.mark.long
def test_a_running_bot_publishes_the_post(post_with_bot: PostWithBot, emulator: Emulator) -> None:
    result = post_with_bot("--text", FOG, "--yes")
    [made] = emulator.state.posts_by(emulator.user_id)
    assert result.stdout == f"https://x.com/i/status/{made.id}\n"
    assert result.returncode == Exit.OK


def published(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Publish a post with the command; return its URL."""
    assert post("-c", str(file), "--text", FOG, "--yes") == Exit.OK
    return capsys.readouterr().out.strip()


def stored_posts(file: Path) -> list[str]:
    """Return the texts of the stored posts, from which prompts take the recent ones."""

    async def read() -> list[str]:
        async with open_store_for_reading(load_character_config(file)) as store:
            rooms = [room.id for room in await store.worlds.rooms() if room.type is ChannelType.FEED]
            return [memory.content.text for room_id in rooms for memory in await store.memories.recent(room_id, 50)]

    return asyncio.run(read())


@pytest.mark.long
def test_a_published_post_is_deleted_once_and_no_longer_known(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    url = published(file, capsys)
    assert stored_posts(file) == [FOG]
    assert post("-c", str(file), "--delete", url, "--yes") == Exit.OK
    assert capsys.readouterr().err == f"deleted: {url}\n"
    assert (emulator.bot_texts, stored_posts(file)) == ([], [])
    assert post("-c", str(file), "--delete", url, "--yes") == Exit.OK
    assert capsys.readouterr().err == f"it was gone already: {url}\n"


def test_a_post_of_another_account_is_not_deleted(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = emulator.say("bob", "Look at me.")
    assert post("-c", str(file), "--delete", theirs, "--yes") == Exit.CONFIG
    assert "the post was not deleted: it is a post of @bob, and an account can delete only its own" in (
        capsys.readouterr().err
    )
    assert not emulator.state.posts[theirs].is_deleted


def test_a_deletion_that_x_does_not_take_now_can_be_tried_again(
    file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    url = published(file, capsys)
    emulator.add_faults(Fault("DELETE /2/tweets/:id", status=503))
    assert post("-c", str(file), "--delete", url, "--yes") == Exit.TRY_AGAIN
    assert "the post was not deleted: X says 503" in capsys.readouterr().err
    assert stored_posts(file) == [FOG]


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--yes", "X_DRY_RUN")])
def test_nothing_is_deleted_without_confirmation_or_in_a_dry_run(
    options: Sequence[str],
    file: Path,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = published(file, capsys)
    if "X_DRY_RUN" in options:
        monkeypatch.setenv("X_DRY_RUN", "true")
    switches = [option for option in options if option.startswith("--")]
    assert post("-c", str(file), "--delete", url, *switches) == (Exit.OK if options else Exit.USAGE)
    assert (f"it would be deleted: {url}" if options else "--yes") in capsys.readouterr().err
    assert emulator.bot_texts == [FOG]


@pytest.mark.parametrize(
    "options",
    [
        ("--delete", "the one about fog"),
        ("--delete", "https://x.com/ada"),
        ("--delete", "17", "--text", FOG),
        ("--delete", "17", "--resume"),
    ],
)
def test_a_deletion_names_a_single_post_and_does_nothing_else(
    options: Sequence[str], file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post("-c", str(file), *options, "--yes") == Exit.USAGE
    assert "--delete" in capsys.readouterr().err
    assert emulator.calls == []


@pytest.mark.long
def test_a_running_bot_deletes_the_post(
    post_with_bot: PostWithBot, file: Path, emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    url = published(file, capsys)
    theirs = emulator.say("bob", "Look at me.")
    result = post_with_bot("--delete", url, "--yes")
    assert (result.stderr, result.returncode) == (f"deleted: {url}\n", Exit.OK)
    assert (emulator.bot_texts, stored_posts(file)) == ([], [])
    result = post_with_bot("--delete", theirs, "--yes")
    assert "the running bot did not do it: the post was not deleted: it is a post of @bob" in result.stderr
    assert result.returncode == Exit.CONFIG


@pytest.mark.long
@pytest.mark.parametrize(("typed", "count"), [("y\n", 1), pytest.param("\n", 0, marks=pytest.mark.long)])
def test_in_a_terminal_publishing_needs_confirmation(typed: str, count: int, file: Path, emulator: Emulator) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "bot", "post", "-c", str(file), "--text", FOG]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        out, err = process.communicate(timeout=60)
        os.close(ours)
    assert process.returncode == Exit.OK
    assert f"{FOG}\nPublish it on X?" in err
    assert len(emulator.bot_texts) == count
    assert out.count("https://x.com/i/status/") == count
