"""What the tests of the SQL store share: a file, and ways to open it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bot import derived_id
from plugins.sql.opening import OpenFiles
from plugins.sql.sqlite import Synchronous
from plugins.sql.store import SqlStore

OpenStore = Callable[..., AbstractAsyncContextManager[SqlStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a database that does not exist yet."""
    return tmp_path / "data" / "greenroom.db"


@pytest.fixture
def open_store(path: Path) -> OpenStore:
    """Give a function that opens the store of an agent in that file, as a process of its own would."""

    def opened(agent: str = "Ada") -> AbstractAsyncContextManager[SqlStore]:
        return OpenFiles().store_in(path, derived_id("agent", agent), synchronous=Synchronous.NORMAL)

    return opened
