"""Publish/subscribe per room; streamed text deltas."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from adapters.web.schemas import MessageAnswer, MessageBody


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


@dataclass(frozen=True, slots=True)
class Typing:
    """The agent has begun, or ceased, to work in the room."""

    active: bool


@dataclass(frozen=True, slots=True)
class Spoken:
    """Something was said."""

    message: MessageBody


@dataclass(frozen=True, slots=True)
class Settled:
    """A message has its outcome."""

    answer: MessageAnswer


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message will not have its outcome before the next start."""

    message_id: UUID


News = Typing | Grown | Spoken | Settled | Interrupted
Listen = Callable[[News], None]


class Hub:
    """Passes news to whoever listens in a room; nobody there is no error."""

    def __init__(self) -> None:
        self._rooms: defaultdict[UUID, list[Listen]] = defaultdict(list)
        self._at_work: Counter[UUID] = Counter()
        self.growth = Growth()

    def join(self, room_id: UUID, listen: Listen) -> Callable[[], None]:
        """Have `listen` called with all news of a room; the returned call ends that."""
        listeners = self._rooms[room_id]
        listeners.append(listen)

        def leave() -> None:
            if listen in listeners:
                listeners.remove(listen)
            if not listeners and self._rooms.get(room_id) is listeners:
                del self._rooms[room_id]

        return leave

    def tell(self, room_id: UUID, news: News, *, but: Listen | None = None) -> None:
        """Tell everybody in a room, except for whom it comes from."""
        for listen in list(self._rooms.get(room_id, ())):
            if listen != but:
                listen(news)

    def show_typing(self, room_id: UUID, active: bool) -> None:
        """Count the turns at work in a room: two may overlap, and the sign goes with the last."""
        before = self._at_work[room_id]
        after = max(0, before + (1 if active else -1))
        if after:
            self._at_work[room_id] = after
        else:
            del self._at_work[room_id]
        if bool(before) != bool(after):
            self.tell(room_id, Typing(active))

    def is_typing(self, room_id: UUID) -> bool:
        """Tell whether the agent is at work in a room."""
        return room_id in self._at_work
