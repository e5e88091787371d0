"""The books of one character, read from beside the process that keeps them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.cli.cast import Part
from bot.errors import ConfigError
from bot.plugin_system.plugin import storage_of
from bot.store.protocols import Store
from bot.store.storage import Storage


def kept_by(part: Part) -> Storage:
    """Find what keeps a character's store; raises ConfigError where nothing outlives the process."""
    storage = storage_of(part.plugins)
    if storage is None:
        raise ConfigError(
            f"{part.name} ({part.path}) is kept in memory alone: name the plugin sql in its file, or set "
            "DATABASE_URL"
        )
    return storage


@asynccontextmanager
async def looked_into(part: Part) -> AsyncIterator[Store]:
    """Open a character's store for reading alone; it may be in use."""
    async with kept_by(part).look(part.blueprint.agent_id, part.settings) as store:
        yield store
