"""The characters that share one account: their webhooks, and the sending of their messages through these."""

import base64
import logging
import re
from asyncio import Lock
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import discord
from discord.http import Route

from adapters.discord import sending
from adapters.discord.errors import REQUEST_ERRORS, to_delivery_error
from adapters.discord.incoming import QUOTED_LINE, EntityMapper
from bot import Room, crash_point
from bot.platform import (
    AgentHandle,
    BoundedDict,
    Cast,
    ChannelProblems,
    Delivery,
    DeliveryHeld,
    DeliveryUnknown,
    NotSent,
)
from bot.text import shorten

logger = logging.getLogger(__name__)
SHARED_NAME = "Greenroom"  # of the webhook of all characters whose pictures have public addresses
MAX_CHANNELS, MAX_MESSAGES = 2000, 1000
MAX_QUOTE_LENGTH = 100
MAX_NAME_LENGTH = 80
FORBIDDEN_NAMES = ("discord", "clyde")  # Discord refuses names of webhooks that contain one
THREADS = (10, 11, 12)
GUILD_CHANNELS = (0, 2, 5, 13, 15, 16)  # types in which there are webhooks
WEBHOOK_PATH = "/webhooks/{webhook_id}/{webhook_token}"
NO_WEBHOOK = (
    "there is no webhook for the characters: give the bot the permission Manage Webhooks (at most 15 a channel)"
)


@dataclass(frozen=True, slots=True)
class Channel:
    """What is known of a channel: its server, the channel whose webhooks are used, and whether it is a thread of it."""

    id: str
    guild_id: str
    parent_id: str

    @property
    def is_thread(self) -> bool:
        """Whether it is a thread."""
        return self.parent_id != self.id


class Webhooks:
    """The webhooks of one application by channel and name, each created when it is first needed.

    Their tokens are in memory only.
    """

    def __init__(self, send_request: sending.SendRequest) -> None:
        self._send_request = send_request
        self.application_id = 0  # known after the login
        self._channels = BoundedDict[str, Channel | None](MAX_CHANNELS)
        self._webhooks = BoundedDict[str, dict[str, tuple[str, str]]](MAX_CHANNELS)  # id and token by channel and name
        self._lock = Lock()
        self._problems = ChannelProblems(logger, "Discord channel")

    async def channel(self, channel_id: str) -> Channel | None:
        """Return a channel; None where it has no webhooks. Raises as a request does."""
        if channel_id not in self._channels:
            found = await self._send_request(Route("GET", "/channels/{channel_id}", channel_id=channel_id))
            is_thread = found.get("type") in THREADS
            parent_id = str(found["parent_id"]) if is_thread else channel_id
            has_webhooks = is_thread or found.get("type") in GUILD_CHANNELS
            self._channels[channel_id] = (
                Channel(channel_id, str(found.get("guild_id") or ""), parent_id) if has_webhooks else None
            )
        return self._channels[channel_id]

    async def find(self, channel: Channel, handle: AgentHandle) -> tuple[str, str] | None:
        """Return the id and the token of the webhook of a character; None where the bot may have none.

        Raises as a request does where that cannot be found out.
        """
        picture = handle.character.picture_source
        name = handle.character.name if picture and not is_public(picture) else SHARED_NAME
        async with self._lock:
            try:
                if channel.parent_id not in self._webhooks:
                    self._webhooks[channel.parent_id] = await self._list(channel.parent_id)
                webhooks = self._webhooks[channel.parent_id]
                if name not in webhooks:
                    webhooks[name] = await self._create(channel.parent_id, name, handle)
                return webhooks[name]
            except REQUEST_ERRORS as error:
                if not getattr(error, "is_final", False):
                    raise
                self._webhooks.pop(channel.parent_id, None)
                self._problems.report(channel.parent_id, f"{NO_WEBHOOK} ({error})")
                return None

    def forget(self, channel: Channel) -> None:
        """Look the webhooks of a channel up again before the next one is used."""
        self._webhooks.pop(channel.parent_id, None)

    async def _list(self, channel_id: str) -> dict[str, tuple[str, str]]:
        found = await self._send_request(Route("GET", "/channels/{channel_id}/webhooks", channel_id=channel_id))
        return {
            str(item["name"]): (str(item["id"]), str(item["token"]))
            for item in found
            if str(item.get("application_id")) == str(self.application_id) and item.get("token")
        }

    async def _create(self, channel_id: str, name: str, handle: AgentHandle) -> tuple[str, str]:
        body: dict[str, Any] = {"name": name}
        if name != SHARED_NAME and (picture := await handle.read_picture()) is not None:
            encoded = base64.b64encode(picture.body).decode()
            body["avatar"] = f"data:{picture.content_type};base64,{encoded}"
        route = Route("POST", "/channels/{channel_id}/webhooks", channel_id=channel_id)
        created = await self._send_request(route, json=body)
        return str(created["id"]), str(created["token"])


