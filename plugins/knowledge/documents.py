"""Reading of the files and texts that a character names as its knowledge.

Splitting of texts into overlapping fragments, and their conversion to memories; pure.
"""

import asyncio
import csv
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from uuid import UUID

from bot import Agent, BotError, Character, Content, Memory, MemoryKind, MemoryScope, derived_id
from bot.platform import DocumentFormat, ReaderNotInstalled, install_command
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


logger = logging.getLogger(__name__)

MAX_FILES = 1_000
MAX_ENTRIES = 20_000  # of a folder, of any type
MAX_FILE_BYTES = 10 * 1024 * 1024
COPIES = 3  # of a file in memory: its bytes, those for the process that reads it, and its text
MAX_TEXT_LENGTH = 2_000_000
TEXT_SUFFIXES = frozenset({".txt", ".md", ".markdown"})
FORMATS = {
    ".pdf": DocumentFormat.PDF,
    ".docx": DocumentFormat.DOCX,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
}
READABLE_SUFFIXES = TEXT_SUFFIXES | {".csv"} | FORMATS.keys()


@dataclass(frozen=True, slots=True)
class Source:
    """An inline text or a file; `name` is shown to people."""

    name: str
    text: str = ""
    path: Path | None = None

    def fingerprint(self) -> str:
        """Return a value that changes with the content, without reading a file. Raises UnreadableDocument."""
        if self.path is None:
            return _hex_digest(self.text.encode())
        try:
            status = self.path.stat()
        except OSError as error:
            raise UnreadableDocument(f"it cannot be read: {error.strerror}") from None
        return f"{status.st_mtime_ns} {status.st_size}"

    def count_bytes(self) -> int:
        """Return the size of the content, at most one byte more than the limit; 0 for a file that cannot be read."""
        if self.path is None:
            return len(self.text.encode())
        with suppress(OSError):
            return min(self.path.stat().st_size, MAX_FILE_BYTES + 1)
        return 0

    def read(self) -> bytes:
        """Return the content, at most one byte more than the limit. Raises UnreadableDocument."""
        if self.path is None:
            return self.text.encode()
        try:
            with self.path.open("rb") as file:
                return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise UnreadableDocument(f"it cannot be read: {error.strerror}") from None

    async def split(self, agent: Agent, data: bytes) -> list[str]:
        """Split the result of `read` into fragments. Raises UnreadableDocument."""
        suffix = self.path.suffix.lower() if self.path else ".txt"
        if document_format := FORMATS.get(suffix):
            suffix, data = ".txt", await extract_isolated(agent, data, document_format, is_trusted=True)
        return await asyncio.to_thread(lambda: split_text(extract_text(suffix, data)))


def list_sources(character: Character, folder: Path | None) -> list[Source]:
    """Return the sources in the order of the file; what is missing or outside the folder is logged and skipped."""
    sources: dict[str, Source] = {}
    for number, item in enumerate(character.knowledge):
        if item.is_keyed:
            continue
        if item.content:
            name = f"knowledge {_hex_digest(item.content.encode())[:8]}"
            sources.setdefault(name, Source(name, text=item.content))
        elif relative_path := item.path or item.directory:
            try:
                root, path = _resolve_inside(relative_path, folder)
            except UnreadableDocument as error:
                logger.warning("knowledge[%d]: %r is skipped: %s", number, relative_path, error, extra={"once": True})
                continue
            for file in _walk_files(path, root):
                name = file.relative_to(root).as_posix()
                sources.setdefault(name, Source(name, path=file))
    files = [name for name, source in sources.items() if source.path is not None]
    for name in files[MAX_FILES:]:
        logger.warning("%s is skipped: at most %d files are read", name, MAX_FILES, extra={"once": True})
        del sources[name]
    return list(sources.values())


