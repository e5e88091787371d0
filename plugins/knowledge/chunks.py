"""Splitting of texts into overlapping fragments, and their conversion to memories; pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from bot import Content, Memory, MemoryKind, MemoryScope, derived_id
from bot.prompts import AUTHORS_KEY

MAX_FRAGMENT_LENGTH = 1_000
OVERLAP = 150
HEADING_PATTERN = re.compile(r"#{1,6} \S.*")
PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n\s*")
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")
SOURCE = "knowledge"


def split_text(text: str, *, max_length: int = MAX_FRAGMENT_LENGTH, overlap: int = OVERLAP) -> list[str]:
    """Split a plain or Markdown text into fragments of at most `max_length` characters.

    A fragment that continues another begins with at most `overlap` characters of its end, or with the current
    heading. No word is lost.
    """
    max_piece_length = max_length - overlap - 2
    fragments: list[str] = []
    heading, current = "", ""
    for piece in _split_pieces(text, max_piece_length):
        if HEADING_PATTERN.fullmatch(piece) and len(piece) <= overlap:
            if current:
                fragments.append(current)
            heading = current = piece
        elif len(current) + 2 + len(piece) <= max_length:
            current = f"{current}\n\n{piece}" if current else piece
        else:
            fragments.append(current)
            prefix = heading or _tail_of(current, overlap)
            current = f"{prefix}\n\n{piece}" if prefix else piece
    if current:
        fragments.append(current)
    return fragments


def _split_pieces(text: str, max_length: int) -> Iterator[str]:
    """Yield headings and paragraphs; long paragraphs by sentences, long sentences by words."""
    for paragraph in PARAGRAPH_BREAK.split(text.replace("\r\n", "\n").strip()):
        first, _, rest = paragraph.strip().partition("\n")
        parts = [first, rest.strip()] if HEADING_PATTERN.fullmatch(first) else [paragraph.strip()]
        for part in filter(None, parts):
            yield from [part] if len(part) <= max_length else _pack_sentences(part, max_length)


def _pack_sentences(text: str, max_length: int) -> Iterator[str]:
    current = ""
    for sentence in SENTENCE_END.split(text):
        for piece in _split_words(sentence, max_length):
            if len(current) + 1 + len(piece) <= max_length:
                current = f"{current} {piece}" if current else piece
                continue
            if current:
                yield current
            current = piece
    if current:
        yield current


def _split_words(sentence: str, max_length: int) -> Iterator[str]:
    while len(sentence) > max_length:
        end = max(sentence.rfind(gap, 1, max_length + 1) for gap in " \t\n")
        end = end if end > 0 else max_length
        yield sentence[:end].rstrip()
        sentence = sentence[end:].lstrip()
    if sentence:
        yield sentence


def _tail_of(text: str, max_length: int) -> str:
    """Return the last sentences that fit, or the last words."""
    ending = text[-max_length:]
    starts = [match.end() for match in SENTENCE_END.finditer(ending)]
    if starts:
        return ending[starts[0] :].strip()
    return ending[ending.find(" ") + 1 :].strip() if " " in ending else ""


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to add while the bot runs.

    `author_id` is the person who added it, None for the operator. With a `world_id` only that world is told of it.
    `authors` are those whose words it may contain besides.
    """

    name: str
    text: str
    url: str = ""
    author_id: UUID | None = None
    world_id: UUID | None = None
    authors: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document in fragments; its vectors, if any, are of `model`. `added` is set for one that was added later."""

    name: str
    digest: str
    pieces: Sequence[str]
    vectors: Sequence[tuple[float, ...] | None]
    model: str
    added: NewDocument | None = None


def build_memories(indexed: IndexedDocument, agent_id: UUID, room_id: UUID, created_at: datetime) -> list[Memory]:
    """Return the memories of a document, its own first, with ids derived from name and content."""
    added = indexed.added
    document_id = derived_id(room_id, indexed.name)
    world_id, scope, details = room_id, MemoryScope.SHARED, {}
    if added is not None:
        world = str(added.world_id or "")
        document_id = derived_id(room_id, "added", world, indexed.name)
        if added.world_id is not None:
            world_id, scope = added.world_id, MemoryScope.WORLD
        agent_id = added.author_id or agent_id
        details = {"url": added.url, "world": world, AUTHORS_KEY: list(map(str, added.authors))}
    ids = [derived_id(document_id, indexed.digest, str(number)) for number in range(len(indexed.pieces))]
    build = partial(Memory, entity_id=agent_id, room_id=room_id, world_id=world_id, created_at=created_at, scope=scope)
    metadata = {
        **details,
        "name": indexed.name,
        "digest": indexed.digest,
        "model": indexed.model,
        "fragments": list(map(str, ids)),
        "bytes": sum(len(piece.encode("utf-8", "replace")) for piece in indexed.pieces),
    }
    content = Content(text=indexed.name, source=SOURCE)
    document = build(document_id, MemoryKind.DOCUMENT, content=content, metadata=metadata)
    fragments = [
        build(
            fragment_id,
            MemoryKind.FRAGMENT,
            content=Content(text=piece, source=SOURCE),
            source_id=document_id,
            embedding=vector,
            embedding_model=indexed.model if vector is not None else "",
            metadata={**details, "name": indexed.name, "number": number},
        )
        for number, (fragment_id, piece, vector) in enumerate(zip(ids, indexed.pieces, indexed.vectors, strict=True))
    ]
    return [document, *fragments]
