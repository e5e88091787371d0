"""Publish/subscribe per room; streamed text deltas."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from adapters.web.schemas import MessageBody, MessageResponse


@dataclass(frozen=True, slots=True)
class DraftDelta:
    """A streamed reply has more text: `text` is appended or, with `is_reset`, replaces the text so far.

    With `is_reset` and no text the reply is withdrawn. `reply_to` is the external id of the message.
    """

    message_id: UUID
    text: str
    is_reset: bool
    reply_to: str


class DraftDeltas:
    """The published text of the replies that are being streamed, by room."""

    def __init__(self) -> None:
        self._rooms: dict[UUID, dict[UUID, DraftDelta]] = {}

    def update(self, room_id: UUID, message_id: UUID, text: str, reply_to: str) -> DraftDelta:
        """Store the text of a reply so far; return the difference to publish."""
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
        """Remove a reply that was delivered or withdrawn."""
        room = self._rooms.get(room_id, {})
        room.pop(message_id, None)
        if not room:
            self._rooms.pop(room_id, None)

    def list_room(self, room_id: UUID) -> list[DraftDelta]:
        """Return the streamed replies of a room, for a client that joins."""
        return list(self._rooms.get(room_id, {}).values())


@dataclass(frozen=True, slots=True)
class TypingChanged:
    """The agent started or stopped typing in the room, or waits for a busy model that is called again."""

    is_active: bool
    is_model_busy: bool = False


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """The agent asks the page to do something: to disable the input, to enable it, to show a hint."""

    action: str
    target: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message will get its outcome after the next start."""

    message_id: UUID


# Besides: a message that was added to the room, and the outcome of a message.
RoomUpdate = TypingChanged | ControlRequested | DraftDelta | MessageBody | MessageResponse | Interrupted
UpdateListener = Callable[[RoomUpdate], None]


class RoomBroadcaster:
    """Publishes updates of rooms to their subscribers."""

    def __init__(self) -> None:
        self._rooms: defaultdict[UUID, list[UpdateListener]] = defaultdict(list)
        self._typing_counts: Counter[UUID] = Counter()
        self.drafts = DraftDeltas()

    def subscribe(self, room_id: UUID, listener: UpdateListener) -> Callable[[], None]:
        """Call `listener` with all updates of a room; return a function that ends the subscription."""
        listeners = self._rooms[room_id]
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)
            if not listeners and self._rooms.get(room_id) is listeners:
                del self._rooms[room_id]

        return unsubscribe

    def publish(self, room_id: UUID, update: RoomUpdate, *, exclude: UpdateListener | None = None) -> None:
        """Call all subscribers of a room except `exclude`."""
        for listener in list(self._rooms.get(room_id, ())):
            if listener != exclude:
                listener(update)

    def has_listeners(self, room_id: UUID) -> bool:
        """Return whether a room has subscribers: without any, what would be published need not be read."""
        return room_id in self._rooms

    def set_typing(self, room_id: UUID, is_active: bool) -> None:
        """Count the turns in a room; publish a change of the first and the last of overlapping turns."""
        before = self._typing_counts[room_id]
        after = max(0, before + (1 if is_active else -1))
        if after:
            self._typing_counts[room_id] = after
        else:
            del self._typing_counts[room_id]
        if bool(before) != bool(after):
            self.publish(room_id, TypingChanged(is_active))

    def is_typing(self, room_id: UUID) -> bool:
        """Return whether the agent is typing in a room."""
        return room_id in self._typing_counts
