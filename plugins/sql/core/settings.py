"""Where the database is, and how careful it is."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from bot import SettingError, Settings, SettingsModel
from plugins.sql.sqlite.connection import Synchronous
from plugins.sql.stores.retention import RetentionPolicy

FILE_NAME = "greenroom.db"
POSTGRES_SCHEMES = ("postgres", "postgresql")
SQLITE_PREFIXES = ("sqlite:///", "sqlite+pysqlite:///", "sqlite+aiosqlite:///")


class SqlSettings(SettingsModel):
    """What the store may be told."""

    database_url: SecretStr | None = Field(
        None, description="The database; without it the SQLite file greenroom.db in BOT_DATA_DIR."
    )
    postgres_url: SecretStr | None = Field(
        None,
        description="A PostgreSQL database, as postgresql://user:password@host/database; wins over "
        "DATABASE_URL, which may name one too. Several processes may share it.",
    )
    postgres_direct_url: SecretStr | None = Field(
        None,
        description="The same database without a pooler between, for processes that share the work; needed "
        "where POSTGRES_URL leads to pgbouncer (and says so, with ?prepared_statement_cache_size=0).",
    )
    sql_synchronous: Synchronous = Field(
        Synchronous.FULL,
        description="When something counts as kept: FULL outlives a power cut, NORMAL the process only.",
    )

    sql_receipt_days: int = Field(
        30,
        ge=30,
        description="For how many days a closed receipt is kept, so that its message is known again; the "
        "newest million is kept in any case. Parts that have left go after as many days.",
    )
    sql_log_days: int = Field(30, ge=1, description="For how many days entries of the log are kept.")

    @property
    def retention(self) -> RetentionPolicy:
        """How long what is over is kept."""
        days = timedelta(days=self.sql_receipt_days)
        return RetentionPolicy(receipts=days, deliveries=days, logs=timedelta(days=self.sql_log_days))

    @field_validator("sql_synchronous", mode="before")
    @classmethod
    def _to_upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


def find_postgres_variable(settings: Settings) -> str:
    """Name the variable that means a PostgreSQL database; empty where none does."""
    if settings.get("POSTGRES_URL"):
        return "POSTGRES_URL"
    scheme = (settings.get("DATABASE_URL") or "").partition("://")[0].split("+")[0]
    return "DATABASE_URL" if scheme in POSTGRES_SCHEMES else ""


def find_database_file(settings: Settings) -> Path:
    """Find the SQLite file that the settings mean; raises SettingError where it is no database of ours."""
    url = settings.get("DATABASE_URL")
    if url is None:
        return Path(settings.get("BOT_DATA_DIR") or "data") / FILE_NAME
    prefix = next((candidate for candidate in SQLITE_PREFIXES if url.startswith(candidate)), None)
    path = url.removeprefix(prefix or "").partition("?")[0]
    if prefix is None or path in ("", ":memory:"):
        raise SettingError(
            f"DATABASE_URL (in {settings.source_of('DATABASE_URL')}): it must look like "
            "sqlite:///path/to/file.db or postgresql://user:password@host/database; leave the sql plugin out "
            "to keep everything in memory"
        )
    return Path(path)


def privacy_statement(settings: Settings) -> str:
    """Tell people for how long what they say is kept."""
    sql_settings = settings.load(SqlSettings)
    return (
        "For how long: messages and what was learnt from them until you have them deleted; what became of "
        f"each message {sql_settings.sql_receipt_days} days or longer; the log of my work {sql_settings.sql_log_days} days."
    )
