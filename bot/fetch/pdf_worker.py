"""A stand-alone program that extracts the text of an untrusted PDF within limits of time and memory.

It reads the file from standard input and writes the text to standard output; `bot.fetch.pdf` starts it. It
imports nothing of this project; its exit code says why there is no text.
"""

import sys
from importlib import import_module
from io import BytesIO

if sys.platform != "win32":
    import resource

NOT_INSTALLED, UNREADABLE = 3, 4
MAX_PAGES = 100
MAX_TEXT_LENGTH = 200_000
MAX_CPU_SECONDS = 10
MAX_MEMORY_MEGABYTES = 512


def main() -> int:
    """Write the text of the first pages; return the exit code."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_MEGABYTES * 2**20, MAX_MEMORY_MEGABYTES * 2**20))
    try:
        pypdf = import_module("pypdf")
    except ModuleNotFoundError:
        return NOT_INSTALLED
    written_length = 0
    try:
        for page in pypdf.PdfReader(BytesIO(sys.stdin.buffer.read())).pages[:MAX_PAGES]:
            text = page.extract_text()[: MAX_TEXT_LENGTH - written_length]
            sys.stdout.buffer.write(f"{text}\n\n".encode("utf-8", "replace"))
            written_length += len(text)
            if written_length >= MAX_TEXT_LENGTH:
                break
    except Exception:  # a broken file may cause any error in the parser
        return 0 if written_length else UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
