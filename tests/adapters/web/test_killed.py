"""What a killed process leaves behind of the web."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from tests.adapters.web.conftest import TOKEN
from tests.chaos.program import TIMEOUT, ForkServer, Program
from tests.ports import free_port

pytestmark = pytest.mark.long
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


class Client:
    """A client that sends a request again until it is answered, as the page does."""

    def __init__(self, session: ClientSession, port: int) -> None:
        self._session, self._origin = session, f"http://127.0.0.1:{port}"

    async def post(self, path: str, body: Any) -> Any:
        while True:
            try:
                async with self._session.post(f"{self._origin}{path}", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    return await answer.json()
            except ClientError:
                await asyncio.sleep(0.05)

    async def send(self, text: str, key: str) -> Any:
        body = {"text": text, "user": "kim", "room": "den", "idempotency_key": key}
        return await self.post("/api/agents/ada/messages", body)

    async def read(self, room_id: str) -> list[str]:
        """Return the kinds of all messages of a room, the newest first."""
        async with self._session.get(f"{self._origin}/api/rooms/{room_id}/messages") as answer:
            return [message["kind"] for message in (await answer.json())["messages"]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def program(fork_server: ForkServer, tmp_path: Any, port: int) -> Program:
    settings = {"SERVER_PORT": str(port), "SERVER_TOKEN": TOKEN, "AI_NOTICE": "off"}
    return Program(fork_server, tmp_path, settings, "web", plugins=["sql"])


async def test_a_take_over_that_was_stored_before_the_kill_holds_after_it(program: Program, port: int) -> None:
    async with ClientSession(headers=HEADERS) as session, asyncio.timeout(2 * TIMEOUT):
        client = Client(session, port)
        async with program.running_until_killed("take_over.stored:1"):
            room_id = (await client.send("hello", "k1"))["room_id"]
            taking = asyncio.create_task(client.post(f"/api/rooms/{room_id}/take-over", {"name": "Mia"}))
        async with program.running() as bot:
            assert (await taking)["name"] == "Mia"
            silent = await client.send("and now?", "k2")
            assert (silent["outcome"], silent["replies"]) == ("ignored", [])
            assert len((await client.post(f"/api/rooms/{room_id}/give-back", {}))["ended"]) == 1
            assert (await client.send("and now?", "k3"))["outcome"] == "answered"
            bot.stop()
            assert await bot.wait() == 0, program.output_end


async def test_an_answer_that_a_kill_interrupted_is_not_sent_in_a_room_taken_over_since(
    program: Program, port: int, fork_server: ForkServer
) -> None:
    async with ClientSession(headers=HEADERS) as session, asyncio.timeout(2 * TIMEOUT):
        client = Client(session, port)
        sending = asyncio.create_task(client.send("hello", "k1"))
        await program.run_until_killed("turn.pre_commit:1")
        environment = {"DATABASE_URL": f"sqlite:///{program.database}", "BOT_DATA_DIR": str(program.folder)}
        arguments = ["rooms", "take-over", "web:den", "--name", "Mia", "-c", "ada.json"]
        result = await fork_server.run(arguments, program.folder, {**environment, **program.settings})
        assert result.code == 0, result.err
        async with program.running() as bot:
            sent = await sending
            assert (sent["outcome"], sent["replies"]) == ("ignored", [])
            assert sent["reason"].startswith("taken over by Mia since ")
            bot.stop()
            assert await bot.wait() == 0, program.output_end


STAGES = (
    "ingress.post_commit:1",
    "turn.claimed:1",
    "outbox.committed:1",
    "care.referred:1",
    "turn.pre_commit:1",
    "outbox.committed:2",
    "send.pre_record:1",
    "send.pre_record:2",
)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_person_in_distress_is_referred_and_notified_once(
    stage: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    port = free_port()
    settings = {"SERVER_PORT": str(port), "SERVER_TOKEN": TOKEN, "AI_NOTICE": "first", "CARE_TEXT": "Call Mary."}
    program = Program(fork_server, tmp_path, settings, "web", plugins=["sql"])
    async with ClientSession(headers=HEADERS) as session, asyncio.timeout(2 * TIMEOUT):
        client = Client(session, port)
        sending = asyncio.create_task(client.send("I want to die", "k1"))
        await program.run_until_killed(stage)
        async with program.running() as bot:
            sent = await sending
            kinds = await client.read(sent["room_id"])
            bot.stop()
            assert await bot.wait() == 0, program.output_end
    assert sorted(kinds) == ["notice", "referral", "reply", "reply"]  # the person's own message is one of them
