"""Guild, channel and member events; unknown guilds after a resume.

A session that goes on does not begin with all servers again, as a new one does.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, ClassVar

import discord
from discord.http import Route

from adapters.discord.entities import Places
from adapters.discord.errors import GONE
from bot import Room, World
from bot.platform import Door

logger = logging.getLogger(__name__)


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


TELLS = frozenset({"GUILD_CREATE", "GUILD_DELETE"})
MOST_FAILED = 1000
AGAIN = 60.0  # seconds after which a server is asked for once more


class Learner:
    """Fills the library's knowledge of a server, before the first event from there is read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: OrderedDict[int, float] = OrderedDict()  # until when a server is left alone

    async def learn(self, client: discord.Client, event: str, data: Any) -> None:
        """Ask for the server of an event where it is not known; without an answer the event stands alone."""
        home = data.get("guild_id") if isinstance(data, dict) else None
        if event in TELLS or not str(home or "").isdigit():
            return
        guild_id = int(str(home))
        if client.get_guild(guild_id) is not None or self._clock() < self._failed.get(guild_id, 0.0):
            return
        try:
            told = await self._ask(client, guild_id)
        except GONE as error:
            logger.warning("server %s is not known, and Discord does not tell of it: %s", guild_id, error)
            self._failed[guild_id] = self._clock() + AGAIN
            if len(self._failed) > MOST_FAILED:
                self._failed.popitem(last=False)
            return
        client._connection.parse_guild_create(told)

    async def _ask(self, client: discord.Client, guild_id: int) -> Any:
        guild = await client.http.request(Route("GET", "/guilds/{guild_id}", guild_id=guild_id))
        channels = await client.http.request(Route("GET", "/guilds/{guild_id}/channels", guild_id=guild_id))
        active = await client.http.request(
            Route("GET", "/guilds/{guild_id}/threads/active", guild_id=guild_id)
        )
        return {**guild, "channels": channels, "threads": active.get("threads", []), "unavailable": False}
