"""File-descriptor limit, garbage-collection thresholds."""

import gc
import importlib
from contextlib import suppress


def raise_file_limit() -> None:
    """Take as many as the system lets this process have: each connection is one, and 1024 are soon in use."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows, and not as much everywhere
        resource = importlib.import_module("resource")
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


# New objects until the next look, and looks at the youngest until the next one at older ones.
GC_THRESHOLDS = (20_000, 50, 100)


def reduce_gc_frequency() -> None:
    """Leave alone what is there already, and look for circles among the rest less often.

    Nearly everything that a message leaves behind goes without a look; at Python's own thresholds looking
    takes a fifth of the time of answering.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
