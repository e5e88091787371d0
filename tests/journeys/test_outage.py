"""Store outages: nothing is accepted meanwhile, and nothing is lost or sent twice."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot import AgentConfig, Character, Plugin, Runtime, Settings, model
from bot.inbound import processing
from bot.models import ModelType, TextRequest, TextResult
from bot.settings import Layer
from bot.store.sql.sqlite import connection, health
from plugins.bootstrap import plugin as bootstrap
from plugins.sql import plugin as sql

TOKEN = "a-token-for-tests"
ANSWER = "<response><actions>REPLY</actions><text>Here I am</text></response>"


@dataclass
class BlockingModel:
    """A model that thinks until it may speak, and counts how often it was asked."""

    asked: int = 0
    thinking: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def plugin(self) -> Plugin:
        @model(ModelType.TEXT_LARGE)
        async def think(agent: Any, request: TextRequest) -> TextResult:
            self.asked += 1
            self.thinking.set()
            await self.go.wait()
            return TextResult(ANSWER, model="test")

        return Plugin("blocking_model", models=[think])


class RunningBot:
    """A running bot over a real file, and a client of it."""

    def __init__(self, base: str, client: ClientSession) -> None:
        self.base = base
        self.client = client

    async def say(self, text: str, **more: Any) -> Any:
        address = f"{self.base}/api/agents/ada/messages"
        return await self.client.post(address, json={"text": text, **more})

    async def health(self) -> tuple[int, dict[str, Any]]:
        answer = await self.client.get(f"{self.base}/healthz")
        return answer.status, await answer.json()

    async def receipt(self, message_id: str) -> Any:
        return await (await self.client.get(f"{self.base}/api/receipts/{message_id}")).json()

    async def until(self, status: int) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while (running := await self.health())[0] != status:
                pass
            return running[1]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(health, "RECHECK_SECONDS", 0.02)
    monkeypatch.setattr(processing, "POLL_SECONDS", 0.02)


@pytest.fixture
def blocking_model() -> BlockingModel:
    return BlockingModel()


@pytest.fixture
async def bot(tmp_path: Path, blocking_model: BlockingModel) -> AsyncIterator[RunningBot]:
    async with running_bot(tmp_path, blocking_model) as running:
        yield running


@asynccontextmanager
async def running_bot(folder: Path, blocking_model: BlockingModel) -> AsyncIterator[RunningBot]:
    values = {"BOT_DATA_DIR": str(folder), "SERVER_PORT": "0", "SERVER_TOKEN": TOKEN, "AI_NOTICE": "off"}
    plan = AgentConfig(
        Character(name="Ada"), (bootstrap, sql, blocking_model.plugin()), Settings([Layer("the test", values)])
    )
    async with Runtime([plan], [web]) as runtime, ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        yield RunningBot(f"http://127.0.0.1:{adapter.port}", client)


def lock_database(folder: Path) -> sqlite3.Connection:
    other = sqlite3.connect(folder / "greenroom.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


@pytest.mark.failure("I-01")
async def test_a_locked_database_stops_the_inbox_until_it_is_available(
    bot: RunningBot, blocking_model: BlockingModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocking_model.go.set()
    assert (await bot.health())[0] == 200
    other = lock_database(tmp_path)
    for _ in range(5):
        refused = await bot.say("Hello", idempotency_key="one")
        assert refused.status == 503
        assert refused.headers["Retry-After"] == "10"
        assert (await refused.json())["error"]["code"] == "db_locked"
    status, body = await bot.health()
    assert (status, body["status"], body["cause"]) == (503, "unavailable", "db_locked")
    assert str(tmp_path) not in str(body)
    assert blocking_model.asked == 0

    other.close()
    assert (await bot.until(200))["cause"] is None
    answered = await bot.say("Hello", idempotency_key="one")
    assert [reply["text"] for reply in (await answered.json())["replies"]] == ["Here I am"]
    lines = [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")]
    assert len(lines) == 2, lines
    assert f"{tmp_path / 'greenroom.db'} is locked by another program: close it" in lines[0]


@pytest.mark.long
@pytest.mark.failure("I-01")
async def test_a_message_interrupted_by_a_database_outage_is_answered_once_afterwards(
    bot: RunningBot, blocking_model: BlockingModel, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bot.say("Hello"))
        await blocking_model.thinking.wait()
        for _ in range(4):  # more outages than a message has attempts
            other = lock_database(tmp_path)
            assert (await bot.say("Me too", room="another")).status == 503
            blocking_model.go.set()
            await bot.until(503)
            other.close()
            await bot.until(200)
    body = await waiting.result().json()

    assert body["outcome"] == "answered"
    assert [reply["text"] for reply in body["replies"]] == ["Here I am"]
    room = await bot.client.get(f"{bot.base}/api/rooms/{body['room_id']}/messages")
    assert [message["text"] for message in (await room.json())["messages"]] == ["Hello", "Here I am"]
    async with asyncio.timeout(20):
        receipt = await bot.receipt(body["message_id"])
        while receipt["deliveries"][0]["state"] != "sent":
            receipt = await bot.receipt(body["message_id"])
    assert receipt["attempts"] == 1
    assert len(receipt["deliveries"]) == 1


@pytest.mark.long
@pytest.mark.failure("I-12")
def test_a_second_process_on_the_same_file_exits_with_78_and_names_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bot", "run", "--only", "web"]
    values = {"BOT_DATA_DIR": str(tmp_path), "SERVER_PORT": "0", "DATABASE_URL": f"sqlite:///{tmp_path}/a.db"}
    first = subprocess.Popen(command, env=values, cwd=Path.cwd(), stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        while "web" not in first.stdout.readline():
            assert first.poll() is None
        second = subprocess.run(
            command, env=values, cwd=Path.cwd(), capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        first.kill()
        first.communicate()

    assert second.returncode == 78
    assert f"in use by another Greenroom process (process {first.pid})" in second.stderr
    assert "Traceback" not in second.stderr
