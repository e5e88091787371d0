"""Publish/subscribe per room; streamed text deltas."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from adapters.web.schemas import MessageBody, MessageResponse


@dataclass(frozen=True, slots=True)
class DraftDelta:
    """A reply has grown: `text` is what came to it or, with `anew`, all that is written so far.

    With `anew` and no text it will not be said after all. `reply_to` is the message's own name.
    """

    message_id: UUID
    text: str
    is_reset: bool
    reply_to: str


class DraftDeltas:
    """What is being written in each room just now, as far as it was shown."""

    def __init__(self) -> None:
        self._rooms: dict[UUID, dict[UUID, DraftDelta]] = {}

    def update(self, room_id: UUID, message_id: UUID, text: str, reply_to: str) -> DraftDelta:
        """Note how far a reply is written; gives back what is new about it."""
        whole = DraftDelta(message_id, text, True, reply_to)
        before = self._rooms.get(room_id, {}).get(message_id)
        if not text:
            self.end(room_id, message_id)
            return whole
        self._rooms.setdefault(room_id, {})[message_id] = whole
        if before is None or not text.startswith(before.text):
            return whole
        return DraftDelta(message_id, text.removeprefix(before.text), False, reply_to)

    def end(self, room_id: UUID, message_id: UUID) -> None:
        """Forget a reply: it is said, or will not be."""
        room = self._rooms.get(room_id, {})
        room.pop(message_id, None)
        if not room:
            self._rooms.pop(room_id, None)

    def list_room(self, room_id: UUID) -> list[DraftDelta]:
        """List what is being written in a room, for somebody who comes in."""
        return list(self._rooms.get(room_id, {}).values())


@dataclass(frozen=True, slots=True)
class TypingChanged:
    """The agent has begun, or ceased, to work in the room."""

    is_active: bool


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """Something was said."""

    message: MessageBody


@dataclass(frozen=True, slots=True)
class OutcomeKnown:
    """A message has its outcome."""

    response: MessageResponse


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message will not have its outcome before the next start."""

    message_id: UUID


RoomUpdate = TypingChanged | DraftDelta | MessageAdded | OutcomeKnown | Interrupted
UpdateListener = Callable[[RoomUpdate], None]


class RoomBroadcaster:
    """Passes news to whoever listens in a room; nobody there is no error."""

    def __init__(self) -> None:
        self._rooms: defaultdict[UUID, list[UpdateListener]] = defaultdict(list)
        self._typing_counts: Counter[UUID] = Counter()
        self.drafts = DraftDeltas()

    def subscribe(self, room_id: UUID, listener: UpdateListener) -> Callable[[], None]:
        """Have `listen` called with all news of a room; the returned call ends that."""
        listeners = self._rooms[room_id]
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)
            if not listeners and self._rooms.get(room_id) is listeners:
                del self._rooms[room_id]

        return unsubscribe

    def publish(self, room_id: UUID, update: RoomUpdate, *, exclude: UpdateListener | None = None) -> None:
        """Tell everybody in a room, except for whom it comes from."""
        for listener in list(self._rooms.get(room_id, ())):
            if listener != exclude:
                listener(update)

    def set_typing(self, room_id: UUID, is_active: bool) -> None:
        """Count the turns at work in a room: two may overlap, and the sign goes with the last."""
        before = self._typing_counts[room_id]
        after = max(0, before + (1 if is_active else -1))
        if after:
            self._typing_counts[room_id] = after
        else:
            del self._typing_counts[room_id]
        if bool(before) != bool(after):
            self.publish(room_id, TypingChanged(is_active))

    def is_typing(self, room_id: UUID) -> bool:
        """Tell whether the agent is at work in a room."""
        return room_id in self._typing_counts
