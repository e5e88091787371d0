"""What Discord tells of servers, channels and people, passed on to whoever keeps the books."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, ClassVar

import discord

from adapters.discord.places import Places
from bot import Door, Room, World


class NewsDesk:
    """Passes news on, each kind by a method of its own; `told` finds it by the library's name for it."""

    FIRST: ClassVar = ("guild_available", "guild_join")  # what may be taken in while a gap is still open

    def __init__(self, door: Door, places: Places) -> None:
        self._door = door
        self._places = places
        self.told: dict[str, Callable[..., Awaitable[object]]] = {
            "guild_available": self._server,
            "guild_join": self._invited,
            "guild_update": self._server_updated,
            "guild_remove": self._server_left,
            "guild_channel_create": self._room,
            "guild_channel_update": self._room_updated,
            "guild_channel_delete": self._room_gone,
            "thread_create": self._room,
            "thread_update": self._room_updated,
            "raw_thread_delete": self._thread_gone,
            "member_join": self._person_joined,
            "member_update": self._person_updated,
            "raw_member_remove": self._person_left,
        }

    async def _server(self, guild: discord.Guild) -> None:
        await self._door.news.world_joined(self._places.world(guild), self._rooms(guild))

    async def _invited(self, guild: discord.Guild) -> None:
        joined = guild.me.joined_at if guild.me else None
        event_id = f"invited:{guild.id}:{_when(joined)}" if joined else ""
        await self._door.news.world_joined(self._places.world(guild), self._rooms(guild), event_id=event_id)

    async def _server_updated(self, before: discord.Guild, guild: discord.Guild) -> None:
        await self._door.news.world_updated(self._places.world(guild))

    async def _server_left(self, guild: discord.Guild) -> None:
        await self._door.changes.left_world(self._places.world_id(guild.id))

    async def _room(self, channel: Any) -> None:
        if _is_a_room(channel):
            await self._door.news.room_joined(*self._place_of(channel))

    async def _room_updated(self, before: Any, channel: Any) -> None:
        if _is_a_room(channel):
            await self._door.news.room_updated(*self._place_of(channel))

    async def _room_gone(self, channel: Any) -> None:
        await self._door.changes.left(self._places.room_id(channel.id))

    async def _thread_gone(self, told: discord.RawThreadDeleteEvent) -> None:
        await self._door.changes.left(self._places.room_id(told.thread_id))

    async def _person_joined(self, member: discord.Member) -> None:
        world, person = self._places.world(member.guild, [member]), self._places.person(member)
        event_id = f"join:{member.guild.id}:{member.id}:{_when(member.joined_at)}"
        await self._door.news.person_joined(world, person, event_id=event_id)

    async def _person_updated(self, before: discord.Member, member: discord.Member) -> None:
        world = self._places.world(member.guild, [member])
        await self._door.news.person_updated(world, self._places.person(member))

    async def _person_left(self, told: discord.RawMemberRemoveEvent) -> None:
        guild = getattr(told.user, "guild", None)
        world = (
            self._places.world(guild)
            if guild is not None
            else World(self._places.world_id(told.guild_id), "discord", str(told.guild_id))
        )
        await self._door.news.person_left(world, self._places.person(told.user))

    def _place_of(self, channel: Any) -> tuple[World, Room]:
        return self._places.world(channel.guild), self._places.room(channel)

    def _rooms(self, guild: discord.Guild) -> list[Room]:
        return [self._places.room(one) for one in (*guild.channels, *guild.threads) if _is_a_room(one)]


def _is_a_room(channel: Any) -> bool:
    """A category holds channels; nothing is said in it."""
    return not isinstance(channel, discord.CategoryChannel)


def _when(moment: datetime | None) -> str:
    return moment.isoformat() if moment else ""
