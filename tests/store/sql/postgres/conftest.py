"""Fixtures for the tests of the store on PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer


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
