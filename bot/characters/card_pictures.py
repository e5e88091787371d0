"""Character cards inside pictures: in the text chunks `chara` and `ccv3` of a PNG.

The format: the character card specifications V2 and V3.
"""

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Final

from bot.errors import CharacterError

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_PNG_BYTES: Final = 32 * 1024 * 1024


def read_png_card(data: bytes, name: str) -> bytes:
    """Return the JSON text of the card inside a PNG. Raises CharacterError if it holds none."""
    chunks = dict(_text_chunks(data))
    encoded = chunks.get(b"ccv3") or chunks.get(b"chara")  # the newer format first
    if encoded is None:
        raise CharacterError(f"{name}: a picture without a character card: export the character again as PNG or JSON")
    try:
        return base64.b64decode(encoded, validate=False)
    except binascii.Error as error:
        raise CharacterError(f"{name}: the card in the picture is damaged: {error}") from None


def write_png_card(picture: bytes, card: bytes) -> bytes:
    """Return a PNG with a card in it, instead of the one that it held. Raises CharacterError if it is no PNG."""
    if not picture.startswith(PNG_SIGNATURE):
        raise CharacterError("the picture is not a PNG: convert it first")
    pieces = [PNG_SIGNATURE]
    for kind, content, whole in _chunks(picture):
        if kind == b"IEND":
            text = b"chara\0" + base64.b64encode(card)
            checksum = binascii.crc32(b"tEXt" + text)
            pieces.append(struct.pack(">I", len(text)) + b"tEXt" + text + struct.pack(">I", checksum))
        if not (kind == b"tEXt" and content.partition(b"\0")[0] in (b"chara", b"ccv3")):
            pieces.append(whole)
    return b"".join(pieces)


def _text_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and text of each text chunk of a PNG."""
    for kind, content, _ in _chunks(data):
        if kind == b"tEXt":
            keyword, _, text = content.partition(b"\0")
            yield keyword, text


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield type, content and all bytes of each chunk of a PNG; a truncated one ends it."""
    offset = len(PNG_SIGNATURE)
    while offset + 12 <= len(data):
        [length] = struct.unpack_from(">I", data, offset)
        end = offset + 12 + length
        if end > len(data):
            return
        yield data[offset + 4 : offset + 8], data[offset + 8 : end - 4], data[offset:end]
        offset = end
