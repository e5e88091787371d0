"""From a file's bytes to its text: plain text, Markdown, PDF."""

from importlib import import_module
from io import BytesIO

from bot import BotError

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
