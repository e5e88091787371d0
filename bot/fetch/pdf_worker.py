"""A program by itself: reads a PDF that a stranger has sent, with little time, little memory and no secrets.

The file comes on its standard input and the text leaves on its standard output; `bot.fetch.pdf` starts it. It
imports nothing of ours, and what it ends with says why there is no text.
"""

import sys
from importlib import import_module
from io import BytesIO

if sys.platform != "win32":
    import resource

NOT_INSTALLED, UNREADABLE = 3, 4
MOST_PAGES = 100
LONGEST_TEXT = 200_000
SECONDS = 10
MEGABYTES = 512


def main() -> int:
    """Write the text of the first pages."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES * 2**20, MEGABYTES * 2**20))
    try:
        pypdf = import_module("pypdf")
    except ModuleNotFoundError:
        return NOT_INSTALLED
    written = 0
    try:
        for page in pypdf.PdfReader(BytesIO(sys.stdin.buffer.read())).pages[:MOST_PAGES]:
            text = page.extract_text()[: LONGEST_TEXT - written]
            sys.stdout.buffer.write(f"{text}\n\n".encode("utf-8", "replace"))
            written += len(text)
            if written >= LONGEST_TEXT:
                break
    except Exception:  # whatever a broken file makes of a parser
        return 0 if written else UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
