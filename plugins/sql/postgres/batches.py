"""Hand-written statements, and batches of writes: what several callers store at once takes one commit.

Sent one by one, statements took a third of the client's CPU time for the sending alone, and each write a commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.postgresql import dialect

from bot.platform import TaskSet
from bot.store import StoreUnavailable
from plugins.sql.core.mapping import Row

T = TypeVar("T")
MAX_BATCH = 64

RunOnDriver = Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[Any]]


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    """The values of one call, and the future of its caller."""

    values: Row
    future: asyncio.Future[T]


class CallBatcher(Generic[T]):
    """Executes calls of one kind, one batch after the other; those that come meanwhile share the next batch.

    `execute` gets the driver's connection and the values of each call, and returns a result for each; it is atomic.
    `run` runs it on a connection of a pool. If a batch fails, its calls are repeated one by one, so that only
    the failing ones fail.
    """

    def __init__(
        self, run: RunOnDriver, execute: Callable[[Any, Sequence[Row]], Awaitable[Sequence[T]]], tasks: TaskSet
    ) -> None:
        self._run = run
        self._execute = execute
        self._tasks = tasks
        self._waiting: deque[_Call[T]] = deque()
        self._is_running = False

    async def call(self, values: Row) -> T:
        """Return the result of a call; raise its error."""
        call = _Call[T](values, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run_waiting())
        return await call.future

    async def _run_waiting(self) -> None:
        try:
            while self._waiting:
                await self._run_batch([self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))])
        finally:
            self._is_running = False

    async def _run_batch(self, calls: Sequence[_Call[T]]) -> None:
        calls = [call for call in calls if not call.future.done()]  # the others were cancelled
        rows = [call.values for call in calls]
        try:
            results = await self._run(lambda driver: self._execute(driver, rows)) if calls else []
        except asyncio.CancelledError:
            for call in calls:
                call.future.cancel()
            raise
        except BaseException as error:  # passed to the callers
            if len(calls) == 1 or isinstance(error, StoreUnavailable):
                for call in calls:
                    _resolve(call, error=error)
            else:
                for call in calls:  # in their order: messages of a room are numbered as they are stored
                    await self._run_batch([call])
            return
        for call, result in zip(calls, results, strict=True):
            _resolve(call, result)


def _resolve(call: _Call[Any], result: Any = None, *, error: BaseException | None = None) -> None:
    if call.future.done():
        return
    if error is not None:
        call.future.set_exception(error)
    else:
        call.future.set_result(result)


class RawStatement:
    """A hand-written statement; each `?` stands for one of the values of `rows`, in order."""

    def __init__(self, text: str) -> None:
        number = count(1)
        self.text = "".join(f"${next(number)}" if character == "?" else character for character in text)

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it; return all rows."""
        result = connection.exec_driver_sql(self.text, values)
        return result.all() if result.returns_rows else ()


class BatchableStatement(RawStatement):
    """A statement that can be executed for several calls at once.

    The first value in its text is the number of the call, which is the first column of its rows as well.
    """

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it for one call; return its rows, without the number."""
        return [row[1:] for row in super().rows(connection, 0, *values)]

    async def fetch_each(self, driver: Any, calls: Sequence[Row]) -> list[list[Row]]:
        """Execute it for each call in one transaction; return the rows of each, without the number."""
        found: list[list[Row]] = [[] for _ in calls]
        numbered = [(number, *call) for number, call in enumerate(calls)]
        for row in await driver.fetchmany(self.text, numbered):
            found[row[0]].append(row[1:])
        return found


def values_row(table: Table, names: Sequence[str]) -> str:
    """Return the text of a query for one row of values for these columns."""
    return "SELECT " + ", ".join(f"CAST(? AS {_type(table, name)}) AS {name}" for name in names)


def values_table(table: Table, names: Sequence[str]) -> str:
    """Return the text of a table of numbered rows for these columns; its values are a list per column."""
    lists = ", ".join(f"CAST(? AS {_type(table, name)}[])" for name in names)
    return f"unnest({lists}) WITH ORDINALITY AS new ({', '.join(names)}, number)"


def column_list(names: Sequence[str], source: str = "") -> str:
    """Return the text of a list of columns."""
    return ", ".join(f"{source}.{name}" if source else name for name in names)


def assignments(names: Sequence[str], source: str) -> str:
    """Return the text that assigns columns their values in a source."""
    return ", ".join(f"{name} = {source}.{name}" for name in names)


def transpose(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Return one list per column of the rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


@cache
def _dialect() -> Any:
    return dialect()  # type: ignore[no-untyped-call]


def _type(table: Table, name: str) -> str:
    return str(table.c[name].type.compile(dialect=_dialect()))
