"""The location of the database by its settings."""

from pathlib import Path

import pytest

from bot import SettingError, Settings
from bot.settings import Layer
from bot.store.sql.core.base import SqlSettings, Synchronous, find_database_file, find_postgres_variable


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
    assert find_database_file(settings(**values)) == Path(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ""),
        ({"DATABASE_URL": "sqlite:///a.db"}, ""),
        ({"DATABASE_URL": "postgres://db/bot"}, "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql+asyncpg://db/bot"}, "DATABASE_URL"),
        ({"DATABASE_URL": "sqlite:///a.db", "POSTGRES_URL": "postgresql://db/bot"}, "POSTGRES_URL"),
    ],
)
def test_a_postgresql_address_is_recognised(values: dict[str, str], expected: str) -> None:
    assert find_postgres_variable(settings(**values)) == expected


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://a/b", "greenroom.db"])
def test_any_other_database_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="sqlite:///path"):
        find_database_file(settings(DATABASE_URL=url))


def test_durability_can_be_configured() -> None:
    assert settings().load(SqlSettings).sql_synchronous is Synchronous.FULL
    assert settings(SQL_SYNCHRONOUS="normal").load(SqlSettings).sql_synchronous is Synchronous.NORMAL
    with pytest.raises(SettingError, match="SQL_SYNCHRONOUS"):
        settings(SQL_SYNCHRONOUS="off").load(SqlSettings)
