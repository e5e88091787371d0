"""Work sharing of several processes over one PostgreSQL database.

A process that was declared dead has lost its rooms: its writes to them are refused until it has joined again under a
new number; see `Heartbeat`.

Limits that all processes share: what each holds of a day's costs, and buckets of messages.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from math import inf
from uuid import UUID

from sqlalchemy import Connection

from bot.concurrency.tasks import TaskSet
from bot.domain.ledger import CostEntry, CostHold, CostUsage, HeldCosts, LimitScope, Receipt
from bot.errors import ConfigError, StoreUnavailable
from bot.store.ledger import BucketRequest, NewWork, OpenWork, ProcessRole, account_name
from bot.store.sql.core.base import AgentRow, SqlStorePart, writes_not_durably
from bot.store.sql.core.mapping import NANO, NIL, Row
from bot.store.sql.core.schema import IS_UNCLAIMED, cost_holds, message_buckets
from bot.store.sql.postgres.database import PostgresDatabase
from bot.store.sql.postgres.heartbeat import CHANNEL, LEASE_MICROSECONDS, NOW, Worker
from bot.store.sql.postgres.leases import DESCRIBE, FORGET, OTHER_ROLES, RoomLeases, describe_process
from bot.store.sql.postgres.ledger_statements import RawStatement, column_list, transpose, values_table
from bot.store.sql.stores.cache_logs_costs import add_costs, find_erased_usage
from bot.store.sql.stores.ledger import RECEIPT

Amounts = tuple[int, int]
HOLD_LOCK_CLASS = 0x67726E6C  # any number that no other program takes
MICRO = 1_000_000
CLEANUP_INTERVAL = 1_000
NO_ID = NIL.bytes
NUMBER_KEY = ("", "written", NO_ID, NO_ID)  # the row with the number of the last call that added costs

# A statement sees what was committed before it began: the lock is taken by one, the sums are read by later ones.
# What is held may be lost in a power cut, as costs may: a process that dies holds nothing.
TAKE_LOCK = RawStatement(
    f"SELECT pg_advisory_xact_lock({HOLD_LOCK_CLASS}, ?), set_config('synchronous_commit', 'off', true)"
)
FIND_MEMBER = RawStatement(
    """
SELECT w.position, h.tokens FROM workers w LEFT JOIN cost_holds h ON h.agent_id = w.agent_id
  AND h.worker = w.position AND h.day = '' AND h.grouping = 'written'
WHERE w.agent_id = ? AND w.position = ?
"""
)
HOLD_KEYS = ("agent_id", "day", "grouping", "room_id", "person_id")
FIND_TOTALS = RawStatement(
    f"""
SELECT coalesce(s.cost, 0)::bigint, coalesce(s.tokens, 0)::bigint, coalesce(h.cost, 0)::bigint,
  coalesce(h.tokens, 0)::bigint
FROM {values_table(cost_holds, HOLD_KEYS)}
CROSS JOIN LATERAL (
  SELECT sum(cost) AS cost, sum(tokens_in + tokens_out) AS tokens FROM cost_sums x WHERE x.agent_id = new.agent_id
    AND x.day = new.day AND x.grouping = new.grouping AND x.room_id = new.room_id AND x.person_id = new.person_id
) s
CROSS JOIN LATERAL (
  SELECT sum(cost) AS cost, sum(tokens) AS tokens FROM cost_holds x WHERE x.agent_id = new.agent_id
    AND x.day = new.day AND x.grouping = new.grouping AND x.room_id = new.room_id AND x.person_id = new.person_id
    AND x.worker <> ?
) h
ORDER BY new.number
"""
)
HOLD_NAMES = (*HOLD_KEYS, "worker", "cost", "tokens")
SET_HOLDS = RawStatement(
    f"""
