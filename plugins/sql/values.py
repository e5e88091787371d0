"""How values stand in the database: ids as 16 bytes, moments as microseconds, data as compact JSON.

Plain numbers, bytes and text mean the same to every driver. Moments are integers because reading one
back costs a sixth of parsing ISO text, and because they compare and index as they are.
"""

import json
from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic_core import to_json

NO_ID = bytes(16)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def id_bytes(value: UUID | None) -> bytes | None:
    """Write an id that may be missing."""
    return None if value is None else value.bytes


@lru_cache(maxsize=16_384)  # rooms, worlds and people come back with every message; an id is never changed
def id_of(value: bytes) -> UUID:
    """Read an id."""
    return UUID(bytes=value)


def id_or_none(value: bytes | None) -> UUID | None:
    """Read an id that may be missing."""
    return None if value is None or value == NO_ID else id_of(value)


def moment(value: datetime) -> int:
    """Write a moment as microseconds since 1970 in UTC; raises TypeError for one without a time zone."""
    return (value - EPOCH) // MICROSECOND


def moment_or_none(value: datetime | None) -> int | None:
    """Write a moment that may be missing."""
    return None if value is None else moment(value)


def moment_of(value: int) -> datetime:
    """Read a moment."""
    return EPOCH + timedelta(microseconds=value)


def moment_of_or_none(value: int | None) -> datetime | None:
    """Read a moment that may be missing."""
    return None if value is None else moment_of(value)


def words(text: str) -> str:
    """Write text that came from outside: no database takes half a surrogate pair or a NUL."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    return str(value)  # a plugin's odd value must not cost the reply that is committed with it


_escaped = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=_plain).encode
_read = json.JSONDecoder().raw_decode  # nothing stands before or after what we have written ourselves


def loads(text: str) -> Any:
    """Read data."""
    return {} if text == "{}" else _read(text)[0]


def dumps(value: Any) -> str:
    """Write data as JSON that fits into a text column.

    What JSON does not know is written as pydantic writes it, a dataclass with every field, and as a string
    where that does not know it either.
    """
    try:
        return to_json(value, fallback=_plain).decode()
    except ValueError:  # half a surrogate pair, from a model: escaped, it comes back as it was
        return _escaped(value)
