"""Addresses of PostgreSQL databases, and connections to them.

Errors of PostgreSQL and its driver: whether to retry, and messages for operators.
"""

import asyncio
import re
import ssl
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import asyncpg  # type: ignore[import-untyped]  # it brings no types
from sqlalchemy.exc import SQLAlchemyError, StatementError

from bot.errors import BotError, ConfigError, SettingError, StoreUnavailable, UnreadableRow
from bot.store.sql.core.base import POSTGRES_ADDRESS
from bot.store.sql.core.mapping import INVALID_JSON

CONNECT_TIMEOUT, STATEMENT_TIMEOUT, IDLE_TRANSACTION_TIMEOUT = 5.0, 30.0, 5.0
POOLER_OPTIONS = ("prepared_statement_cache_size", "statement_cache_size")
# Of the driver, and of pg_dump and psql.
DRIVER_OPTIONS = frozenset(
    [
        "dbname",
        "gsslib",
        "host",
        "krbsrvname",
        "passfile",
        "port",
        "service",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "target_session_attrs",
    ]
)
FILE_OPTIONS = ("sslcert", "sslcrl", "sslkey", "sslrootcert")
SYSTEM_CERTIFICATES = "system"  # as a value of `sslrootcert`
# Of the server; they become `options`, which the driver and PostgreSQL's own programs pass on alike.
SERVER_OPTIONS = frozenset(
    [
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "lock_timeout",
        "role",
        "search_path",
        "statement_timeout",
        "timezone",
        "work_mem",
    ]
)
# Of other programs (Prisma, Rails, SQLAlchemy, JDBC, node-postgres, libpq): without effect here, and no mistake.
FOREIGN_OPTIONS = frozenset(
    [
        "application_name",
        "binary",
        "channel_binding",
        "client_encoding",
        "command_timeout",
        "connection_limit",
        "encoding",
        "fallback_application_name",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "max_connection_lifetime",
        "max_idle_connection_lifetime",
        "pgbouncer",
        "pool",
        "pool_size",
        "pool_timeout",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "prepared_statements",
        "preparethreshold",
        "query_timeout",
        "requiressl",
        "rewritebatchedinserts",
        "socket_timeout",
        "sockettimeout",
        "sslaccept",
        "sslcompression",
        "sslidentity",
        "sslsni",
        "statement_cache_capacity",
        "statement_cache_size",
        "supa",
        "tcp_user_timeout",
        "timeout",
        "uselibpqcompat",
        "workaround",
    ]
)
RENAMED_OPTIONS = {"currentschema": "schema", "database": "dbname", "ssl": "sslmode"}
SSL_MODES = dict.fromkeys(("true", "1", "on", "yes", "no-verify"), "require")
SSL_MODES |= dict.fromkeys(("false", "0", "off", "no"), "disable")
DEFAULT_SCHEMA = "public"
VECTOR_SCHEMAS = (DEFAULT_SCHEMA, "extensions")  # where servers have pgvector
HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.%~-]*)(?::\d{1,5})?"
PLACE = re.compile(rf"(?P<hosts>{HOST}(?:,{HOST})*)(?:/(?P<database>[^/?#@]*))?(?:\?(?P<query>[^#]*))?")
TEXT_OPTIONS = frozenset(
    ("user", "password", "options", "application_name")
)  # only these have an @ that is not encoded
PLACEHOLDER = re.compile(r"[\[<{]+\w*[-_ ]?password[\]>}]+", re.IGNORECASE)
MAX_PORT = 65_535
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
    """The address of a database: `label`, without user and password, is for messages; `url` is for the driver.

    If `is_pooled`, a pooler such as pgbouncer shares its connections: no state may remain on them, and
    no statement is prepared. `schema` is where the tables are, if not where the server puts them; `unused` names
    unknown options. The certificate of the server is checked with `certificates`, if it names them.
    """

    label: str
    url: str = field(repr=False)
    is_pooled: bool = False
    connect_timeout: float = CONNECT_TIMEOUT
    schema: str = ""
    unused: tuple[str, ...] = ()
    certificates: ssl.SSLContext | None = field(default=None, repr=False, compare=False)


