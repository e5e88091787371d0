"""Killed at every stage, a person on the web page gets one referral, one AI notice and one answer."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from tests.adapters.web.conftest import TOKEN
from tests.chaos.program import TIMEOUT, ForkServer, Program
from tests.ports import free_port

pytestmark = pytest.mark.long
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
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


class Client:
    """A client that sends a message again until it has the answer, as the page does."""

    def __init__(self, session: ClientSession, origin: str) -> None:
        self._session, self._origin = session, origin

    async def send(self, text: str) -> Mapping[str, Any]:
        body = {"text": text, "user": "kim", "room": "den", "idempotency_key": "k1"}
        while True:
            try:
                async with self._session.post(f"{self._origin}/api/agents/ada/messages", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    return dict(await answer.json())
            except ClientError:
                await asyncio.sleep(0.05)

    async def read(self, room_id: str) -> list[str]:
        """Return the kinds of all messages of a room, the newest first."""
        async with self._session.get(f"{self._origin}/api/rooms/{room_id}/messages") as answer:
            return [message["kind"] for message in (await answer.json())["messages"]]


@pytest.mark.parametrize("stage", STAGES)
async def test_a_person_in_distress_is_referred_and_notified_once(
    stage: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    port = free_port()
    settings = {"SERVER_PORT": str(port), "SERVER_TOKEN": TOKEN, "AI_NOTICE": "first", "CARE_TEXT": "Call Mary."}
    program = Program(fork_server, tmp_path, settings, "web", plugins=["sql"])
    async with ClientSession(headers=HEADERS) as session, asyncio.timeout(2 * TIMEOUT):
        client = Client(session, f"http://127.0.0.1:{port}")
        sending = asyncio.create_task(client.send("I want to die"))
        await program.run_until_killed(stage)
        async with program.running() as bot:
            sent = await sending
            kinds = await client.read(sent["room_id"])
            bot.stop()
            assert await bot.wait() == 0, program.output_end
    assert sorted(kinds) == ["notice", "referral", "reply", "reply"]  # the person's own message is one of them
