"""Statements that receive, commit or save in one round trip.

Hand-written statements, and batches of writes: what several callers store at once takes one commit.

Sent one by one, statements took a third of the client's CPU time for the sending alone, and each write a commit.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.postgresql import dialect

from bot.concurrency.tasks import TaskSet
from bot.domain.environment import ParticipantState
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import Delivery, Outcome, Receipt
from bot.errors import LeaseLost, StoreUnavailable
from bot.store.ledger import TurnCommit
from bot.store.sql.core.base import AgentRow
from bot.store.sql.core.mapping import Row
from bot.store.sql.core.schema import (
    IS_UNCLAIMED,
    cursors,
    deliveries,
    entities,
    memories,
    participants,
    receipts,
    rooms,
    workers,
    worlds,
)
from bot.store.sql.postgres.database import QueryRunner
from bot.store.sql.stores.ledger import (
    CURSOR,
    DELIVERY,
    DELIVERY_STATE_NAMES,
    INSERTED_NAMES,
    RECEIPT,
    RECEIPT_STATE_NAMES,
    delivery_columns,
    receipt_columns,
    with_role,
)
from bot.store.sql.stores.memories import MEMORY, memory_columns
from bot.store.sql.stores.worlds import ENTITY, ROOM, WORLD

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

    async def run(self, queries: QueryRunner, *values: Any) -> Sequence[Row]:
        """Execute it alone, without opening a transaction; return all rows."""
        return await queries.run(lambda connection: self.rows(connection, *values))


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


DIALECT: Any = dialect()  # type: ignore[no-untyped-call]


def _type(table: Table, name: str) -> str:
    return str(table.c[name].type.compile(dialect=DIALECT))


UNCLAIMED_VALUES = {"outcome": "'received'", "turn_id": "NULL", "attempts": "0", "claimed_at": "NULL"}
RECEIPT_VALUES = ", ".join(
    f"CASE WHEN lease.is_ours THEN receipt.{name} ELSE {UNCLAIMED_VALUES[name]} END"
    if name in UNCLAIMED_VALUES
    else f"receipt.{name}"
    for name in RECEIPT.stored_names
)
NUMBER_OF_CALL = "call AS (SELECT CAST(? AS integer) AS number)"
NO_CURSOR_VALUES = (None,) * 4


def stored_or_given(names: Sequence[str], stored: str, given: str) -> str:
    """Return the columns of a stored row, or those of the given one if there is none."""
    return ", ".join(f"coalesce({stored}.{name}, {given}.{name}) AS {given}_{name}" for name in names)


# `place` is empty if the event is known, if the world is missing, or if a row differs from the given one: then nothing
# is written. A missing room or author is stored. A free room is taken; an event of another process's room is only
# stored. So is one behind a message that has not been claimed, or that the room's last owner has left: they are claimed
# in their order.
RECEIVE = BatchableStatement(
    f"""
