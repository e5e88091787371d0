"""What PostgreSQL and its driver report: what mends it, and how people are told."""

from enum import Enum

import asyncpg  # type: ignore[import-untyped]  # it brings no types
from sqlalchemy.exc import DBAPIError

from bot import BotError, ConfigError
from bot.store import StoreUnavailable

FULL, READ_ONLY, SLOW, UNREACHABLE = "db_full", "db_read_only", "db_slow", "db_unreachable"


class ErrorAction(Enum):
    """What helps against an error."""

    RETRY = "do the whole transaction again: somebody else was in the way"
    WAIT = "wait for the server, and do it again"
    FAIL = "neither"


# By SQLSTATE, or by its class where that says enough.
ACTIONS = {
    "40001": ErrorAction.RETRY,  # serialization failure
    "40P01": ErrorAction.RETRY,  # deadlock
    "23505": ErrorAction.RETRY,  # somebody else has written the row since we looked: look again
    "55P03": ErrorAction.RETRY,  # a lock was not to be had
    "08": ErrorAction.WAIT,  # the connection is gone
    "25006": ErrorAction.WAIT,  # read-only: a standby answers while its primary is being replaced
    "53300": ErrorAction.WAIT,  # too many connections
    "57P": ErrorAction.WAIT,  # the server is stopping or starting
    "25P03": ErrorAction.WAIT,  # we were frozen in a transaction, and the server has hung up
}
CAUSES = {
    "25006": (READ_ONLY, "takes no writes: it is a standby, or was made read-only"),
    "53100": (FULL, "cannot grow: free some space on its disk"),
    "57014": (SLOW, "took too long over a statement: see what else it is doing"),
}
OPERATOR_REMEDIES = {
    "28": "refuses the user or the password",
    "3D000": "has no such database: create it, or name another",
    "42501": "does not let this user do that: grant it the right to make tables in its schema",
}
SETTING_HINT = "see POSTGRES_URL or DATABASE_URL"


def action_for(error: BaseException) -> ErrorAction:
    """Say what helps against an error."""
    error = _origin(error)
    if isinstance(error, OSError) or type(error) is asyncpg.InterfaceError:  # "connection is closed"
        return (
            ErrorAction.WAIT
        )  # time-outs are OSErrors too; the driver's other errors are somebody's mistake
    state = _state(error)
    return next((action for prefix, action in ACTIONS.items() if state.startswith(prefix)), ErrorAction.FAIL)


def explain_error(error: BaseException, label: str) -> BaseException:
    """Turn a fault of the server into one that says what to do; other errors stay what they are."""
    error = _origin(error)
    state = _state(error)
    if state in CAUSES:
        cause, remedy = CAUSES[state]
        return StoreUnavailable(f"the database {label} {remedy} ({error})", cause=cause)
    if action_for(error) is ErrorAction.WAIT:
        detail = f"{type(error).__name__}: {error}".rstrip(": ")
        return StoreUnavailable(
            f"the database {label} cannot be reached: see whether the server runs ({detail})",
            cause=UNREACHABLE,
        )
    return error


def opening_error(error: BaseException, label: str) -> BotError:
    """Say why a database cannot be opened: ConfigError where a person has to see to it."""
    error = _origin(error)
    state = _state(error)
    remedy = next((text for prefix, text in OPERATOR_REMEDIES.items() if state.startswith(prefix)), None)
    if remedy is not None:
        return ConfigError(f"the database {label} {remedy}; {SETTING_HINT} ({error})")
    explained = explain_error(error, label)
    if isinstance(explained, BotError):
        return explained
    return ConfigError(
        f"the database {label} cannot be opened; {SETTING_HINT} ({type(error).__name__}: {error})"
    )


def _origin(error: BaseException) -> BaseException:
    """Find the driver's own error behind SQLAlchemy's."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return error


def _state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")
