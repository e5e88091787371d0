"""Rate limits: messages per person, room and world, replies to other bots, edits of one message."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from uuid import UUID

from bot.concurrency.bounded import BoundedDict
from bot.domain.environment import Room
from bot.settings import CoreSettings
from bot.store.ledger import BucketRequest, SharedLimits

MINUTE_SECONDS = 60.0
BURST_MINUTES = 2  # minutes whose messages may arrive at once
MAX_BUCKETS = 10_000
PUBLIC_LIMITS = MappingProxyType({"MESSAGES_PER_PERSON": 10, "MESSAGES_PER_ROOM": 60, "MESSAGES_PER_WORLD": 300})
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
MAX_BOT_MESSAGES_PER_MINUTE = 20  # of one bot; then it is ignored for a minute
MAX_BOT_MESSAGES_IN_A_ROW = 5  # in one room, since the last message of a person
MAX_TRACKED_ROOMS = 1_000
MAX_TRACKED_MESSAGES = 1000
MAX_DELAY_SECONDS = 10.0  # a message that came later was written while the bot was offline


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


@dataclass(slots=True, eq=False)
class _TokenRequest:
    """What a message takes: a token of each bucket, by setting, key and capacity; `granted` is the answer."""

    buckets: Sequence[tuple[str, UUID, int]]
    age: float
    granted: list[bool] = field(default_factory=list)


class SharedTokens:
    """Takes tokens of the buckets that all processes share, for all messages that wait by one question.

    A token that was taken for a message which another limit refused is kept for the next message of its bucket.
    """

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits
        self._spare = BoundedDict[tuple[str, UUID], int](MAX_BUCKETS, int)
        self._waiting: list[_TokenRequest] = []
        self._lock = asyncio.Lock()

    async def take(self, buckets: Sequence[tuple[str, UUID, int]], age: float) -> list[bool]:
        """Return whether each bucket had a token for a message that was written `age` seconds ago."""
        request = _TokenRequest(buckets, age if age > MAX_DELAY_SECONDS else 0.0)
        self._waiting.append(request)
        try:
            async with self._lock:
                if not request.granted:
                    await self._ask([other for other in self._waiting if other.age == request.age])
        finally:
            self._waiting.remove(request)
        return request.granted

    def give_back(self, setting: str, key: UUID) -> None:
        """Keep a token for the next message."""
        self._spare[setting, key] += 1

    async def _ask(self, requests: Sequence[_TokenRequest]) -> None:
        wanted = Counter(bucket for request in requests if not request.granted for bucket in request.buckets)
        asked = [
            BucketRequest(setting, key, capacity, BURST_MINUTES * MINUTE_SECONDS, missing)
            for (setting, key, capacity), number in wanted.items()
            if (missing := number - self._spare[setting, key]) > 0
        ]
        if asked:
            for request, taken in zip(asked, await self._limits.take_tokens(asked, requests[0].age), strict=True):
                self._spare[request.setting, request.key] += taken
        for waiting in requests:
            if not waiting.granted:
                waiting.granted = [self._use(setting, key) for setting, key, _ in waiting.buckets]

    def _use(self, setting: str, key: UUID) -> bool:
        is_there = self._spare[setting, key] > 0
        self._spare[setting, key] -= int(is_there)
        return is_there


class MessageRateLimiter:
    """Limits the messages of one agent by token buckets of two minutes, in memory unless processes share them.

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
        buckets, written_at = [], self._clock() - max(0.0, age)
        for setting, key in self._keys(person_id, room):
            bucket = self._fill(setting, key, written_at)
            if bucket.level < 1:
                return self._refuse(bucket, setting, expects_reply=expects_reply)
            buckets.append(bucket)
        for bucket in buckets:
            bucket.level -= 1
        return None

    async def check_shared(
        self, tokens: SharedTokens, person_id: UUID, room: Room, *, expects_reply: bool, age: float = 0.0
    ) -> LimitExceeded | None:
        """Count a message as `check` does, in buckets that all processes share. Raises StoreUnavailable."""
        keys, age = self._keys(person_id, room), max(0.0, age)
        if not keys:
            return None
        found = await tokens.take([(setting, key, self._limits[setting] * BURST_MINUTES) for setting, key in keys], age)
        refused = ""
        for (setting, key), is_taken in zip(keys, found, strict=True):
            bucket = self._fill(setting, key, self._clock() - age)  # it shows when the author may be notified again
            bucket.level = max(0.0, bucket.level - 1) if is_taken else 0.0
            refused = refused or ("" if is_taken else setting)
        if not refused:
            return None
        for (setting, key), is_taken in zip(keys, found, strict=True):
            if is_taken:
                tokens.give_back(setting, key)
        return self._refuse(self._buckets[refused][dict(keys)[refused]], refused, expects_reply=expects_reply)

    def _keys(self, person_id: UUID, room: Room) -> list[tuple[str, UUID]]:
        """Return the settings that limit a message, and whose buckets they are."""
        world_key = room.id if room.type.is_private_chat else room.world_id  # a direct chat shares no world
        owners = zip(self._limits.items(), (person_id, room.id, world_key), strict=True)
        return [(setting, key) for (setting, limit), key in owners if limit]

    def _fill(self, setting: str, key: UUID, at: float) -> _Bucket:
        bucket = self._buckets[setting][key]
        bucket.fill(self._limits[setting] * BURST_MINUTES, at)
        return bucket

    def _refuse(self, bucket: _Bucket, setting: str, *, expects_reply: bool) -> LimitExceeded:
        should_notify = expects_reply and not bucket.is_notified
        bucket.is_notified |= should_notify
        scope = setting.rpartition("_")[2].lower()
        reason = f"more than {self._limits[setting]} messages a minute came of one {scope}"
        return LimitExceeded(reason, setting, should_notify)


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