WITH {NUMBER_OF_CALL},
receipt AS ({values_row(receipts, RECEIPT.stored_names)}),
message AS ({values_row(memories, MEMORY.stored_names)}),
world AS ({values_row(worlds, WORLD.stored_names)}),
room AS ({values_row(rooms, ROOM.stored_names)}),
author AS ({values_row(entities, ENTITY.stored_names)}),
stream AS ({values_row(cursors, CURSOR.stored_names)}),
own AS (
  {values_row(participants, ["entity_id"])}, {values_row(workers, ["position"]).removeprefix("SELECT ")}
),
place AS MATERIALIZED (
  SELECT {column_list(WORLD.names, "w")}, {stored_or_given(ROOM.names, "r", "room")},
    {stored_or_given(ENTITY.names, "e", "author")}, r.id IS NULL AS is_new_room, e.id IS NULL AS is_new_author,
    coalesce(p.state, 'DEFAULT') AS state, l.owner
  FROM receipt CROSS JOIN own
  CROSS JOIN world JOIN worlds w ON w.agent_id = world.agent_id AND w.id = world.id
  CROSS JOIN room LEFT JOIN rooms r ON r.agent_id = room.agent_id AND r.id = room.id
  CROSS JOIN author LEFT JOIN entities e ON e.agent_id = author.agent_id AND e.id = author.id
  LEFT JOIN participants p ON p.agent_id = room.agent_id AND p.room_id = room.id AND p.entity_id = own.entity_id
  LEFT JOIN room_leases l ON l.agent_id = room.agent_id AND l.room_id = room.id
  WHERE w.platform = world.platform AND w.external_id = world.external_id AND w.metadata = world.metadata
    AND world.name IN ('', w.name)
    AND w.roles = CAST(jsonb_strip_nulls(CAST(w.roles AS jsonb) || CAST(world.roles AS jsonb)) AS text)
    AND (r.id IS NULL OR r.world_id = room.world_id AND r.type = room.type AND r.platform = room.platform
      AND r.external_id = room.external_id AND r.account = room.account AND r.metadata = room.metadata
      AND r.parent_id IS NOT DISTINCT FROM room.parent_id AND room.name IN ('', r.name))
    AND (e.id IS NULL OR e.platform = author.platform AND e.external_id = author.external_id
      AND e.is_bot = author.is_bot AND e.metadata = author.metadata
      AND (e.names = author.names OR starts_with(e.names, left(author.names, -1) || ',')))
    AND NOT EXISTS (
      SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.platform = receipt.platform
        AND k.account = receipt.account AND k.event_id = receipt.event_id)
    AND NOT EXISTS (
      SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.room_id = receipt.room_id
        AND k.message_id = receipt.message_id AND k.revision = receipt.revision)
),
new_author AS (
  INSERT INTO entities ({column_list(ENTITY.stored_names)})
  SELECT {column_list(ENTITY.stored_names, "author")} FROM place, author
  WHERE place.is_new_author ON CONFLICT DO NOTHING
),
new_room AS (
  INSERT INTO rooms ({column_list(ROOM.stored_names)}, active)
  SELECT {column_list(ROOM.stored_names, "room")}, 1 + coalesce((
    SELECT max(x.active) FROM rooms x WHERE x.agent_id = room.agent_id), 0)
  FROM place, room WHERE place.is_new_room ON CONFLICT DO NOTHING
),
taken AS (
  INSERT INTO room_leases (agent_id, room_id, owner)
  SELECT receipt.agent_id, receipt.room_id, own.position FROM place, receipt, own
  WHERE place.owner IS NULL AND own.position > 0
  ON CONFLICT (agent_id, room_id) DO UPDATE SET owner = coalesce(room_leases.owner, excluded.owner)
  RETURNING owner
),
lease AS (
  SELECT own.position IS NULL OR own.position = coalesce(place.owner, (SELECT owner FROM taken)) AND NOT EXISTS (
    SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.room_id = receipt.room_id AND k.{IS_UNCLAIMED}
  ) AND (place.owner IS NOT NULL OR NOT EXISTS (
    SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.room_id = receipt.room_id AND k.is_open = 1
    UNION ALL
    SELECT FROM deliveries d WHERE d.agent_id = receipt.agent_id AND d.room_id = receipt.room_id AND d.is_open = 1
  )) AS is_ours
  FROM place, own, receipt
),
booked AS (
  INSERT INTO receipts ({column_list(RECEIPT.stored_names)}) SELECT {RECEIPT_VALUES} FROM lease, receipt
  ON CONFLICT DO NOTHING RETURNING agent_id, room_id, author_id
),
said AS (
  INSERT INTO memories ({column_list(MEMORY.stored_names)})
  SELECT {column_list(MEMORY.stored_names, "message")} FROM message, booked
  ON CONFLICT (agent_id, id) DO UPDATE SET {assignments(MEMORY.stored_names[2:], "excluded")}
),
spoke AS (
  INSERT INTO participants (agent_id, room_id, entity_id, state, active)
  SELECT booked.agent_id, booked.room_id, booked.author_id, 'DEFAULT', 1 + coalesce((
    SELECT max(p.active) FROM participants p
    WHERE p.agent_id = booked.agent_id AND p.room_id = booked.room_id), 0)
  FROM booked
  ON CONFLICT (agent_id, room_id, entity_id) DO UPDATE SET active = excluded.active
  WHERE participants.active < excluded.active - 1
),
moved AS (
  UPDATE rooms SET active = latest.active + 1
  FROM booked, (SELECT max(x.active) AS active FROM rooms x, room WHERE x.agent_id = room.agent_id) latest
  WHERE rooms.agent_id = booked.agent_id AND rooms.id = booked.room_id AND rooms.active < latest.active
),
read AS (
  INSERT INTO cursors ({column_list(CURSOR.stored_names)})
  SELECT {column_list(CURSOR.stored_names, "stream")} FROM stream, booked
  WHERE stream.value IS NOT NULL
  ON CONFLICT ({column_list(CURSOR.stored_names[:-1])}) DO UPDATE SET value = excluded.value
)
SELECT call.number, place.*, lease.is_ours FROM call, place, lease, booked
"""
)


def receive_values(
    agent_row: AgentRow, worker: int | None, inbound: InboundMessage, receipt: Receipt, cursor: StreamCursor | None
) -> Row:
    """Return the values of `RECEIVE` for an event."""
    agent = agent_row.number
    return (
        *RECEIPT.encode(receipt, agent, receipt_columns(receipt)),
        *MEMORY.encode(inbound.message, agent, memory_columns(inbound.message)),
        *WORLD.encode(inbound.world, agent),
        *ROOM.encode(inbound.room, agent),
        *ENTITY.encode(inbound.author, agent),
        *((agent, *NO_CURSOR_VALUES) if cursor is None else CURSOR.encode(cursor, agent)),
        agent_row.id.bytes,
        worker,
    )


def without_claim(receipt: Receipt) -> Receipt:
    """Return the receipt as it is until the owner of its room claims it."""
    return replace(receipt, outcome=Outcome.RECEIVED, turn_id=None, attempts=0, claimed_at=None)


def read_received(inbound: InboundMessage, receipt: Receipt, row: Row) -> StoredEvent:
    """Return the event that `RECEIVE` has stored."""
    values = iter(row)
    world, room, author = WORLD.decode(values), ROOM.decode(values), ENTITY.decode(values)
    _, _, participant, owner, is_local = values
    stored = InboundMessage(inbound.key, with_role(world, author), room, author, inbound.message)
    receipt = receipt if is_local else without_claim(receipt)
    return StoredEvent(
        receipt,
        stored,
        ParticipantState(participant),
        is_new=True,
        is_room_owned=bool(is_local),
        is_room_free=owner is None,
    )


UPDATED_NAMES = (*RECEIPT_STATE_NAMES, "agent_id", "id")
PLACED_NAMES = (*INSERTED_NAMES, "seq")

# `own` is the asking worker and the rooms it must own; without a worker the work is not shared. The lease of an owned
# room is locked until the statement ends: a process that takes it over waits for that.
CHECK_LEASES = f"""own AS ({values_row(workers, ["agent_id", "position"])}, CAST(? AS bytea[]) AS rooms),
held AS MATERIALIZED (
  SELECT l.room_id FROM own JOIN room_leases l ON l.agent_id = own.agent_id AND l.room_id = ANY(own.rooms)
  WHERE l.owner = own.position FOR SHARE OF l
),
may AS MATERIALIZED (
  SELECT position IS NULL OR (SELECT count(*) FROM held) = cardinality(rooms) AS go FROM own
)"""
# If every receipt is closed already, another process has closed them, and nothing is stored. With `is_open = 1` the
# index of open receipts would be used: it is full of dead entries while an old snapshot is held.
COMMIT_TURN = BatchableStatement(
    f"""