def _resolve_inside(relative_path: str, folder: Path | None) -> tuple[Path, Path]:
    """Return the folder and a path in it. Raises UnreadableDocument for a path that leads elsewhere."""
    if folder is None:
        raise UnreadableDocument("a character without a file has no folder to read from")
    root = folder.resolve()
    try:
        path = (root / relative_path).resolve()
    except (OSError, ValueError) as error:
        raise UnreadableDocument(f"it is no path that can be read: {error}") from None
    if not path.is_relative_to(root):
        raise UnreadableDocument(f"it is outside the character's folder, {root}: move the documents into it")
    return root, path


def _walk_files(path: Path, root: Path) -> Iterator[Path]:
    """Yield readable files sorted by name, except hidden files and links that lead outside."""
    if path.is_file():
        if path.suffix.lower() in READABLE_SUFFIXES:
            yield path
        else:
            logger.warning(
                "%s is skipped: only %s files are read",
                path,
                ", ".join(sorted(READABLE_SUFFIXES)),
                extra={"once": True},
            )
        return
    if not path.is_dir():
        logger.warning("%s does not exist; it is skipped", path, extra={"once": True})
        return
    entry_count = 0
    for directory, subfolders, names in os.walk(path):
        subfolders[:] = sorted(subfolder for subfolder in subfolders if not subfolder.startswith("."))
        for name in sorted(names):
            entry_count += 1
            if entry_count > MAX_ENTRIES:
                logger.warning("%s: only its first %d entries were read", path, MAX_ENTRIES, extra={"once": True})
                return
            file = Path(directory, name)
            if file.suffix.lower() in READABLE_SUFFIXES and not name.startswith(".") and _is_inside(file, root):
                yield file


def _is_inside(file: Path, root: Path) -> bool:
    is_inside = file.resolve().is_relative_to(root)
    if not is_inside:
        logger.warning("%s is skipped: it leads outside the character's folder", file, extra={"once": True})
    return is_inside


def _hex_digest(data: bytes) -> str:
    return sha256(data).hexdigest()


class UnreadableDocument(BotError):
    """A document has no usable text; the message says why."""


def extract_text(suffix: str, data: bytes) -> str:
    """Return the text of a text file or a table. Raises UnreadableDocument if it is too large or invalid."""
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableDocument(f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
    text = _decode_text(data)
    if suffix.lower() == ".csv":
        text = _format_rows(text)
    if len(text) > MAX_TEXT_LENGTH:
        raise UnreadableDocument(f"its text is longer than {MAX_TEXT_LENGTH} characters: split it into several files")
    return text


async def extract_isolated(
    agent: Agent, data: bytes, document_format: DocumentFormat, *, is_trusted: bool = False
) -> bytes:
    """Return the text of a file in UTF-8, read in a process of its own, because the file may be made to harm.

    The documents of the agent together take a turn like those of one person. Raises UnreadableDocument.
    """
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableDocument(f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        text = await agent.document_reader.read(data, document_format, owner=agent.id, is_trusted=is_trusted)
    except ReaderNotInstalled as error:
        raise UnreadableDocument(f"{error}: {install_command('knowledge')}") from None
    except BotError as error:
        raise UnreadableDocument(str(error)) from None
    return text.replace("\0", " ").encode("utf-8", "replace")


def _format_rows(text: str) -> str:
    """Return the rows of a CSV table as paragraphs that name the columns, so that each is found alone."""
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff(text[:10_000], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(StringIO(text), dialect) if any(row)]
    except csv.Error as error:
        raise UnreadableDocument(f"it is not a readable CSV table: {error}") from None
    header, *records = rows or [[]]
    lines = (
        "; ".join(f"{name}: {cell}" if name else cell for name, cell in zip_longest(header, row, fillvalue="") if cell)
        for row in records
    )
    return "\n\n".join(lines) if records else "; ".join(header)


def _decode_text(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"it is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    if "\0" in text:
        raise UnreadableDocument("it is a binary file, not text")
    return text
