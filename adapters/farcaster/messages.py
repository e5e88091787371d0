"""Casts as signed messages of the Farcaster protocol. Pure functions.

The field numbers are those of the published schema (`message.proto` of Snapchain). The same cast of the same time has
the same bytes, and so the same hash, which is its id: a hub that gets it twice has it once. Libraries for protobuf do
not promise the same bytes in each version, so the few fields of a cast are written here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

EPOCH = datetime(2021, 1, 1, tzinfo=UTC)
HASH_BYTES = 20
CAST_ADD = 1  # MessageType
MAINNET = 1  # FarcasterNetwork
BLAKE3, ED25519 = 1, 1  # HashScheme, SignatureScheme
LONG_CAST = 1  # CastType
MAX_CAST_BYTES, MAX_LONG_CAST_BYTES = 320, 1024
MAX_EMBEDS, MAX_URL_BYTES = 2, 256


@dataclass(frozen=True, slots=True)
class CastId:
    """The author of a cast and its hash, as in 0x27f4…; as text `FID/0x…`."""

    fid: int
    hash: str

    def __str__(self) -> str:
        return f"{self.fid}/{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "CastId":
        """Return the id that a text names. Raises ValueError."""
        fid, _, hash_ = text.partition("/")
        if len(bytes.fromhex(hash_.removeprefix("0x"))) != HASH_BYTES:
            raise ValueError(f"{text[:60]!r} is not the id of a cast")
        return cls(int(fid), hash_)


@dataclass(frozen=True, slots=True)
class SignedCast:
    """The id of a cast, and the bytes that a hub takes."""

    id: CastId
    body: bytes


def to_seconds(time: datetime) -> int:
    """Return a time in seconds of Farcaster's epoch."""
    return int((time - EPOCH).total_seconds())


def to_datetime(seconds: int) -> datetime:
    """Return the time of so many seconds of Farcaster's epoch."""
    return EPOCH + timedelta(seconds=seconds)


def sign_cast(
    key: bytes, fid: int, timestamp: int, text: str, *, parent: CastId | None = None, embeds: Sequence[str] = ()
) -> SignedCast:
    """Return a signed cast of an account; `key` is the private key of one of its signers, `embeds` are URLs."""
    cast = b""
    if parent is not None:
        hash_ = bytes.fromhex(parent.hash.removeprefix("0x"))
        cast += encode_field(3, encode_fields(parent.fid, hash_))
    content = text.encode()
    cast += encode_field(4, content)
    cast += b"".join(encode_field(6, encode_field(1, url.encode())) for url in embeds)
    if len(content) > MAX_CAST_BYTES:
        cast += encode_field(8, LONG_CAST)
    data = encode_fields(CAST_ADD, fid, timestamp, MAINNET, cast)
    hash_ = blake3(data).digest(HASH_BYTES)
    signer = Ed25519PrivateKey.from_private_bytes(key)
    public_key = signer.public_key().public_bytes_raw()
    body = encode_fields(data, hash_, BLAKE3, signer.sign(hash_), ED25519, public_key, data)
    return SignedCast(CastId(fid, f"0x{hash_.hex()}"), body)


def encode_fields(*values: int | bytes) -> bytes:
    """Return the fields of a message, numbered from 1."""
    return b"".join(encode_field(number, value) for number, value in enumerate(values, 1))


def encode_field(number: int, value: int | bytes) -> bytes:
    """Return a field of a message in the wire format of protobuf: a varint, or bytes with their length."""
    if isinstance(value, int):
        return _encode_varint(number << 3) + _encode_varint(value)
    return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
