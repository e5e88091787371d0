"""What is stored by default, and the operator's commands for it, in real processes."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.chaos.program import CommandResult, ForkServer, inherited_variables
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0
TOKEN = "a-token-for-tests"


@dataclass(frozen=True, slots=True)
class BotFolder:
    """A folder from which commands are started, with one port for its bot."""

    folder: Path
    environment: Mapping[str, str]
    fork_server: ForkServer

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.environment['SERVER_PORT']}"

    @property
    def database(self) -> Path:
        return self.folder / "data" / "greenroom.db"

    async def run(self, *arguments: str, stdin: str = "") -> CommandResult:
        result = await self.fork_server.run(arguments, self.folder, self.environment, stdin.encode())
        assert "Traceback" not in result.err, result.err
        return result

    async def listed(self) -> list[dict[str, Any]]:
        result = await self.run("outbox", "list", "--json")
        assert result.code == 0, result.err
        found: list[dict[str, Any]] = json.loads(result.out)["parts"]
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run `bot run` while the block lasts."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot", "run"), cwd=self.folder, env=dict(self.environment), stdout=pipe, stderr=pipe
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE):
                while b"web " not in (line := await process.stdout.readline()):
                    assert line, (await process.stderr.read()).decode()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(DEADLINE):
                await process.communicate()

    async def ask(self, text: str) -> dict[str, Any]:
        """Send a message over the running bot's API."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = {"text": text, "room": "porch", "user": "kim"}
        async with ClientSession(headers=headers) as session:
            answer = await session.post(f"{self.address}/api/agents/marlo/messages", json=body)
            result: dict[str, Any] = await answer.json()
        assert result["outcome"] == "answered", result
        return result

    async def hold_all(self) -> None:
        """Wait until everything is sent, then mark it as if its arrival were unknown."""
        async with asyncio.timeout(DEADLINE):
            while await self.listed():
                pass
        connection = sqlite3.connect(self.database)
        with connection:
            connection.execute("UPDATE deliveries SET state = 'unknown', cause = 'timed out'")
        connection.close()


