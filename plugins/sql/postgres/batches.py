"""Batches of calls: what several callers ask for at once takes one round trip, and one commit.

Sent one by one, statements took a third of the client's CPU time for the sending alone, and each write a commit.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from bot.platform import TaskSet
from bot.store import StoreUnavailable
from plugins.sql.core.statements import RawStatement, Row

T = TypeVar("T")
MAX_BATCH = 64
PARAMETER = re.compile(r"\$(\d+)")

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


class BatchedReads:
    """Stands for a connection in read-only work: equal statements of several callers are executed together."""

    def __init__(self, run: RunOnDriver, dialect: Any, tasks: TaskSet) -> None:
        self.dialect = dialect
        self.connection = self
        self.driver_connection = self
        self._run = run
        self._tasks = tasks
        self._batchers: dict[str, CallBatcher[list[Row]]] = {}

    async def fetch(self, text: str, *values: Any) -> list[Row]:
        """Return the rows of a statement."""
        batcher = self._batchers.get(text)
        if batcher is None:
            batcher = self._batchers[text] = CallBatcher(self._run, _BatchedQuery(text).execute, self._tasks)
        return await batcher.call(values)


class _BatchedQuery:
    """A query, and the text that executes it for several calls."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._batch_text: str | None = None

    async def execute(self, driver: Any, calls: Sequence[Row]) -> list[list[Row]]:
        if len(calls) == 1:
            return [await driver.fetch(self._text, *calls[0])]
        if self._batch_text is None:
            self._batch_text = await self._build_batch_text(driver)
        if not self._batch_text:
            return [await driver.fetch(self._text, *call) for call in calls]
        found: list[list[Row]] = [[] for _ in calls]
        for row in await driver.fetch(self._batch_text, *map(list, zip(*calls, strict=True))):
            found[row[0] - 1].append(row[1:])
        return found

    async def _build_batch_text(self, driver: Any) -> str:
        """Return a query whose values are a list per parameter; "" if a parameter is a list itself.

        With `OFFSET 0` the server executes it for each call; else it may join the calls with a whole table.
        """
        statement = await driver.prepare(self._text)
        types = statement.get_parameters()
        if not types or any(type_.kind != "scalar" or type_.schema != "pg_catalog" for type_ in types):
            return ""
        lists = ", ".join(f"${number}::{type_.name}[]" for number, type_ in enumerate(types, 1))
        names = ", ".join(f"value_{number}" for number in range(1, len(types) + 1))
        query = PARAMETER.sub(r"batch.value_\1", self._text)
        return (
            f"SELECT batch.number, found.* FROM unnest({lists}) WITH ORDINALITY AS batch({names}, number) "
            f"CROSS JOIN LATERAL (SELECT * FROM ({query}) AS call OFFSET 0) AS found"
        )
