"""File-descriptor limit, garbage-collection thresholds."""

import gc
import importlib
from contextlib import suppress

# New objects before a collection, and collections of one generation before the next older one.
GC_THRESHOLDS = (20_000, 50, 100)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: each connection needs one, and 1024 are too few."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such module; some systems refuse
        resource = importlib.import_module("resource")
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def reduce_gc_frequency() -> None:
    """Freeze existing objects and collect garbage less often.

    Reference counting frees nearly everything that a message allocates; with Python's default thresholds the
    collections take a fifth of the time of answering.
    """
    gc.freeze()  # without a collection before: it takes 70 ms and finds a thousand objects
    gc.set_threshold(*GC_THRESHOLDS)
