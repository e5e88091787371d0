"""The text of a PDF that a stranger has sent: read by a process of its own, which can be ended."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from bot.errors import BotError

PROGRAM = Path(__file__).with_name("pdf_worker.py")
NOT_INSTALLED = 3
DEADLINE = 20.0
WHY = {
    NOT_INSTALLED: "PDF needs pypdf, which is not installed: pip install 'greenroom[knowledge]'",
}


async def text_of_pdf(data: bytes) -> str:
    """Give the text of a PDF's first hundred pages.

    Raises BotError where it cannot be read, or not in a few seconds. Nothing of ours is in the environment
    of the process that reads it; with `-P` nothing lies in its way either.
    """
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(PROGRAM),
        env={"PYTHONUTF8": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            written, _ = await reader.communicate(data)
    except TimeoutError:
        raise BotError("it takes too long to read") from None
    finally:
        if reader.returncode is None:
            with suppress(ProcessLookupError):
                reader.kill()
            await reader.wait()
    if reader.returncode:
        raise BotError(WHY.get(reader.returncode, "it is no PDF that can be read"))
    return written.decode("utf-8", "replace")
