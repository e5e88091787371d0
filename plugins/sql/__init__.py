"""Everything is kept: the store on SQL."""

from bot import Plugin
from plugins.sql.choice import SqlStorage
from plugins.sql.settings import SqlSettings, promise

__all__ = ["plugin"]

plugin = Plugin(
    "sql",
    "Keeps everything in a database.",
    settings=SqlSettings,
    store=SqlStorage(),
    privacy=promise,
)
