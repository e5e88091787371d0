"""A reply that is seen while the model writes it.

What is seen is the text of a plain reply and nothing else. From the first look on nothing newer takes its
turn over: the room has it already.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bot.models.types import TextSink
from bot.outbound.draft import Draft
from bot.prompts.reply_parser.reader import text_so_far
from bot.turn import Turn


@contextmanager
def shown(turn: Turn, *, has_functions: bool = False) -> Iterator[TextSink | None]:
    """Show a turn's reply while it is written inside the block; None where it is seen only when it is whole.

    What replaces an earlier answer is not shown: that stands until the new one is there.
    """
    draft = turn.agent.outbox.draft(turn.room, turn.upcoming) if turn.replaces is None else None
    if draft is None:
        yield None
        return
    sink = _Sink(draft)
    draft.follow(lambda: text_so_far(sink.written, has_functions=has_functions), lambda: _may_show(turn))
    try:
        yield sink
    finally:
        draft.rest()


def _may_show(turn: Turn) -> bool:
    """Pass the point of no return, unless the turn was taken over or called off."""
    if turn.successor is not None or turn.is_called_off:
        return False
    turn.is_committed = True
    return True


class _Sink:
    """Collects what a model writes; looking at it is the draft's part, now and then."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._pieces: list[str] = []

    @property
    def written(self) -> str:
        """All that is written so far."""
        return "".join(self._pieces)

    async def piece(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._draft.stir()

    async def restart(self) -> None:
        self._pieces.clear()
