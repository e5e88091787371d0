"""A stand-alone program that extracts the text of an untrusted document within limits of time and memory.

It reads the file from standard input and writes the text to standard output; `bot.fetch.documents` starts it with
the format, the most pages of a PDF and the seconds of processor time as arguments. It imports nothing of this project;
its exit code says why there is no text.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from zipfile import ZipFile

if sys.platform != "win32":
    import resource

NOT_INSTALLED, UNREADABLE, TOO_LARGE = 3, 4, 5
MAX_TEXT_LENGTH = 2_100_000  # a little more than a document of the plugin knowledge may have, so that it says so
MAX_ENTRIES, MAX_FIELD_LENGTH = 50, 2_000  # of a feed, and of each field of an entry in characters
LOWERED_PRIORITY = 10  # behind the bot itself, which answers meanwhile
MAX_MEMORY_MEGABYTES = 512
MAX_ARCHIVE_FILES = 2_000
MAX_ARCHIVE_BYTES = 64 * 2**20
MAX_XML_BYTES = 24 * 2**20  # parsed, it takes ten times its size
DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
# Not what a reader of the page sees, or the way around the site; hidden words may be meant for the bot alone.
HIDDEN_XPATH = (
    "//*[@hidden or @aria-hidden='true' or contains(translate(@style, ' ', ''), 'display:none')"
    " or contains(translate(@style, ' ', ''), 'visibility:hidden')]"
    "[not(self::html or self::body)]"
)
UNREAD_ELEMENTS = "script, style, noscript, template, svg, head, nav, iframe, object, [hidden], [aria-hidden=true]"


class TooLarge(Exception):
    """An archive is larger than is read, unpacked."""


def main() -> int:
    """Write the text of a document; return the exit code."""
    document_format, max_pages, processor_seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if sys.platform != "win32":
        os.nice(LOWERED_PRIORITY)
        resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_MEGABYTES * 2**20, MAX_MEMORY_MEGABYTES * 2**20))
    data = sys.stdin.buffer.read()
    written_length = 0
    try:
        for piece in read_pdf(data, max_pages) if document_format == "pdf" else READERS[document_format](data):
            text = piece[: MAX_TEXT_LENGTH - written_length]
            sys.stdout.buffer.write(f"{text}\n\n".encode("utf-8", "replace"))
            written_length += len(text)
            if written_length >= MAX_TEXT_LENGTH:
                break
    except ModuleNotFoundError:
        return NOT_INSTALLED
    except TooLarge:
        return TOO_LARGE
    except Exception:  # a broken file may cause any error in the parser
        return 0 if written_length else UNREADABLE
    return 0


def read_pdf(data: bytes, max_pages: int) -> Iterator[str]:
    """Yield the text of each page, and at the end a line that says so if there are more than `max_pages`."""
    pages = import_module("pypdf").PdfReader(BytesIO(data)).pages
    has_text = False
    for page in islice(pages, max_pages):
        text = page.extract_text()
        has_text = has_text or bool(text.strip())
        yield text
    if has_text and len(pages) > max_pages:
        yield f"[Only the first {max_pages} of {len(pages)} pages were read.]"


def read_docx(data: bytes) -> Iterator[str]:
    """Yield paragraphs, and tables with a line for each row. Raises TooLarge."""
    docx = import_module("docx")
    check_archive(data)
    for block in docx.Document(BytesIO(data)).iter_inner_content():
        if hasattr(block, "rows"):
            rows = ([cell.text.strip().replace("\n", " ") for cell in row.cells] for row in block.rows)
            yield "\n".join("; ".join(filter(None, row)) for row in rows)
        elif text := block.text.strip():
            kind, _, level = str(block.style.name if block.style is not None else "").partition(" ")
            is_heading = kind == "Heading" and level in tuple("123456")
            yield f"{'#' * int(level)} {' '.join(text.split())}" if is_heading else text


def check_archive(data: bytes) -> None:
    """Check the sizes that an archive declares, beyond which no file of it is unpacked.

    Raises TooLarge, and ValueError for XML that declares entities, which no word processor writes.
    """
    with ZipFile(BytesIO(data)) as archive:
        files = archive.infolist()
        xml = [file for file in files if file.filename.lower().endswith((".xml", ".rels"))]
        size, xml_size = (sum(file.file_size for file in group) for group in (files, xml))
        if len(files) > MAX_ARCHIVE_FILES or size > MAX_ARCHIVE_BYTES or xml_size > MAX_XML_BYTES:
            raise TooLarge
        for file in xml:
            if any(map(archive.read(file).__contains__, DOCTYPES)):
                raise ValueError("its XML declares a document type")


def read_html(data: bytes) -> Iterator[str]:
    """Yield the text that a reader of the page sees, as Markdown."""
    soup = import_module("bs4").BeautifulSoup(data, "lxml")
    markdownify = import_module("markdownify")
    title = soup.title.get_text(" ", strip=True) if soup.title is not None else ""
    for element in soup.select(UNREAD_ELEMENTS):
        element.decompose()
    if title and soup.h1 is None:
        yield f"# {' '.join(title.split())}"
    converter = markdownify.MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        strip=["a", "img"],
        escape_asterisks=False,
        escape_underscores=False,
        escape_misc=False,
    )
    yield converter.convert_soup(soup).strip()


def read_feed(data: bytes) -> Iterator[str]:
    """Yield the title of an RSS or Atom feed, then its entries, each as a line of JSON; ValueError for other data."""
    feed = import_module("feedparser").parse(data, sanitize_html=False, resolve_relative_uris=False)
    if not feed.get("version"):
        raise ValueError("it is no feed")
    yield json.dumps({"title": str(feed.feed.get("title", ""))[:MAX_FIELD_LENGTH]})
    for entry in feed.entries[:MAX_ENTRIES]:
        fields = {name: str(entry.get(name, ""))[:MAX_FIELD_LENGTH] for name in ("id", "title", "link", "summary")}
        yield json.dumps(fields)


class PlainPage(HTMLParser):
    """The title and the visible text of a page, for installations without trafilatura."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self.pieces = "", list[str]()
        self._skipped = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin to skip what no reader sees."""
        if not self._skipped and tag in ("script", "style", "noscript", "template", "svg", "nav", "title"):
            self._skipped = tag

    def handle_endtag(self, tag: str) -> None:
        """End what was skipped."""
        if tag == self._skipped:
            self._skipped = ""

    def handle_data(self, data: str) -> None:
        """Keep a piece of text."""
        if self._skipped == "title" and not self.title:
            self.title = data
        elif not self._skipped and data.strip():
            self.pieces.append(" ".join(data.split()))


def read_page(data: bytes) -> Iterator[str]:
    """Yield a line with the title of a web page, a line with the name of its site, and its main text."""
    declared = re.search(
        rb"<meta[^>]{0,200}charset=[\"']?(windows-125[0-8]|iso-8859-\d{1,2}|gbk|big5|euc-kr|shift_jis)", data
    )
    try:
        html = data.decode("utf-8")
    except UnicodeDecodeError:
        html = data.decode(declared[1].decode() if declared else "windows-1252", "replace")
    if find_spec("trafilatura") is None or (tree := import_module("trafilatura").load_html(html)) is None:
        yield from read_plain_page(html)
        return
    for element in tree.xpath(HIDDEN_XPATH):
        element.drop_tree()
    title, site, text = "", "", ""
    if found := import_module("trafilatura").bare_extraction(tree, include_comments=False, with_metadata=True):
        title, site, text = found.title or "", found.sitename or "", found.text or ""
    if not text or not title:
        plain_title, _, plain_text = read_plain_page(html)
        title, text = title or plain_title, text or plain_text
    yield from (" ".join(title.split()), " ".join(site.split()), text)


def read_plain_page(html: str) -> tuple[str, str, str]:
    """Return the title, an empty name of the site, and all visible text of a page."""
    page = PlainPage()
    page.feed(html)
    return " ".join(page.title.split()), "", "\n".join(page.pieces)


READERS: dict[str, Callable[[bytes], Iterator[str]]] = {
    "docx": read_docx,
    "feed": read_feed,
    "html": read_html,
    "page": read_page,
}

if __name__ == "__main__":
    sys.exit(main())