@pytest.fixture
def bot_folder(tmp_path: Path, fork_server: ForkServer) -> BotFolder:
    """Return an empty folder and a clean environment without storage settings."""
    kept = inherited_variables("PATH", "HOME", "LANG", "SSL_CERT_FILE")
    own = {"SERVER_PORT": str(free_port()), "SERVER_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    return BotFolder(tmp_path, kept | own, fork_server)


@pytest.mark.long
async def test_a_chat_is_stored_and_can_be_explained_after_its_process_ended(bot_folder: BotFolder) -> None:
    assert (await bot_folder.run("chat", stdin="Hello\n")).out == "Hello, I'm Marlo. What brings you here?\n"
    assert bot_folder.database.stat().st_mode & 0o777 == 0o600
    assert (await bot_folder.run("chat", stdin="2+2?\n")).code == 0
    result = json.loads((await bot_folder.run("why", "--json")).out)["messages"]
    assert [message["text"] for message in result] == ["Hello", "2+2?"]
    assert {message["outcome"] for message in result} == {"answered"}


@pytest.mark.long
async def test_while_a_bot_runs_messages_can_be_explained_and_the_database_checked_and_copied(
    bot_folder: BotFolder,
) -> None:
    async with bot_folder.running():
        answer = await bot_folder.ask("Hello there")
        why = await bot_folder.run("why", answer["message_id"])
        assert "kim in porch (web): 'Hello there'" in why.out
        assert "decided by: room type API" in why.out
        assert json.loads((await bot_folder.run("db", "check", "--json")).out)["ok"] is True
        assert (await bot_folder.run("db", "backup", "copy.db")).code == 0
        refused = await bot_folder.run("db", "upgrade")
        assert (refused.code, "is in use by another Greenroom process" in refused.err) == (78, True)
    copy = sqlite3.connect(bot_folder.folder / "copy.db")
    assert copy.execute("SELECT count(*) FROM receipts").fetchone() == (1,)
    copy.close()


@pytest.mark.long
async def test_a_chat_while_a_bot_runs_is_kept_in_memory_and_says_so_once(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        result = await bot_folder.run("chat", stdin="Hello\n")
        assert (result.code, result.out) == (0, "Hello, I'm Marlo. What brings you here?\n")
        assert result.err.count("this conversation is not stored: ") == 1
        second = await bot_folder.run("run", "--only", "web")
        assert second.code == 78
        assert "is in use by another Greenroom process" in second.err
        assert "stop that one, or give this one its own BOT_DATA_DIR" in second.err


@pytest.mark.long
async def test_without_write_access_a_chat_works_and_a_bot_does_not_start(bot_folder: BotFolder) -> None:
    (bot_folder.folder / "data").write_text("a file where the folder should be", encoding="utf-8")
    result = await bot_folder.run("chat", stdin="Hello\n")
    assert (result.code, result.out) == (0, "Hello, I'm Marlo. What brings you here?\n")
    assert "data/greenroom.db cannot be created: " in result.err
    refused = await bot_folder.run("run")
    assert refused.code == 78
    assert "BOT_DATA_DIR" in refused.err


@pytest.mark.long
async def test_a_held_part_is_sent_or_dropped_by_the_bot_that_owns_the_database(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        await bot_folder.ask("one")
        await bot_folder.ask("two")
        await bot_folder.hold_all()
        first, second = [entry["id"] for entry in await bot_folder.listed()]
        assert (await bot_folder.run("outbox", "drop", first)).out == f"{first}: it is given up for good\n"
        sent = await bot_folder.run("outbox", "send", second)
        assert sent.out == f"{second}: it leaves as soon as its platform takes it\n"
    assert [(entry["id"], entry["state"], entry["cause"]) for entry in await bot_folder.listed()] == [
        (first, "failed", "a person dropped it")
    ]


@pytest.mark.long
async def test_a_held_part_requeued_while_no_bot_runs_is_sent_at_the_next_start(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        await bot_folder.ask("one")
    await bot_folder.hold_all()
    [held] = [entry["id"] for entry in await bot_folder.listed()]
    assert (await bot_folder.run("outbox", "send", held)).out == f"{held}: it leaves at the next start\n"
    async with bot_folder.running():
        await bot_folder.ask("two")
    assert await bot_folder.listed() == []


@pytest.mark.long
async def test_if_the_running_bot_cannot_be_reached_both_causes_are_reported(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        await bot_folder.ask("one")
        await bot_folder.hold_all()
        [held] = [entry["id"] for entry in await bot_folder.listed()]
        elsewhere = replace(bot_folder, environment={**bot_folder.environment, "SERVER_PORT": "1"})
        result = await elsewhere.run("outbox", "send", held)
        assert result.code == 75
        assert "is in use by another Greenroom process" in result.err
        assert "no bot answers at http://127.0.0.1:1" in result.err
        stranger = replace(bot_folder, environment={**bot_folder.environment, "SERVER_TOKEN": "another-token"})
        result = await stranger.run("outbox", "send", held)
        assert result.code == 78
        assert "refused: this is not the token" in result.err


@pytest.mark.long
async def test_the_doctor_recognises_its_running_bot_and_reports_how_it_is(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        result = await bot_folder.run("doctor", "--json")
    findings = {finding["check"]: finding for finding in json.loads(result.out)["findings"]}
    assert result.code == 0, result.out
    assert findings["running"]["what"].startswith(f"{bot_folder.address} is the running bot: ok")
    assert "port" not in findings


@pytest.mark.long
async def test_the_costs_next_to_a_running_bot_include_the_latest_call(bot_folder: BotFolder) -> None:
    async with bot_folder.running():
        await bot_folder.ask("Hello")
        result = await bot_folder.run("why", "--costs", "--json")
    assert json.loads(result.out)["total"]["calls"] >= 1


@pytest.mark.long
async def test_after_forget_me_no_file_of_the_running_bot_has_a_persons_words(bot_folder: BotFolder) -> None:
    async def say(text: str, user: str) -> str:
        body = {"text": text, "room": "porch", "user": user}
        async with ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
            return await (await session.post(f"{bot_folder.address}/api/agents/marlo/messages", json=body)).text()

    def read_files() -> bytes:
        return b"".join(file.read_bytes() for file in bot_folder.database.parent.glob("greenroom.db*"))

    async with bot_folder.running():
        await say("My boat is called otter-4711-marlin.", "kim")
        assert "otter-4711-marlin" in await say("Who has a boat?", "ben")
        assert b"otter-4711-marlin" in read_files()
        assert "cannot be undone" in await say("/forget-me", "kim")
        assert "Receipt: " in await say("/forget-me", "kim")
        assert b"otter-4711-marlin" not in read_files()
        assert "less than ten minutes ago" in await say("/forget-me", "kim")
