"""Which turn owns a room: wait, supersede, cancel.

A newer turn takes over what an older one has not yet committed, its messages included, so that one
reply answers them all. Messages that come within BURST seconds are one burst; beyond that a message is
taken over at most MOST_CARRIED times, then its turn runs to its end and newer ones wait.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from bot.concurrency.bounded import Remembered
from bot.turn import Input, Turn

MOST_CARRIED = 2
BURST = 1.0


class LatestResponse(StrEnum):
    """What a newer message does to an older answer that is not out yet."""

    ROOM = "room"
    AUTHOR = "author"
    QUEUE = "queue"


class Superseded(Exception):
    """A newer turn has taken over this one's messages; `by` is that turn."""

    def __init__(self, by: Turn) -> None:
        super().__init__(f"taken over by turn {by.id}")
        self.by = by


@dataclass(slots=True, eq=False)
class _Claim:
    """One turn's hold, or wait, on its room's floor; `covers` as `Floors.hold` has it."""

    turn: Turn
    task: asyncio.Task[object]
    covers: frozenset[UUID] | None = None
    granted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Lane:
    running: _Claim | None = None
    waiting: list[_Claim] = field(default_factory=list)

    def uncommitted(self) -> Iterator[_Claim]:
        claims = [self.running, *self.waiting]
        yield from [claim for claim in claims if claim is not None and not claim.turn.is_committed]

    def wait(self, claim: _Claim) -> None:
        """Queue a claim behind those whose messages stand before its own."""
        newest = claim.turn.inputs[-1]
        place = len(self.waiting)
        while place and in_order([self.waiting[place - 1].turn.inputs[-1], newest])[0] is newest:
            place -= 1
        self.waiting.insert(place, claim)

    def remove(self, claim: _Claim) -> None:
        if self.running is claim:
            self.running = None
        elif claim in self.waiting:
            self.waiting.remove(claim)

    def grant(self) -> None:
        if self.running is None and self.waiting:
            self.running = self.waiting.pop(0)
            self.running.granted.set()


