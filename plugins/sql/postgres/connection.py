"""Addresses of PostgreSQL databases, and connections to them."""

import asyncio
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg  # type: ignore[import-untyped]  # it brings no types

from bot import SettingError
from plugins.sql.core.settings import POSTGRES_SCHEMES

CONNECT_TIMEOUT, STATEMENT_TIMEOUT, IDLE_TRANSACTION_TIMEOUT = 5.0, 30.0, 5.0
POOLER_OPTIONS = ("prepared_statement_cache_size", "statement_cache_size")
IGNORED_OPTIONS = (*POOLER_OPTIONS, "channel_binding", "pgbouncer")  # options of other programs
MAX_CACHED_STATEMENTS = 500  # more than this code has
SERVER_SETTINGS = {
    "jit": "off",  # compiling takes longer than these statements run
    "plan_cache_mode": "force_generic_plan",  # all rows are found by keys: one plan fits all values
    "statement_timeout": str(int(STATEMENT_TIMEOUT * 1000)),
    # So that a frozen process releases its row locks.
    "idle_in_transaction_session_timeout": str(int(IDLE_TRANSACTION_TIMEOUT * 1000)),
}
FIND_VECTOR_SCHEMA = "SELECT n.nspname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace "
FIND_VECTOR_SCHEMA += "WHERE t.oid = to_regtype('halfvec')"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database: `label`, without the password, is for messages; `url` is for the driver.

    If `is_pooled`, a pooler such as pgbouncer shares its connections: no state may remain on them, and
    no statement is prepared.
    """

    label: str
    url: str = field(repr=False)
    is_pooled: bool = False


def parse_address(url: str, name: str) -> Address:
    """Parse an address; raise SettingError that names the setting."""
    parts = urlsplit(url)
    try:
        host = f"{parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}"
        if parts.scheme.partition("+")[0] not in POSTGRES_SCHEMES:
            raise ValueError(parts.scheme)
    except ValueError:
        raise SettingError(f"{name}: it must look like postgresql://user:password@host:5432/database") from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    is_pooled = any(key in POOLER_OPTIONS and value == "0" for key, value in options)
    driver_options = [(key, value) for key, value in options if key not in IGNORED_OPTIONS]
    return Address(
        f"postgresql://{host}{parts.path}",
        parts._replace(scheme="postgresql", query=urlencode(driver_options)).geturl(),
        is_pooled,
    )


async def connect(address: Address, *, is_bounded: bool = True) -> Any:
    """Open a connection of the driver; if `is_bounded`, statements end after 30 seconds."""
    settings = {"application_name": "greenroom"}
    if not address.is_pooled and is_bounded:
        settings |= SERVER_SETTINGS
    async with asyncio.timeout(CONNECT_TIMEOUT):
        connection = await asyncpg.connect(
            address.url,
            command_timeout=STATEMENT_TIMEOUT if is_bounded else None,
            statement_cache_size=0 if address.is_pooled else MAX_CACHED_STATEMENTS,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings=settings,
        )
        with ExitStack() as on_failure:  # also if cancelled: only this function knows the connection
            on_failure.callback(connection.terminate)
            await _register_vector_codec(connection)
            on_failure.pop_all()
    return connection


async def _register_vector_codec(connection: Any) -> None:
    schema = await connection.fetchval(FIND_VECTOR_SCHEMA)
    if schema is not None:
        await connection.set_type_codec(
            "halfvec", schema=schema, format="binary", encoder=_encode_vector, decoder=_decode_vector
        )


def _encode_vector(vector: bytes) -> bytes:
    """Return a vector in the server's format: the count, two zero bytes, big-endian numbers."""
    count = len(vector) // 2
    return struct.pack(">HH", count, 0) + _swap_bytes(vector, "<", ">")


def _decode_vector(data: bytes) -> bytes:
    return _swap_bytes(data[4:], ">", "<")


def _swap_bytes(numbers: bytes, source: str, target: str) -> bytes:
    """Convert the byte order of 16-bit numbers."""
    count = len(numbers) // 2
    return struct.pack(f"{target}{count}H", *struct.unpack(f"{source}{count}H", numbers))