INSERT INTO cost_holds ({", ".join(HOLD_NAMES)}) SELECT {", ".join(HOLD_NAMES)}
FROM {values_table(cost_holds, HOLD_NAMES)}
ON CONFLICT ({", ".join((*HOLD_KEYS, "worker"))}) DO UPDATE SET cost = excluded.cost, tokens = excluded.tokens
"""
)
DELETE_EMPTY_HOLDS = RawStatement(
    "DELETE FROM cost_holds WHERE worker = ? AND day <> '' AND (day <> ? OR cost = 0 AND tokens = 0)"
)
BUCKET_NAMES = ("agent_id", "setting", "key", "level", "capacity", "filled_at", "wanted", "taken")
# A bucket without a row is full. `excluded` brings the time of the messages, and how many tokens they want.
TAKE_TOKENS = RawStatement(
    f"""
INSERT INTO message_buckets AS b ({", ".join(BUCKET_NAMES)})
SELECT agent_id, setting, key, capacity - least(wanted, capacity / {MICRO}) * {MICRO}, capacity, {NOW} - filled_at,
  wanted, least(wanted, capacity / {MICRO})
FROM {values_table(message_buckets, BUCKET_NAMES)} ORDER BY setting, key
ON CONFLICT (agent_id, setting, key) DO UPDATE SET (level, capacity, filled_at, wanted, taken) = (
  SELECT filled - granted * {MICRO}, excluded.capacity, greatest(b.filled_at, excluded.filled_at),
    excluded.wanted, granted
  FROM (SELECT least(excluded.capacity, b.level + least(greatest(0, excluded.filled_at - b.filled_at), ? * {MICRO})
      * excluded.capacity / (? * {MICRO})) AS filled) f
  CROSS JOIN LATERAL (SELECT least(excluded.wanted, filled / {MICRO}) AS granted) g
)
RETURNING setting, key, taken
"""
)
DELETE_FULL_BUCKETS = RawStatement(
    f"DELETE FROM message_buckets WHERE agent_id = ? AND filled_at < {NOW} - ? * {MICRO}"
)


GROUPINGS_BY_SCOPE = {LimitScope.ALL: "work", LimitScope.ROOM: "room", LimitScope.PERSON: "person"}


class PostgresLimits(SqlStorePart):
    """Counts for all processes; see `SharedLimits`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow, leases: RoomLeases) -> None:
        super().__init__(database, agent_row)
        self._queries = database.main_queries
        self._leases = leases
        self._calls = 0

    @writes_not_durably
    def hold_costs(
        self, connection: Connection, day: date, holds: Sequence[CostHold], entries: Sequence[CostEntry], number: int
    ) -> list[HeldCosts] | None:
        agent, worker, day_text = self._agent, self._leases.worker, day.isoformat()
        TAKE_LOCK.rows(connection, agent)
        member = FIND_MEMBER.rows(connection, agent, worker)
        if entries and not (member and member[0][1] == number):
            add_costs(connection, agent, entries)
        if not member:
            return None
        keys = [(agent, day_text, GROUPINGS_BY_SCOPE[hold.scope], *_ids_of(hold)) for hold in holds]
        totals = FIND_TOTALS.rows(connection, *transpose(keys, len(HOLD_KEYS)), worker) if holds else []
        erased = _erased_usage(connection, agent, day, holds)
        spent = [(int(row[0]) + cost, int(row[1]) + tokens) for row, (cost, tokens) in zip(totals, erased, strict=True)]
        others = [(int(row[2]), int(row[3])) for row in totals]
        held = _choose_holds(holds, spent, others)
        rows = [(*key, worker, *amounts) for key, amounts in zip(keys, held, strict=True)]
        if entries:
            rows.append((agent, *NUMBER_KEY, worker, 0, number))
        if rows:
            SET_HOLDS.rows(connection, *transpose(rows, len(HOLD_NAMES)))
        if (0, 0) in held:
            DELETE_EMPTY_HOLDS.rows(connection, worker, day_text)
        return [
            HeldCosts(_usage_of(own), _usage_of(other), _usage_of(mine))
            for own, other, mine in zip(spent, others, held, strict=True)
        ]

    async def take_tokens(self, requests: Sequence[BucketRequest], age: float = 0.0) -> list[int]:
        taken: dict[tuple[str, bytes], int] = {}
        for seconds in {request.seconds for request in requests}:
            of_pace = [request for request in requests if request.seconds == seconds]
            taken |= await self._take_tokens(of_pace, int(seconds), age)
        return [taken[request.setting, request.key.bytes] for request in requests]

    async def _take_tokens(
        self, requests: Sequence[BucketRequest], seconds: int, age: float
    ) -> dict[tuple[str, bytes], int]:
        amounts = ((bucket, bucket.capacity * MICRO, int(age * MICRO)) for bucket in requests)
        rows = [
            (self._agent, bucket.setting, bucket.key.bytes, 0, capacity, filled_at, bucket.count, 0)
            for bucket, capacity, filled_at in amounts
        ]
        columns = transpose(rows, len(BUCKET_NAMES))
        found = await TAKE_TOKENS.run(self._queries, *columns, seconds, seconds)
        self._calls += 1
        if self._calls % CLEANUP_INTERVAL == 0:
            await DELETE_FULL_BUCKETS.run(self._queries, self._agent, seconds)
        return {(setting, bytes(key)): count for setting, key, count in found}


