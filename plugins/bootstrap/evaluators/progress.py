"""Which messages are new to reflection; daily limits; counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Self
from uuid import UUID

from bot import Content, Entity, Memory, MemoryKind, Turn, derived_id, short_id
from bot.prompts import HistoryLine, render_history
from bot.text import is_blank


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a room's order of messages."""

    at: datetime
    id: UUID

    @classmethod
    def of(cls, message: Memory) -> Self:
        """Give the place of a message."""
        return cls(message.created_at, message.id)

    @classmethod
    def read(cls, written: Any) -> Self | None:
        """Read what `written` gave; None where there is nothing."""
        if not written:
            return None
        at, own_id = written
        return cls(datetime.fromisoformat(at), UUID(own_id))

    @property
    def written(self) -> list[str]:
        """Give it as JSON."""
        return [self.at.isoformat(), str(self.id)]


async def seen_until(turn: Turn) -> Place | None:
    """Tell how far the turn's room has been looked at."""
    own_id = _mark_id(turn.room.id)
    found = await turn.agent.store.memories.memories([own_id])
    return Place.read(found[own_id].metadata.get("until")) if own_id in found else None


def mark(turn: Turn, until: Place) -> Memory:
    """Make the memory that tells how far the turn's room has been looked at."""
    return _note(turn, _mark_id(turn.room.id), turn.agent.id, {"until": until.written})


async def learnt_today(turn: Turn, authors: set[UUID], day: str) -> dict[UUID, int]:
    """Count the facts that were learnt from people on a day, wherever they said them."""
    ids = {_tally_id(author): author for author in authors}
    found = await turn.agent.store.memories.memories(ids)
    counts = {ids[own_id]: note.metadata for own_id, note in found.items()}
    return {author: int(one["count"]) for author, one in counts.items() if one.get("day") == day}


def tally(turn: Turn, author: UUID, day: str, count: int) -> Memory:
    """Make the memory that counts what was learnt from somebody on a day."""
    return _note(turn, _tally_id(author), author, {"day": day, "count": count})


def _mark_id(room_id: UUID) -> UUID:
    return derived_id("reflection", room_id)


def _tally_id(author: UUID) -> UUID:
    return derived_id("facts of a day", author)


def _note(turn: Turn, own_id: UUID, owner: UUID, metadata: Mapping[str, Any]) -> Memory:
    now = turn.agent.clock()
    place = (turn.room.id, turn.world.id)
    return Memory(own_id, MemoryKind.CUSTOM, owner, *place, Content(), now, metadata=metadata)


PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Material:
    """The last messages of a room, of which the first `seen` were looked at before; numbers count from 1."""

    messages: tuple[Memory, ...]
    seen: int
    agent_id: UUID

    @property
    def new(self) -> tuple[Memory, ...]:
        """The messages that nobody has looked at."""
        return self.messages[self.seen :]

    @property
    def said(self) -> list[Memory]:
        """What others have said in the new messages."""
        return [one for one in self.new if one.entity_id != self.agent_id and not is_blank(one.content.text)]

    @property
    def end(self) -> Place:
        """How far the room is looked at with these."""
        return Place.of(self.messages[-1])

    def newest_half(self) -> "Material":
        """Leave out the older half of the messages."""
        half = len(self.messages) // 2
        return replace(self, messages=self.messages[half:], seen=max(0, self.seen - half))

    def numbered(self, number: int | None) -> Memory | None:
        """Find, by its number, a new message of somebody else."""
        if number is None or not 0 < number <= len(self.messages):
            return None
        message = self.messages[number - 1]
        return message if message in self.said else None

    def is_due(self, length: int) -> bool:
        """Tell whether it is time: a quarter of a conversation is new, or a talk went on after a pause."""
        said = self.said
        if len(said) >= enough(length):
            return True
        return len(said) > 1 and said[-1].created_at - said[-2].created_at >= PAUSE

    def shown(self, people: Mapping[UUID, Entity], agent_name: str) -> str:
        """Write the messages for a prompt, each with its number, in lines that nobody can forge."""
        lines = (self._line(message, people, agent_name) for message in self.messages)
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def _line(self, message: Memory, people: Mapping[UUID, Entity], agent_name: str) -> str:
        is_agent = message.entity_id == self.agent_id
        known = people.get(message.entity_id)
        name = agent_name if is_agent else known.name if known is not None else ""
        line = HistoryLine(
            message.created_at, name, short_id(message.entity_id), message.content.text, is_agent
        )
        return render_history([line]).splitlines()[-1]


def enough(length: int) -> int:
    """Tell how many new messages are worth a look: a quarter of a conversation."""
    return ceil(length / 4)


def conversation_length(turn: Turn) -> int:
    """Tell how many of a room's last messages the model is shown."""
    return int(turn.find_setting("CONVERSATION_LENGTH") or 20)


async def gathered(turn: Turn) -> Material:
    """Collect what the turn's room has to reflect upon."""
    messages = await turn.agent.store.memories.recent(turn.room.id, conversation_length(turn))
    until = await seen_until(turn)
    seen = sum(1 for one in messages if until is not None and Place.of(one) <= until)
    return Material(tuple(messages), seen, turn.agent.id)


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