class Floors:
    """The floors of all rooms of one agent; `clock` is monotonic, in seconds."""

    def __init__(self, mode: LatestResponse, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mode = mode
        self._clock = clock
        self._lanes: dict[UUID, _Lane] = {}

    @asynccontextmanager
    async def hold(self, turn: Turn, covers: frozenset[UUID] | None = None) -> AsyncIterator[None]:
        """Take the room's floor, waiting for it where need be, and give it back at the end.

        Raises Superseded, cancelling what is under way inside, where a newer turn takes over. The
        block must pass `Turn.commit` before it changes anything that others see. A turn that an
        earlier process had answered already says with `covers` which messages its answer is about:
        it takes over these alone, and is itself beyond being taken over.
        """
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        cancelling = task.cancelling()
        claim = _Claim(turn, task, covers)
        turn.is_committed = covers is not None
        self._enter(claim)
        try:
            await claim.granted.wait()
            yield
            if turn.successor is not None:  # the cancellation was swallowed inside
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            if turn.successor is None or task.uncancel() > cancelling:
                raise
            raise Superseded(turn.successor) from None
        finally:
            self._leave(claim)

    def _enter(self, claim: _Claim) -> None:
        lane = self._lanes.setdefault(claim.turn.room.id, _Lane())
        for older in lane.uncommitted():
            if older.turn.is_called_off:  # it is on its way out; its messages come back by themselves
                lane.remove(older)
            elif self._yields(older, claim):
                self._hand_over(older, claim)
                lane.remove(older)
        lane.wait(claim)
        lane.grant()

    def _leave(self, claim: _Claim) -> None:
        lane = self._lanes.get(claim.turn.room.id)
        if lane is None:  # taken over, and the newer turn was done first
            return
        lane.remove(claim)
        lane.grant()
        if lane.running is None:
            del self._lanes[claim.turn.room.id]

    def _yields(self, older: _Claim, newer: _Claim) -> bool:
        if newer.covers is not None:
            return all(one.message.id in newer.covers for one in older.turn.inputs)
        if self._mode is LatestResponse.QUEUE:
            return False
        if self._mode is LatestResponse.AUTHOR and older.turn.author.id != newer.turn.author.id:
            return False
        burst_began = self._clock() - BURST
        return all(
            one.arrived >= burst_began or one.receipt.carried < MOST_CARRIED for one in older.turn.inputs
        )

    def _hand_over(self, older: _Claim, newer: _Claim) -> None:
        burst_began = self._clock() - BURST
        for one in older.turn.inputs:
            if one.arrived < burst_began:
                one.receipt = replace(one.receipt, carried=one.receipt.carried + 1)
        newer.turn.inputs = in_order([*older.turn.inputs, *newer.turn.inputs])
        older.turn.successor = newer.turn
        older.task.cancel()


LONGEST_NUMBER = 20


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Sort messages as their platform counts them; where it does not count, as they came.

    Ids that are all decimal numbers are taken to grow with time. No message waits for one that may
    still come before it: as long as an answer is not accepted, which takes a model longer than events
    take to overtake one another, what comes late is put in its place and answered with the others.
    """
    is_counted = all(_is_number(one.message.external_id) for one in inputs)
    return sorted(
        inputs,
        key=lambda one: (int(one.message.external_id) if is_counted else 0, one.arrived, one.receipt.id),
    )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= LONGEST_NUMBER


MOST_WITHDRAWN = 1000


class CalledOff(Exception):
    """What a turn was to answer has changed, or is gone."""


class Underway:
    """The turns of one agent that are being worked on.

    Past its point of no return a turn is let run; where nobody wants its answer any more it says no more.
    """

    def __init__(self) -> None:
        self._turns: dict[Turn, asyncio.Task[object]] = {}
        self._withdrawn = Remembered[UUID](MOST_WITHDRAWN)  # their work may not have begun yet

    @contextmanager
    def working(self, turn: Turn) -> Iterator[None]:
        """Note a turn for as long as the block lasts.

        Raises CalledOff, cancelling what is under way inside, where somebody calls it off.
        """
        if any(one.receipt.id in self._withdrawn for one in turn.inputs):
            raise CalledOff
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        cancelling = task.cancelling()
        self._turns[turn] = task
        try:
            yield
        except asyncio.CancelledError:
            if not turn.is_called_off or turn.successor is not None or task.uncancel() > cancelling:
                raise
            raise CalledOff from None
        finally:
            del self._turns[turn]

    def is_answering(self, room_id: UUID, message_id: str) -> bool:
        """Tell whether a message's turn is past its point of no return."""
        committed = (turn for turn in self._turns if turn.is_committed)
        keys = (one.receipt.key for turn in committed for one in turn.inputs)
        return any((key.room_id, key.message_id) == (room_id, message_id) for key in keys)

    def withdraw(self, receipt_ids: Collection[UUID]) -> list[UUID]:
        """Answer these no more; gives the receipts that lose their turn by it, and need another one."""
        left: list[UUID] = []
        for receipt_id in receipt_ids:
            self._withdrawn.add(receipt_id)
        for turn in list(self._turns):
            theirs = [one.receipt.id for one in turn.inputs]
            others = [one for one in theirs if one not in receipt_ids]
            if len(others) == len(theirs):
                continue
            if not turn.is_committed:
                left += others if self._call_off(turn) else ()
            elif not others:
                turn.is_called_off = True
        return left

    def call_off(self, room_id: UUID) -> list[UUID]:
        """Stop all turns of a room; gives their receipts, each of which needs another turn."""
        turns = [turn for turn in self._turns if turn.room.id == room_id and not turn.is_committed]
        return [one.receipt.id for turn in turns if self._call_off(turn) for one in turn.inputs]

    def _call_off(self, turn: Turn) -> bool:
        if turn.is_called_off or turn.successor is not None:
            return False
        turn.is_called_off = True
        self._turns[turn].cancel()
        return True