def _erased_usage(connection: Connection, agent: int, day: date, holds: Sequence[CostHold]) -> list[Amounts]:
    """Return what the person of each limit had used when their data was erased; nothing for other limits."""
    if all(hold.scope is not LimitScope.PERSON for hold in holds):
        return [(0, 0)] * len(holds)
    erased = find_erased_usage(connection, agent, day)
    return [_sum(erased.of(hold.key)) if hold.scope is LimitScope.PERSON else (0, 0) for hold in holds]


def _choose_holds(holds: Sequence[CostHold], spent: Sequence[Amounts], others: Sequence[Amounts]) -> list[Amounts]:
    """Return what is held of each limit: with what is asked for ahead if all fit, else without, else what runs."""
    for amounts in (
        [_sum(hold.running, hold.wanted, hold.ahead) for hold in holds],
        [_sum(hold.running, hold.wanted) for hold in holds],
    ):
        if all(map(_is_within, holds, spent, others, amounts)):
            return amounts
    return [_sum(hold.running) for hold in holds]


def _is_within(hold: CostHold, spent: Amounts, others: Amounts, amounts: Amounts) -> bool:
    maximum = (hold.max_cost if hold.max_cost == inf else round(hold.max_cost * NANO), hold.max_tokens)
    return hold.wanted is None or all(
        used + other + amount <= most for used, other, amount, most in zip(spent, others, amounts, maximum, strict=True)
    )


def _ids_of(hold: CostHold) -> tuple[bytes, bytes]:
    key = hold.key.bytes if hold.key is not None else NO_ID
    return (key if hold.scope is LimitScope.ROOM else NO_ID, key if hold.scope is LimitScope.PERSON else NO_ID)


def _sum(*amounts: CostUsage | None) -> Amounts:
    given = [amount for amount in amounts if amount is not None]
    return (round(sum(amount.cost for amount in given) * NANO), sum(amount.tokens for amount in given))


def _usage_of(amounts: Amounts) -> CostUsage:
    return CostUsage(amounts[0] / NANO, amounts[1])


ROLE_CHECKS, ROLE_CHECK_SECONDS = 10, 0.5
NOTIFY_INTERVAL_SECONDS = 0.01

