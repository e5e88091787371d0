"""What people do on the platform, and what the bots are told of it."""

import re
from datetime import datetime
from typing import Any

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.rest import Rest
from adapters.discord.emulator.state import Json, Town

_USER = re.compile(r"<@!?(\d+)>")


class People:
    """Has people say, change and remove things, come and go; each is told to every bot at once."""

    def __init__(self, town: Town, gateway: GatewayServer, rest: Rest) -> None:
        self._town, self._gateway, self._rest = town, gateway, rest

    async def say(
        self,
        channel: str,
        author: str,
        text: str = "",
        *,
        reply_to: str | None = None,
        files: tuple[tuple[str, bytes, str], ...] = (),
        at: datetime | None = None,
        is_told: bool = True,
        **more: Any,
    ) -> str:
        """Say something, with files as name, bytes and type; not `is_told` while the bots are away."""
        if files:
            more["attachments"] = [self._rest.keep(channel, *one) for one in files]
        message = self._town.add_message(channel, author, text, reply_to=reply_to, at=at, **more)
        if is_told:
            await self._gateway.tell("MESSAGE_CREATE", message)
        return str(message["id"])

    async def edit(self, channel: str, message_id: str, text: str) -> None:
        """Change what was said."""
        message = self._town.messages[channel][message_id]
        message.update(content=text, edited_timestamp=self._town.clock().isoformat())
        message["mentions"] = [
            self._town.users[one] for one in _USER.findall(text) if one in self._town.users
        ]
        await self._gateway.tell("MESSAGE_UPDATE", message)

    async def delete(self, channel: str, *message_ids: str) -> None:
        """Take back what was said; several at once as a moderator does."""
        for message_id in message_ids:
            self._town.messages[channel].pop(message_id, None)
        place = self._place(channel)
        if len(message_ids) == 1:
            await self._gateway.tell("MESSAGE_DELETE", {**place, "id": message_ids[0]})
        else:
            await self._gateway.tell("MESSAGE_DELETE_BULK", {**place, "ids": list(message_ids)})

    async def unreact(self, channel: str, message_id: str, user: str = "", sign: str = "") -> None:
        """Take a sign off a message; everybody's where nobody is named, all where none is."""
        told: Json = {**self._place(channel), "message_id": message_id}
        told |= {"emoji": {"id": None, "name": sign}} if sign else {}
        told |= {"user_id": user, "burst": False, "type": 0} if user else {}
        kind = "" if user else "_EMOJI" if sign else "_ALL"
        await self._gateway.tell(f"MESSAGE_REACTION_REMOVE{kind}", told)

    async def react(self, channel: str, message_id: str, user: str, sign: str) -> None:
        """Put a sign on a message."""
        told: Json = {
            **self._place(channel),
            "user_id": user,
            "message_id": message_id,
            "emoji": {"id": None, "name": sign},
            "burst": False,
            "type": 0,
        }
        member = self._town.member(told.get("guild_id", ""), user)
        if member is not None:
            told["member"] = member
        await self._gateway.tell("MESSAGE_REACTION_ADD", told)

    async def join(self, guild: str, user: str) -> None:
        """Come into a server."""
        member = self._town.add_member(guild, user)
        await self._gateway.tell("GUILD_MEMBER_ADD", {**member, "guild_id": guild})

    async def leave(self, guild: str, user: str) -> None:
        """Leave a server."""
        members = self._town.guilds[guild]["members"]
        members[:] = [one for one in members if one["user"]["id"] != user]
        told = {"guild_id": guild, "user": self._town.users[user]}
        await self._gateway.tell("GUILD_MEMBER_REMOVE", told)

    async def open_channel(self, guild: str, name: str, kind: int = 0, parent: str | None = None) -> str:
        """Open a channel, or a thread in one; gives its id."""
        channel = self._town.add_channel(guild, name, kind, parent)
        event = "THREAD_CREATE" if kind in (10, 11, 12) else "CHANNEL_CREATE"
        await self._gateway.tell(event, {**self._town.channels[channel], "newly_created": True})
        return channel

    async def close_channel(self, channel: str) -> None:
        """Remove a channel or a thread."""
        gone = self._town.channels.pop(channel)
        event = "THREAD_DELETE" if gone["type"] in (10, 11, 12) else "CHANNEL_DELETE"
        await self._gateway.tell(event, gone)

    async def invite(self, guild: str, bot: str) -> None:
        """Let a bot into a server."""
        self._town.add_member(guild, bot)
        told = {**self._town.told_guild(guild, bot)}
        del told["unavailable"]
        await self._gateway.tell("GUILD_CREATE", told, {bot})

    async def expel(self, guild: str, bot: str) -> None:
        """Throw a bot out of a server."""
        members = self._town.guilds[guild]["members"]
        members[:] = [one for one in members if one["user"]["id"] != bot]
        await self._gateway.tell("GUILD_DELETE", {"id": guild}, {bot})

    def _place(self, channel: str) -> Json:
        guild = self._town.channels[channel].get("guild_id")
        return {"channel_id": channel, **({"guild_id": guild} if guild else {})}
