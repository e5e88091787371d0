"""Where the database is, by its settings."""

from pathlib import Path

import pytest

from bot import SettingError, Settings
from bot.settings import Layer
from plugins.sql.settings import SqlSettings, file_of
from plugins.sql.sqlite import Synchronous


def settings(**values: str) -> Settings:
    return Settings([Layer(".env", values)])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "data/greenroom.db"),
        ({"BOT_DATA_DIR": "/srv/bot"}, "/srv/bot/greenroom.db"),
        ({"DATABASE_URL": "sqlite:///kept/a.db", "BOT_DATA_DIR": "/srv/bot"}, "kept/a.db"),
        ({"DATABASE_URL": "sqlite:////srv/a b.db"}, "/srv/a b.db"),
        ({"DATABASE_URL": "sqlite+aiosqlite:////srv/a.db?timeout=5"}, "/srv/a.db"),
    ],
)
def test_the_file_is_found(values: dict[str, str], expected: str) -> None:
    assert file_of(settings(**values)) == Path(expected)


@pytest.mark.parametrize("name", ["POSTGRES_URL", "DATABASE_URL"])
@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_postgresql_is_refused_without_showing_its_password(name: str, scheme: str) -> None:
    with pytest.raises(SettingError, match=rf"{name} \(in .env\).*keeps everything in SQLite") as caught:
        file_of(settings(**{name: f"{scheme}://me:hunter2@db/bot"}))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://a/b", "greenroom.db"])
def test_any_other_database_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="sqlite:///path"):
        file_of(settings(DATABASE_URL=url))


def test_how_careful_it_is_may_be_chosen() -> None:
    assert settings().load(SqlSettings).sql_synchronous is Synchronous.FULL
    assert settings(SQL_SYNCHRONOUS="normal").load(SqlSettings).sql_synchronous is Synchronous.NORMAL
    with pytest.raises(SettingError, match="SQL_SYNCHRONOUS"):
        settings(SQL_SYNCHRONOUS="off").load(SqlSettings)
