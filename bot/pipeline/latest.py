"""Whose turn it is: in each room the newest message to be answered holds the floor.

A newer turn takes over what an older one has not yet committed, its messages included, so that one
reply answers them all. Messages that come within BURST seconds are one burst; beyond that a message is
taken over at most MOST_CARRIED times, then its turn runs to its end and newer ones wait.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from bot.pipeline.order import in_order
from bot.turn import Turn

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
