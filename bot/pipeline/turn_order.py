"""Which turn may answer in a room: wait, supersede, cancel.

A newer turn supersedes an older one that is not committed and takes its messages: one reply answers them
all. Within BURST_SECONDS, and while the older one waits for the rest of a burst, there is no limit; later a message
is superseded at most MAX_CARRIED times, then its turn runs to its end and newer ones wait.

The debounce stage: wait for the rest of a burst, by the rhythm in which its author writes.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from uuid import UUID

from bot.concurrency.clock import TimeSource
from bot.concurrency.tasks import BoundedDict, BoundedSet, TaskSlots
from bot.domain.ledger import Receipt
from bot.errors import StoreUnavailable
from bot.turn import Turn, TurnInput

MAX_CARRIED = 2
BURST_SECONDS = 1.0
MAX_NUMBER_LENGTH = 20
RECHECK_SECONDS = 0.1
MAX_WITHDRAWN_RECEIPTS = 1000


class LatestResponse(StrEnum):
    """Which older turns a newer message supersedes: all of the room, the same author's, or none."""

    ROOM = "room"
    AUTHOR = "author"
    QUEUE = "queue"


class Superseded(Exception):
    """A newer turn has taken this one's messages; `newer_turn` is that turn."""

    def __init__(self, newer_turn: Turn) -> None:
        super().__init__(f"taken over by turn {newer_turn.id}")
        self.newer_turn = newer_turn


@dataclass(slots=True, eq=False)
class _Claim:
    """One turn that runs or waits in its room; `answered_ids` as in `TurnQueue.acquire`."""

    turn: Turn
    task: asyncio.Task[object]
    answered_ids: frozenset[UUID] | None = None
    granted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _RoomTurns:
    running: _Claim | None = None
    waiting: list[_Claim] = field(default_factory=list)

    def uncommitted(self) -> Iterator[_Claim]:
        claims = [self.running, *self.waiting]
        yield from [claim for claim in claims if claim is not None and not claim.turn.is_committed]

    def enqueue(self, claim: _Claim) -> None:
        """Insert a claim behind those with earlier messages."""
        newest = claim.turn.inputs[-1]
        position = len(self.waiting)
        while position and sort_inputs([self.waiting[position - 1].turn.inputs[-1], newest])[0] is newest:
            position -= 1
        self.waiting.insert(position, claim)

    def remove(self, claim: _Claim) -> None:
        if self.running is claim:
            self.running = None
        elif claim in self.waiting:
            self.waiting.remove(claim)

    def grant_next(self) -> None:
        if self.running is None and self.waiting:
            self.running = self.waiting.pop(0)
            self.running.granted.set()


