"""Messages missed while offline: fetched channel by channel, up to a limit."""

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import discord

from adapters.discord.config import PLATFORM, Limits
from adapters.discord.entities import EntityMapper
from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse, InvalidResponse
from adapters.discord.sharding import UNREAD_CURSOR, ShardId, UnreadChannel, format_unread, parse_unread
from bot import ChannelType, Room
from bot.platform import AgentHandle, StreamCursor

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
MAX_DIRECT_CHANNELS = 100


@dataclass(frozen=True, slots=True)
class MissedMessages:
    """The missed messages of a channel as Discord sends them, oldest first.

    `cursor` is to be stored with them; it holds the channels that could not be read yet.
    """

    channel: Any
    payloads: list[Any]
    cursor: StreamCursor | None = None


class Backfill:
    """Fetches the messages that were sent since this shard was last connected.

    A channel that cannot be read is remembered with its position, because later messages of it move the
    position of the last one stored.
    """

    def __init__(
        self, handle: AgentHandle, client: discord.Client, mapper: EntityMapper, limits: Limits, shard: ShardId
    ) -> None:
        self._handle, self._client, self._mapper, self._limits = handle, client, mapper, limits
        self._shard = shard
        self._newest_seen = 0  # the newest message stored of any channel
        self._late_guilds: set[int] = set()
        self._unread: dict[int, UnreadChannel] = {}  # by channel id

    @property
    def has_unread(self) -> bool:
        """Whether a channel could not be read and is to be read again."""
        return bool(self._unread)

    async def read_missed(self) -> AsyncIterator[MissedMessages]:
        """Yield the missed messages of each channel; nothing if no message was ever stored."""
        await self._load_unread()
        self._late_guilds = {guild.id for guild in self._client.guilds if guild.unavailable}
        channels, direct_channels = self._channels(self._client.guilds), await self._direct_channels()
        last_seen = await self._last_seen_ids([*channels, *direct_channels])
        self._newest_seen = max(last_seen.values(), default=0)
        async for missed in self._read_since(channels, last_seen):
            yield missed
        for room_id, direct_channel in direct_channels.items():
            if room_id in last_seen:
                yield await self._read_channel(direct_channel, last_seen[room_id])

    async def read_missed_in(self, guild: discord.Guild) -> AsyncIterator[MissedMessages]:
        """Yield the missed messages of a guild that became available only after the session was ready."""
        if guild.id not in self._late_guilds:
            return
        channels = self._channels([guild])
        async for missed in self._read_since(channels, await self._last_seen_ids([*channels])):
            yield missed
        self._late_guilds.discard(guild.id)

    async def read_unread(self) -> AsyncIterator[MissedMessages]:
        """Yield the missed messages of the channels that could not be read before."""
        await self._load_unread()
        for channel_id, unread in list(self._unread.items()):
            channel = self._client.get_channel(channel_id) or self._client.get_partial_messageable(
                channel_id, guild_id=unread.guild_id or None
            )
            yield await self._read_channel(channel, unread.after_id)

    async def _read_since(
        self, channels: Mapping[UUID, Any], last_seen: Mapping[UUID, int]
    ) -> AsyncIterator[MissedMessages]:
        for room_id, channel in channels.items():
            # A channel that was created meanwhile has no message of its own.
            after_id = last_seen.get(room_id, self._newest_seen)
            if channel.id in self._unread or (after_id and (channel.last_message_id or 0) > after_id):
                yield await self._read_channel(channel, after_id)

    async def _read_channel(self, channel: Any, after_id: int) -> MissedMessages:
        """Fetch the messages of a channel after its gap or, without one, after a message."""
        unread = dict(self._unread)
        gap = self._unread.get(channel.id) or UnreadChannel(after_id, channel.guild.id if channel.guild else 0)
        payloads = await self._fetch_after(channel.id, gap.after_id)
        if payloads is None:
            self._unread[channel.id] = gap
        else:
            self._unread.pop(channel.id, None)
        has_changed = self._unread != unread
        return MissedMessages(channel, payloads or [], self._build_cursor() if has_changed else None)

    async def _load_unread(self) -> None:
        name = self._shard.cursor_name(UNREAD_CURSOR)
        self._unread = parse_unread(await self._handle.cursor(PLATFORM, self._mapper.account, name))

    def _build_cursor(self) -> StreamCursor:
        name = self._shard.cursor_name(UNREAD_CURSOR)
        return StreamCursor(PLATFORM, self._mapper.account, name, format_unread(self._unread))

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
        if not self._shard.has_guild(0):
            return {}
        rooms = [room for room in await self._handle.conversations.rooms() if self._is_direct(room)]
        return {
            room.id: self._client.get_partial_messageable(int(room.external_id)) for room in rooms[:MAX_DIRECT_CHANNELS]
        }

    def _is_direct(self, room: Room) -> bool:
        is_own_account = room.platform == PLATFORM and room.account == self._mapper.account
        return is_own_account and room.type is ChannelType.DM and room.external_id.isdigit()

    async def _fetch_after(self, channel_id: int, after_id: int) -> list[Any] | None:
        """Return the newest messages after a message, oldest first; None if they may be readable later.

        They are not converted here: the library's own iterator ends at the first that it cannot read.
        """
        for _ in range(MAX_ATTEMPTS):
            try:
                page = await self._client.http.logs_from(channel_id, self._limits.history_limit)
                if not isinstance(page, list):
                    raise InvalidResponse(f"the messages are {type(page).__name__}")
                return [payload for payload in page if _is_newer(payload, after_id)][::-1]
            except discord.RateLimited as error:
                await self._limits.sleep(error.retry_after)
            except ErrorResponse as error:
                if error.status == 429:
                    await self._limits.sleep(error.retry_after)
                elif error.is_final:
                    logger.info("channel %s: missed messages cannot be read: %s", channel_id, error)
                    return []
                else:
                    logger.warning("channel %s: missed messages were not read: %s", channel_id, error)
            except REQUEST_ERRORS as error:
                logger.warning("channel %s: missed messages were not read: %s", channel_id, error)
        return None


def _is_newer(payload: Any, after_id: int) -> bool:
    """Return whether a message is newer than another one, or has no readable id."""
    try:
        return int(payload["id"]) > after_id
    except (KeyError, TypeError, ValueError):
        return True