WITH {NUMBER_OF_CALL}, {CHECK_LEASES},
closed AS (
  UPDATE receipts r SET {assignments(RECEIPT_STATE_NAMES, "new")}
  FROM may, {values_table(receipts, UPDATED_NAMES)}
  WHERE may.go AND r.agent_id = new.agent_id AND r.id = new.id AND r.is_open <> 0 RETURNING 1
),
news AS MATERIALIZED (
  SELECT go AND (CAST(? AS integer) = 0 OR EXISTS (SELECT FROM closed)) AS go FROM may
),
said AS (
  INSERT INTO memories ({column_list(MEMORY.stored_names)})
  SELECT {column_list(MEMORY.stored_names, "new")}
  FROM news, {values_table(memories, MEMORY.stored_names)} WHERE news.go
  ON CONFLICT (agent_id, id) DO UPDATE SET {assignments(MEMORY.stored_names[2:], "excluded")}
),
placed AS (
  INSERT INTO deliveries ({column_list(PLACED_NAMES)})
  SELECT {column_list(INSERTED_NAMES, "new")}, new.seq + coalesce((
    SELECT max(d.seq) FROM deliveries d WHERE d.agent_id = new.agent_id AND d.room_id = new.room_id), 0)
  FROM news, {values_table(deliveries, PLACED_NAMES)} WHERE news.go ORDER BY new.number
  ON CONFLICT (agent_id, id) DO NOTHING RETURNING {column_list(DELIVERY.names)}
)
SELECT call.number, may.go, part.* FROM call CROSS JOIN may LEFT JOIN (
  SELECT * FROM placed
  UNION ALL SELECT {column_list(DELIVERY.names, "d")} FROM own JOIN deliveries d ON d.agent_id = own.agent_id
    AND d.id = ANY(CAST(? AS text[]))
) part ON true
"""
)
SAVE_DELIVERY = BatchableStatement(
    f"""