FREE_LEASES = RawStatement("UPDATE room_leases SET owner = NULL WHERE agent_id = ? AND owner = ?")
DELETE_WORKER = RawStatement("DELETE FROM workers WHERE position = ?")
INSERT_WORKER = RawStatement(
    f"INSERT INTO workers (agent_id, alive_until) VALUES (?, {NOW} + {LEASE_MICROSECONDS}) RETURNING position"
)
FREE_IDLE_LEASES = RawStatement(
    """
WITH mine AS (SELECT CAST(? AS integer) AS agent_id, CAST(? AS bigint) AS owner)
UPDATE room_leases l SET owner = NULL FROM mine WHERE l.agent_id = mine.agent_id AND l.owner = mine.owner
  AND NOT EXISTS (SELECT FROM receipts r WHERE r.agent_id = mine.agent_id AND r.room_id = l.room_id AND r.is_open = 1)
  AND NOT EXISTS (SELECT FROM deliveries d WHERE d.agent_id = mine.agent_id AND d.room_id = l.room_id AND d.is_open = 1)
RETURNING l.room_id
"""
)
# The unclaimed messages of a room, and what is open of those right before them.
OPEN_IN_ROOMS_WITH_UNCLAIMED = RawStatement(
    f"""
SELECT {column_list(RECEIPT.names, "r")} FROM (
  SELECT k.agent_id, k.room_id, min(k.position) AS first
  FROM receipts k JOIN room_leases l ON l.agent_id = k.agent_id AND l.room_id = k.room_id
  WHERE k.agent_id = ? AND l.owner = ? AND k.{IS_UNCLAIMED} GROUP BY k.agent_id, k.room_id
) waiting CROSS JOIN LATERAL (
  (SELECT b.* FROM receipts b WHERE b.agent_id = waiting.agent_id AND b.room_id = waiting.room_id
   AND b.position < waiting.first ORDER BY b.position DESC LIMIT 4)
  UNION ALL
  SELECT k.* FROM receipts k WHERE k.agent_id = waiting.agent_id AND k.room_id = waiting.room_id AND k.{IS_UNCLAIMED}
) r WHERE r.is_open = 1 ORDER BY r.position
"""
)
ROOMS_WITH_OPEN_RECEIPTS = RawStatement(
    "SELECT r.room_id FROM receipts r JOIN room_leases l ON l.agent_id = r.agent_id AND l.room_id = r.room_id "
    "WHERE r.agent_id = ? AND r.is_open = 1 AND l.owner = ?"
)
ROOMS_WITH_OPEN_DELIVERIES = RawStatement(
    "SELECT d.room_id FROM deliveries d JOIN room_leases l ON l.agent_id = d.agent_id AND l.room_id = d.room_id "
    "WHERE d.agent_id = ? AND d.is_open = 1 AND l.owner = ?"
)
OPEN_ACCOUNTS = RawStatement(
    "SELECT DISTINCT room_id, platform, account FROM deliveries "
    "WHERE agent_id = ? AND is_open = 1 AND platform = ANY(CAST(? AS text[]))"
)
NOTIFY = RawStatement(f"SELECT pg_notify('{CHANNEL}', ?)")


