"""`ReplayBody`: what a replay of a turn has found."""

from enum import StrEnum
from uuid import UUID

from bot.operate.results import Result


class Difference(Result):
    """Where a turn that was run again differs: the step, the line of it, counted from 1, and both lines.

    `diff` has all lines that differ, as a unified diff.
    """

    step: str
    line: int
    recorded: str
    replayed: str
    diff: list[str]


class ReplayState(StrEnum):
    """How a replay ended."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_REPLAYED = "not replayed"


class ReplayBody(Result):
    """A turn that was run again: the steps that were compared, and all that differs; or the reason why it was not."""

    receipt_id: UUID
    state: ReplayState
    reason: str = ""
    steps: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
