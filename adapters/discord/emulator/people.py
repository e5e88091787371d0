"""What emulated users do, and the events this sends to bots."""

import re
from datetime import datetime
from typing import Any

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.rest import RestServer
from adapters.discord.emulator.state import USER_MENTION, Json, PlatformState

CUSTOM_EMOJI = re.compile(r"<(a?):(\w+):(\d+)>")


class People:
    """Actions of emulated users; each sends its event to every bot at once."""

    def __init__(self, state: PlatformState, gateway: GatewayServer, rest: RestServer) -> None:
        self._state, self._gateway, self._rest = state, gateway, rest

    async def say(
        self,
        channel: str,
        author: str,
        text: str = "",
        *,
        reply_to: str | None = None,
        files: tuple[tuple[str, bytes, str], ...] = (),
        timestamp: datetime | None = None,
        is_announced: bool = True,
        **fields: Any,
    ) -> str:
        """Send a message, with files as (name, data, type); with `is_announced=False` no event is sent."""
        if files:
            fields["attachments"] = [self._rest.store_file(channel, *file) for file in files]
        message = self._state.add_message(channel, author, text, reply_to=reply_to, timestamp=timestamp, **fields)
        if is_announced:
            await self._gateway.dispatch_event("MESSAGE_CREATE", message)
        return str(message["id"])

    async def type(self, channel: str, user: str) -> None:
        """Begin to type in a channel."""
        payload = {**self._location(channel), "user_id": user, "timestamp": int(self._state.clock().timestamp())}
        await self._gateway.dispatch_event("TYPING_START", payload)

    async def edit(self, channel: str, message_id: str, text: str) -> None:
        """Edit a message."""
        message = self._state.messages[channel][message_id]
        message.update(content=text, edited_timestamp=self._state.clock().isoformat())
        message["mentions"] = [
            self._state.users[user_id] for user_id in USER_MENTION.findall(text) if user_id in self._state.users
        ]
        await self._gateway.dispatch_event("MESSAGE_UPDATE", message)

    async def delete(self, channel: str, *message_ids: str) -> None:
        """Delete messages; several at once as a moderator does."""
        for message_id in message_ids:
            self._state.messages[channel].pop(message_id, None)
        location = self._location(channel)
        if len(message_ids) == 1:
            await self._gateway.dispatch_event("MESSAGE_DELETE", {**location, "id": message_ids[0]})
        else:
            await self._gateway.dispatch_event("MESSAGE_DELETE_BULK", {**location, "ids": list(message_ids)})

    async def unreact(self, channel: str, message_id: str, user: str = "", emoji: str = "") -> None:
        """Remove a reaction: that of one user, those with one emoji, or all."""
        payload: Json = {**self._location(channel), "message_id": message_id}
        payload |= {"emoji": _emoji_object(emoji, is_removal=True)} if emoji else {}
        payload |= {"user_id": user, "burst": False, "type": 0} if user else {}
        kind = "" if user else "_EMOJI" if emoji else "_ALL"
        await self._gateway.dispatch_event(f"MESSAGE_REACTION_REMOVE{kind}", payload)

    async def react(self, channel: str, message_id: str, user: str, emoji: str) -> None:
        """Add a reaction to a message."""
        payload: Json = {
            **self._location(channel),
            "user_id": user,
            "message_id": message_id,
            "emoji": _emoji_object(emoji),
            "burst": False,
            "type": 0,
        }
        member = self._state.find_member(payload.get("guild_id", ""), user)
        if member is not None:
            payload["member"] = member
        await self._gateway.dispatch_event("MESSAGE_REACTION_ADD", payload)

    async def join(self, guild: str, user: str) -> None:
        """Join a guild."""
        member = self._state.add_member(guild, user)
        await self._gateway.dispatch_event("GUILD_MEMBER_ADD", {**member, "guild_id": guild})

    async def leave(self, guild: str, user: str) -> None:
        """Leave a guild."""
        members = self._state.guilds[guild]["members"]
        members[:] = [member for member in members if member["user"]["id"] != user]
        payload = {"guild_id": guild, "user": self._state.users[user]}
        await self._gateway.dispatch_event("GUILD_MEMBER_REMOVE", payload)

    async def open_channel(self, guild: str, name: str, kind: int = 0, parent: str | None = None) -> str:
        """Create a channel, or a thread in one; return its id."""
        channel = self._state.add_channel(guild, name, kind, parent)
        event = "THREAD_CREATE" if kind in (10, 11, 12) else "CHANNEL_CREATE"
        await self._gateway.dispatch_event(event, {**self._state.channels[channel], "newly_created": True})
        return channel

    async def close_channel(self, channel: str) -> None:
        """Delete a channel or a thread."""
        removed = self._state.channels.pop(channel)
        event = "THREAD_DELETE" if removed["type"] in (10, 11, 12) else "CHANNEL_DELETE"
        await self._gateway.dispatch_event(event, removed)

    async def invite(self, guild: str, bot: str) -> None:
        """Add a bot to a guild."""
        self._state.add_member(guild, bot)
        payload = {**self._state.to_guild_create(guild, bot)}
        del payload["unavailable"]
        await self._gateway.dispatch_event("GUILD_CREATE", payload, {bot})

    async def expel(self, guild: str, bot: str) -> None:
        """Remove a bot from a guild."""
        members = self._state.guilds[guild]["members"]
        members[:] = [member for member in members if member["user"]["id"] != bot]
        await self._gateway.dispatch_event("GUILD_DELETE", {"id": guild}, {bot})

    def _location(self, channel: str) -> Json:
        guild = self._state.channels[channel].get("guild_id")
        return {"channel_id": channel, **({"guild_id": guild} if guild else {})}


def _emoji_object(emoji: str, *, is_removal: bool = False) -> Json:
    """Return an emoji as Discord sends it: that of a removal does not tell whether it is animated."""
    custom = CUSTOM_EMOJI.fullmatch(emoji)
    if custom is None:
        return {"id": None, "name": emoji}
    return {"id": custom[3], "name": custom[2], **({"animated": True} if custom[1] and not is_removal else {})}
