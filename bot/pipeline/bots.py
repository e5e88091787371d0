"""That bots do not talk with one another for ever, where they are answered at all."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from bot.concurrency.bounded import Latest

MINUTE = 60.0
MOST_A_MINUTE = 20  # of one bot; then a minute's silence
MOST_IN_A_ROW = 5  # in one room, since a person spoke there
MOST_KEPT = 1_000


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
        self._bots = Latest[UUID, _Bot](MOST_KEPT, _Bot)
        self._places = Latest[UUID, _Place](MOST_KEPT, _Place)

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
