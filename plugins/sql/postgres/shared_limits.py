"""Limits that all processes share: what each holds of a day's costs, and buckets of messages."""

from collections.abc import Sequence
from datetime import date
from functools import partial
from math import inf

from sqlalchemy import Connection

from bot.store import BucketRequest, CostEntry, CostHold, CostUsage, HeldCosts, LimitScope
from plugins.sql.core.base import AgentRow
from plugins.sql.core.mapping import NANO, NIL
from plugins.sql.core.schema import cost_holds, message_buckets
from plugins.sql.postgres.batches import RawStatement, transpose, values_table
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.leases import RoomLeases
from plugins.sql.stores.cache_logs_costs import add_costs, find_erased_usage

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
  SELECT sum(cost) AS cost, sum(tokens_in + tokens_out) AS tokens FROM spending_sums x WHERE x.agent_id = new.agent_id
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
NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
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


class PostgresLimits:
    """Counts for all processes; see `SharedLimits`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow, leases: RoomLeases) -> None:
        self._database = database
        self._agent = agent_row.number
        self._leases = leases
        self._calls = 0

    async def hold_costs(
        self, day: date, holds: Sequence[CostHold], entries: Sequence[CostEntry], number: int
    ) -> list[HeldCosts] | None:
        work = partial(_hold_costs, self._agent, self._leases.worker, day.isoformat(), holds, entries, number)
        return await self._database.write(work, durable=False)

    async def take_tokens(self, requests: Sequence[BucketRequest], age: float = 0.0) -> list[int]:
        taken: dict[tuple[str, bytes], int] = {}
        for seconds in {request.seconds for request in requests}:
            of_pace = [request for request in requests if request.seconds == seconds]
            taken |= await self._take_tokens(of_pace, int(seconds), age)
        return [taken[request.setting, request.key.bytes] for request in requests]

    async def _take_tokens(
        self, requests: Sequence[BucketRequest], seconds: int, age: float
    ) -> dict[tuple[str, bytes], int]:
        rows = [
            (
                self._agent,
                bucket.setting,
                bucket.key.bytes,
                0,
                bucket.capacity * MICRO,
                int(age * MICRO),
                bucket.count,
                0,
            )
            for bucket in requests
        ]
        columns = transpose(rows, len(BUCKET_NAMES))
        found = await self._database.main_queries.run(lambda db: TAKE_TOKENS.rows(db, *columns, seconds, seconds))
        self._calls += 1
        if self._calls % CLEANUP_INTERVAL == 0:
            await self._database.main_queries.run(lambda db: DELETE_FULL_BUCKETS.rows(db, self._agent, seconds))
        return {(setting, bytes(key)): count for setting, key, count in found}


def _hold_costs(
    agent: int,
    worker: int | None,
    day: str,
    holds: Sequence[CostHold],
    entries: Sequence[CostEntry],
    number: int,
    connection: Connection,
) -> list[HeldCosts] | None:
    TAKE_LOCK.rows(connection, agent)
    member = FIND_MEMBER.rows(connection, agent, worker)
    if entries and not (member and member[0][1] == number):
        add_costs(agent, entries, connection)
    if not member:
        return None
    keys = [(agent, day, GROUPINGS_BY_SCOPE[hold.scope], *_ids_of(hold)) for hold in holds]
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
        DELETE_EMPTY_HOLDS.rows(connection, worker, day)
    return [
        HeldCosts(_usage_of(own), _usage_of(other), _usage_of(mine))
        for own, other, mine in zip(spent, others, held, strict=True)
    ]


def _erased_usage(connection: Connection, agent: int, day: str, holds: Sequence[CostHold]) -> list[Amounts]:
    """Return what the person of each limit had used when their data was erased; nothing for other limits."""
    if all(hold.scope is not LimitScope.PERSON for hold in holds):
        return [(0, 0)] * len(holds)
    erased = find_erased_usage(agent, date.fromisoformat(day), connection)
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
    return hold.wanted is None or all(
        used + other + amount <= most
        for used, other, amount, most in zip(spent, others, amounts, _maximum_of(hold), strict=True)
    )


def _maximum_of(hold: CostHold) -> tuple[float, float]:
    return (hold.max_cost if hold.max_cost == inf else round(hold.max_cost * NANO), hold.max_tokens)


def _ids_of(hold: CostHold) -> tuple[bytes, bytes]:
    key = hold.key.bytes if hold.key is not None else NO_ID
    return (key if hold.scope is LimitScope.ROOM else NO_ID, key if hold.scope is LimitScope.PERSON else NO_ID)


def _sum(*amounts: CostUsage | None) -> Amounts:
    given = [amount for amount in amounts if amount is not None]
    return (round(sum(amount.cost for amount in given) * NANO), sum(amount.tokens for amount in given))


def _usage_of(amounts: Amounts) -> CostUsage:
    return CostUsage(amounts[0] / NANO, amounts[1])
