"""How much has been said in each room since it was last looked at: known here, without asking the books."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from bot import Memory
from plugins.bootstrap.evaluators.material import PAUSE, enough

MOST_ROOMS = 10_000


@dataclass(slots=True)
class _Talk:
    said: int
    last: datetime
    is_after_pause: bool = False


class Heard:
    """Counts what others say, room by room, from the first time the books were asked about a room."""

    def __init__(self) -> None:
        self._talks: dict[UUID, _Talk] = {}

    def count(self, room_id: UUID, said: Sequence[Memory]) -> None:
        """Note what the books have found new in a room."""
        if said:
            self._note(room_id, _Talk(len(said), said[-1].created_at))
        else:
            self._talks.pop(room_id, None)

    def looked_at(self, room_id: UUID, last: Memory) -> None:
        """Note that a room was looked at up to a message: nothing is new."""
        self._note(room_id, _Talk(0, last.created_at))

    def add(self, message: Memory) -> None:
        """Count one more."""
        talk = self._talks.get(message.room_id)
        if talk is not None:
            talk.said += 1
            talk.is_after_pause = talk.is_after_pause or message.created_at - talk.last >= PAUSE
            talk.last = message.created_at

    def _note(self, room_id: UUID, talk: _Talk) -> None:
        if len(self._talks) >= MOST_ROOMS:
            self._talks.clear()
        self._talks[room_id] = talk

    def too_little(self, room_id: UUID, length: int) -> bool:
        """Tell whether so little is new that nobody need look; False where nothing is known."""
        talk = self._talks.get(room_id)
        return talk is not None and talk.said < enough(length) and not talk.is_after_pause
