"""What PostgreSQL and its driver report: what mends it, and how people are told."""

from enum import Enum

import asyncpg  # type: ignore[import-untyped]  # it brings no types
from sqlalchemy.exc import DBAPIError

from bot import BotError, ConfigError
from bot.store import StoreUnavailable

FULL, READ_ONLY, SLOW, UNREACHABLE = "db_full", "db_read_only", "db_slow", "db_unreachable"


class Mend(Enum):
    """What helps against an error."""

    AGAIN = "do the whole transaction again: somebody else was in the way"
    WAIT = "wait for the server, and do it again"
    NOTHING = "neither"


# By SQLSTATE, or by its class where that says enough.
MENDS = {
    "40001": Mend.AGAIN,  # serialization failure
    "40P01": Mend.AGAIN,  # deadlock
    "23505": Mend.AGAIN,  # somebody else has written the row since we looked: look again
    "55P03": Mend.AGAIN,  # a lock was not to be had
    "08": Mend.WAIT,  # the connection is gone
    "25006": Mend.WAIT,  # read-only: a standby answers while its primary is being replaced
    "53300": Mend.WAIT,  # too many connections
    "57P": Mend.WAIT,  # the server is stopping or starting
    "25P03": Mend.WAIT,  # we were frozen in a transaction, and the server has hung up
}
WORDS = {
    "25006": (READ_ONLY, "takes no writes: it is a standby, or was made read-only"),
    "53100": (FULL, "cannot grow: free some space on its disk"),
    "57014": (SLOW, "took too long over a statement: see what else it is doing"),
}
FOR_A_PERSON = {
    "28": "refuses the user or the password",
    "3D000": "has no such database: create it, or name another",
    "42501": "does not let this user do that: grant it the right to make tables in its schema",
}
SETTING = "see POSTGRES_URL or DATABASE_URL"


def mend_of(error: BaseException) -> Mend:
    """Say what helps against an error."""
    error = _origin(error)
    if isinstance(error, OSError) or type(error) is asyncpg.InterfaceError:  # "connection is closed"
        return Mend.WAIT  # time-outs are OSErrors too; the driver's other errors are somebody's mistake
    state = _state(error)
    return next((mend for prefix, mend in MENDS.items() if state.startswith(prefix)), Mend.NOTHING)


def explained(error: BaseException, place: str) -> BaseException:
    """Turn a fault of the server into one that says what to do; other errors stay what they are."""
    error = _origin(error)
    state = _state(error)
    if state in WORDS:
        cause, remedy = WORDS[state]
        return StoreUnavailable(f"the database {place} {remedy} ({error})", cause=cause)
    if mend_of(error) is Mend.WAIT:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return StoreUnavailable(
            f"the database {place} cannot be reached: see whether the server runs ({what})", cause=UNREACHABLE
        )
    return error


def at_opening(error: BaseException, place: str) -> BotError:
    """Say why a database cannot be opened: ConfigError where a person has to see to it."""
    error = _origin(error)
    state = _state(error)
    remedy = next((words for prefix, words in FOR_A_PERSON.items() if state.startswith(prefix)), None)
    if remedy is not None:
        return ConfigError(f"the database {place} {remedy}; {SETTING} ({error})")
    found = explained(error, place)
    if isinstance(found, BotError):
        return found
    return ConfigError(f"the database {place} cannot be opened; {SETTING} ({type(error).__name__}: {error})")


def _origin(error: BaseException) -> BaseException:
    """Find the driver's own error behind SQLAlchemy's."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return error


def _state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")
