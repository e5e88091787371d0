"""Token buckets per person/room/world, bot loops, edit rate."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from uuid import UUID

from bot.concurrency.bounded import Latest
from bot.domain.environment import ChannelType, Room
from bot.settings import CoreSettings

MINUTE = 60.0
BURST = 2  # so many minutes' messages may come at once
MAX_BUCKETS = 10_000
OF_STRANGERS = MappingProxyType(
    {"MESSAGES_PER_PERSON": 10, "MESSAGES_PER_ROOM": 60, "MESSAGES_PER_WORLD": 300}
)
NONE: Mapping[str, int] = MappingProxyType({})
ALONE = frozenset({ChannelType.DM, ChannelType.VOICE_DM})


@dataclass(frozen=True, slots=True)
class Excess:
    """Why a message is one too many: a sentence and the setting, and whether its author is to be told."""

    reason: str
    setting: str
    is_told: bool


@dataclass(slots=True)
class _Bucket:
    """What may still come at once, of at most `most`; `is_told` once it was too much, until all may again."""

    level: float
    filled_at: float = -math.inf
    is_told: bool = False

    def fill(self, most: int, at: float) -> None:
        """Let in what may come by a moment since the last one; not before that."""
        passed = max(0.0, at - self.filled_at)
        self.level = min(most, self.level + passed * most / (BURST * MINUTE))
        self.filled_at = max(self.filled_at, at)
        self.is_told &= self.level < most


class Throttle:
    """Counts one agent's messages in buckets that hold two minutes' worth; it forgets with the process.

    `usual` are the limits that nobody has set; `clock` is monotonic, in seconds.
    """

    def __init__(
        self, settings: CoreSettings, usual: Mapping[str, int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        limits = {
            "MESSAGES_PER_PERSON": settings.messages_per_person,
            "MESSAGES_PER_ROOM": settings.messages_per_room,
            "MESSAGES_PER_WORLD": settings.messages_per_world,
        }
        self._limits = {name: usual.get(name, 0) if most is None else most for name, most in limits.items()}
        self._buckets = {
            setting: Latest[UUID, _Bucket](MAX_BUCKETS, partial(_Bucket, limit * BURST))
            for setting, limit in self._limits.items()
        }

    def excess(self, person_id: UUID, room: Room, *, is_meant: bool, age: float = 0.0) -> Excess | None:
        """Count a message; tells why it is one too many, and then it counts for nobody.

        Its `age` is in seconds: what was written while nobody was there, and comes all at once, counts for
        the minutes in which it was written. Whoever waits for an answer, because it `is_meant` for the
        agent, is told so once, until all may come again.
        """
        of_world = room.id if room.type in ALONE else room.world_id  # who writes alone shares no world
        found, written_at = [], self._clock() - max(0.0, age)
        for (setting, limit), key in zip(self._limits.items(), (person_id, room.id, of_world), strict=True):
            if not limit:
                continue
            bucket = self._buckets[setting][key]
            bucket.fill(limit * BURST, written_at)
            if bucket.level < 1:
                is_told = is_meant and not bucket.is_told
                bucket.is_told |= is_told
                whose = setting.rpartition("_")[2].lower()
                return Excess(f"more than {limit} messages a minute came of one {whose}", setting, is_told)
            found.append(bucket)
        for bucket in found:
            bucket.level -= 1
        return None


MOST_A_MINUTE = 20  # of one bot; then a minute's silence
MOST_IN_A_ROW = 5  # in one room, since a person spoke there
MAX_TRACKED_ROOMS = 1_000


@dataclass(slots=True)
class _Bot:
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_A_MINUTE))
    silent_until: float = 0.0


@dataclass(slots=True)
class _Place:
    in_a_row: int = 0


class BotGuard:
    """Counts what other bots say to one agent; it forgets with the process.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bots = Latest[UUID, _Bot](MAX_TRACKED_ROOMS, _Bot)
        self._places = Latest[UUID, _Place](MAX_TRACKED_ROOMS, _Place)

    def note_person(self, room_id: UUID) -> None:
        """Note that a person speaks in a room."""
        self._places[room_id].in_a_row = 0

    def objection(self, bot_id: UUID, room_id: UUID) -> str:
        """Count what a bot says; tells why it is not to be answered, and is empty where it may be."""
        bot, place, now = self._bots[bot_id], self._places[room_id], self._clock()
        if now < bot.silent_until:
            return "this bot wrote too much in a minute, and is not answered for another"
        if len(bot.times) == MOST_A_MINUTE and now - bot.times[0] < MINUTE:
            bot.silent_until = now + MINUTE
            return f"this bot wrote more than {MOST_A_MINUTE} messages in a minute"
        if place.in_a_row >= MOST_IN_A_ROW:
            return f"bots wrote {MOST_IN_A_ROW} messages here since a person did"
        bot.times.append(now)
        place.in_a_row += 1
        return ""


MOST_NOTED = 1000


class Pace:
    """Lets the work on one message begin every so many seconds, and never counts the first time."""

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
        self._begun: dict[UUID, float] = {}

    def note(self, message_id: UUID) -> None:
        """Note that the work on a message begins now."""
        self._begun.pop(message_id, None)
        self._begun[message_id] = self._clock()
        if len(self._begun) > MOST_NOTED:
            del self._begun[next(iter(self._begun))]

    async def wait(self, message_id: UUID) -> None:
        """Wait until the work on a message may begin again."""
        begun = self._begun.get(message_id)
        if begun is not None and (pause := begun + self._seconds - self._clock()) > 0:
            await self._sleep(pause)
