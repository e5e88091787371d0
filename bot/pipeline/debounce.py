"""The debounce stage: wait for the rest of a burst, by the rhythm in which its author writes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from bot.concurrency.bounded import BoundedDict
from bot.concurrency.clock import TimeSource
from bot.pipeline.turn_order import LatestResponse
from bot.turn import Turn, TurnInput

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 1.5  # between two messages of a burst
PAUSE_FACTOR = 2.0  # the pauses of one person differ; the longest of a burst counts this many times
MAX_BURST_SECONDS = 10.0
REMEMBERED_TURNS = 5
MAX_RHYTHMS = 10_000


@dataclass(slots=True)
class _Rhythm:
    """How one person writes in one room; times are monotonic, in seconds.

    `gaps` has for each of their last turns the longest gap between two messages, or 0 for a single message. Their
    last message was received at `received_at`, and its turn ended at `ended_at`.
    """

    gaps: tuple[float, ...] = ()
    received_at: float = -math.inf
    ended_at: float = -math.inf
    typed_at: float = -math.inf

    def find_gap(self, inputs: Sequence[TurnInput]) -> float:
        """Return the longest gap in the burst of these messages; 0 if they are none."""
        times = [turn_input.received_monotonic for turn_input in inputs]
        if times[0] < self.ended_at:  # written before the answer to the message before it
            times.insert(0, self.received_at)
        if self.typed_at > times[-1]:
            times.append(self.typed_at)
        gaps = (max(after - before, 0.001) for before, after in pairwise(times))
        return max((gap for gap in gaps if gap <= MAX_PAUSE_SECONDS), default=0.0)

    @property
    def usual_gap(self) -> float:
        """The longest gap of the last bursts; 0 for a person who mostly writes single messages."""
        bursts = [gap for gap in self.gaps if gap]
        return max(bursts) if 2 * len(bursts) > len(self.gaps) else 0.0


class Debounce:
    """The rhythm of each person in each room of one agent, and how long to wait for more of their messages.

    A person who writes single messages never waits. One who writes several in a row is waited for after each of
    them: twice the longest gap of the burst, or of their last bursts at its first message. One who is typing is
    waited for as long as for anybody. All of it is in memory.
    """

    def __init__(self, time_source: TimeSource | None = None) -> None:
        self._time = time_source or TimeSource()
        self._rhythms = BoundedDict[tuple[UUID, UUID], _Rhythm](MAX_RHYTHMS, _Rhythm)

    async def wait(self, turn: Turn, mode: LatestResponse, fixed_pause: float | None) -> None:
        """Wait until a turn has the rest of its burst, so that newer messages can supersede it meanwhile.

        With `fixed_pause`, in seconds, the same time is waited after each message of anybody.
        """
        if not turn.is_fresh or (fixed_pause is None and mode is LatestResponse.QUEUE):
            return
        turn.is_waiting = True
        while (remaining := self._find_end(turn, fixed_pause) - self._time.monotonic()) > 0:
            await self._time.sleep(remaining)
        turn.is_waiting = False

    def note_typing(self, room_id: UUID, author_id: UUID) -> None:
        """Record that a person is typing in a room."""
        self._rhythms[room_id, author_id].typed_at = self._time.monotonic()

    def learn(self, turn: Turn) -> None:
        """Record the rhythm of the authors of a turn whose outcome is stored."""
        if not turn.is_fresh:
            return
        for author_id, inputs in _by_author(turn).items():
            rhythm = self._rhythms[turn.room.id, author_id]
            rhythm.gaps = (*rhythm.gaps, rhythm.find_gap(inputs))[-REMEMBERED_TURNS:]
            rhythm.received_at, rhythm.ended_at = inputs[-1].received_monotonic, self._time.monotonic()

    def _find_end(self, turn: Turn, fixed_pause: float | None) -> float:
        """Return until when to wait, on the monotonic clock."""
        latest = min(turn_input.received_monotonic for turn_input in turn.inputs) + MAX_BURST_SECONDS
        if fixed_pause is not None:
            return min(turn.inputs[-1].received_monotonic + fixed_pause, latest)
        ends = [
            inputs[-1].received_monotonic + self._find_pause(self._rhythms[turn.room.id, author_id], inputs)
            for author_id, inputs in _by_author(turn).items()
        ]
        return min(max(ends), latest)

    def _find_pause(self, rhythm: _Rhythm, inputs: Sequence[TurnInput]) -> float:
        if rhythm.typed_at > inputs[-1].received_monotonic:
            return MAX_PAUSE_SECONDS
        gap = rhythm.find_gap(inputs) or rhythm.usual_gap
        return min(max(PAUSE_FACTOR * gap, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS) if gap else 0.0


def _by_author(turn: Turn) -> dict[UUID, list[TurnInput]]:
    inputs: dict[UUID, list[TurnInput]] = {}
    for turn_input in sorted(turn.inputs, key=lambda turn_input: turn_input.received_monotonic):
        inputs.setdefault(turn_input.author.id, []).append(turn_input)
    return inputs