class FaceSender:
    """Sends, edits and finds the messages of one character that shares its account. Raises DeliveryError.

    It writes through a webhook, with its own name and picture. Where there can be none, the account writes, and the
    text begins with the name. Where the first character is alone in a room, the account writes for it.
    """

    def __init__(
        self, handle: AgentHandle, cast: Cast, webhooks: Webhooks, messages: sending.MessageSender, quotes: "Quotes"
    ) -> None:
        self._handle, self._cast, self._webhooks = handle, cast, webhooks
        self._messages, self._quotes = messages, quotes
        self._rooms = BoundedDict[str, Room](MAX_CHANNELS)
        name = handle.character.name
        self._can_use_webhooks = len(name) <= MAX_NAME_LENGTH and not any(
            word in name.casefold() for word in FORBIDDEN_NAMES
        )

    async def deliver(self, delivery: Delivery, bot_id: int) -> str:
        """Send a part; after an earlier attempt, search for it first, unless the channel cannot be read."""
        channel = await self._find_channel(delivery)
        if channel is None:
            return await self._messages.deliver(await self._named(delivery), bot_id)
        if delivery.attempts > 1:
            with suppress(DeliveryHeld):
                if message_id := await self._search(delivery):
                    return message_id
        for _ in range(2):
            webhook = await self._find_webhook(channel)
            if webhook is None:
                break
            try:
                return await self._send(delivery, channel, webhook)
            except sending.Refused as error:  # the webhook may have been deleted
                if error.status not in (401, 403, 404):
                    raise
                self._webhooks.forget(channel)
        return await self._messages.deliver(await self._named(delivery), bot_id)

    async def reconcile(self, delivery: Delivery, bot_id: int) -> str:
        """Search the channel for an unclear part, which has no nonce; raise DeliveryHeld where it cannot be read."""
        try:
            channel = await self._find_channel(delivery)
            webhook = None if channel is None else await self._find_webhook(channel)
        except NotSent as error:
            raise DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        if webhook is None:
            return await self._messages.reconcile(await self._named(delivery), bot_id)
        if message_id := await self._search(delivery):
            return message_id
        raise NotSent("it is not in the channel")

    async def edit(self, delivery: Delivery, bot_id: int) -> str:
        """Edit or delete the message that a part replaces, which the webhook or the account has written."""
        channel = await self._find_channel(delivery)
        webhook = None if channel is None else await self._find_webhook(channel)
        if channel is not None and webhook is not None:
            content, message_id = delivery.content, delivery.replaces_external_id
            is_deletion = not (content.text or content.attachments or content.choices)
            path = f"/messages/{message_id}" + (f"?thread_id={channel.id}" if channel.is_thread else "")
            route = _build_route("DELETE" if is_deletion else "PATCH", webhook, channel, path)
            try:
                if is_deletion:
                    await self._messages.send_unarchived(route)
                else:
                    body = sending.build_edit_body(content, self._messages.known_people_of(delivery.target))
                    await self._messages.send_in_steps(delivery, route, await self._quoting(body, delivery, channel))
                return message_id
            except sending.MessageNotFound:
                logger.debug("message %s is not one of the webhook", message_id)
        return await self._messages.edit(await self._named(delivery), bot_id)

    async def _send(self, delivery: Delivery, channel: Channel, webhook: tuple[str, str]) -> str:
        body = sending.build_visible_body(delivery.content, self._messages.known_people_of(delivery.target))
        body = await self._quoting(body, delivery, channel)
        body.json["username"] = self._handle.character.name
        if is_public(picture := self._handle.character.picture_source):
            body.json["avatar_url"] = picture
        path = "?wait=true" + (f"&thread_id={channel.id}" if channel.is_thread else "")
        crash_point("send.pre_write")
        route = _build_route("POST", webhook, channel, path)
        return sending.parse_message_id(await self._messages.send_in_steps(delivery, route, body))

    async def _search(self, delivery: Delivery) -> str:
        """Return the id of the message of a part: of this application and name, with its text, and of no other part."""
        sent = await self._handle.conversations.room_deliveries(delivery.room_id)
        known_ids = {item.external_id for item in sent if item.id != delivery.id}

        def is_same(message: Mapping[str, Any]) -> bool:
            if str(message.get("application_id")) != str(self._webhooks.application_id) or not message.get(
                "webhook_id"
            ):
                return False
            if message["author"].get("username") != self._handle.character.name or str(message["id"]) in known_ids:
                return False
            text = QUOTED_LINE.sub("", str(message.get("content")), count=1)
            return sending.is_text_of(text, delivery) and sending.has_files_of(message, delivery)

        return await self._messages.find_message(delivery, is_same)

    async def _find_channel(self, delivery: Delivery) -> Channel | None:
        """Return where a part is sent by a webhook; None where the account sends it."""
        if not self._can_use_webhooks or (self._is_first and not await self._is_shared(delivery.target)):
            return None
        try:
            return await self._webhooks.channel(delivery.target)
        except REQUEST_ERRORS as error:
            raise _to_not_sent(error) from error

    async def _find_webhook(self, channel: Channel) -> tuple[str, str] | None:
        try:
            return await self._webhooks.find(channel, self._handle)
        except REQUEST_ERRORS as error:
            raise _to_not_sent(error) from error

    @property
    def _is_first(self) -> bool:
        return self._handle is self._cast.first

    async def _is_shared(self, channel_id: str) -> bool:
        """Return whether others than the first character speak in a channel."""
        room = self._rooms.get(channel_id)
        if room is None:
            room_id = EntityMapper(self._cast.first.agent_id).room_id(channel_id)
            room = await self._cast.first.conversations.room(room_id)
            if room is None:
                return False
            self._rooms[channel_id] = room
        return any(member is not self._cast.first for member in await self._cast.members(room))

    async def _named(self, delivery: Delivery) -> Delivery:
        """Return a part as the account writes it: with the name of the character before it, where several speak."""
        content = delivery.content
        is_alone = self._is_first and not await self._is_shared(delivery.target)
        if is_alone or not (content.text or content.attachments or content.choices):
            return delivery
        text = f"**{self._handle.character.name}:** {content.text}"
        return (
            delivery if len(text) > sending.MAX_TEXT_LENGTH else replace(delivery, content=replace(content, text=text))
        )

    async def _quoting(self, body: sending.MessageBody, delivery: Delivery, channel: Channel) -> sending.MessageBody:
        """Return a body with a line that quotes the message to which it replies: webhooks write no replies."""
        line = await self._quotes.line_of(delivery.reply_to, channel) if delivery.reply_to.isdecimal() else ""
        text = line + body.json["content"]
        return replace(body, json={**body.json, "content": text}) if len(text) <= sending.MAX_TEXT_LENGTH else body


