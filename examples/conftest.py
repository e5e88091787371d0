"""Shared fixtures of the examples' tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, as the bot does."""
    return "asyncio"
