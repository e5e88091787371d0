"""Which pictures a model may be shown: told by their first bytes, since to unpack a bomb is to set it off."""

from typing import Final

from bot.errors import FetchError
from bot.fetch.fetched import Fetched

# What the vision models of all providers take.
SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_PIXELS: Final = 100_000_000  # unpacked, four bytes each; cameras make half of it
_MOST_SEGMENTS: Final = 2000
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})  # markers without anything behind them


def refuse_unfit(picture: Fetched) -> None:
    """Raise FetchError for what is no picture, or claims to be one that no machine should unpack."""
    if picture.content_type not in SHOWN:
        raise FetchError(f"it is {picture.content_type}, and only PNG, JPEG, GIF and WebP are looked at")
    width, height = claimed_size(picture.body)
    if width * height > MOST_PIXELS:
        raise FetchError(f"it is {width} by {height} pixels large, and at most {MOST_PIXELS:,} are looked at")


def claimed_size(body: bytes) -> tuple[int, int]:
    """Read width and height from a picture's head; zeros where it breaks off, so that nothing can be seen."""
    if body.startswith(b"\x89PNG"):
        return int.from_bytes(body[16:20]), int.from_bytes(body[20:24])
    if body.startswith(b"GIF8"):
        return _little(body[6:8]), _little(body[8:10])
    if body.startswith(b"RIFF"):
        return _webp(body)
    return _jpeg(body)


def _webp(body: bytes) -> tuple[int, int]:
    match body[12:16]:
        case b"VP8X":
            return 1 + _little(body[24:27]), 1 + _little(body[27:30])
        case b"VP8L":
            packed = _little(body[21:25])
            return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
        case _:
            return _little(body[26:28]) & 0x3FFF, _little(body[28:30]) & 0x3FFF


def _jpeg(body: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        at = body.find(b"\xff", at)  # decoders, too, pass over what lies between segments
        if at < 0 or at + 1 == len(body):
            return 0, 0
        marker = body[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(body[at + 7 : at + 9]), int.from_bytes(body[at + 5 : at + 7])
        if marker == 0xFF:
            at += 1
        else:
            at += 2 + (0 if marker in _JPEG_BARE else int.from_bytes(body[at + 2 : at + 4]))
    raise FetchError("its size stands behind more than a picture has to say")


def _little(number: bytes) -> int:
    return int.from_bytes(number, "little")
