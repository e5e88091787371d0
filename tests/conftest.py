"""What every test may ask for."""

import pytest

pytest_plugins = ["tests.postgres"]


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio alone: it is what the bot runs on."""
    return "asyncio"
