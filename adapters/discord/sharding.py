"""Shards: the gateway connections among which Discord divides a bot's servers, and which of them this process makes."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adapters.discord.config import PLATFORM
from bot.platform import AgentHandle, ConnectionStatus, DisconnectCause, StreamCursor
from bot.store import connection_name, part_name

COUNT_CURSOR, SESSION_CURSOR, UNREAD_CURSOR = "shards", "gateway", "unread"


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """One of `count` gateway connections, numbered from 0 as Discord does; a bot in few servers has one."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"shard {self.number}/{self.count}"

    def has_guild(self, guild_id: int) -> bool:
        """Return whether Discord sends a guild's events to this shard; 0 stands for direct channels."""
        return (guild_id >> 22) % self.count == self.number

    def cursor_name(self, name: str) -> str:
        """Return the name under which a read position of this shard is stored."""
        return part_name(name, self.number, self.count)


WHOLE_ACCOUNT = ShardId()


def all_shards(count: int) -> list[ShardId]:
    """Return the shards of a bot that has so many."""
    return [ShardId(number, count) for number in range(count)]


@dataclass(frozen=True, slots=True)
class UnreadChannel:
    """A channel that could not be read: the last message stored before the gap, and the guild, 0 for a direct one."""

    after_id: int
    guild_id: int


def parse_unread(text: str | None) -> dict[int, UnreadChannel]:
    """Return the channels in the text of `format_unread`, by id; before shards it named no guilds."""
    stored: Mapping[str, Any] = json.loads(text or "{}")
    return {
        int(channel_id): UnreadChannel(*map(int, value if isinstance(value, list) else (value, 0)))
        for channel_id, value in stored.items()
    }


def format_unread(channels: Mapping[int, UnreadChannel]) -> str:
    """Return channels that could not be read as JSON."""
    return json.dumps({str(channel_id): [item.after_id, item.guild_id] for channel_id, item in channels.items()})


class ShardAllocation:
    """Which shards of an account this process connects.

    Their number is the operator's or Discord's recommendation. The latter is stored and kept until Discord
    recommends more than twice as many, since with another number every session starts anew. Gateways that share
    an account take equal shares, by leases. `count` is 0 until it was chosen.
    """

    def __init__(self, handle: AgentHandle, account: str, configured_count: int) -> None:
        self._handle, self._account = handle, account
        self._configured_count = configured_count
        self.count = 0

    @property
    def is_shared(self) -> bool:
        """Whether other processes connect shards of this account too."""
        return self._handle.connection_leases is not None

    async def choose_count(self, recommended: int) -> None:
        """Choose how many shards there are, at the start."""
        stored = await self._read_count()
        must_grow = not stored or recommended > 2 * stored
        await self._change_count(stored or 1, self._configured_count or (recommended if must_grow else stored))

    async def raise_count(self, recommended: int) -> bool:
        """Use as many shards as Discord recommends, which refuses fewer; return whether they are more than before."""
        stored = await self._read_count()
        if stored > self.count:  # another process has raised it
            self.count = stored
            return True
        if self._configured_count or recommended <= self.count:
            return False
        await self._change_count(self.count, recommended)
        return True

    async def find_own(self) -> Collection[ShardId]:
        """Return the shards that this process connects; shared ones are to be found again twice a second."""
        leases = self._handle.connection_leases
        if leases is None:
            return all_shards(self.count)
        self.count = await self._read_count() or self.count
        numbers = await leases.share_leases(connection_name(PLATFORM), self.count)
        return [ShardId(number, self.count) for number in sorted(numbers)]

    async def release(self, shard: ShardId) -> None:
        """Leave a shard that is no longer connected here to another process."""
        if self._handle.connection_leases is not None:
            await self._handle.connection_leases.release_lease(shard.cursor_name(connection_name(PLATFORM)))

    async def _read_count(self) -> int:
        return int(await self._handle.cursor(PLATFORM, self._account, COUNT_CURSOR) or 0)

    async def _change_count(self, old_count: int, count: int) -> None:
        """Store another number; the channels that could not be read go to the shards that have them from now on."""
        if count == old_count:
            self.count = count
            return
        unread: dict[int, UnreadChannel] = {}
        for shard in all_shards(old_count):
            name = shard.cursor_name(UNREAD_CURSOR)
            unread |= parse_unread(await self._handle.cursor(PLATFORM, self._account, name))
        for shard in all_shards(count):
            own = {key: item for key, item in unread.items() if shard.has_guild(item.guild_id)}
            await self._store(shard.cursor_name(UNREAD_CURSOR), format_unread(own))
        await self._store(COUNT_CURSOR, str(count))
        self.count = count

    async def _store(self, name: str, value: str) -> None:
        await self._handle.submit_all([], StreamCursor(PLATFORM, self._account, name, value))


class ShardStatus:
    """The state of one shard; that of its account is connected while all its shards are."""

    def __init__(self, shard: ShardId, account: ConnectionStatus, shards: "set[ShardStatus]") -> None:
        self.is_connected = False
        self._name = f"{shard}: " if shard.count > 1 else ""
        self._account, self._shards = account, shards
        self.unheard_since: datetime | None = None
        shards.add(self)

    def note_unheard(self, since: datetime | None) -> None:
        """Note since when Discord has had a message that this shard has not brought; None where it has brought all."""
        self.unheard_since = since
        unheard = [item.unheard_since for item in self._shards if item.unheard_since is not None]
        self._account.unheard_since = min(unheard, default=None)

    def connected(self) -> None:
        """Record that the gateway answers."""
        self.is_connected = True
        if all(item.is_connected for item in self._shards):
            self._account.connected()

    def disconnected(self) -> None:
        """Record that a connection ended normally and the next one is being made."""
        self.is_connected = False
        self._account.disconnected()

    def failed(self, cause: DisconnectCause, detail: object) -> None:
        """Record that the gateway cannot be reached."""
        self.is_connected = False
        self._account.failed(cause, f"{self._name}{detail}")

    def close(self) -> None:
        """Record that this process does not connect the shard any more."""
        self.note_unheard(None)
        self._shards.discard(self)
        if self._shards and all(item.is_connected for item in self._shards):
            self._account.connected()
