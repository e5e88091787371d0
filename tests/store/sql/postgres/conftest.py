"""Fixtures for the tests of the store on PostgreSQL."""

import asyncio
from collections.abc import Iterator

import pytest

from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from tests.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the name of a database with the schema; copying it is faster than creating the schema again."""

    async def open_once(url: str) -> None:
        async with OpenServers().use(parse_address(url, "url")):
            pass

    with postgres_server.database() as name:
        asyncio.run(open_once(postgres_server.url(name)))
        yield name


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """Return the address of a database that has the schema and is empty otherwise."""
    with postgres_server.database(postgres_template) as name:
        yield postgres_server.url(name)


@pytest.fixture
def url_without_schema(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the address of a database without the schema."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)
