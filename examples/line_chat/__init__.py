"""LineChat: a platform of JSON lines over one TCP connection. Replace the protocol by that of your platform."""

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any, Self

from bot import Attachment, ChannelType, ConfigError, Content, Entity, MediaKind, Room, SettingsModel, World
from bot import derived_id, system_clock
from bot.platform import Adapter, AdapterSpec, AgentHandle, ConnectionStatus, Delivery, DeliveryUnknown
from bot.platform import InboundMessage, InboxClosed, LazyImport, NotSent, TaskSet, Undeliverable, disconnect_cause
from bot.store import StoreUnavailable
from pydantic import Field

PLATFORM, MAX_LENGTH, RETRY_SECONDS = "line_chat", 400, 0.5


class LineChatSettings(SettingsModel):
    """The variables of this platform."""

    line_chat_port: int = Field(0, ge=0, le=65535, description="The port of the server on this machine.")


def read_message(line: dict[str, Any], handle: AgentHandle) -> InboundMessage:
    """Return the message of a line; the same names always give the same ids."""
    world = World(derived_id(PLATFORM, "world"), PLATFORM, "server", "LineChat")
    room_id, account = derived_id(handle.agent_id, PLATFORM, line["room"]), str(handle.agent_id)
    room = Room(room_id, world.id, ChannelType.DM, PLATFORM, line["room"], account, line["room"])
    author = Entity(derived_id(PLATFORM, "user", line["user"]), PLATFORM, line["user"], (line["user"],))
    files = [Attachment(name, MediaKind.DOCUMENT, name=name, text=text) for name, text in line["files"].items()]
    content, now = Content(text=line["text"], attachments=tuple(files), source=PLATFORM), system_clock()
    ids = {"message_id": line["id"], "event_id": line["event"], "revision": line["revision"]}
    return InboundMessage.build(world, room, author, content, created_at=now, **ids)


class LineChatAdapter(Adapter):
    """Stays connected to one server, for one agent; the server answers each request by a line with its key."""

    platform, can_edit = PLATFORM, True

    def __init__(self, handle: AgentHandle) -> None:
        self._handle, self._port = handle, handle.settings.load(LineChatSettings).line_chat_port
        self._status = ConnectionStatus(PLATFORM, handle.character.name, agent_id=handle.agent_id)
        self._tasks = TaskSet(f"{handle.character.name} on {PLATFORM}")  # logs a task that fails
        self._writer: Any = None  # an asyncio.StreamWriter while it is connected
        self._answers: dict[str, asyncio.Future[str]] = {}

    async def __aenter__(self) -> Self:
        self._tasks.start(self._keep_connected())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._tasks.cancel()

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """The one connection, for /healthz and the log."""
        return [self._status]

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into parts of at most 400 characters; files go with the first."""
        texts = [content.text[at : at + MAX_LENGTH] for at in range(0, len(content.text), MAX_LENGTH)] or [""]
        return [Content(text=texts[0], attachments=content.attachments), *(Content(text=text) for text in texts[1:])]

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part, and wait until the server returns its id."""
        files = {file.name: base64.b64encode(file.data or b"").decode() for file in delivery.content.attachments}
        return await self._ask(delivery, type="say", room=delivery.target, files=files)

    async def edit(self, delivery: Delivery) -> str:
        """Replace a message; an empty text deletes it. A second call changes nothing."""
        return await self._ask(delivery, type="edit", id=delivery.replaces_external_id)

    async def reconcile(self, delivery: Delivery) -> str:
        """Ask the server whether it has the part."""
        return await self._ask(delivery, type="find")

    async def _ask(self, delivery: Delivery, **line: Any) -> str:
        if self._writer is None:  # no byte was sent: it may be tried again; a question has no answer yet
            raise (DeliveryUnknown if line["type"] == "find" else NotSent)("not connected")
        answer = self._answers[delivery.id] = asyncio.get_running_loop().create_future()
        self._send(key=delivery.id, text=delivery.content.text, **line)
        return str(await answer)

    def _send(self, **line: Any) -> None:
        self._writer.write(json.dumps(line).encode() + b"\n")

    async def _keep_connected(self) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                self._status.connected()
                with closing(self._writer):
                    while data := await reader.readline():
                        await self._read(json.loads(data))
                self._status.disconnected()
            except Exception as error:  # whatever it was, the next connection is made after a pause
                self._status.failed(disconnect_cause(error), error)
            self._writer = None
            for key in list(self._answers):  # the server may have done what it did not answer
                self._settle(key, DeliveryUnknown("the connection was lost"))
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, line: dict[str, Any]) -> None:
        try:
            await self._take(line)
        except Exception as error:  # it costs this line, not the connection: the operator finds it in `bot inbox list`
            with suppress(InboxClosed, StoreUnavailable):
                await self._handle.record_unreadable(PLATFORM, str(self._handle.agent_id), "", line, error)

    async def _take(self, line: dict[str, Any]) -> None:
        if line["type"] == "message":
            submit = self._handle.edits.submit_edit if line["revision"] else self._handle.submit
            with suppress(InboxClosed, StoreUnavailable):  # not stored, so not acknowledged: the server sends it again
                await submit(read_message(line, self._handle))
                self._send(type="got", event=line["event"])
            return
        results = {"done": line["id"], "busy": NotSent("busy", retry_after=0.1), "unknown": NotSent("never seen")}
        self._settle(line["key"], results.get(line["type"], Undeliverable("refused")))

    def _settle(self, key: str, result: str | Exception) -> None:
        if (answer := self._answers.pop(key, None)) is not None and not answer.done():
            answer.set_result(result) if isinstance(result, str) else answer.set_exception(result)


def open_adapter(handles: Sequence[AgentHandle]) -> LineChatAdapter:
    """Return the adapter; the server knows one account, and so one agent."""
    if len(handles) != 1:
        raise ConfigError(f"line_chat takes one character, not {len(handles)}")
    return LineChatAdapter(handles[0])


emulator = LazyImport(f"{__name__}.emulator:start_emulator")  # for tests and `bot run --emulate` only
spec = AdapterSpec(PLATFORM, open_adapter, LineChatSettings, needs=("LINE_CHAT_PORT",), emulator=emulator)
