"""A document as the store keeps it: one memory for itself, and one for each of its fragments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from bot import Content, Memory, MemoryKind, Scope, derived_id

SOURCE = "knowledge"


@dataclass(frozen=True, slots=True)
class Entry:
    """A document that was read and cut; its vectors, if there are any, are of `model`."""

    name: str
    digest: str
    pieces: Sequence[str]
    vectors: Sequence[tuple[float, ...] | None]
    model: str


def written(entry: Entry, agent_id: UUID, place: UUID, at: datetime) -> list[Memory]:
    """Make the memories of a document, its own first; the same document always has the same id."""
    document_id = derived_id(place, entry.name)
    ids = [derived_id(document_id, entry.digest, str(number)) for number in range(len(entry.pieces))]
    document = Memory(
        id=document_id,
        kind=MemoryKind.DOCUMENT,
        entity_id=agent_id,
        room_id=place,
        world_id=place,
        content=Content(text=entry.name, source=SOURCE),
        created_at=at,
        scope=Scope.SHARED,
        metadata={
            "name": entry.name,
            "digest": entry.digest,
            "model": entry.model,
            "fragments": list(map(str, ids)),
        },
    )
    fragments = [
        Memory(
            id=one,
            kind=MemoryKind.FRAGMENT,
            entity_id=agent_id,
            room_id=place,
            world_id=place,
            content=Content(text=piece, source=SOURCE),
            created_at=at,
            scope=Scope.SHARED,
            source_id=document_id,
            embedding=vector,
            embedding_model=entry.model if vector is not None else "",
            metadata={"name": entry.name, "number": number},
        )
        for number, (one, piece, vector) in enumerate(zip(ids, entry.pieces, entry.vectors, strict=True))
    ]
    return [document, *fragments]
