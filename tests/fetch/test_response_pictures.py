"""Detection of pictures by their headers; invalid or oversized ones are rejected."""

import struct
import zlib

import pytest

from bot.errors import FetchError
from bot.fetch.response import MAX_PIXELS, FetchedBody, check_image, read_image_size, sniff_media_type

SOF = b"\xff\xc2\x00\x11\x08"


def png(width: int, height: int) -> bytes:
    """Write a whole PNG: of however many pixels, all of them black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def gif(width: int, height: int, frames: int = 1) -> bytes:
    """Write a GIF of blank frames."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frame * frames + b";"


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    """Write a JPEG's head."""
    return b"\xff\xd8" + before + SOF + struct.pack(">HH", height, width) + bytes(9)


def webp(kind: bytes, data: bytes) -> bytes:
    """Write a WebP of one chunk."""
    return b"RIFF" + struct.pack("<I", 12 + len(data)) + b"WEBP" + kind + struct.pack("<I", len(data)) + data


def fetched(body: bytes, declared: str = "image/png") -> FetchedBody:
    return FetchedBody("https://example.org/1", sniff_media_type(body, declared), body)


@pytest.mark.failure("M-09")
@pytest.mark.parametrize(
    ("body", "size"),
    [
        (png(640, 480), (640, 480)),
        (gif(640, 480), (640, 480)),
        (jpeg(640, 480), (640, 480)),
        (jpeg(640, 480, b"\xff\xe1\x00\x14Exif" + jpeg(9, 9)[:14] + b"\xff\xff\xff\xdb\x00\x04ab"), (640, 480)),
        (webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480 | 0x4000)), (640, 480)),
        (webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)), (640, 480)),
        (webp(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")), (640, 480)),
        (b"\x89PNG\r\n\x1a\n", (0, 0)),
        (b"GIF89a", (0, 0)),
        (b"\xff\xd8\xff", (0, 0)),
        (b"\xff\xd8\xff\xe0", (0, 0)),
        (b"RIFF....WEBP", (0, 0)),
    ],
)
def test_the_size_of_a_picture_is_read_without_decoding_it(body: bytes, size: tuple[int, int]) -> None:
    assert read_image_size(body) == size
    check_image(fetched(body))


@pytest.mark.failure("M-09")
@pytest.mark.parametrize(
    "body",
    [
        png(50_000, 50_000),
        png(2**32 - 1, 2**32 - 1),
        gif(65_535, 65_535),
        jpeg(65_535, 65_535),
        jpeg(65_535, 65_535, b"\xff\xe0\x00\x02between\xff\x00\xff\xd0\xff\x01"),
        webp(b"VP8X", bytes(4) + b"\xff" * 6),
        webp(b"VP8L", b"\x2f" + b"\xff" * 4),
    ],
    ids=["png", "largest png", "gif", "jpeg", "jpeg with noise", "webp", "lossless webp"],
)
def test_a_pixel_bomb_is_rejected_by_its_declared_size(body: bytes) -> None:
    assert len(body) < 2000
    with pytest.raises(FetchError, match=f"pixels large, and at most {MAX_PIXELS:,} are looked at"):
        check_image(fetched(body))


@pytest.mark.failure("M-09")
@pytest.mark.parametrize("filling", [b"\xff", b"\xff\xe0\x00\x02", b"\xff\xe0\x00\x00"])
def test_a_picture_without_a_findable_size_is_rejected_after_a_bounded_search(filling: bytes) -> None:
    body = b"\xff\xd8" + filling * 100_000 + jpeg(65_535, 65_535)[2:]
    with pytest.raises(FetchError, match="its size is not found in its first segments"):
        check_image(fetched(body))


@pytest.mark.failure("M-09")
def test_the_number_of_frames_does_not_change_the_size() -> None:
    assert read_image_size(gif(320, 200, frames=10_000)) == (320, 200)


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
XXE = b'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>'
TIFF = b"II*\x00\xff\xff\xff\xff" + bytes(20)


@pytest.mark.failure("M-09", "M-11")
@pytest.mark.parametrize(
    ("body", "declared", "kind"),
    [
        (SVG, "image/svg+xml", "image/svg\\+xml"),
        (XXE, "image/svg+xml", "image/svg\\+xml"),
        (XXE, "image/png", "text/plain"),
        (TIFF, "image/tiff", "image/tiff"),
        (TIFF, "image/png", "application/octet-stream"),
        (b"<html><script>alert(1)</script>", "image/jpeg", "text/html"),
        (b"%PDF-1.7 /* a polyglot */" + png(9, 9), "image/png", "application/pdf"),
        (b"PK\x03\x04" + png(9, 9), "image/png", "application/zip"),
        (b"", "image/png", "application/octet-stream"),
    ],
)
def test_a_file_that_is_no_picture_is_not_passed_to_a_model(body: bytes, declared: str, kind: str) -> None:
    with pytest.raises(FetchError, match=f"it is {kind}, and only PNG, JPEG, GIF and WebP"):
        check_image(fetched(body, declared))


@pytest.mark.failure("M-11")
def test_a_picture_that_is_also_valid_html_is_only_a_picture() -> None:
    polyglot = gif(9, 9) + b"<html><script>alert(1)</script></html>"
    assert fetched(polyglot, "text/html").content_type == "image/gif"
    assert not fetched(polyglot, "text/html").is_text
