"""What the process tells whoever started it: the exit codes, and which error means which."""

from enum import IntEnum

from bot.errors import ConfigError, FetchError, ModelError, ModelRefused, TemporaryError


class Exit(IntEnum):
    """The exit codes there are; 75, 70 and 78 are those of sysexits.h."""

    OK = 0
    USAGE = 2
    INTERNAL = 70
    TRY_AGAIN = 75
    CONFIG = 78
    INTERRUPTED = 130


class UsageError(Exception):
    """The command line itself is wrong; the message says how it is meant."""


def exit_code(error: Exception) -> Exit:
    """Tell which exit code an error stands for."""
    if isinstance(error, UsageError):
        return Exit.USAGE
    if isinstance(error, ConfigError | ModelRefused):
        return Exit.CONFIG
    if isinstance(error, TemporaryError | ModelError | FetchError):
        return Exit.TRY_AGAIN
    return Exit.INTERNAL
