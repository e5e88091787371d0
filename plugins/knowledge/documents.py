"""Files named by the character → text."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path

from bot import BotError, Character, PluginError
from plugins.knowledge.chunks import cut

logger = logging.getLogger(__name__)

MOST_FILES = 1_000
MOST_ENTRIES = 20_000  # of a folder, whatever they are


@dataclass(frozen=True, slots=True)
class Source:
    """Something to be read: words, or a file; `name` is what people call it."""

    name: str
    words: str = ""
    path: Path | None = None

    def stamp(self) -> str:
        """Tell, without reading a file, whether it may have changed; raises Unreadable."""
        if self.path is None:
            return _digest(self.words.encode())
        try:
            found = self.path.stat()
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror}") from None
        return f"{found.st_mtime_ns} {found.st_size}"

    def read(self) -> bytes:
        """Give what it holds, at most a little more than may be read; raises Unreadable."""
        if self.path is None:
            return self.words.encode()
        try:
            with self.path.open("rb") as file:
                return file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror}") from None

    def pieces(self, data: bytes) -> list[str]:
        """Cut what `read` gave into fragments; raises Unreadable."""
        return cut(text_of(self.path.suffix if self.path else ".txt", data))


def check(character: Character, folder: Path | None) -> None:
    """Refuse a character that names files outside its own folder; raises PluginError."""
    for number, item in enumerate(character.knowledge):
        if named := item.path or item.directory:
            _inside(named, number, folder)


def sources_of(character: Character, folder: Path | None) -> list[Source]:
    """List what is to be read, in the order of the file; what is not there is noted and left out.

    Raises PluginError as `check` does.
    """
    found: dict[str, Source] = {}
    for number, item in enumerate(character.knowledge):
        if item.content:
            name = f"knowledge {_digest(item.content.encode())[:8]}"
            found.setdefault(name, Source(name, words=item.content))
        elif named := item.path or item.directory:
            path = _inside(named, number, folder)
            root = path if folder is None else folder.resolve()
            for file in _files(path, root):
                name = file.relative_to(root).as_posix()
                found.setdefault(name, Source(name, path=file))
    files = [name for name, source in found.items() if source.path is not None]
    for name in files[MOST_FILES:]:
        logger.warning("%s is not read: at most %d files are", name, MOST_FILES)
        del found[name]
    return list(found.values())


def _inside(named: str, number: int, folder: Path | None) -> Path:
    where = f"knowledge[{number}]: {named!r}"
    if folder is None:
        raise PluginError(f"{where}: a character without a file has no folder to read from")
    root = folder.resolve()
    try:
        path = (root / named).resolve()
    except (OSError, ValueError) as error:
        raise PluginError(f"{where}: no path: {error}") from None
    if not path.is_relative_to(root):
        raise PluginError(
            f"{where} lies outside the character's folder, {root}: move the documents into it, or take it out"
        )
    return path


def _files(path: Path, root: Path) -> Iterator[Path]:
    """Walk to what can be read, in the order of the names, past what is hidden or leads outside."""
    if path.is_file():
        if path.suffix.lower() in READABLE:
            yield path
        else:
            logger.warning("%s is not read: only %s are", path, ", ".join(sorted(READABLE)))
        return
    if not path.is_dir():
        logger.warning("%s is not there; nothing is learnt from it", path)
        return
    seen = 0
    for place, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            seen += 1
            if seen > MOST_ENTRIES:
                logger.warning("%s: only its first %d entries were looked at", path, MOST_ENTRIES)
                return
            file = Path(place, name)
            if file.suffix.lower() in READABLE and not name.startswith(".") and _is_own(file, root):
                yield file


def _is_own(file: Path, root: Path) -> bool:
    is_own = file.resolve().is_relative_to(root)
    if not is_own:
        logger.warning("%s is not read: it leads out of the character's folder", file)
    return is_own


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


LARGEST_FILE = 10 * 1024 * 1024
LONGEST_TEXT = 2_000_000
MOST_PAGES = 2_000
TEXTS = frozenset({".txt", ".md", ".markdown"})
READABLE = TEXTS | {".pdf"}


class Unreadable(BotError):
    """A document gives no text; the message says why."""


def text_of(suffix: str, data: bytes) -> str:
    """Give the text of a file; raises Unreadable where it is too large, or not what its name says."""
    if len(data) > LARGEST_FILE:
        raise Unreadable(f"it is larger than {LARGEST_FILE // 2**20} MiB")
    text = _of_pdf(data) if suffix.lower() == ".pdf" else _of_text(data)
    if len(text) > LONGEST_TEXT:
        raise Unreadable(f"its text is longer than {LONGEST_TEXT} characters: cut it into several files")
    return text


def _of_text(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    if "\0" in text:
        raise Unreadable("it is a binary file, not text")
    return text


def _of_pdf(data: bytes) -> str:
    try:
        pypdf = import_module("pypdf")
    except ModuleNotFoundError:
        raise Unreadable(
            "PDF needs pypdf, which is not installed: pip install 'greenroom[knowledge]'"
        ) from None
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        count = len(reader.pages)
        pages = [page.extract_text() for page in reader.pages[: min(count, MOST_PAGES)]]
    except Exception as error:  # whatever a broken file makes of a parser costs that file only
        raise Unreadable(f"it is no PDF that can be read: {type(error).__name__}: {error}") from error
    if count > MOST_PAGES:
        raise Unreadable(f"it has {count} pages, and {MOST_PAGES} are read: cut it into several files")
    text = "\n\n".join(pages).replace("\0", " ")
    return text.encode("utf-8", "replace").decode("utf-8")  # half a character is none
