"""Rate limits: messages per person, room and world, replies to other bots, edits of one message."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from uuid import UUID

from bot.concurrency.bounded import BoundedDict
from bot.domain.environment import Room
from bot.settings import CoreSettings

MINUTE_SECONDS = 60.0
BURST_MINUTES = 2  # minutes whose messages may arrive at once
MAX_BUCKETS = 10_000
PUBLIC_LIMITS = MappingProxyType({"MESSAGES_PER_PERSON": 10, "MESSAGES_PER_ROOM": 60, "MESSAGES_PER_WORLD": 300})
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
MAX_BOT_MESSAGES_PER_MINUTE = 20  # of one bot; then it is ignored for a minute
MAX_BOT_MESSAGES_IN_A_ROW = 5  # in one room, since the last message of a person
MAX_TRACKED_ROOMS = 1_000
MAX_TRACKED_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A limit that a message exceeds: the reason, the setting, and whether its author should be notified."""

    reason: str
    setting: str
    should_notify: bool


@dataclass(slots=True)
class _Bucket:
    """A token bucket; `is_notified` once its limit was exceeded, until it is full again."""

    level: float
    filled_at: float = -math.inf
    is_notified: bool = False

    def fill(self, capacity: int, timestamp: float) -> None:
        """Add the tokens since the last call, at most `capacity`."""
        elapsed = max(0.0, timestamp - self.filled_at)
        self.level = min(capacity, self.level + elapsed * capacity / (BURST_MINUTES * MINUTE_SECONDS))
        self.filled_at = max(self.filled_at, timestamp)
        self.is_notified &= self.level < capacity


class MessageRateLimiter:
    """Limits the messages of one agent by token buckets of two minutes, in memory only.

    `defaults` are the limits for settings that are not set; `clock` is monotonic, in seconds.
    """

    def __init__(
        self, settings: CoreSettings, defaults: Mapping[str, int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        limits = {
            "MESSAGES_PER_PERSON": settings.messages_per_person,
            "MESSAGES_PER_ROOM": settings.messages_per_room,
            "MESSAGES_PER_WORLD": settings.messages_per_world,
        }
        self._limits = {name: defaults.get(name, 0) if value is None else value for name, value in limits.items()}
        self._buckets = {
            setting: BoundedDict[UUID, _Bucket](MAX_BUCKETS, partial(_Bucket, limit * BURST_MINUTES))
            for setting, limit in self._limits.items()
        }

    def check(self, person_id: UUID, room: Room, *, expects_reply: bool, age: float = 0.0) -> LimitExceeded | None:
        """Count a message; return the limit that it exceeds, and then do not count it.

        `age` is in seconds: messages written while the bot was offline count for the minutes in which they
        were written. An author who expects a reply is notified once, until the bucket is full again.
        """
        world_key = room.id if room.type.is_private_chat else room.world_id  # a direct chat shares no world
        buckets, written_at = [], self._clock() - max(0.0, age)
        for (setting, limit), key in zip(self._limits.items(), (person_id, room.id, world_key), strict=True):
            if not limit:
                continue
            bucket = self._buckets[setting][key]
            bucket.fill(limit * BURST_MINUTES, written_at)
            if bucket.level < 1:
                should_notify = expects_reply and not bucket.is_notified
                bucket.is_notified |= should_notify
                scope = setting.rpartition("_")[2].lower()
                return LimitExceeded(f"more than {limit} messages a minute came of one {scope}", setting, should_notify)
            buckets.append(bucket)
        for bucket in buckets:
            bucket.level -= 1
        return None


@dataclass(slots=True)
class _BotActivity:
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_BOT_MESSAGES_PER_MINUTE))
    silent_until: float = 0.0


@dataclass(slots=True)
class _RoomActivity:
    in_a_row: int = 0


class BotGuard:
    """Limits replies of one agent to other bots, so that bots do not talk for ever; in memory only.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bots = BoundedDict[UUID, _BotActivity](MAX_TRACKED_ROOMS, _BotActivity)
        self._rooms = BoundedDict[UUID, _RoomActivity](MAX_TRACKED_ROOMS, _RoomActivity)

    def note_person(self, room_id: UUID) -> None:
        """Note that a person wrote in a room."""
        self._rooms[room_id].in_a_row = 0

    def refusal_for(self, bot_id: UUID, room_id: UUID) -> str:
        """Count a message of a bot; return why it must not be answered, or an empty string."""
        bot, room, now = self._bots[bot_id], self._rooms[room_id], self._clock()
        if now < bot.silent_until:
            return "this bot wrote too much in a minute, and is not answered for another"
        if len(bot.times) == MAX_BOT_MESSAGES_PER_MINUTE and now - bot.times[0] < MINUTE_SECONDS:
            bot.silent_until = now + MINUTE_SECONDS
            return f"this bot wrote more than {MAX_BOT_MESSAGES_PER_MINUTE} messages in a minute"
        if room.in_a_row >= MAX_BOT_MESSAGES_IN_A_ROW:
            return f"bots wrote {MAX_BOT_MESSAGES_IN_A_ROW} messages here since a person did"
        bot.times.append(now)
        room.in_a_row += 1
        return ""


class EditPacer:
    """Delays repeated processing of one message, so that frequent edits do not each cost a reply."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._started_at: dict[UUID, float] = {}

    def note(self, message_id: UUID) -> None:
        """Note that processing of a message starts now."""
        self._started_at.pop(message_id, None)
        self._started_at[message_id] = self._clock()
        if len(self._started_at) > MAX_TRACKED_MESSAGES:
            del self._started_at[next(iter(self._started_at))]

    async def wait(self, message_id: UUID) -> None:
        """Wait until the message may be processed again."""
        started_at = self._started_at.get(message_id)
        if started_at is not None and (pause := started_at + self._seconds - self._clock()) > 0:
            await self._sleep(pause)
