"""Character cards inside other files: in the text chunks `chara` and `ccv3` of a PNG, and in a .charx archive.

The formats: the character card specifications V2 and V3, and the PNG specification for tEXt, zTXt and iTXt.
"""

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from bot.errors import CharacterError

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
ARCHIVE_SIGNATURE: Final = b"PK\x03\x04"
MAX_FILE_BYTES: Final = 32 * 1024 * 1024  # of a picture or an archive, and of a file in one
MAX_ARCHIVE_FILES: Final = 10_000
MAX_PICTURE_BYTES: Final = 2 * 1024 * 1024  # of the picture that the web app shows
CARD_NAME: Final = "card.json"

_CHUNKS: Final = (b"ccv3", b"chara")  # the newer format first
_TEXT_CHUNKS: Final = (b"tEXt", b"zTXt", b"iTXt")
_NOT_BASE64: Final = re.compile(rb"[^A-Za-z0-9+/]")
_DATA_ADDRESS: Final = re.compile(r"data:image/[\w.+-]+(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_ENTRY_SIGNATURE: Final = b"PK\x01\x02"  # of a file in the list at the end of an archive
_ENCRYPTED: Final = 1
_PICTURE_SIGNATURES: Final = ((PNG_SIGNATURE, ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


@dataclass(frozen=True, slots=True)
class CardFile:
    """The bytes of a PNG or a .charx archive that holds a card."""

    name: str
    data: bytes

    @property
    def is_picture(self) -> bool:
        """Whether it is a PNG and not an archive."""
        return self.data.startswith(PNG_SIGNATURE)

    def read_cards(self) -> dict[str, str]:
        """Return the JSON texts of its cards by their places, the preferred one first. Raises CharacterError."""
        if not self.is_picture:
            return {CARD_NAME: self.read(CARD_NAME).decode("utf-8", "replace")}
        encoded = {key.lower(): text for key, text in _text_chunks(self.data)}
        cards = {key.decode(): _decode(encoded[key]) for key in _CHUNKS if key in encoded}
        if not cards:
            advice = "export the character again as PNG or JSON"
            raise CharacterError(f"{self.name}: a picture without a character card: {advice}")
        if not any(cards.values()):
            raise CharacterError(f"{self.name}: the card in the picture is damaged: export the character again")
        return cards

    def list_files(self) -> list[str]:
        """Return the names of the files in an archive. Raises CharacterError."""
        with self._open() as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]

    def read(self, name: str) -> bytes:
        """Return a file of an archive. Raises CharacterError if there is none, or if it is encrypted or too large."""
        with self._open() as archive:
            try:
                entry = archive.getinfo(name)
            except KeyError:
                raise CharacterError(f"{self.name}: there is no {name} in this archive") from None
            if entry.flag_bits & _ENCRYPTED or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise CharacterError(f"{self.name}: {name} is encrypted, or compressed in another way than usual")
            if entry.file_size > MAX_FILE_BYTES:
                raise CharacterError(f"{self.name}: {name} has more than {MAX_FILE_BYTES // 2**20} MiB")
            try:
                with archive.open(entry) as file:
                    return file.read(MAX_FILE_BYTES)
            except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                raise CharacterError(f"{self.name}: {name} is damaged: {error}") from None

    def _open(self) -> ZipFile:
        if self.data.count(_ENTRY_SIGNATURE) > MAX_ARCHIVE_FILES:
            raise CharacterError(f"{self.name}: an archive of more than {MAX_ARCHIVE_FILES} files")
        try:
            return ZipFile(BytesIO(self.data))
        except (BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise CharacterError(f"{self.name}: a damaged archive: {error}: export the character again") from None


def read_card_file(path: Path) -> CardFile | None:
    """Return a PNG or an archive; None for any other file, also one that cannot be read. Raises CharacterError."""
    begin = data = b""
    with suppress(OSError), path.open("rb") as file:  # reading it as text says what is wrong
        begin = file.read(len(PNG_SIGNATURE))
        if begin == PNG_SIGNATURE or begin.startswith(ARCHIVE_SIGNATURE):
            data = begin + file.read(MAX_FILE_BYTES)
    if not data and begin.startswith(PNG_SIGNATURE[:4]):
        raise CharacterError(f"{path}: a damaged PNG picture: export the character again")
    if len(data) > MAX_FILE_BYTES:
        kind = "a picture" if data.startswith(PNG_SIGNATURE) else "an archive"
        raise CharacterError(f"{path}: {kind} of more than {MAX_FILE_BYTES // 2**20} MiB")
    return CardFile(str(path), data) if data else None


def picture_suffix(data: bytes) -> str:
    """Return the ending of a file with this picture; empty for anything else than a PNG, JPEG, GIF or WebP."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for signature, suffix in _PICTURE_SIGNATURES if data.startswith(signature)), "")


def read_data_address(source: str) -> bytes | None:
    """Return the bytes in an address such as `data:image/png;base64,…`; None for any other address."""
    prefix = _DATA_ADDRESS.match(source)
    return _decode_base64(source[prefix.end() :].encode()) if prefix else None


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
        if not (kind in _TEXT_CHUNKS and content.partition(b"\0")[0].lower() in _CHUNKS):
            pieces.append(whole)
    return b"".join(pieces)


def _decode(encoded: bytes) -> str:
    """Return the text of a chunk: base64 of either alphabet, padded or not, or JSON; empty if it is neither."""
    if encoded.lstrip().startswith(b"{"):
        return encoded.decode("utf-8", "replace")
    return _decode_base64(encoded).decode("utf-8", "replace")


def _decode_base64(encoded: bytes) -> bytes:
    """Return what base64 of either alphabet holds, padded or not; empty if it is none."""
    digits = _NOT_BASE64.sub(b"", encoded.translate(_URL_SAFE))
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    except binascii.Error:
        return b""


def _text_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and text of each text chunk of a PNG; the text is empty if it cannot be decompressed."""
    for kind, content, _ in _chunks(data):
        if kind not in _TEXT_CHUNKS:
            continue
        keyword, _, text = content.partition(b"\0")
        is_compressed = kind == b"zTXt"
        if is_compressed:
            text = text[1:]  # without the compression method
        elif kind == b"iTXt":
            is_compressed = text[:1] == b"\1"
            text = text[2:].partition(b"\0")[2].partition(b"\0")[2]  # without language and translated keyword
        yield keyword, _decompress(text) if is_compressed else text


def _decompress(data: bytes) -> bytes:
    """Return the decompressed data; empty if it is damaged, or larger than a file may be."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, MAX_FILE_BYTES)
    except zlib.error:
        return b""
    return text if decompressor.eof else b""


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
