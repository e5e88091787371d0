"""What the tests of chaos share: one nursery for all of them, and scenes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.program import Nursery
from tests.chaos.scene import Scene, played

Play = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Start what all bots of these tests are born from."""
    with Nursery(tmp_path_factory.mktemp("nursery")) as opened:
        yield opened


@pytest.fixture
def play(nursery: Nursery, tmp_path: Path) -> Play:
    """Give a function that sets up a scene; settings are passed on to the bot."""
    return partial(played, nursery, tmp_path)
