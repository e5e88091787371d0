"""Shared fixtures of the chaos tests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.program import Nursery
from tests.chaos.scene import Scene, played

Play = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def play(nursery: Nursery, tmp_path: Path) -> Play:
    """Give a function that sets up a scene; settings are passed on to the bot."""
    return partial(played, nursery, tmp_path)
