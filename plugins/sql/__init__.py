"""The `sql` plugin: stores everything in SQLite or PostgreSQL."""

from bot import Plugin, Settings
from bot.store import SqlSettings, SqlStorage
from bot.text import count_text, user_text

__all__ = ["plugin"]


def privacy_statement(settings: Settings) -> str:
    """Return the text that tells users how long their data is stored."""
    sql_settings = settings.load(SqlSettings)
    retention = user_text(
        "privacy.retention", receipt_days=sql_settings.sql_receipt_days, log_days=sql_settings.sql_log_days
    )
    notes = []
    if sql_settings.sql_message_days:
        notes.append(count_text("privacy.message_days", sql_settings.sql_message_days))
    if sql_settings.sql_message_days_by_place:
        notes.append(user_text("privacy.message_days_by_place"))
    return " ".join((retention, *notes))


plugin = Plugin(
    "sql",
    "Stores everything in a database.",
    settings=SqlSettings,
    store=SqlStorage(),
    privacy_statement=privacy_statement,
)