WITH {NUMBER_OF_CALL}, {CHECK_LEASES}, new AS ({values_row(deliveries, (*DELIVERY_STATE_NAMES, "agent_id", "id"))}),
saved AS (
  UPDATE deliveries d SET {assignments(DELIVERY_STATE_NAMES, "new")} FROM may, new
  WHERE may.go AND d.agent_id = new.agent_id AND d.id = new.id RETURNING 1
)
SELECT call.number, may.go, (SELECT count(*) FROM saved) FROM call, may
"""
)


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The writing worker, and the rooms it must own; without a worker nothing is checked."""

    worker: int | None = None
    rooms: frozenset[UUID] = frozenset()


def commit_in_single_statement(
    connection: Connection, agent: int, claim: LeaseClaim, turn_commit: TurnCommit
) -> list[Delivery]:
    """Store a commit without vectors; raise LeaseLost, with nothing written, if a room is not owned."""
    return read_committed(turn_commit, COMMIT_TURN.rows(connection, *commit_values(agent, claim, turn_commit)))


def commit_values(agent: int, claim: LeaseClaim, turn_commit: TurnCommit) -> Row:
    """Return the values of `COMMIT_TURN`."""
    deliveries = turn_commit.deliveries
    return (
        *_claim_values(agent, claim),
        *transpose(
            [
                RECEIPT.encode(receipt, agent, receipt_columns(receipt), names=UPDATED_NAMES)
                for receipt in turn_commit.receipts
            ],
            len(UPDATED_NAMES),
        ),
        len(turn_commit.receipts),
        *transpose(
            [MEMORY.encode(reply, agent, memory_columns(reply)) for reply in turn_commit.replies],
            len(MEMORY.stored_names),
        ),
        *transpose(_numbered_rows(agent, deliveries), len(PLACED_NAMES)),
        [delivery.id for delivery in deliveries],
    )


def read_committed(turn_commit: TurnCommit, rows: Sequence[Row]) -> list[Delivery]:
    """Return the deliveries of a commit as they are stored; raise LeaseLost if nothing was written."""
    _check_leases_held(rows)
    ids = [delivery.id for delivery in turn_commit.deliveries]
    stored = {row[1]: DELIVERY.decode(row[1:]) for row in rows if row[1] is not None}
    return [stored[delivery_id] for delivery_id in ids if delivery_id in stored]


def save_delivery_values(agent: int, claim: LeaseClaim, delivery: Delivery) -> Row:
    """Return the values of `SAVE_DELIVERY`."""
    state = DELIVERY.encode(
        delivery, agent, delivery_columns(delivery), names=(*DELIVERY_STATE_NAMES, "agent_id", "id")
    )
    return (*_claim_values(agent, claim), *state)


def is_delivery_stored(rows: Sequence[Row]) -> bool:
    """Return whether `SAVE_DELIVERY` has found the delivery; raise LeaseLost if nothing was written."""
    _check_leases_held(rows)
    return bool(rows[0][1])


def _check_leases_held(rows: Sequence[Row]) -> None:
    if not rows[0][0]:
        raise LeaseLost


def _claim_values(agent: int, claim: LeaseClaim) -> Row:
    return (agent, claim.worker, [room_id.bytes for room_id in claim.rooms])


def _numbered_rows(agent: int, deliveries: Sequence[Delivery]) -> list[Row]:
    """Return rows numbered within each room; the statement adds the room's last number."""
    numbers: Counter[UUID] = Counter()
    rows: list[Row] = []
    for delivery in deliveries:
        numbers[delivery.room_id] += 1
        row = DELIVERY.encode(delivery, agent, delivery_columns(delivery), names=INSERTED_NAMES)
        rows.append((*row, numbers[delivery.room_id]))
    return rows
