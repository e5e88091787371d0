"""One of several processes over one database: python sharing_process.py URL PLATFORM_PORT NAME.

It takes messages as lines of JSON on its input, says on its output what it does, and sends to the
platform that the test keeps.
"""

import asyncio
import json
import re
import sys
from datetime import datetime

from bot import derived_id, system_clock
from bot.models import TextRequest
from bot.platform import Adapter, Delivery, DeliveryUnknown
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.testing import ScriptedModel, make_message, model_answer, running_agent

REQUEST = re.compile(r"say ([a-z]+-\d+)")


class Loopback(Adapter):
    """Posts to the test's platform, which refuses duplicates by their nonce."""

    platform = "test"

    def __init__(self, port: int) -> None:
        self._port = port

    async def deliver(self, delivery: Delivery) -> str:
        tell("sending", delivery.content.text)
        post = {"nonce": delivery.id, "room": delivery.target, "text": delivery.content.text}
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(json.dumps(post).encode() + b"\n")
            answered = await reader.readline()
            writer.close()
        except OSError as error:
            raise DeliveryUnknown(str(error)) from error
        if not answered:
            raise DeliveryUnknown("no answer")
        return answered.decode().strip()

    async def reconcile(self, delivery: Delivery) -> str:
        return await self.deliver(delivery)


class Writer:
    """Answers a message with `slow` after a while, any other at once."""

    async def write(self, request: TextRequest) -> str:
        last = REQUEST.findall(request.prompt)[-1]
        tell("thinking", last)
        if "slow" in last:
            await asyncio.sleep(1.0)
        return model_answer(f"I heard {last}")


def tell(what: str, about: object) -> None:
    """Print an event."""
    sys.stdout.write(f"{what} {about}\n")
    sys.stdout.flush()


async def main(url: str, port: int, name: str) -> None:
    """Run until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with (
        OpenServers().open_store(parse_address(url, "the url"), derived_id("agent", "Ada")) as store,
        running_agent(store=store, model=ScriptedModel(Writer().write), adapter=Loopback(port)) as harness,  # type: ignore[arg-type]
        asyncio.TaskGroup() as group,
    ):
        tell("ready", name)
        while line := await lines.readline():
            message = json.loads(line)
            at: datetime = system_clock()
            arrival = make_message(
                f"say {message['text']}", sent_at=at, room=message["room"], message_id=message["text"]
            )
            receipt = await harness.agent_runtime.inbox.submit(arrival)
            tell("kept", message["text"])
            group.create_task(_report(harness, receipt.id, message["text"]))


async def _report(harness, receipt_id, text) -> None:  # type: ignore[no-untyped-def]
    settled = await harness.agent_runtime.inbox.wait_outcome(receipt_id)
    tell("settled", f"{text} {settled.outcome}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
