"""The `sql` plugin: stores everything in SQLite or PostgreSQL."""

from bot import Plugin
from plugins.sql.core.base import SqlSettings, privacy_statement
from plugins.sql.storage import SqlStorage

__all__ = ["plugin"]

plugin = Plugin(
    "sql",
    "Stores everything in a database.",
    settings=SqlSettings,
    store=SqlStorage(),
    privacy_statement=privacy_statement,
)
