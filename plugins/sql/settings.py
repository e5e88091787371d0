"""Where the database is, and how careful it is."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from bot import SettingError, Settings, SettingsModel
from plugins.sql.sqlite import Synchronous

FILE_NAME = "greenroom.db"
PREFIXES = ("sqlite:///", "sqlite+pysqlite:///", "sqlite+aiosqlite:///")


class SqlSettings(SettingsModel):
    """What the store may be told."""

    database_url: SecretStr | None = Field(
        None, description="The database; without it the SQLite file greenroom.db in BOT_DATA_DIR."
    )
    postgres_url: SecretStr | None = Field(
        None, description="A PostgreSQL database. This version keeps everything in SQLite and refuses one."
    )
    sql_synchronous: Synchronous = Field(
        Synchronous.FULL,
        description="When something counts as kept: FULL outlives a power cut, NORMAL the process only.",
    )

    @field_validator("sql_synchronous", mode="before")
    @classmethod
    def _in_capitals(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


def file_of(settings: Settings) -> Path:
    """Find the SQLite file that the settings mean; raises SettingError for any other database."""
    for name in ("POSTGRES_URL", "DATABASE_URL"):
        if (settings.get(name) or "").partition("://")[0].split("+")[0] in ("postgres", "postgresql"):
            raise SettingError(
                f"{name} (in {settings.source_of(name)}) names a PostgreSQL database: this version keeps "
                "everything in SQLite; take it out, or set DATABASE_URL to sqlite:///path/to/file.db"
            )
    url = settings.get("DATABASE_URL")
    if url is None:
        return Path(settings.get("BOT_DATA_DIR") or "data") / FILE_NAME
    prefix = next((one for one in PREFIXES if url.startswith(one)), None)
    path = url.removeprefix(prefix or "").partition("?")[0]
    if prefix is None or path in ("", ":memory:"):
        raise SettingError(
            f"DATABASE_URL (in {settings.source_of('DATABASE_URL')}): it must look like "
            "sqlite:///path/to/file.db; leave the sql plugin out to keep everything in memory"
        )
    return Path(path)
