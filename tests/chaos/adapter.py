"""The adapter of the loopback platform: a durable read, and each platform's way with unclear sends."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout
from pydantic import Field

from bot import (
    Attachment,
    ChannelType,
    Content,
    Entity,
    MediaKind,
    Memory,
    MemoryKind,
    Room,
    SettingsModel,
    World,
    crash_point,
    derived_id,
    new_id,
    system_clock,
)
from bot.platform import (
    Adapter,
    AdapterSpec,
    AgentHandle,
    Delivery,
    DeliveryHeld,
    DeliveryUnknown,
    EventKey,
    InboundMessage,
    InboxClosed,
    NotSent,
    StreamCursor,
    Undeliverable,
)
from bot.prompts.reply_parser import reader
from tests.chaos.loopback import Ability
from tests.chaos.model import PART

PLATFORM = "loopback"
MARK = "↻ "
PAUSE = 0.05
HELD = "loopback has no way to ask whether it arrived"


class Unclear(StrEnum):
    """What is done about an unclear send where the platform can neither report nor refuse it."""

    RESEND_MARKED = "resend_marked"
    HOLD = "hold"


class LoopbackSettings(SettingsModel):
    """Where the platform is, and what it can do."""

    loopback_url: str = Field("", description="The server's address.")
    loopback_ability: Ability = Field(Ability.NONCE, description="What it does about a repeated message.")
    loopback_unclear: Unclear = Field(Unclear.RESEND_MARKED, description="What to do about an ambiguous send.")
    loopback_edits: float = Field(0.0, description="How many seconds apart it edits; 0 for not at all.")


def message_received(update: Mapping[str, Any], *, agent_id: UUID) -> InboundMessage:
    """Make the arrival of an update; the same names always give the same ids."""
    account, name = str(agent_id), update["name"]
    author = Entity(derived_id(PLATFORM, "user", name), PLATFORM, name, (name,))
    world = World(derived_id(PLATFORM, "world"), PLATFORM, "world", "World")
    room = Room(
        id=derived_id(agent_id, PLATFORM, "room", update["room"]),
        world_id=world.id,
        type=ChannelType.DM if update["private"] else ChannelType.GROUP,
        platform=PLATFORM,
        external_id=update["room"],
        account=account,
        name=update["room"],
    )
    files = (Attachment("file", MediaKind.DOCUMENT, update["file"]),) if update["file"] else ()
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=room.id,
        world_id=world.id,
        content=Content(text=update["text"], source=PLATFORM, attachments=files),
        created_at=system_clock(),
        external_id=name,
    )
    return InboundMessage(EventKey(PLATFORM, account, str(update["id"]), room.id, name), world, room, author, message)


class LoopbackAdapter(Adapter):
    """Reads updates by long poll; the offset moves in the commit that keeps them."""

    platform = PLATFORM
    is_trusted_audience = True

    def __init__(self, handle: AgentHandle) -> None:
        self._handle = handle
        self._settings = handle.settings.load(LoopbackSettings)
        self.can_edit = self._settings.loopback_edits > 0
        self._session: ClientSession | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        reader.HOLD_BACK = 0  # in the process of the bot: the stories of these tests are short
        self._session = ClientSession(self._settings.loopback_url, timeout=ClientTimeout(total=10))
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._http.close()

    def split_content(self, content: Content) -> list[Content]:
        pieces, rest = [], content.text
        while len(rest) > PART:
            end = max(rest.rfind(mark, 0, PART) for mark in "+.") + 1 or PART  # no name is cut in two
            pieces.append(rest[:end])
            rest = rest[end:]
        return [Content(text=piece) for piece in (*pieces, rest)]

    async def deliver(self, delivery: Delivery) -> str:
        return await self._post(delivery, delivery.content.text)

    def stream_interval(self, room: Room) -> float | None:
        return self._settings.loopback_edits or None

    async def edit(self, delivery: Delivery) -> str:
        body = {"key": delivery.id, "id": delivery.replaces_external_id, "text": delivery.content.text}
        crash_point("edit.pre_write")
        try:
            async with self._http.post("/edit", json=body) as answer:
                await answer.read()
        except ClientConnectorError as error:
            raise NotSent(f"no connection: {error}") from error
        except ClientError as error:
            raise DeliveryUnknown(f"{type(error).__name__}: {error}") from error
        crash_point("edit.post_write")
        return delivery.replaces_external_id

    async def reconcile(self, delivery: Delivery) -> str:
        text = delivery.content.text
        if self._settings.loopback_ability is Ability.NONCE:
            return await self._post(delivery, text)
        if self._settings.loopback_ability is Ability.REFUSING:
            return await self._found(delivery) or await self._post(delivery, text, is_again=True)
        if self._settings.loopback_unclear is Unclear.HOLD:
            raise DeliveryHeld(HELD)
        return await self._post(delivery, MARK + text)

    @property
    def _http(self) -> ClientSession:
        assert self._session is not None, "the adapter has been entered"
        return self._session

    async def _read(self) -> None:
        account = str(self._handle.agent_id)
        offset = int(await self._handle.cursor(PLATFORM, account, "offset") or 1)
        with suppress(InboxClosed):  # stopping: what is not acknowledged comes again
            while True:
                try:
                    async with self._http.get("/updates", params={"offset": str(offset)}) as answer:
                        updates = await answer.json()
                except ClientError:
                    await asyncio.sleep(PAUSE)
                    continue
                if updates:
                    offset = updates[-1]["id"] + 1
                    arrivals = [message_received(update, agent_id=self._handle.agent_id) for update in updates]
                    place = StreamCursor(PLATFORM, account, "offset", str(offset))
                    await self._handle.submit_all(arrivals, place)

    async def _found(self, delivery: Delivery) -> str:
        """Look whether the room has it already."""
        async with self._http.get("/sent", params={"room": delivery.target}) as answer:
            posts = await answer.json()
        return next((post["id"] for post in posts if post["text"] == delivery.content.text), "")

    async def _post(self, delivery: Delivery, text: str, *, is_again: bool = False) -> str:
        body = json.dumps(
            {
                "key": delivery.id,
                "nonce": delivery.id,
                "room": delivery.target,
                "text": text,
                "reply_to": delivery.reply_to,
            }
        ).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        crash_point("send.pre_write")
        try:
            async with self._http.post("/send", data=_written(body), headers=headers) as answer:
                answer_body = await answer.json()
        except ClientConnectorError as error:
            raise NotSent(f"no connection: {error}") from error
        except ClientError as error:
            raise DeliveryUnknown(f"{type(error).__name__}: {error}") from error
        if answer.status == 409 and not is_again:
            raise Undeliverable("the platform has this text already")
        return str(answer_body["id"])


async def _written(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body; when the client asks for more, it has written all of it."""
    yield body
    crash_point("send.post_write")


def open_loopback(handles: Sequence[AgentHandle]) -> LoopbackAdapter:
    """Make the adapter."""
    return LoopbackAdapter(handles[0])


adapter = AdapterSpec("loopback", open_loopback, LoopbackSettings, needs=("LOOPBACK_URL",))
