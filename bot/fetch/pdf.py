"""Extracts the text of an untrusted PDF in a process of its own, which can be killed."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from bot.errors import BotError

PROGRAM = Path(__file__).with_name("pdf_worker.py")
NOT_INSTALLED = 3
PDF_TIMEOUT = 20.0
EXIT_MESSAGES = {NOT_INSTALLED: "PDF needs the extra 'knowledge', which is not installed"}


async def extract_pdf_text(data: bytes) -> str:
    """Return the text of a PDF's first hundred pages. Raises BotError, also after a timeout.

    The process has no variables of ours; with `-P` it imports nothing from the current folder.
    """
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(PROGRAM),
        env={"PYTHONUTF8": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PDF_TIMEOUT):
            output, _ = await worker.communicate(data)
    except TimeoutError:
        raise BotError("it takes too long to read") from None
    finally:
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
    if worker.returncode:
        raise BotError(EXIT_MESSAGES.get(worker.returncode, "it is no PDF that can be read"))
    return output.decode("utf-8", "replace")
