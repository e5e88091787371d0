"""What reflection keeps for itself: how far a room has been looked at, and how much was learnt from whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from bot import Content, Memory, MemoryKind, Turn, derived_id


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
