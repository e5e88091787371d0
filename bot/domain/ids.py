"""Ids: new (UUIDv7), derived (UUIDv5), delivery id, short id."""

import base64
import hashlib
from functools import lru_cache
from uuid import UUID

from uuid_utils.compat import uuid5, uuid7

NAMESPACE = UUID("8f0f6a52-6d0c-5c1e-9d57-2b6a3f4f7c11")


def new_id() -> UUID:
    """Return a new time-ordered id (UUID version 7, RFC 9562)."""
    return uuid7()


@lru_cache(maxsize=4096, typed=True)  # every message needs the same rooms and people
def derived_id(*parts: str | UUID) -> UUID:
    """Return the id that these parts always have (UUID version 5, RFC 9562).

    Parts may hold any text; they are joined with their lengths, so ("a", "bc") differs from ("ab", "c").
    """
    name = "".join(f"{len(text)}:{text}" for text in map(str, parts))
    return uuid5(NAMESPACE, name.encode("utf-8", "surrogatepass").hex())


def delivery_id(turn_id: UUID, reply_index: int, part: int) -> str:
    """Return the id of one outgoing part, the same however often its turn is replayed.

    24 characters of base32: this fits Discord's nonce of at most 25 characters.
    """
    digest = hashlib.sha256(f"{turn_id}/{reply_index}/{part}".encode()).digest()
    return base64.b32encode(digest[:15]).decode("ascii").lower()


def referral_turn_id(message_id: UUID) -> UUID:
    """Return the id under which the referral for a message of distress is stored, whichever turn answers it."""
    return derived_id(message_id, "referral")


@lru_cache(maxsize=4096)  # a prompt names the same people in many lines
def short_id(value: UUID) -> str:
    """Return the eight hexadecimal digits by which a prompt shows a person."""
    return hashlib.sha256(value.bytes).hexdigest()[:8]
