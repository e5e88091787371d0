"""Settings of the database: its location, durability and retention."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from bot import CommaList, SettingError, Settings, SettingsModel
from bot.text import user_text

FILE_NAME = "greenroom.db"
# As it is copied, too: `psql 'postgresql://…'`, and with the name of a driver before or after the scheme.
POSTGRES_ADDRESS = re.compile(
    r"\s*(?:psql\s+)?(['\"]?)(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?://(?P<rest>.*)\1\s*", re.DOTALL | re.IGNORECASE
)
SQLITE_PREFIXES = ("sqlite:///", "sqlite+pysqlite:///", "sqlite+aiosqlite:///")


class Synchronous(StrEnum):
    """When a commit counts as stored: FULL survives a power cut, NORMAL only the process."""

    NORMAL = "NORMAL"
    FULL = "FULL"
    EXTRA = "EXTRA"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long finished rows are kept; receipts by age and by number, whichever keeps more.

    Messages are kept for `messages`, those of a room or world in `places` for as long as that says; None is for ever.
    """

    receipts: timedelta = timedelta(days=30)
    receipt_rows: int = 1_000_000
    deliveries: timedelta = timedelta(days=30)
    steps: timedelta = timedelta(days=7)
    action_results: timedelta = timedelta(days=30)
    logs: timedelta = timedelta(days=30)
    decisions: timedelta = timedelta(days=400)
    spending: timedelta = timedelta(days=400)
    messages: timedelta | None = None
    places: Mapping[str, timedelta | None] = field(default_factory=dict, hash=False)

    def message_lifetime(self, names: Iterable[str]) -> timedelta | None:
        """Return how long messages are kept in a room that has these names, the most specific first."""
        for name in names:
            if name in self.places:
                return self.places[name]
        return self.messages


DEFAULT_RETENTION = RetentionPolicy()


class SqlSettings(SettingsModel):
    """The database, its durability and retention."""

    CHARACTER_SETTINGS = frozenset()

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
        description="The same database without a pooler, for processes that share the work; needed "
        "if POSTGRES_URL leads to pgbouncer (and says so, with ?prepared_statement_cache_size=0).",
    )
    sql_synchronous: Synchronous = Field(
        Synchronous.FULL,
        description="When a write counts as stored: FULL survives a power cut, NORMAL only the process.",
    )

    sql_receipt_days: int = Field(
        30,
        ge=30,
        description="For how many days a closed receipt is kept, to recognise its message; the "
        "newest million is always kept. Sent deliveries and results of actions are deleted after as many days.",
    )
    sql_log_days: int = Field(30, ge=1, description="For how many days log entries are kept.")

    sql_message_days: int = Field(
        0,
        ge=0,
        description="For how many days messages are kept, with the sent parts and log entries of their rooms; 0 for "
        "ever. What was learnt from them stays.",
    )
    sql_message_days_by_place: CommaList = Field(
        (),
        description="The same for rooms and worlds, by their ids on the platform or of the API, as in "
        "discord:1234=30, -10098=7; 0 for ever. A room's own number counts before that of its world.",
    )

    @property
    def retention(self) -> RetentionPolicy:
        """How long finished rows are kept."""
        days = timedelta(days=self.sql_receipt_days)
        logs = timedelta(days=self.sql_log_days)
        pairs = (item.rpartition("=") for item in self.sql_message_days_by_place)
        places = {name.strip(): _lifetime(int(number)) for name, _, number in pairs}
        messages = _lifetime(self.sql_message_days)
        return RetentionPolicy(
            receipts=days, deliveries=days, action_results=days, logs=logs, messages=messages, places=places
        )

    @field_validator("sql_message_days_by_place")
    @classmethod
    def _check_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            name, _, number = item.rpartition("=")
            if not name.strip() or not number.strip().isdecimal():
                raise ValueError(f"{item!r} must look like discord:1234=30, an id and a number of days")
        return value

    @field_validator("sql_synchronous", mode="before")
    @classmethod
    def _to_upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


def _lifetime(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


def find_postgres_variable(settings: Settings) -> str:
    """Return the variable that names a PostgreSQL database, or an empty text."""
    if settings.get("POSTGRES_URL"):
        return "POSTGRES_URL"
    return "DATABASE_URL" if POSTGRES_ADDRESS.fullmatch(settings.get("DATABASE_URL") or "") else ""


def find_database_file(settings: Settings) -> Path:
    """Return the SQLite file that the settings name; raise SettingError for an unknown address."""
    url = settings.get("DATABASE_URL")
    if url is None:
        return Path(settings.get("BOT_DATA_DIR") or "data") / FILE_NAME
    prefix = next((candidate for candidate in SQLITE_PREFIXES if url.startswith(candidate)), None)
    path = url.removeprefix(prefix or "").partition("?")[0]
    if prefix is None or path in ("", ":memory:"):
        raise SettingError(
            f"DATABASE_URL (in {settings.source_of('DATABASE_URL')}): it must look like "
            "sqlite:///path/to/file.db or postgresql://user:password@host/database; remove the sql plugin "
            "to keep everything in memory"
        )
    return Path(path)


def privacy_statement(settings: Settings) -> str:
    """Return the text that tells users how long their data is stored."""
    sql_settings = settings.load(SqlSettings)
    retention = user_text(
        "privacy.retention", receipt_days=sql_settings.sql_receipt_days, log_days=sql_settings.sql_log_days
    )
    notes = []
    if sql_settings.sql_message_days:
        notes.append(user_text("privacy.message_days", days=sql_settings.sql_message_days))
    if sql_settings.sql_message_days_by_place:
        notes.append(user_text("privacy.message_days_by_place"))
    return " ".join((retention, *notes))
