"""The server of LineChat on the loopback address, for `bot adapter test` and `bot run --emulate line_chat`."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bot.testing import PlatformControl, SendFault

ROOM = "lobby"


class LineChatServer(PlatformControl):
    """Sends messages until they are acknowledged, stores the bot's messages, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self._writers: set[asyncio.StreamWriter] = set()
        self._unacknowledged: dict[str, dict[str, Any]] = {}
        self._acknowledged: list[str] = []
        self._messages: dict[str, str] = {}
        self._ids_by_key: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._faults: list[SendFault] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Deliver what a person wrote, or its edit."""
        line = {"type": "message", "id": message_id, "event": event_id, "revision": revision, "text": text}
        self._unacknowledged[event_id] = {**line, "room": ROOM, "user": "kim", "files": dict(files or {})}
        self._send_unacknowledged()

    def acknowledged(self) -> Sequence[str]:
        """Return the event ids that the bot has acknowledged, in order, repeated ones too."""
        return self._acknowledged

    def shown(self) -> Sequence[str]:
        """Return the bot's messages as people see them now, in order."""
        return list(self._messages.values())

    def files(self) -> Mapping[str, bytes]:
        """Return the files that the bot has sent, by name."""
        return self._files

    def fail_next_send(self, fault: SendFault) -> None:
        """Make the next message of the bot fail in this way."""
        self._faults.append(fault)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writers.add(writer)
        self._send_unacknowledged()
        try:
            while data := await reader.readline():
                answer = self._answer(json.loads(data))
                self.changes.record("line")
                if answer is not None:
                    writer.write(json.dumps(answer).encode() + b"\n")
        except ConnectionError:
            pass  # a fault that a test asked for
        finally:
            self._writers.discard(writer)
            writer.close()

    def _send_unacknowledged(self) -> None:
        for writer in self._writers:
            for line in self._unacknowledged.values():
                writer.write(json.dumps(line).encode() + b"\n")

    def _answer(self, line: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the answer to a line of the bot. Raises ConnectionError where the connection is to be lost."""
        if line["type"] == "got":
            self._unacknowledged.pop(line["event"], None)
            self._acknowledged.append(line["event"])
            return None
        if line["type"] == "find":
            message_id = self._ids_by_key.get(line["key"], "")
            return {"type": "done" if message_id else "unknown", "key": line["key"], "id": message_id}
        if line["type"] == "edit":
            if line["text"]:
                self._messages[line["id"]] = line["text"]
            else:
                self._messages.pop(line["id"], None)
            return {"type": "done", "key": line["key"], "id": line["id"]}
        fault = self._faults.pop(0) if self._faults else None
        if fault is SendFault.REFUSED:
            return {"type": "busy", "key": line["key"], "id": ""}
        if fault is not SendFault.LOST_BEFORE:
            self._store(line)
        if fault is not None:
            raise ConnectionError(fault)
        return {"type": "done", "key": line["key"], "id": self._ids_by_key[line["key"]]}

    def _store(self, line: Mapping[str, Any]) -> None:
        message_id = self._ids_by_key[line["key"]] = f"sent-{len(self._ids_by_key) + 1}"
        self._messages[message_id] = line["text"]
        self._files |= {name: base64.b64decode(data) for name, data in line["files"].items()}


@asynccontextmanager
async def start_emulator(names: Sequence[str]) -> AsyncIterator[LineChatServer]:
    """Run the server on 127.0.0.1, for the first of these characters: the platform has one account."""
    platform = LineChatServer()
    server = await asyncio.start_server(platform.talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        platform.url = f"tcp://127.0.0.1:{port}"
        platform.settings = {name: {"LINE_CHAT_PORT": str(port) if name == names[0] else ""} for name in names}
        yield platform
