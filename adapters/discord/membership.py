"""Guild, channel and member events; unknown guilds after a resumed session.

Discord announces all guilds at the start of a new session, but not when a session is resumed.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, ClassVar

import discord
from discord.http import Route

from adapters.discord.entities import EntityMapper
from adapters.discord.errors import REQUEST_ERRORS
from adapters.discord.sharding import ShardId
from bot import Room, World
from bot.platform import AgentHandle, BoundedDict

logger = logging.getLogger(__name__)
GUILD_EVENTS = frozenset({"GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE"})
MAX_FAILED_GUILDS, MAX_FETCHED_GUILDS = 1000, 100
RETRY_SECONDS = 60.0  # seconds until an unknown guild is requested again


class MembershipHandler:
    """Reports membership events; `handlers` has one method by event name of the library."""

    # Events that are processed before the backfill is complete.
    BEFORE_BACKFILL: ClassVar = ("guild_available", "guild_join")

    def __init__(self, handle: AgentHandle, mapper: EntityMapper) -> None:
        self._handle = handle
        self._mapper = mapper
        self.handlers: dict[str, Callable[..., Awaitable[object]]] = {
            "guild_available": self._guild_available,
            "guild_join": self._guild_joined,
            "guild_update": self._guild_updated,
            "guild_remove": self._guild_removed,
            "guild_channel_create": self._channel_created,
            "guild_channel_update": self._channel_updated,
            "guild_channel_delete": self._channel_deleted,
            "thread_create": self._channel_created,
            "thread_update": self._channel_updated,
            "raw_thread_delete": self._thread_deleted,
            "member_join": self._member_joined,
            "member_update": self._member_updated,
            "raw_member_remove": self._member_left,
        }

    async def _guild_available(self, guild: discord.Guild) -> None:
        await self._handle.membership.join_world(self._mapper.to_world(guild), self._rooms(guild))

    async def _guild_joined(self, guild: discord.Guild) -> None:
        joined_at = guild.me.joined_at if guild.me else None
        event_id = f"invited:{guild.id}:{_format_time(joined_at)}" if joined_at else ""
        await self._handle.membership.join_world(self._mapper.to_world(guild), self._rooms(guild), event_id=event_id)

    async def _guild_updated(self, before: discord.Guild, guild: discord.Guild) -> None:
        await self._handle.membership.update_world(self._mapper.to_world(guild))

    async def _guild_removed(self, guild: discord.Guild) -> None:
        await self._handle.edits.leave_world(self._mapper.world_id(guild.id))

    async def _channel_created(self, channel: Any) -> None:
        if _is_room(channel):
            await self._handle.membership.join_room(*self._world_and_room(channel))

    async def _channel_updated(self, before: Any, channel: Any) -> None:
        if _is_room(channel):
            await self._handle.membership.update_room(*self._world_and_room(channel))

    async def _channel_deleted(self, channel: Any) -> None:
        await self._handle.edits.leave_room(self._mapper.room_id(channel.id))

    async def _thread_deleted(self, payload: discord.RawThreadDeleteEvent) -> None:
        await self._handle.edits.leave_room(self._mapper.room_id(payload.thread_id))

    async def _member_joined(self, member: discord.Member) -> None:
        world, entity = self._mapper.to_world(member.guild, [member]), self._mapper.to_entity(member)
        event_id = f"join:{member.guild.id}:{member.id}:{_format_time(member.joined_at)}"
        await self._handle.membership.add_member(world, entity, event_id=event_id)

    async def _member_updated(self, before: discord.Member, member: discord.Member) -> None:
        world = self._mapper.to_world(member.guild, [member])
        await self._handle.membership.update_member(world, self._mapper.to_entity(member))

    async def _member_left(self, payload: discord.RawMemberRemoveEvent) -> None:
        world = self._mapper.world_of(payload.guild_id, getattr(payload.user, "guild", None), 0)
        await self._handle.membership.remove_member(world, self._mapper.to_entity(payload.user))

    def _world_and_room(self, channel: Any) -> tuple[World, Room]:
        return self._mapper.to_world(channel.guild), self._mapper.to_room(channel)

    def _rooms(self, guild: discord.Guild) -> list[Room]:
        return [self._mapper.to_room(channel) for channel in (*guild.channels, *guild.threads) if _is_room(channel)]


def _is_room(channel: Any) -> bool:
    """Return whether a channel is a room; a category only contains channels."""
    return not isinstance(channel, discord.CategoryChannel)


def _format_time(timestamp: datetime | None) -> str:
    return timestamp.isoformat() if timestamp else ""


class GuildFetcher:
    """Fetches unknown guilds into the library's cache before their first event is read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._retry_at = BoundedDict[int, float](MAX_FAILED_GUILDS)  # by guild id: monotonic seconds

    async def ensure_guild(self, client: discord.Client, event: str, data: Any) -> None:
        """Fetch the guild of an event if it is unknown; if that fails, the event is read without it."""
        raw_guild_id = data.get("id" if event in GUILD_EVENTS else "guild_id") if isinstance(data, dict) else None
        if event == "GUILD_CREATE" or not str(raw_guild_id or "").isdigit():
            return
        guild_id = int(str(raw_guild_id))
        if client.get_guild(guild_id) is not None:
            return
        if event == "GUILD_DELETE":  # the library discards it otherwise
            client._connection._add_guild_from_data(
                {"id": guild_id, "unavailable": True}  # type: ignore[typeddict-item]  # as the library does itself
            )
            return
        await self._fetch(client, guild_id)

    async def fetch_all(self, client: discord.Client, shard: ShardId) -> None:
        """Fetch a shard's unknown guilds, at most MAX_FETCHED_GUILDS; others are fetched with their first event."""
        try:
            guilds = await client.http.request(Route("GET", "/users/@me/guilds"))
        except REQUEST_ERRORS as error:
            logger.warning("the servers of the bot could not be listed: %s", error)
            return
        guild_ids = [int(guild["id"]) for guild in guilds if shard.has_guild(int(guild["id"]))]
        for guild_id in guild_ids[:MAX_FETCHED_GUILDS]:
            if client.get_guild(guild_id) is None:
                await self._fetch(client, guild_id)

    async def _fetch(self, client: discord.Client, guild_id: int) -> None:
        if self._clock() < self._retry_at.get(guild_id, 0.0):
            return
        try:
            guild = await self._fetch_guild(client, guild_id)
        except REQUEST_ERRORS as error:
            logger.warning("server %s is unknown and could not be fetched: %s", guild_id, error)
            self._retry_at[guild_id] = self._clock() + RETRY_SECONDS
            return
        if client.get_guild(guild_id) is None:  # it may have been announced meanwhile
            client._connection.parse_guild_create(guild)

    async def _fetch_guild(self, client: discord.Client, guild_id: int) -> Any:
        guild = await client.http.request(Route("GET", "/guilds/{guild_id}", guild_id=guild_id))
        channels = await client.http.request(Route("GET", "/guilds/{guild_id}/channels", guild_id=guild_id))
        active_threads = await client.http.request(Route("GET", "/guilds/{guild_id}/threads/active", guild_id=guild_id))
        return {**guild, "channels": channels, "threads": active_threads.get("threads", []), "unavailable": False}
