"""What is stored by default, and the operator's commands for it, in real processes."""

import asyncio
import json
import signal
import socket
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

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0
TOKEN = "a-token-for-tests"


@dataclass(frozen=True, slots=True)
class Desk:
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

    async def run(self, *arguments: str, said: str = "") -> CommandResult:
        told = await self.fork_server.run(arguments, self.folder, self.environment, said.encode())
        assert "Traceback" not in told.err, told.err
        return told

    async def listed(self) -> list[dict[str, Any]]:
        told = await self.run("outbox", "list", "--json")
        assert told.code == 0, told.err
        found: list[dict[str, Any]] = json.loads(told.out)["parts"]
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have `bot run` at work as long as the block lasts."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot", "run"), cwd=self.folder, env=dict(self.environment), stdout=pipe, stderr=pipe
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(DEADLINE):
                while b"web " not in (line := await process.stdout.readline()):
                    assert line, "it ended at once"
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(DEADLINE):
                await process.communicate()

    async def ask(self, text: str) -> dict[str, Any]:
        """Say something over the running bot's API."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = {"text": text, "room": "porch", "user": "kim"}
        async with ClientSession(headers=headers) as session:
            answer = await session.post(f"{self.address}/api/agents/marlo/messages", json=body)
            told: dict[str, Any] = await answer.json()
        assert told["outcome"] == "answered", told
        return told

    async def hold_all(self) -> None:
        """Wait until everything is sent, then have it stand as if nobody knew whether it arrived."""
        async with asyncio.timeout(DEADLINE):
            while await self.listed():
                pass
        connection = sqlite3.connect(self.database)
        with connection:
            connection.execute("UPDATE deliveries SET state = 'unknown', cause = 'timed out'")
        connection.close()


@pytest.fixture
def desk(tmp_path: Path, fork_server: ForkServer) -> Desk:
    """Return an empty folder and a clean environment without storage settings."""
    kept = inherited_variables("PATH", "HOME", "LANG", "SSL_CERT_FILE")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    own = {"SERVER_PORT": str(port), "SERVER_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    return Desk(tmp_path, kept | own, fork_server)


async def test_a_chat_is_stored_and_can_be_explained_after_its_process_ended(desk: Desk) -> None:
    assert (await desk.run("chat", said="Hello\n")).out == "Hello, I'm Marlo. What brings you here?\n"
    assert desk.database.stat().st_mode & 0o777 == 0o600
    assert (await desk.run("chat", said="2+2?\n")).code == 0
    told = json.loads((await desk.run("why", "--json")).out)["messages"]
    assert [one["text"] for one in told] == ["Hello", "2+2?"]
    assert {one["outcome"] for one in told} == {"answered"}


async def test_while_a_bot_runs_messages_can_be_explained_and_the_database_checked_and_copied(desk: Desk) -> None:
    async with desk.running():
        answer = await desk.ask("Hello there")
        why = await desk.run("why", answer["message_id"])
        assert "kim in porch (web): 'Hello there'" in why.out
        assert "decided by: room type API" in why.out
        assert json.loads((await desk.run("db", "check", "--json")).out)["ok"] is True
        assert (await desk.run("db", "backup", "copy.db")).code == 0
        refused = await desk.run("db", "upgrade")
        assert (refused.code, "is in use by another Greenroom process" in refused.err) == (78, True)
    copy = sqlite3.connect(desk.folder / "copy.db")
    assert copy.execute("SELECT count(*) FROM receipts").fetchone() == (1,)
    copy.close()


async def test_a_chat_while_a_bot_runs_is_kept_in_memory_and_says_so_once(desk: Desk) -> None:
    async with desk.running():
        told = await desk.run("chat", said="Hello\n")
        assert (told.code, told.out) == (0, "Hello, I'm Marlo. What brings you here?\n")
        assert told.err.count("this conversation is not stored: ") == 1
        second = await desk.run("run", "--only", "web")
        assert second.code == 78
        assert "is in use by another Greenroom process" in second.err
        assert "stop that one, or give this one its own BOT_DATA_DIR" in second.err


async def test_without_write_access_a_chat_works_and_a_bot_does_not_start(desk: Desk) -> None:
    (desk.folder / "data").write_text("a file where the folder should be", encoding="utf-8")
    told = await desk.run("chat", said="Hello\n")
    assert (told.code, told.out) == (0, "Hello, I'm Marlo. What brings you here?\n")
    assert "data/greenroom.db cannot be created: " in told.err
    refused = await desk.run("run")
    assert refused.code == 78
    assert "BOT_DATA_DIR" in refused.err


async def test_a_held_part_is_sent_or_dropped_by_the_bot_that_owns_the_database(desk: Desk) -> None:
    async with desk.running():
        await desk.ask("one")
        await desk.ask("two")
        await desk.hold_all()
        first, second = [one["id"] for one in await desk.listed()]
        assert (await desk.run("outbox", "drop", first)).out == f"{first}: it is given up for good\n"
        sent = await desk.run("outbox", "send", second)
        assert sent.out == f"{second}: it leaves as soon as its platform takes it\n"
    assert [(one["id"], one["state"], one["cause"]) for one in await desk.listed()] == [
        (first, "failed", "a person dropped it")
    ]


async def test_a_held_part_requeued_while_no_bot_runs_is_sent_at_the_next_start(desk: Desk) -> None:
    async with desk.running():
        await desk.ask("one")
    await desk.hold_all()
    [held] = [one["id"] for one in await desk.listed()]
    assert (await desk.run("outbox", "send", held)).out == f"{held}: it leaves at the next start\n"
    async with desk.running():
        await desk.ask("two")
    assert await desk.listed() == []


async def test_if_the_running_bot_cannot_be_reached_both_causes_are_reported(desk: Desk) -> None:
    async with desk.running():
        await desk.ask("one")
        await desk.hold_all()
        [held] = [one["id"] for one in await desk.listed()]
        elsewhere = replace(desk, environment={**desk.environment, "SERVER_PORT": "1"})
        told = await elsewhere.run("outbox", "send", held)
        assert told.code == 75
        assert "is in use by another Greenroom process" in told.err
        assert "no bot answers at http://127.0.0.1:1" in told.err
        stranger = replace(desk, environment={**desk.environment, "SERVER_TOKEN": "another-token"})
        told = await stranger.run("outbox", "send", held)
        assert told.code == 78
        assert "refused: this is not the token" in told.err
