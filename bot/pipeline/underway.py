"""What is being worked on, so that it can be called off: its message was edited, or taken back."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

from bot.concurrency.bounded import Remembered
from bot.turn import Turn

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
