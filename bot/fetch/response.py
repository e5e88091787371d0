"""`FetchedBody`, media-type sniffing and image size checks; loads no HTTP client."""

import codecs
import re
from dataclasses import dataclass
from typing import Final, Protocol

from bot.errors import FetchError

_SIGNATURES: Final = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (rb"\x89PNG\r\n\x1a\n", "image/png"),
        (rb"\xff\xd8\xff", "image/jpeg"),
        (rb"GIF8[79]a", "image/gif"),
        (rb"RIFF....WEBP", "image/webp"),
        (rb"....ftypavi[fs]", "image/avif"),
        (rb"%PDF-", "application/pdf"),
        (rb"RIFF....WAVE", "audio/wav"),
        (rb"ID3[\x02-\x04]|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", "audio/mpeg"),
        (rb"fLaC[\x00\x80]", "audio/flac"),
        (rb"OggS\x00", "audio/ogg"),
        (rb"....ftyp", "video/mp4"),
        (rb"\x1aE\xdf\xa3", "video/webm"),
        (rb"PK\x03\x04", "application/zip"),
    )
)
# What these hold (sound or pictures, a document or an archive), only the declaration tells.
_CONTAINERS: Final = frozenset({"audio/ogg", "video/mp4", "video/webm", "application/zip"})
_PROVABLE: Final = frozenset(kind for _, kind in _SIGNATURES) - _CONTAINERS
_TEXTUAL: Final = re.compile(r"text/.+|image/svg\+xml|application/(.+\+)?(json|xml|yaml|javascript|x-ndjson)")
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# Python also calls punycode (quadratic) and unicode_escape (warns) an encoding of text; pages do not.
# Of UTF-7 and UTF-32, which no browser reads either, 20 MiB of nonsense take seconds.
_CHARSETS: Final = re.compile(r"(utf-(8|16)|ascii|iso|cp|koi8|mac|gb|hz|big5|euc|shift_jis|tis|johab).*")
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_PIXELS: Final = 100_000_000  # unpacked, four bytes each; cameras make half of it
_MAX_SEGMENTS: Final = 2000
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})  # markers without anything behind them


@dataclass(frozen=True, slots=True)
class FetchedBody:
    """The body at a URL, with the media type of its content or, if unknown, of its header.

    `etag` and `modified` are what the server calls this version; one that `is_unchanged` has no body.
    """

    url: str
    content_type: str
    body: bytes
    charset: str | None = None
    etag: str = ""
    modified: str = ""
    is_unchanged: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the media type is text."""
        return _TEXTUAL.fullmatch(self.content_type) is not None

    def text(self) -> str:
        """Return the decoded body; undecodable bytes become replacement characters."""
        for mark, charset in _BOMS:
            if self.body.startswith(mark):
                return self.body.decode(charset, "replace")
        return self.body.decode(_usable_charset(self.charset), "replace")


class UrlFetcher(Protocol):
    """Fetches URLs that users or models supply."""

    async def get(
        self, url: str, *, max_bytes: int | None = None, trusted_origin: str = "", known: FetchedBody | None = None
    ) -> FetchedBody:
        """Return the body at a URL; addresses of `trusted_origin` need not be public. Raises FetchError.

        Where the server says that it is still the version `known`, that is returned as unchanged.
        """


def sniff_media_type(body: bytes, declared: str) -> str:
    """Return the media type of a body by its first bytes, or else the declared one."""
    major = declared.partition("/")[0]
    for signature, kind in _SIGNATURES:
        if signature.match(body):
            is_container = kind in _CONTAINERS and major in ("application", "audio", "video")
            return declared if is_container and declared not in _PROVABLE else kind
    if body.startswith(tuple(mark for mark, _ in _BOMS)) or (body and not _BINARY.search(body[:1024])):
        if _TEXTUAL.fullmatch(declared):
            return declared
        return "text/html" if re.match(rb"\s*<(!doctype html|html)\b", body, re.IGNORECASE) else "text/plain"
    is_disproved = declared in _PROVABLE or (body and _TEXTUAL.fullmatch(declared))
    return "application/octet-stream" if is_disproved or not declared else declared


def _usable_charset(charset: str | None) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _CHARSETS.fullmatch(name) else "utf-8"


# What the vision models of all providers take.


def check_image(picture: FetchedBody) -> None:
    """Raise FetchError for a body that is no supported image, or too large when decoded."""
    if picture.content_type not in IMAGE_TYPES:
        raise FetchError(f"it is {picture.content_type}, and only PNG, JPEG, GIF and WebP are looked at")
    width, height = read_image_size(picture.body)
    if width * height > MAX_PIXELS:
        raise FetchError(f"it is {width} by {height} pixels large, and at most {MAX_PIXELS:,} are looked at")


def read_image_size(body: bytes) -> tuple[int, int]:
    """Return width and height from an image's header; zeros if it is truncated."""
    if body.startswith(b"\x89PNG"):
        return int.from_bytes(body[16:20]), int.from_bytes(body[20:24])
    if body.startswith(b"GIF8"):
        return _little_endian(body[6:8]), _little_endian(body[8:10])
    if body.startswith(b"RIFF"):
        return _webp_size(body)
    return _jpeg_size(body)


def _webp_size(body: bytes) -> tuple[int, int]:
    match body[12:16]:
        case b"VP8X":
            return 1 + _little_endian(body[24:27]), 1 + _little_endian(body[27:30])
        case b"VP8L":
            packed = _little_endian(body[21:25])
            return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
        case _:
            return _little_endian(body[26:28]) & 0x3FFF, _little_endian(body[28:30]) & 0x3FFF


def _jpeg_size(body: bytes) -> tuple[int, int]:
    position = 2
    for _ in range(_MAX_SEGMENTS):
        position = body.find(b"\xff", position)  # decoders, too, pass over what lies between segments
        if position < 0 or position + 1 == len(body):
            return 0, 0
        marker = body[position + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(body[position + 7 : position + 9]), int.from_bytes(body[position + 5 : position + 7])
        if marker == 0xFF:
            position += 1
        else:
            position += 2 + (0 if marker in _JPEG_BARE else int.from_bytes(body[position + 2 : position + 4]))
    raise FetchError("its size is not found in its first segments")


def _little_endian(number: bytes) -> int:
    return int.from_bytes(number, "little")
