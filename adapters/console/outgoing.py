"""Conversion of a reply to terminal text, and files of a command's response."""

import os
import re
from itertools import count
from pathlib import Path

from bot import Attachment, Content
from bot.text import ANSI_SEQUENCE, translate, translate_message

_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def format_reply(content: Content) -> str:
    """Return a reply without control codes, with a line for each attachment."""
    lines = [content.text, *map(_format_attachment, content.attachments)]
    return strip_terminal_codes("\n".join(line for line in lines if line))


def strip_terminal_codes(text: str) -> str:
    """Remove control and bidirectional characters and ANSI sequences; line ends and tabs stay."""
    return _CONTROL.sub("", _LINE_END.sub("\n", ANSI_SEQUENCE.sub("", text)))


def save_file(file: Attachment, folder: Path = Path()) -> str:
    """Write a file that only this user may read, under a free name; return a line with its path, or with the error."""
    name = Path(re.sub(r"[^\w.-]", "_", file.name).lstrip(".") or "file")
    for number in count(1):
        path = folder / (name if number == 1 else name.with_stem(f"{name.stem}-{number}"))
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
                written.write(file.data or b"")
        except FileExistsError:
            continue
        except OSError as error:
            return translate_message(f"{path} cannot be written: {error.strerror}")
        return translate("saved as {path}", path=path.resolve())
    raise AssertionError  # `count` does not end


def _format_attachment(attachment: Attachment) -> str:
    name = attachment.title or attachment.name or attachment.description
    label = ": ".join(part for part in (attachment.kind.value.lower(), name) if part)
    return f"[{label}] {attachment.url}".rstrip()