class TurnQueue:
    """The running and waiting turns of all rooms of one agent; `clock` is monotonic, in seconds.

    `mode` may be changed: it counts for messages that come after. `is_processing` says whether a receipt is still
    processed by this process. A turn that waits for its room leaves its slot of `resume_slots`, so that an earlier
    message of the room can get it.
    """

    def __init__(self, mode: LatestResponse, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.mode = mode
        self.is_processing: Callable[[UUID], bool] = lambda receipt_id: False
        self.resume_slots = TaskSlots(1)
        self._clock = clock
        self._rooms: dict[UUID, _RoomTurns] = {}
        self._expected: dict[UUID, dict[UUID, float]] = {}  # by room: when receipts to be tried again were received

    def expect(self, receipt: Receipt, received_monotonic: float) -> float:
        """Record that later messages of a room wait for one that is tried again; return when it was first received.

        They wait only where each message gets an answer of its own.
        """
        if self.mode is not LatestResponse.QUEUE:
            return received_monotonic
        return self._expected.setdefault(receipt.room_id, {}).setdefault(receipt.id, received_monotonic)

    @asynccontextmanager
    async def acquire(self, turn: Turn, answered_ids: frozenset[UUID] | None = None) -> AsyncIterator[None]:
        """Wait until the turn may run in its room, and release the room after the block.

        If a newer turn supersedes this one, the block is cancelled and Superseded is raised. The block must
        call `Turn.commit` before any visible effect. For a turn that an earlier process has answered,
        `answered_ids` are the messages of that answer: it supersedes only these and cannot be superseded.
        """
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        cancelling = task.cancelling()
        claim = _Claim(turn, task, answered_ids)
        turn.is_committed = answered_ids is not None
        try:
            await self._wait_for_room(claim)
            yield
            if turn.superseded_by is not None:  # the cancellation was swallowed inside
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            if turn.superseded_by is None or task.uncancel() > cancelling:
                raise
            raise Superseded(turn.superseded_by) from None
        except StoreUnavailable:
            for turn_input in turn.inputs:  # before the next turn is granted the room
                self.expect(turn_input.receipt, turn_input.received_monotonic)
            raise
        finally:
            self._release(claim)

    def release(self, turn: Turn) -> None:
        """Release the room of a turn that is committed and has not ended: the next turn may begin."""
        room_turns = self._rooms.get(turn.room.id)
        if room_turns is not None and room_turns.running is not None and room_turns.running.turn is turn:
            self._release(room_turns.running)

    async def _wait_for_room(self, claim: _Claim) -> None:
        turn = claim.turn
        while True:
            if self._is_expecting_earlier(turn):
                async with self.resume_slots.leave():
                    await asyncio.sleep(RECHECK_SECONDS)
                continue
            self._enqueue(claim)
            if not claim.granted.is_set():
                async with self.resume_slots.leave():
                    await claim.granted.wait()
            if not self._is_expecting_earlier(turn):
                break
            self._release(claim)  # an outage of the store ended the turn before it
            claim.granted.clear()
        if expected := self._expected.get(turn.room.id):
            for turn_input in turn.inputs:
                expected.pop(turn_input.receipt.id, None)

    def _is_expecting_earlier(self, turn: Turn) -> bool:
        """Return whether an earlier message of the room is to be tried again."""
        room_id, newest = turn.room.id, turn.inputs[-1].received_monotonic
        expected = self._expected.get(room_id)
        if not expected:
            return False
        own = {turn_input.receipt.id for turn_input in turn.inputs}
        for receipt_id in [receipt_id for receipt_id in expected if not self.is_processing(receipt_id)]:
            del expected[receipt_id]
        if not expected:
            del self._expected[room_id]
        return any(received < newest for receipt_id, received in expected.items() if receipt_id not in own)

    def _enqueue(self, claim: _Claim) -> None:
        room_turns = self._rooms.setdefault(claim.turn.room.id, _RoomTurns())
        for older in room_turns.uncommitted():
            if older.turn.is_cancelled or older.turn.is_stopped:  # it ends without the newer one
                room_turns.remove(older)
            elif self._is_superseded_by(older, claim):
                self._supersede(older, claim)
                room_turns.remove(older)
        room_turns.enqueue(claim)
        room_turns.grant_next()

    def _release(self, claim: _Claim) -> None:
        room_turns = self._rooms.get(claim.turn.room.id)
        if room_turns is None:  # superseded, and the newer turn was done first
            return
        room_turns.remove(claim)
        room_turns.grant_next()
        if room_turns.running is None:
            del self._rooms[claim.turn.room.id]

    def _is_superseded_by(self, older: _Claim, newer: _Claim) -> bool:
        if newer.answered_ids is not None:
            return all(turn_input.message.id in newer.answered_ids for turn_input in older.turn.inputs)
        if self.mode is LatestResponse.QUEUE:
            return False
        if self.mode is LatestResponse.AUTHOR and older.turn.author.id != newer.turn.author.id:
            return False
        burst_start = self._clock() - BURST_SECONDS
        return older.turn.is_waiting or all(
            turn_input.received_monotonic >= burst_start or turn_input.receipt.supersede_count < MAX_CARRIED
            for turn_input in older.turn.inputs
        )

    def _supersede(self, older: _Claim, newer: _Claim) -> None:
        burst_start = self._clock() - BURST_SECONDS
        for turn_input in older.turn.inputs:
            if turn_input.received_monotonic < burst_start and not older.turn.is_waiting:
                turn_input.receipt = replace(turn_input.receipt, supersede_count=turn_input.receipt.supersede_count + 1)
        newer.turn.inputs = sort_inputs([*older.turn.inputs, *newer.turn.inputs])
        older.turn.superseded_by = newer.turn
        older.task.cancel()


def sort_inputs(inputs: Sequence[TurnInput]) -> list[TurnInput]:
    """Return inputs by their decimal message ids, which grow with time; by arrival if any id is no number.

    A message that arrives late is still sorted in, since models take longer than events take to overtake
    one another.
    """
    has_numeric_ids = all(_is_number(turn_input.message.external_id) for turn_input in inputs)
    return sorted(
        inputs,
        key=lambda turn_input: (
            int(turn_input.message.external_id) if has_numeric_ids else 0,
            turn_input.received_monotonic,
            turn_input.receipt.id,
        ),
    )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= MAX_NUMBER_LENGTH


class TurnCancelled(Exception):
    """The messages of a turn were edited or deleted."""


class TurnStopped(Exception):
    """A person stopped the turn before its outcome was stored."""


class ActiveTurns:
    """The turns of one agent in progress.

    A committed turn is not cancelled; if all of its messages are withdrawn, it sends nothing more, and an action of it
    that is under way is cancelled.
    """

    def __init__(self) -> None:
        self._turns: dict[Turn, asyncio.Task[object]] = {}
        self._withdrawn = BoundedSet[UUID](MAX_WITHDRAWN_RECEIPTS)  # processing may not have started yet
        self._stopped = BoundedSet[UUID](MAX_WITHDRAWN_RECEIPTS)

    @contextmanager
    def track(self, turn: Turn) -> Iterator[None]:
        """Register a turn during the block; if it is cancelled or stopped, end the block and raise
        TurnCancelled or TurnStopped.
        """
        receipt_ids = [turn_input.receipt.id for turn_input in turn.inputs]
        if any(receipt_id in self._withdrawn for receipt_id in receipt_ids):
            raise TurnCancelled
        if any(receipt_id in self._stopped for receipt_id in receipt_ids):
            turn.is_stopped = True
            raise TurnStopped
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        cancelling = task.cancelling()
        self._turns[turn] = task
        try:
            yield
        except asyncio.CancelledError:
            is_ended = turn.is_cancelled or turn.is_stopped
            if not is_ended or turn.superseded_by is not None or task.uncancel() > cancelling:
                raise
            raise (TurnCancelled if turn.is_cancelled else TurnStopped) from None
        finally:
            del self._turns[turn]

    def is_answering(self, room_id: UUID, message_id: str) -> bool:
        """Whether a committed turn is answering a message."""
        committed = (turn for turn in self._turns if turn.is_committed)
        keys = (turn_input.receipt.key for turn in committed for turn_input in turn.inputs)
        return any((key.room_id, key.message_id) == (room_id, message_id) for key in keys)

    def withdraw(self, receipt_ids: Collection[UUID]) -> list[UUID]:
        """Stop answering these receipts; return other receipts of cancelled turns, which need new turns."""
        orphaned_ids: list[UUID] = []
        for receipt_id in receipt_ids:
            self._withdrawn.add(receipt_id)
        for turn in list(self._turns):
            turn_receipt_ids = [turn_input.receipt.id for turn_input in turn.inputs]
            remaining_ids = [turn_input for turn_input in turn_receipt_ids if turn_input not in receipt_ids]
            if len(remaining_ids) == len(turn_receipt_ids):
                continue
            if not turn.is_committed:
                orphaned_ids += remaining_ids if self._cancel_turn(turn) else ()
            elif not remaining_ids and turn.running_actions:
                self._cancel_turn(turn)
            elif not remaining_ids:
                turn.is_cancelled = True
        return orphaned_ids

    def running_actions(self, room_id: UUID | None, author_id: UUID | None = None) -> dict[UUID, tuple[str, ...]]:
        """Return the receipts that are being answered in a room or in all, of one author if given, with the actions
        under way.
        """
        turns = [
            turn for turn in self._turns if room_id in (None, turn.room.id) and author_id in (None, turn.author.id)
        ]
        return {turn.inputs[-1].receipt.id: tuple(turn.running_actions) for turn in turns if not turn.is_closing}

    def stop(self, receipt_id: UUID) -> None:
        """Stop the turn that answers a receipt, also one that starts later.

        A turn whose outcome is being stored is not stopped: it ends as if this had not been called.
        """
        self._stopped.add(receipt_id)
        for turn, task in list(self._turns.items()):
            is_answering = any(turn_input.receipt.id == receipt_id for turn_input in turn.inputs)
            is_ending = turn.is_closing or turn.is_stopped or turn.is_cancelled or turn.superseded_by is not None
            if is_answering and not is_ending:
                turn.is_stopped = True
                task.cancel()

    def cancel_room(self, room_id: UUID) -> list[UUID]:
        """Cancel the uncommitted turns of a room; return their receipts, which need new turns."""
        turns = [turn for turn in self._turns if turn.room.id == room_id and not turn.is_committed]
        return [turn_input.receipt.id for turn in turns if self._cancel_turn(turn) for turn_input in turn.inputs]

    def _cancel_turn(self, turn: Turn) -> bool:
        if turn.is_cancelled or turn.is_stopped or turn.superseded_by is not None:
            return False
        turn.is_cancelled = True
        self._turns[turn].cancel()
        return True


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
