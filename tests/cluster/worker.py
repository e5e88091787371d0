"""One worker of the cluster: python -m tests.cluster.worker URL PLATFORM_PORT.

It takes messages as lines of JSON on its input, says which it has stored, and sends its answers to the platform of
the measurement.
"""

import asyncio
import json
import re
import sys
from typing import Any

from bot import derived_id, system_clock
from bot.models import TextRequest
from bot.platform import Adapter, Delivery, DeliveryUnknown
from bot.store import StoreUnavailable
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.testing import ScriptedModel, make_message, model_answer, running_agent

AGENT = derived_id("agent", "Ada")
NAMED = re.compile(r"say (room\d+-\d+)")
# Under faults each author is named like the message, so that a prompt shows which message is answered.
TO_WHOM = re.compile(r"The next message is .+'s, to (room\d+-\d+)\.")
RETRY_SECONDS = 0.1
SETTINGS = {"LATEST_RESPONSE": "queue", "BURST_PAUSE": "0"}


class PlatformAdapter(Adapter):
    """Posts over connections that stay open; the platform refuses duplicates by their nonce."""

    platform = "test"
    is_trusted_audience = True

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def deliver(self, delivery: Delivery) -> str:
        post = {"nonce": delivery.id, "room": delivery.target, "text": delivery.content.text}
        try:
            connection = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
            connection[1].write(json.dumps(post).encode() + b"\n")
            answer = await connection[0].readline()
        except OSError as error:
            raise DeliveryUnknown(str(error)) from error
        if not answer:
            raise DeliveryUnknown("no answer")
        self._free.append(connection)
        return answer.decode().strip()

    async def reconcile(self, delivery: Delivery) -> str:
        return await self.deliver(delivery)


async def answer(request: TextRequest) -> str:
    """Answer the last message of the prompt."""
    found = TO_WHOM.search(request.prompt)
    return model_answer(f"I heard {found[1] if found else NAMED.findall(request.prompt)[-1]}")


def tell(what: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def submit(harness: Any, message: dict[str, str]) -> None:
    """Store a message; while the database is away, try again, as a platform that got no acknowledgement."""
    while True:
        inbound = make_message(
            f"say {message['text']}",
            sent_at=system_clock(),
            room=message["room"],
            author=message["author"],
            message_id=message["text"],
        )
        try:
            await harness.agent_runtime.inbox.submit(inbound)
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
            continue
        tell(f"stored {message['text']}")
        return


async def main(url: str, port: int) -> None:
    """Run until the input ends."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    adapter: Any = PlatformAdapter(port)
    async with (
        open_store(url) as store,
        running_agent(store=store, model=ScriptedModel(answer), adapter=adapter, settings=SETTINGS) as harness,
        asyncio.TaskGroup() as group,
    ):
        tell(f"ready {store.sharing.worker}")
        while line := await lines.readline():
            group.create_task(submit(harness, json.loads(line)))


def open_store(url: str) -> Any:
    """Open the store; an address with `|` names the pooler first, then the server itself."""
    address, _, direct = url.partition("|")
    direct_address = parse_address(direct, "the direct url") if direct else None
    return OpenServers().open_store(parse_address(address, "the url"), AGENT, direct=direct_address)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
