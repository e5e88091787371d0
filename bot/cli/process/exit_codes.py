"""Exit codes, and the mapping from errors to them."""

from enum import IntEnum

from bot.errors import ConfigError, FetchError, ModelError, ModelRefused, TemporaryError


class Exit(IntEnum):
    """The exit codes; 70, 75 and 78 are those of sysexits.h."""

    OK = 0
    USAGE = 2
    INTERNAL = 70
    TRY_AGAIN = 75
    CONFIG = 78
    INTERRUPTED = 130


class UsageError(Exception):
    """Raised for a wrong command line; the message says how to correct it."""


def exit_code(error: Exception) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, UsageError):
        return Exit.USAGE
    if isinstance(error, ConfigError | ModelRefused):
        return Exit.CONFIG
    if isinstance(error, TemporaryError | ModelError | FetchError):
        return Exit.TRY_AGAIN
    return Exit.INTERNAL