def parse_address(url: str, name: str, *, has_direct: bool = False) -> Address:
    """Parse an address as it is copied from a provider; raise SettingError that names the setting.

    Characters of the user and the password need not be encoded. With `has_direct`, the server has an address of its
    own, so that `pgbouncer=true` says that this one leads to a pooler.
    """
    match = POSTGRES_ADDRESS.fullmatch(url)
    parsed = _split(match["rest"]) if match else None
    if parsed is None:
        raise SettingError(
            f"{name}: it must look like postgresql://user:password@host:5432/database; "
            "in the user and the password write @ as %40, / as %2F, ? as %3F and # as %23"
        )
    user_info, place = parsed
    options = _read_options(place["query"])
    user, has_password, password = user_info.partition(":")
    user, password = options.pop("user", unquote(user)), options.pop("password", unquote(password))
    if has_password and PLACEHOLDER.fullmatch(password):
        raise SettingError(f"{name}: it has a placeholder where the password belongs: put the password there")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    database = f"/{place['database'] or quote(options.pop('dbname', ''))}".rstrip("/")
    is_pooled = any(options.get(key) == "0" for key in POOLER_OPTIONS) or (
        has_direct and options.get("pgbouncer", "").lower() == "true"
    )
    schema = options.pop("schema", "").strip('"')
    schema = "" if schema == DEFAULT_SCHEMA else schema
    if schema and is_pooled:
        raise SettingError(
            f"{name}: a pooler does not pass a schema on: remove it from the address, and set it for the user of the "
            "database, with ALTER ROLE … SET search_path"
        )
    if schema:
        options["search_path"] = ", ".join(f'"{part}"' for part in (schema, *VECTOR_SCHEMAS))
    timeout = options.pop("connect_timeout", "")
    if timeout and not timeout.isdecimal():
        raise SettingError(f"{name}: connect_timeout must be a whole number of seconds")
    query = _driver_options(options, name)
    host = place["hosts"] or query.get("host", "")
    is_local = not host or host.startswith(("/", "%2F", "%2f"))  # the folder of a socket
    return Address(
        f"postgresql://{'localhost' if is_local else host}{database}",
        f"postgresql://{f'{login}@' if login else ''}{place['hosts']}{database}"
        f"{f'?{urlencode(query, quote_via=quote)}' if query else ''}",
        is_pooled,
        float(timeout or 0) or CONNECT_TIMEOUT,
        schema,
        tuple(sorted(options.keys() - DRIVER_OPTIONS - SERVER_OPTIONS - FOREIGN_OPTIONS - {"options"})),
        ssl.create_default_context() if query.get("sslrootcert") == SYSTEM_CERTIFICATES else None,
    )


