"""Errors of PostgreSQL and its driver: whether to retry, and messages for operators."""

from enum import Enum

import asyncpg  # type: ignore[import-untyped]  # it brings no types
from sqlalchemy.exc import SQLAlchemyError, StatementError

from bot import BotError, ConfigError
from bot.store import StoreUnavailable, UnreadableRow
from plugins.sql.core.mapping import INVALID_JSON

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