class Quotes:
    """The lines that quote messages, by the ids of these; of those that were not received lately, Discord is asked."""

    def __init__(self, messages: sending.MessageSender) -> None:
        self._messages = messages
        self._noted = BoundedDict[str, tuple[str, str]](MAX_MESSAGES)  # name of the author, and beginning of the text

    def note(self, message: discord.Message) -> None:
        """Note a message that was received."""
        text = shorten(" ".join(message.clean_content.split()), MAX_QUOTE_LENGTH)
        self._noted[str(message.id)] = message.author.display_name, text

    async def line_of(self, message_id: str, channel: Channel) -> str:
        """Return the line for a message, with its end; empty where the message is gone."""
        if message_id not in self._noted:
            path = "/channels/{channel_id}/messages/{message_id}"
            found = await self._messages.read(Route("GET", path, channel_id=channel.id, message_id=message_id))
            if not found:
                return ""
            author = found.get("author") or {}
            name = str(author.get("global_name") or author.get("username") or "")
            text = shorten(" ".join(str(found.get("content") or "").split()), MAX_QUOTE_LENGTH)
            self._noted[message_id] = name, text
        name, text = self._noted[message_id]
        link = f"https://discord.com/channels/{channel.guild_id}/{channel.id}/{message_id}"
        name = re.sub(r"[\[\]()\n]", "", name) or "reply"
        quoted = discord.utils.escape_mentions(discord.utils.escape_markdown(text))
        return f"> [{name}](<{link}>): {quoted}\n"


def is_public(picture: str) -> bool:
    """Return whether a picture has an address that Discord can read."""
    return picture.startswith(("https://", "http://"))


def _build_route(method: str, webhook: tuple[str, str], channel: Channel, path: str) -> Route:
    webhook_id, token = webhook
    return Route(method, WEBHOOK_PATH + path, webhook_id=webhook_id, webhook_token=token, channel_id=channel.id)


def _to_not_sent(error: Exception) -> NotSent:
    """Return the error of a part of which nothing was sent yet."""
    cause = to_delivery_error(error)
    return NotSent(str(cause), retry_after=getattr(cause, "retry_after", None))