def _driver_options(options: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the options for the driver, among them `options` for the server."""
    chosen = {key: value for key, value in options.items() if key in DRIVER_OPTIONS and value}
    for key in FILE_OPTIONS:
        file = chosen.get(key, SYSTEM_CERTIFICATES)
        if file != SYSTEM_CERTIFICATES and not Path(file).is_file():
            raise SettingError(f"{name}: {key} must name a file, and there is no {file}")
    if not all(port.isdecimal() for port in chosen.get("port", "0").split(",")):
        raise SettingError(f"{name}: port must be a number")
    flags = (f"-c {key}={_escape(options[key])}" for key in sorted(SERVER_OPTIONS & options.keys()) if options[key])
    if words := " ".join(filter(None, (options.get("options", ""), *flags))):
        chosen["options"] = words
    return chosen


def _split(rest: str) -> tuple[str, dict[str, str]] | None:
    """Return what is before the host, and the parts of what follows; None if no part of the text is a host.

    The user's part ends with the first @ after which everything is as it must be: a password may have one, too.
    """
    ends = [-1, *(index for index, letter in enumerate(rest) if letter == "@")]
    for end in ends:
        match = PLACE.fullmatch(rest, end + 1)
        if (
            match is None
            or not any(match.groups())
            or any(int(port) > MAX_PORT for port in re.findall(r":(\d+)(?=,|$)", match["hosts"]))
        ):
            continue
        place = {key: value or "" for key, value in match.groupdict().items()}
        items = [item.partition("=") for item in place["query"].split("&")]
        if all("@" not in f"{key}{value}" or ("@" not in key and key in TEXT_OPTIONS) for key, _, value in items):
            return rest[: max(end, 0)], place
    return None


def _read_options(query: str) -> dict[str, str]:
    """Return the options by the names that the driver knows; of several with a name the last."""
    options = {key.lower(): value for key, value in parse_qsl(query, keep_blank_values=True)}
    for old, new in RENAMED_OPTIONS.items():
        if old in options:
            options.setdefault(new, options.pop(old))
    if mode := options.get("sslmode", "").lower():
        options["sslmode"] = SSL_MODES.get(mode, mode)
    return options


def _escape(value: str) -> str:
    """Return a value as one word of `options`."""
    return re.sub(r"([\\\s])", r"\\\1", value)


async def connect(address: Address, *, is_bounded: bool = True) -> Any:
    """Open a connection of the driver; if `is_bounded`, statements end after 30 seconds."""
    settings = {"application_name": "greenroom"}
    if not address.is_pooled and is_bounded:
        settings |= SERVER_SETTINGS
    async with asyncio.timeout(address.connect_timeout):
        connection = await asyncpg.connect(
            address.url,
            timeout=None,
            ssl=address.certificates,
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


# What a query may raise: SQLAlchemy's errors, the driver's own, and those of the connection.
DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
FULL, READ_ONLY, SLOW, UNREACHABLE = "db_full", "db_read_only", "db_slow", "db_unreachable"


class ErrorAction(Enum):
    """How to handle an error."""

    RETRY = "repeat the transaction: another one conflicted"
    WAIT = "wait for the server, then repeat the transaction"
    FAIL = "raise the error"


# By SQLSTATE or a prefix of it.
ACTIONS = {
    "40001": ErrorAction.RETRY,  # serialization failure
    "40P01": ErrorAction.RETRY,  # deadlock
    "23505": ErrorAction.RETRY,  # unique violation: another transaction has inserted the row
    "23503": ErrorAction.RETRY,  # foreign key violation: another transaction has deleted the row, such as a person's
    "55P03": ErrorAction.RETRY,  # lock not available
    "08": ErrorAction.WAIT,  # connection lost
    "25006": ErrorAction.WAIT,  # read-only: a standby answers during a failover
    "53300": ErrorAction.WAIT,  # too many connections
    "57P": ErrorAction.WAIT,  # server stopping or starting
    "25P03": ErrorAction.WAIT,  # the server ended an idle transaction
}
CAUSES = {
    "25006": (READ_ONLY, "takes no writes: it is a standby, or was made read-only"),
    "53100": (FULL, "cannot grow: free space on its disk"),
    "57014": (SLOW, "took too long for a statement: check its load"),
}
OPERATOR_REMEDIES = {
    "28": "refuses the user or the password",
    "3D000": "has no such database: create it, or name another",
    "42501": "denies this user access: grant the right to create tables in its schema",
}
INVALID_VALUE = "22P02"  # such as a text that is no JSON; the message names the type
POOLER_STATES = ("08P01", "26000", "42P05")  # a parameter or a prepared statement that does not pass a pooler
POOLER_REMEDY = (
    "is behind a pooler such as pgbouncer: add ?prepared_statement_cache_size=0 to its address, and set "
    "POSTGRES_DIRECT_URL to the address of the server itself"
)
SETTING_HINT = "see POSTGRES_URL or DATABASE_URL"


def action_for(error: BaseException) -> ErrorAction:
    """Return how to handle an error."""
    error = _origin(error)
    if isinstance(error, OSError) or type(error) is asyncpg.InterfaceError:  # "connection is closed"
        return ErrorAction.WAIT  # timeouts are OSErrors too; other errors of the driver are bugs
    if is_broken(error):
        return ErrorAction.WAIT
    if _is_from_pooler(error):
        return ErrorAction.FAIL
    state = _state(error)
    return next((action for prefix, action in ACTIONS.items() if state.startswith(prefix)), ErrorAction.FAIL)


def is_broken(error: BaseException) -> bool:
    """Return whether an error leaves its connection unusable, although the driver does not say that it is closed.

    So it is where the server has ended the transaction of a process that was frozen.
    """
    return isinstance(_origin(error), asyncpg.InternalClientError)


def explain_error(error: BaseException, label: str) -> BaseException:
    """Return a server problem as StoreUnavailable, or a wrong address as ConfigError; return other errors unchanged."""
    error = _origin(error)
    state = _state(error)
    if _is_from_pooler(error):
        return ConfigError(f"the database {label} {POOLER_REMEDY} ({error})")
    if state == INVALID_VALUE and "json" in str(error):
        return UnreadableRow(INVALID_JSON)
    if state in CAUSES:
        cause, remedy = CAUSES[state]
        return StoreUnavailable(f"the database {label} {remedy} ({error})", cause=cause)
    if action_for(error) is ErrorAction.WAIT:
        detail = f"{type(error).__name__}: {error}".rstrip(": ")
        return StoreUnavailable(
            f"the database {label} cannot be reached: check whether the server runs ({detail})", cause=UNREACHABLE
        )
    return error


def opening_error(error: BaseException, label: str) -> BotError:
    """Return why a database cannot be opened: ConfigError if an operator must act."""
    error = _origin(error)
    state = _state(error)
    remedy = next((text for prefix, text in OPERATOR_REMEDIES.items() if state.startswith(prefix)), None)
    if remedy is not None:
        return ConfigError(f"the database {label} {remedy}; {SETTING_HINT} ({error})")
    explained = explain_error(error, label)
    if isinstance(explained, BotError):
        return explained
    return ConfigError(f"the database {label} cannot be opened; {SETTING_HINT} ({type(error).__name__}: {error})")


def _is_from_pooler(error: BaseException) -> bool:
    """Return whether an address leads to a pooler without saying so."""
    state = _state(error)
    return state in POOLER_STATES and (state != POOLER_STATES[0] or "startup parameter" in str(error))


def _origin(error: BaseException) -> BaseException:
    """Return the driver's own error inside SQLAlchemy's."""
    while isinstance(error, StatementError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return error


def _state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")
