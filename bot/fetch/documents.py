"""Extracts the text of an untrusted document, web page or feed in a process of its own, which can be killed."""

import asyncio
import sys
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bot.concurrency.tasks import FairSlots
from bot.errors import BotError

PROGRAM = Path(__file__).with_name("document_worker.py")
NOT_INSTALLED, TOO_LARGE = 3, 5
MAX_PARALLEL_DOCUMENTS = 2


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Limits of reading one document: pages of a PDF, seconds of processor time, and seconds in all."""

    max_pages: int
    processor_seconds: int
    timeout: float


UNTRUSTED_FILE = ReadingLimits(max_pages=100, processor_seconds=10, timeout=20.0)
TRUSTED_FILE = ReadingLimits(max_pages=10_000, processor_seconds=60, timeout=120.0)


class DocumentFormat(StrEnum):
    """A format whose text is extracted by a library."""

    PDF = "pdf"
    DOCX = "docx"
    HTML = "html"
    FEED = "feed"  # RSS or Atom: each entry as a line of JSON
    PAGE = "page"  # HTML as a web page: a line with its title, one with the name of its site, and its main text

    @classmethod
    def of(cls, content_type: str, name: str = "") -> "DocumentFormat | None":
        """Return the format of a media type, or of a file's name where the type says too little; None for others."""
        if content_type in ("application/zip", "application/octet-stream"):
            return cls.DOCX if name.lower().endswith(".docx") else None
        return FORMAT_BY_TYPE.get(content_type)


FORMAT_BY_TYPE = {
    "application/pdf": DocumentFormat.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": DocumentFormat.DOCX,
    "text/html": DocumentFormat.HTML,
    "application/xhtml+xml": DocumentFormat.HTML,
}


class ReaderNotInstalled(BotError):
    """The library that reads a format is not installed."""


async def extract_document_text(data: bytes, document_format: DocumentFormat, *, is_trusted: bool = False) -> str:
    """Return the text of a document, headings as in Markdown. Raises BotError, also after a timeout.

    Of a PDF the first hundred pages are read; where it has more, the text ends by saying so. A file
    that the operator trusts may have more pages and take more time.
    The process has no variables of ours; with `-P` it imports nothing from the current folder.
    """
    limits = TRUSTED_FILE if is_trusted else UNTRUSTED_FILE
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(PROGRAM),
        document_format.value,
        str(limits.max_pages),
        str(limits.processor_seconds),
        env={"PYTHONUTF8": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(limits.timeout):
            output, _ = await worker.communicate(data)
    except TimeoutError:
        raise BotError("it takes too long to read") from None
    finally:
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
    name = document_format.name
    if worker.returncode == NOT_INSTALLED:
        extra = "'feeds'" if document_format is DocumentFormat.FEED else "'knowledge'"
        raise ReaderNotInstalled(f"{name} needs the extra {extra}, which is not installed")
    if worker.returncode == TOO_LARGE:
        raise BotError(f"it is larger, unpacked, than any {name} that is read")
    if worker.returncode is not None and worker.returncode < 0:  # killed at the limit of its processor time
        raise BotError("it takes too long to read: split it into several files")
    if worker.returncode:
        raise BotError(f"it is no {name} that can be read")
    return output.decode("utf-8", "replace")


class DocumentReader:
    """Reads the documents of one agent, two at a time, in turn for each owner, such as the person who sent one."""

    def __init__(self) -> None:
        self._slots = FairSlots(MAX_PARALLEL_DOCUMENTS)

    async def read(
        self, data: bytes, document_format: DocumentFormat, *, owner: Hashable, is_trusted: bool = False
    ) -> str:
        """Return the text of a document. Raises as `extract_document_text`."""
        async with self._slots.hold([owner]):
            return await extract_document_text(data, document_format, is_trusted=is_trusted)


async def extract_pdf_text(data: bytes) -> str:
    """Return the text of a PDF's first hundred pages. Raises BotError, also after a timeout."""
    return await extract_document_text(data, DocumentFormat.PDF)
