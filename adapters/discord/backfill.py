"""Having been away: what was said meanwhile is fetched, channel by channel, as much as there is room for."""

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

import discord

from adapters.discord.config import Limits
from adapters.discord.entities import PLATFORM, Places
from adapters.discord.errors import GONE, Answered
from bot import ChannelType, Room
from bot.platform import Door

logger = logging.getLogger(__name__)
MOST_TRIES = 3
MOST_CONVERSATIONS = 100


class Backfill:
    """Finds the channels in which something was said since we were last there, and gives what it was."""

    def __init__(self, door: Door, client: discord.Client, places: Places, limits: Limits) -> None:
        self._door, self._client, self._places, self._limits = door, client, places, limits
        self._newest = 0  # the last message that we know of anywhere: since then we were away
        self._late: set[int] = set()

    async def missed(self) -> AsyncIterator[list[discord.Message]]:
        """Give what was missed of each channel, oldest first; nothing where we have never been anywhere."""
        self._late = {guild.id for guild in self._client.guilds if guild.unavailable}
        channels, direct = self._channels(self._client.guilds), await self._conversations()
        marks = await self._marks([*channels, *direct])
        self._newest = max(marks.values(), default=0)
        async for said in self._since(channels, marks):
            yield said
        for room_id, conversation in direct.items():
            if room_id in marks:
                yield await self._after(conversation, marks[room_id])

    async def missed_of(self, guild: discord.Guild) -> AsyncIterator[list[discord.Message]]:
        """Give what was missed of a server of which Discord had not told yet when it said that it had."""
        if guild.id not in self._late:
            return
        channels = self._channels([guild])
        async for said in self._since(channels, await self._marks([*channels])):
            yield said
        self._late.discard(guild.id)

    async def _since(
        self, channels: Mapping[UUID, Any], marks: Mapping[UUID, int]
    ) -> AsyncIterator[list[discord.Message]]:
        for room_id, channel in channels.items():
            after = marks.get(room_id, self._newest)  # a channel that is new since then has no mark
            if after and (channel.last_message_id or 0) > after:
                yield await self._after(channel, after)

    async def _marks(self, room_ids: Collection[UUID]) -> dict[UUID, int]:
        seen = await self._door.inbox.last_seen(room_ids)
        return {room_id: int(name) for room_id, name in seen.items() if name.isdigit()}

    def _channels(self, guilds: Iterable[discord.Guild]) -> dict[UUID, Any]:
        return {
            self._places.room_id(channel.id): channel
            for guild in guilds
            for channel in (
                *guild.text_channels,
                *guild.voice_channels,
                *guild.stage_channels,
                *guild.threads,
            )
        }

    async def _conversations(self) -> Mapping[UUID, discord.PartialMessageable]:
        """The conversations between two: Discord lists them nowhere, so those that we know."""
        rooms = [room for room in await self._door.records.rooms() if self._is_direct(room)]
        return {
            room.id: self._client.get_partial_messageable(int(room.external_id))
            for room in rooms[:MOST_CONVERSATIONS]
        }

    def _is_direct(self, room: Room) -> bool:
        is_ours = room.platform == PLATFORM and room.account == self._places.account
        return is_ours and room.type is ChannelType.DM and room.external_id.isdigit()

    async def _after(self, channel: Any, after: int) -> list[discord.Message]:
        for _ in range(MOST_TRIES):
            try:
                mark = discord.Object(after)
                latest = channel.history(limit=self._limits.history, after=mark, oldest_first=False)
                return [message async for message in latest][::-1]
            except discord.RateLimited as error:
                await self._limits.pause(error.retry_after)
            except Answered as error:
                if error.status != 429:
                    logger.info("channel %s: what was missed cannot be read: %s", channel.id, error)
                    return []
                await self._limits.pause(error.retry_after)
            except GONE as error:
                logger.warning("channel %s: what was missed was not read: %s", channel.id, error)
        return []
