"""Everything is kept: the store on SQL."""

from bot import Plugin
from plugins.sql.core.settings import SqlSettings, privacy_statement
from plugins.sql.storage import SqlStorage

__all__ = ["plugin"]

plugin = Plugin(
    "sql",
    "Keeps everything in a database.",
    settings=SqlSettings,
    store=SqlStorage(),
    privacy_statement=privacy_statement,
)
