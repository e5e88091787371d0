"""Messages, edits and deletions missed while offline: found channel by channel, up to a limit."""

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any
from uuid import UUID

import discord
from discord.utils import parse_time

from adapters.discord.config import PLATFORM, Limits
from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse, InvalidResponse
from adapters.discord.incoming import EntityMapper
from adapters.discord.sharding import UNREAD_CURSOR, ShardId, UnreadChannel, format_unread, parse_unread
from bot import ChannelType, Room
from bot.platform import AgentHandle, StreamCursor

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
MAX_DIRECT_CHANNELS = 100
MAX_COMPARED_CHANNELS, MAX_COMPARED_RECEIPTS = 50, 300
MESSAGE_EVENTS = ("MC:", "MU:")  # beginnings of the event ids of messages and edits


@dataclass(frozen=True, slots=True)
class MissedMessages:
    """The missed messages of a channel as Discord sends them, oldest first.

    `cursor` is to be stored with them; it holds the channels that could not be read yet. `edited` are the stored
    messages whose edits were missed, as they are now, and `deleted_ids` those that were deleted.
    """

    channel: Any
    payloads: list[Any]
    cursor: StreamCursor | None = None
    edited: Sequence[Any] = ()
    deleted_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """The messages of a channel that are stored, by id: the time of the last edit, 0 for none, and the memory."""

    revisions: Mapping[str, int]
    memory_ids: Mapping[str, UUID]


class Backfill:
    """Fetches the messages that were sent since this shard was last connected.

    A channel that cannot be read is remembered with its position, because later messages of it move the
    position of the last one stored. The newest messages of the channels that were active last are compared with
    what is stored of them.
    """

    def __init__(
        self, handle: AgentHandle, client: discord.Client, mapper: EntityMapper, limits: Limits, shard: ShardId
    ) -> None:
        self._handle, self._client, self._mapper, self._limits = handle, client, mapper, limits
        self._shard = shard
        self._newest_seen = 0  # the newest message stored of any channel
        self._late_guilds: set[int] = set()  # those that are unavailable
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

    def note_unavailable(self, guild_id: int) -> None:
        """Record that nothing is received from a guild until it is available again."""
        self._late_guilds.add(guild_id)

    async def read_missed_in(self, guild: discord.Guild) -> AsyncIterator[MissedMessages]:
        """Yield the missed messages of a guild that was unavailable."""
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
        compared = nlargest(MAX_COMPARED_CHANNELS, last_seen, key=last_seen.__getitem__)
        for room_id, channel in channels.items():
            # A channel that was created meanwhile has no message of its own.
            after_id = last_seen.get(room_id, self._newest_seen)
            has_newer = bool(after_id) and (channel.last_message_id or 0) > after_id
            if await self._mapper.is_absent(channel, None):
                continue
            if channel.id in self._unread or has_newer or room_id in compared:
                yield await self._read_channel(channel, after_id)

    async def _read_channel(self, channel: Any, after_id: int) -> MissedMessages:
        """Fetch the messages of a channel after its gap or, without one, after a message."""
        unread = dict(self._unread)
        gap = self._unread.get(channel.id) or UnreadChannel(after_id, channel.guild.id if channel.guild else 0)
        stored = await self._read_stored(channel)  # before the page: what is sent meanwhile is not missing in it
        try:
            page, is_complete = await self._fetch_newest(channel.id), _can_read_history(channel)
        except ErrorResponse as error:
            logger.info("channel %s: missed messages cannot be read: %s", channel.id, error)
            page, is_complete = [], False
        if page is None:
            self._unread[channel.id] = gap
        else:
            self._unread.pop(channel.id, None)
        cursor = self._build_cursor() if self._unread != unread else None
        if not page and not (is_complete and page is not None):
            return MissedMessages(channel, [], cursor)
        missed = [payload for payload in page if not 0 < _id_of(payload) <= gap.after_id]
        edited = [payload for payload in page if _was_edited(payload, stored)]
        return MissedMessages(channel, missed, cursor, edited, await self._find_deleted(page, stored))

    async def _read_stored(self, channel: Any) -> StoredMessages:
        """Return what is stored of a channel's newest messages, those of the bot included."""
        room_id, conversations = self._mapper.room_id(channel.id), self._handle.conversations
        revisions: dict[str, int] = {}
        memory_ids: dict[str, UUID] = {}
        for receipt in await conversations.receipts(room_id=room_id, limit=MAX_COMPARED_RECEIPTS):
            message_id, revision = receipt.key.message_id, receipt.key.revision
            if receipt.key.event_id.startswith(MESSAGE_EVENTS):
                revisions[message_id] = max(revision, revisions.get(message_id, 0))
                memory_ids[message_id] = receipt.memory_id
        for delivery in await conversations.room_deliveries(room_id):
            if delivery.external_id.isdecimal():
                memory_ids[delivery.external_id] = delivery.memory_id
        return StoredMessages(revisions, memory_ids)

    async def _find_deleted(self, page: Sequence[Any], stored: StoredMessages) -> list[str]:
        """Return the ids of stored messages that a channel does not have any more, as far back as its page goes.

        A message of the bot is in several parts; it was deleted if none of them is left.
        """
        oldest_id = _id_of(page[0]) if len(page) >= self._limits.history_limit else 0
        ids = {str(_id_of(payload)) for payload in page}
        missing = {
            message_id: memory_id
            for message_id, memory_id in stored.memory_ids.items()
            if message_id not in ids and int(message_id) >= oldest_id
        }
        left = {memory_id for message_id, memory_id in stored.memory_ids.items() if message_id not in missing}
        known = await self._handle.conversations.memories(set(missing.values()) - left)
        return [message_id for message_id, memory_id in missing.items() if memory_id in known]

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

    async def _fetch_newest(self, channel_id: int) -> list[Any] | None:
        """Return the newest messages, oldest first; None if they may be readable later.

        Raises ErrorResponse if they never are. They are not converted here: the library's own iterator ends at the
        first that it cannot read.
        """
        for _ in range(MAX_ATTEMPTS):
            try:
                page = await self._client.http.logs_from(channel_id, self._limits.history_limit)
                if not isinstance(page, list):
                    raise InvalidResponse(f"the messages are {type(page).__name__}")
                return page[::-1]
            except discord.RateLimited as error:
                await self._limits.sleep(error.retry_after)
            except REQUEST_ERRORS as error:
                if isinstance(error, ErrorResponse) and error.is_final:
                    raise
                if isinstance(error, ErrorResponse) and error.status == 429:
                    await self._limits.sleep(error.retry_after)
                    continue
                logger.warning("channel %s: missed messages were not read: %s", channel_id, error)
        return None


def _can_read_history(channel: Any) -> bool:
    """Return whether Discord shows the messages of a channel to the bot; without the permission it shows none."""
    guild = getattr(channel, "guild", None)
    if guild is None or guild.me is None or not hasattr(channel, "permissions_for"):
        return isinstance(channel, discord.PartialMessageable) and channel.guild_id is None
    return bool(channel.permissions_for(guild.me).read_message_history)


def _was_edited(payload: Any, stored: StoredMessages) -> bool:
    """Return whether a stored message was edited since."""
    match payload:
        case {"id": str(message_id), "edited_timestamp": str(timestamp)} if message_id in stored.revisions:
            edited_at = parse_time(timestamp)
            return int(edited_at.timestamp() * 1000) > stored.revisions[message_id]
    return False


def _id_of(payload: Any) -> int:
    """Return the id of a message; 0 if it has none that can be read."""
    try:
        return int(payload["id"])
    except (KeyError, TypeError, ValueError):
        return 0
