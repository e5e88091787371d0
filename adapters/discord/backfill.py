"""Messages missed while offline: fetched channel by channel, up to a limit."""

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

import discord

from adapters.discord.config import Limits
from adapters.discord.entities import PLATFORM, EntityMapper
from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse
from bot import ChannelType, Room
from bot.platform import AgentHandle

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
MAX_DIRECT_CHANNELS = 100


class Backfill:
    """Fetches the messages that were sent since this account was last connected."""

    def __init__(self, handle: AgentHandle, client: discord.Client, mapper: EntityMapper, limits: Limits) -> None:
        self._handle, self._client, self._mapper, self._limits = handle, client, mapper, limits
        self._newest_seen = 0  # the newest message stored of any channel
        self._late_guilds: set[int] = set()

    async def read_missed(self) -> AsyncIterator[list[discord.Message]]:
        """Yield the missed messages of each channel, oldest first; nothing if no message was ever stored."""
        self._late_guilds = {guild.id for guild in self._client.guilds if guild.unavailable}
        channels, direct_channels = self._channels(self._client.guilds), await self._direct_channels()
        last_seen = await self._last_seen_ids([*channels, *direct_channels])
        self._newest_seen = max(last_seen.values(), default=0)
        async for messages in self._read_since(channels, last_seen):
            yield messages
        for room_id, direct_channel in direct_channels.items():
            if room_id in last_seen:
                yield await self._read_after(direct_channel, last_seen[room_id])

    async def read_missed_in(self, guild: discord.Guild) -> AsyncIterator[list[discord.Message]]:
        """Yield the missed messages of a guild that became available only after the session was ready."""
        if guild.id not in self._late_guilds:
            return
        channels = self._channels([guild])
        async for messages in self._read_since(channels, await self._last_seen_ids([*channels])):
            yield messages
        self._late_guilds.discard(guild.id)

    async def _read_since(
        self, channels: Mapping[UUID, Any], last_seen: Mapping[UUID, int]
    ) -> AsyncIterator[list[discord.Message]]:
        for room_id, channel in channels.items():
            # A channel that was created meanwhile has no message of its own.
            after_id = last_seen.get(room_id, self._newest_seen)
            if after_id and (channel.last_message_id or 0) > after_id:
                yield await self._read_after(channel, after_id)

    async def _last_seen_ids(self, room_ids: Collection[UUID]) -> dict[UUID, int]:
        last_seen = await self._handle.last_seen(room_ids)
        return {room_id: int(message_id) for room_id, message_id in last_seen.items() if message_id.isdigit()}

    def _channels(self, guilds: Iterable[discord.Guild]) -> dict[UUID, Any]:
        return {
            self._mapper.room_id(channel.id): channel
            for guild in guilds
            for channel in (*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads)
        }

    async def _direct_channels(self) -> Mapping[UUID, discord.PartialMessageable]:
        """Return the stored direct-message channels: Discord cannot list them."""
        rooms = [room for room in await self._handle.conversations.rooms() if self._is_direct(room)]
        return {
            room.id: self._client.get_partial_messageable(int(room.external_id)) for room in rooms[:MAX_DIRECT_CHANNELS]
        }

    def _is_direct(self, room: Room) -> bool:
        is_own_account = room.platform == PLATFORM and room.account == self._mapper.account
        return is_own_account and room.type is ChannelType.DM and room.external_id.isdigit()

    async def _read_after(self, channel: Any, after_id: int) -> list[discord.Message]:
        for _ in range(MAX_ATTEMPTS):
            try:
                position = discord.Object(after_id)
                history = channel.history(limit=self._limits.history_limit, after=position, oldest_first=False)
                return [message async for message in history][::-1]
            except discord.RateLimited as error:
                await self._limits.sleep(error.retry_after)
            except ErrorResponse as error:
                if error.status != 429:
                    logger.info("channel %s: missed messages cannot be read: %s", channel.id, error)
                    return []
                await self._limits.sleep(error.retry_after)
            except REQUEST_ERRORS as error:
                logger.warning("channel %s: missed messages were not read: %s", channel.id, error)
        return []
