"""Replies while they are written: each as the piece that has come to it since it was shown last."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Grown:
    """A reply has grown: `text` is what came to it or, with `anew`, all that is written so far.

    With `anew` and no text it will not be said after all. `reply_to` is the message's own name.
    """

    message_id: UUID
    text: str
    anew: bool
    reply_to: str


class Growth:
    """What is being written in each room just now, as far as it was shown."""

    def __init__(self) -> None:
        self._rooms: dict[UUID, dict[UUID, Grown]] = {}

    def grown(self, room_id: UUID, message_id: UUID, text: str, reply_to: str) -> Grown:
        """Note how far a reply is written; gives back what is new about it."""
        whole = Grown(message_id, text, True, reply_to)
        before = self._rooms.get(room_id, {}).get(message_id)
        if not text:
            self.end(room_id, message_id)
            return whole
        self._rooms.setdefault(room_id, {})[message_id] = whole
        if before is None or not text.startswith(before.text):
            return whole
        return Grown(message_id, text.removeprefix(before.text), False, reply_to)

    def end(self, room_id: UUID, message_id: UUID) -> None:
        """Forget a reply: it is said, or will not be."""
        room = self._rooms.get(room_id, {})
        room.pop(message_id, None)
        if not room:
            self._rooms.pop(room_id, None)

    def in_room(self, room_id: UUID) -> list[Grown]:
        """List what is being written in a room, for somebody who comes in."""
        return list(self._rooms.get(room_id, {}).values())
