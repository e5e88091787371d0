"""How many files and sockets the process may have open."""

import importlib
from contextlib import suppress


def allow_many_files() -> None:
    """Take as many as the system lets this process have: each connection is one, and 1024 are soon in use."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows, and not as much everywhere
        resource = importlib.import_module("resource")
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
