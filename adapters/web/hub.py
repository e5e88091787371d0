"""Who is in which room just now, and what they are told."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from adapters.web.bodies import MessageAnswer, MessageBody
from adapters.web.growth import Grown, Growth


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
