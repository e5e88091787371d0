"""Extracts the text of an untrusted PDF, DOCX or HTML file in a process of its own, which can be killed."""

import asyncio
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from bot.errors import BotError

PROGRAM = Path(__file__).with_name("document_worker.py")
NOT_INSTALLED, TOO_LARGE = 3, 5
READ_TIMEOUT = 20.0


class DocumentFormat(StrEnum):
    """A format whose text is extracted by a library."""

    PDF = "pdf"
    DOCX = "docx"
    HTML = "html"

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


async def extract_document_text(data: bytes, document_format: DocumentFormat) -> str:
    """Return the text of a document, headings as in Markdown. Raises BotError, also after a timeout.

    Of a PDF the first hundred pages are read. The process has no variables of ours; with `-P` it imports nothing
    from the current folder.
    """
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(PROGRAM),
        document_format.value,
        env={"PYTHONUTF8": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(READ_TIMEOUT):
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
        raise ReaderNotInstalled(f"{name} needs the extra 'knowledge', which is not installed")
    if worker.returncode == TOO_LARGE:
        raise BotError(f"it is larger, unpacked, than any {name} that is read")
    if worker.returncode is not None and worker.returncode < 0:  # killed at the limit of its processor time
        raise BotError("it takes too long to read: split it into several files")
    if worker.returncode:
        raise BotError(f"it is no {name} that can be read")
    return output.decode("utf-8", "replace")


async def extract_pdf_text(data: bytes) -> str:
    """Return the text of a PDF's first hundred pages. Raises BotError, also after a timeout."""
    return await extract_document_text(data, DocumentFormat.PDF)