class PostgresSharing(RoomLeases):
    """Shares the work with the other processes that have this agent's store open; see `WorkSharing`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self.limits = PostgresLimits(database, agent_row, self)
        self._heartbeat = database.heartbeat
        self._member: Worker | None = None
        self._must_look = False  # a notification told every process to look for work
        self._notifiers = TaskSet("notifying other processes")

    @property
    def agent_count(self) -> int:
        """The number of agents of this process that share their work over the same database."""
        return self._heartbeat.worker_count

    async def join(self) -> None:
        """Start to share the work under a new number; raise ConfigError if the others have unsuitable roles."""
        await self._wait_for_suitable_roles()
        number = await self._database.write(self._insert_worker)
        self.start(number)
        self._member = Worker(
            self._agent,
            number,
            takes_rooms=lambda: self.takes_rooms,
            on_taken_over=self.take_over,
            on_notify=self._on_notify,
        )
        self._heartbeat.add(self._member)
        if not self._notifiers:
            self._notifiers.start(self._send_notifications())
        await self.heartbeat()

    async def heartbeat(self) -> bool:
        """Renew this process's row, and take over the rooms of dead processes.

        Return False if this process was declared dead.
        """
        assert self._member is not None, "it has joined"
        await self._heartbeat.renew(self._member)
        if self._member.is_lost:
            self.lose_all()
        self.is_draining = self._member.is_draining
        return not self._member.is_lost

    async def open_work(self, platforms: Collection[str] = ()) -> OpenWork:
        """Return our rooms with open messages, and those with open deliveries."""
        if not self.role.answers:
            return await self._open_deliveries(platforms)
        await self.take_free_rooms()
        worker = self.worker
        key = (self._queries, self._agent, worker)
        receipt_rows = await ROOMS_WITH_OPEN_RECEIPTS.run(*key)
        delivery_rows = await ROOMS_WITH_OPEN_DELIVERIES.run(*key)
        message_rooms, delivery_rooms = _room_ids(receipt_rows), _room_ids(delivery_rows)
        if worker == self.worker:  # some may be unknown: the server's reply when they were taken was lost
            self.take_over(message_rooms | delivery_rooms)
        return OpenWork(message_rooms, frozenset() if self.role is ProcessRole.WORKER else delivery_rooms)

    async def receipts_to_claim(self) -> list[Receipt]:
        """Return the open receipts of our rooms in which some are unclaimed, in the order of their arrival."""
        await self.take_free_rooms()
        rows = await OPEN_IN_ROOMS_WITH_UNCLAIMED.run(self._queries, self._agent, self.worker)
        return list(RECEIPT.decode_all(rows))

    async def _open_deliveries(self, platforms: Collection[str]) -> OpenWork:
        if not platforms or self.is_draining:
            return OpenWork()
        rows = await OPEN_ACCOUNTS.run(self._queries, self._agent, list(platforms))
        accounts = {UUID(bytes=room_id): account_name(platform, account) for room_id, platform, account in rows}
        return OpenWork(delivery_rooms=await self.assign_deliveries(accounts))

    async def release_idle(self) -> None:
        """Release the rooms in which nothing is open, and all accounts."""
        with suppress(StoreUnavailable):
            rows = await FREE_IDLE_LEASES.run(self._queries, self._agent, self.worker)
            self.remove(_room_ids(rows))
            if rows:
                await NOTIFY.run(self._queries, self.notices.all_work)

    async def wait_for_work(self, timeout: float) -> NewWork:
        """Wait for a notification, at most for this many seconds; return what it said."""
        try:
            async with asyncio.timeout(timeout):
                await self.notified.wait()
        except TimeoutError:
            self._must_look = True
        must_look, self._must_look = self._must_look, False
        self.notified.clear()
        new_work = self.take_new_work()
        return NewWork() if must_look or self.unsettled_rooms else new_work

    async def leave(self) -> None:
        """Release all rooms; an unreachable server frees them when the row expires."""
        await self._notifiers.cancel()
        if self._member is not None:
            self._heartbeat.remove(self._member)
        with suppress(StoreUnavailable):
            await self._database.write(self._delete_worker)
        self.lose_all()

    def _insert_worker(self, connection: Connection) -> int:
        [(number,)] = INSERT_WORKER.rows(connection, self._agent)
        FORGET.rows(connection, self._agent)
        DESCRIBE.rows(connection, self._agent, number, describe_process(self.role, datetime.now(UTC)))
        return int(number)

    def _delete_worker(self, connection: Connection) -> None:
        FREE_LEASES.rows(connection, self._agent, self.worker)
        DELETE_WORKER.rows(connection, self.worker)
        NOTIFY.rows(connection, self.notices.all_work)

    async def _wait_for_suitable_roles(self) -> None:
        """Wait until processes that have died count as dead; raise ConfigError if the others do not end."""
        is_divided = self.role is not ProcessRole.ALL
        for _ in range(ROLE_CHECKS):
            rows = await OTHER_ROLES.run(self._queries, self._agent)
            roles = {row[0] for row in rows}
            if not roles or is_divided is (ProcessRole.ALL.value not in roles):
                return
            await asyncio.sleep(ROLE_CHECK_SECONDS)
        raise ConfigError(
            f"BOT_ROLE is {self.role}, and other processes run this character as {', '.join(sorted(roles))}: either "
            "all of them have the role all, or each is a gateway, a worker or a sender; stop them (`bot cluster` "
            "lists them), or change the role"
        )

    def _on_notify(self, payload: str) -> None:
        notices = self.notices.parse(payload)
        if notices is None:
            self._must_look = True
            self.notified.set()
        for notice, item_id in notices or ():
            self.note_notice(notice, item_id)

    async def _send_notifications(self) -> None:
        """Send requested notifications, at intervals: each takes a lock that all commits wait for."""
        while True:
            await self.notices.requested.wait()
            with suppress(StoreUnavailable):  # the others also check regularly
                await NOTIFY.run(self._queries, self.notices.take_payload())
            await asyncio.sleep(NOTIFY_INTERVAL_SECONDS)


def _room_ids(rows: Iterable[Row]) -> frozenset[UUID]:
    return frozenset(UUID(bytes=row[0]) for row in rows)
