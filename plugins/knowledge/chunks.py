"""Text → overlapping chunks → memories."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from bot import Content, Memory, MemoryKind, Scope, derived_id

LONGEST = 1_000
OVERLAP = 150
HEADING = re.compile(r"#{1,6} \S.*")
PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
ENDS = re.compile(r"(?<=[.!?…])\s+")


def cut(text: str, *, longest: int = LONGEST, overlap: int = OVERLAP) -> list[str]:
    """Cut a text, Markdown or plain, into fragments of at most `longest` characters.

    A fragment that goes on where another ended begins with that one's last `overlap` characters or
    fewer, and, below a heading, with the heading. Every word of the text is in one of them.
    """
    room = longest - overlap - 2
    fragments: list[str] = []
    heading, present = "", ""
    for piece in _pieces(text, room):
        if HEADING.fullmatch(piece) and len(piece) <= overlap:
            if present:
                fragments.append(present)
            heading = present = piece
        elif len(present) + 2 + len(piece) <= longest:
            present = f"{present}\n\n{piece}" if present else piece
        else:
            fragments.append(present)
            before = heading or _tail(present, overlap)
            present = f"{before}\n\n{piece}" if before else piece
    if present:
        fragments.append(present)
    return fragments


def _pieces(text: str, longest: int) -> Iterator[str]:
    """Give paragraphs, headings apart; one that is too long by sentences, a long sentence by words."""
    for paragraph in PARAGRAPHS.split(text.replace("\r\n", "\n").strip()):
        first, _, rest = paragraph.strip().partition("\n")
        parts = [first, rest.strip()] if HEADING.fullmatch(first) else [paragraph.strip()]
        for part in filter(None, parts):
            yield from [part] if len(part) <= longest else _packed(part, longest)


def _packed(text: str, longest: int) -> Iterator[str]:
    present = ""
    for sentence in ENDS.split(text):
        for piece in _words(sentence, longest):
            if len(present) + 1 + len(piece) <= longest:
                present = f"{present} {piece}" if present else piece
                continue
            if present:
                yield present
            present = piece
    if present:
        yield present


def _words(sentence: str, longest: int) -> Iterator[str]:
    while len(sentence) > longest:
        end = max(sentence.rfind(gap, 1, longest + 1) for gap in " \t\n")
        end = end if end > 0 else longest
        yield sentence[:end].rstrip()
        sentence = sentence[end:].lstrip()
    if sentence:
        yield sentence


def _tail(text: str, longest: int) -> str:
    """Give the last sentences that fit, or the last words."""
    end = text[-longest:]
    starts = [found.end() for found in ENDS.finditer(end)]
    if starts:
        return end[starts[0] :].strip()
    return end[end.find(" ") + 1 :].strip() if " " in end else ""


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
