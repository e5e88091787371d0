"""Shared fixtures of the chaos tests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.program import ForkServer
from tests.chaos.scene import Scene, build_scene

OpenScene = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def open_scene(fork_server: ForkServer, tmp_path: Path) -> OpenScene:
    """Return a function that builds a scene; its keyword arguments are settings of the bot."""
    return partial(build_scene, fork_server, tmp_path)
