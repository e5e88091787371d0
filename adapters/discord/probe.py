"""A probe of the gateway: does it bring what is written? A socket that lives may still bring nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from discord.http import Route
from discord.utils import snowflake_time

from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse
from adapters.discord.sharding import ShardStatus
from bot import Clock, Room
from bot.platform import BoundedDict

logger = logging.getLogger(__name__)
MAX_CHANNELS, MAX_KNOWN_CHANNELS = 3, 1000
TOLERANCE = timedelta(seconds=20)  # within which the gateway may bring a message later than it can be read


class GatewayProbe:
    """Compares the newest messages of the channels that were active last with those that the gateway brought.

    It asks only while the gateway is connected and quiet, and never for more than three channels at a time.
    `status.unheard_since` is when the oldest message was written that the gateway should have brought; then
    `reconnect` is called.
    """

    def __init__(
        self,
        send_request: Callable[..., Awaitable[Any]],
        list_rooms: Callable[[], Awaitable[list[Room]]],
        status: ShardStatus,
        clock: Clock,
        reconnect: Callable[[], None],
    ) -> None:
        self._send_request, self._list_rooms = send_request, list_rooms
        self._status, self._clock, self._reconnect = status, clock, reconnect
        self._newest = BoundedDict[str, int](MAX_KNOWN_CHANNELS)  # by channel: the newest message known to be brought
        self._heard_at: datetime | None = None
        self._has_listed = False

    def note(self, channel_id: str, message_id: int) -> None:
        """Note a message that the gateway brought."""
        self._newest[channel_id] = max(message_id, self._newest.pop(channel_id, 0))
        self._heard_at = self._clock()
        self._status.unheard_since = None

    def note_unreadable(self, raw: Any) -> None:
        """Note an event that the gateway brought and that could not be read, if it is a message."""
        match raw:
            case {"d": {"id": str(message_id), "channel_id": str(channel_id)}} if message_id.isdecimal():
                self.note(channel_id, int(message_id))

    def reset(self) -> None:
        """Forget what was brought: a connection has begun, and what was missed is read otherwise."""
        self._newest.clear()
        self._status.unheard_since = None
        self._has_listed = False

    async def run(self, seconds: float) -> None:
        """Probe every so many seconds, until cancelled."""
        quiet = timedelta(seconds=min(seconds, 30.0))
        while True:
            await asyncio.sleep(seconds)
            is_quiet = self._heard_at is None or self._clock() - self._heard_at >= quiet
            if is_quiet and self._status.is_connected:
                await self.check()

    async def check(self) -> None:
        """Compare once."""
        if not self._newest and not self._has_listed:
            self._has_listed = True
            rooms = [room for room in await self._list_rooms() if room.external_id.isdecimal()]
            for room in reversed(rooms[:MAX_CHANNELS]):
                self._newest[room.external_id] = 0
        unheard = []
        for channel_id in list(self._newest)[-MAX_CHANNELS:]:
            known = self._newest.get(channel_id, 0)
            try:
                newest = await self._read_newest(channel_id)
            except ErrorResponse as error:
                if error.is_final:
                    self._newest.pop(channel_id, None)
                continue
            except REQUEST_ERRORS:  # whether the platform is reached at all, the connection itself tells
                continue
            if not known:
                self._newest[channel_id] = max(newest, self._newest.get(channel_id, 0))
            elif newest > self._newest.get(channel_id, newest):
                unheard.append(snowflake_time(newest))
        written_at = min(unheard, default=None)
        is_late = written_at is not None and self._clock() - written_at >= TOLERANCE
        self._status.unheard_since = written_at if is_late else None
        if is_late:
            logger.warning(
                "the gateway of Discord is connected but has brought nothing that was written since %s: "
                "it is connected again, and what was missed is read",
                written_at,
            )
            self._reconnect()

    async def _read_newest(self, channel_id: str) -> int:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        messages = await self._send_request(route, params={"limit": 1})
        match messages:
            case [{"id": str(message_id)}] if message_id.isdecimal():
                return int(message_id)
        return 0
