"""Watching files: at once by `watchfiles` where it is installed, and by looking every few seconds."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger(__name__)

WATCHER = "watchfiles"
POLL_SECONDS = 2.0
Changes = Callable[[Collection[Path]], AsyncGenerator[Collection[Path], None]]
Stamp = tuple[int, ...]


async def watch_folders(
    folders: Iterable[Path], poll_seconds: float | None = None
) -> AsyncGenerator[Collection[Path], None]:
    """Yield the files that have changed in these folders, those of the same moment together.

    With `poll_seconds` nothing is yielded as often as that in between.
    """
    watch = import_module(WATCHER).awatch
    logging.getLogger(WATCHER).setLevel(logging.WARNING)  # it logs each change, also of the log file itself
    timeout = None if poll_seconds is None else int(poll_seconds * 1000)
    async for changes in watch(
        *folders,
        recursive=False,
        debounce=300,
        ignore_permission_denied=True,
        rust_timeout=timeout,
        yield_on_timeout=timeout is not None,
    ):
        yield {Path(path) for _, path in changes}


async def wake_on_changes(
    folders: Collection[Path], poll_seconds: float = POLL_SECONDS
) -> AsyncGenerator[Collection[Path], None]:
    """Yield after changes in these folders, and every `poll_seconds`: of a network drive no change is reported."""
    if find_spec(WATCHER) is not None:
        try:
            async with aclosing(watch_folders(folders, poll_seconds)) as changes:
                async for paths in changes:
                    yield paths
        except (OSError, RuntimeError) as error:  # such as too many watches: an operator can do without
            logger.debug("folders are not watched but looked at every %.0f s: %s", poll_seconds, error)
    async with aclosing(wake_regularly(folders, poll_seconds)) as wakes:
        async for paths in wakes:
            yield paths


async def wake_regularly(
    folders: Collection[Path], poll_seconds: float = POLL_SECONDS
) -> AsyncGenerator[Collection[Path], None]:
    """Yield every `poll_seconds`, without `watchfiles`, which costs a program that runs for long 2 MB and a thread."""
    while True:
        await asyncio.sleep(poll_seconds)
        yield ()


async def watch_files(files: Sequence[Path], wake: Changes = wake_on_changes) -> AsyncGenerator[Path, None]:
    """Yield each of these files when it has changed; a symbolic link also when what it leads to has."""
    stamps = {file: await asyncio.to_thread(read_stamp, file) for file in files}
    folders = {folder for file in files for folder in (file.absolute().parent, file.resolve().parent)}
    async with aclosing(wake(folders)) as wakes:
        async for _ in wakes:
            for file in files:
                stamp = await asyncio.to_thread(read_stamp, file)
                if stamp not in ((), stamps[file]):  # one that is missing is being replaced
                    stamps[file] = stamp
                    yield file


def read_stamp(file: Path) -> Stamp:
    """Return what differs after a change of a file, and follows a symbolic link; empty if there is no such file."""
    with suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return ()
