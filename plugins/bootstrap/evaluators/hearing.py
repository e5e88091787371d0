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

    def looked_at(self, room_id: UUID, said: Sequence[Memory]) -> None:
        """Note that these were looked at: new is what has been said since."""
        talk = self._talks.get(room_id)
        left = max(0, talk.said - len(said)) if talk is not None else 0
        self._note(room_id, _Talk(left, talk.last if talk is not None else said[-1].created_at))

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

    def is_enough(self, room_id: UUID, length: int) -> bool | None:
        """Tell whether so much is new that it is worth a look; None where the books must be asked."""
        talk = self._talks.get(room_id)
        if talk is None or (talk.is_after_pause and talk.said < enough(length)):
            return None
        return talk.said >= enough(length)
