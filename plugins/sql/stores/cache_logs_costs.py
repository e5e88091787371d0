"""The cache, the log and the sums of model costs."""

import json
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from itertools import combinations
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, literal_column, select
from sqlalchemy.sql.expression import Executable

from bot import Clock
from bot.store import CostDimension, CostEntry, CostUsage, ErasedUsage, LogEntry, LogKind
from plugins.sql.core.audit_log import entry_content, seal_entries
from plugins.sql.core.base import Access, AgentRow, SqlStorePart
from plugins.sql.core.inserts import insert_into, insert_rows, upsert
from plugins.sql.core.schema import COST_SUMS, cache, logs, spending, spending_sums
from plugins.sql.core.statements import Columns, Insert, Row, Statement, limit_parameter, matches, typed_parameter
from plugins.sql.core.values import (
    NO_ID,
    datetime_of,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)

MAX_LOGS, MAX_DECISIONS = 10_000, 1_000_000
TRIM_INTERVAL = 500

CACHE_NAMES = ("agent_id", "key", "value", "expires_at")
LOG_NAMES = ("agent_id", "kind", "at", "room_id", "entity_id", "body")
NEWEST_FIRST = logs.c.position.desc()


def _read_value(row: Row) -> tuple[Any, int | None]:
    _, expires_at, text = row
    return loads(text), expires_at


CACHED = Columns(cache, ("key", "expires_at", "value"), _read_value)
SET_VALUE = upsert(cache, ("agent_id", "key"), CACHE_NAMES)
GET_VALUE = Statement(lambda _: select(*CACHED).where(matches(cache, "agent_id", "key")))
LOCK_VALUE = Statement(lambda _: select(*CACHED).where(matches(cache, "agent_id", "key")).with_for_update())
ADD_VALUE = Statement(lambda insert: insert_into(cache, CACHE_NAMES)(insert).on_conflict_do_nothing())
DELETE_VALUE = Statement(lambda _: delete(cache).where(matches(cache, "agent_id", "key")))
DELETE_EXPIRED = Statement(
    lambda _: delete(cache).where(
        matches(cache, "agent_id"), cache.c.expires_at <= typed_parameter(cache.c.expires_at, "now")
    )
)
INSERT_LOG = insert_rows(logs, LOG_NAMES)
SAME_KIND = matches(logs, "agent_id", "kind")

NANO = 1_000_000_000
ERASED_USAGE_KEY = "costs:erased"
COST_KEYS = ("agent_id", "day", "room_id", "person_id", "model", "purpose")
COST_NAMES = (*COST_KEYS, *COST_SUMS)
SUM_KEYS = ("agent_id", "grouping", *COST_KEYS[1:])
# What the rows of `spending_sums` tell apart besides the day.
GROUPINGS = {
    "work": frozenset({CostDimension.MODEL, CostDimension.PURPOSE}),
    "room": frozenset({CostDimension.ROOM}),
    "person": frozenset({CostDimension.PERSON}),
}
UNUSED_KEYS = {"room_id": NO_ID, "person_id": NO_ID, "model": "", "purpose": ""}


def _read_entry(row: Row) -> dict[str, Any]:
    kind, _, at, room_id, entity_id, body = row
    return {
        "kind": kind,
        "at": datetime_of(at),
        "room_id": id_or_none(room_id),
        "entity_id": id_or_none(entity_id),
        "body": entry_content(loads(body)) if kind == LogKind.AUTHORIZATION else loads(body),
    }


LOG = Columns(logs, ("kind", "position", "at", "room_id", "entity_id", "body"), _read_entry)
LOG_FILTERS = ("room_id", "kind", "entity_id")


def _logs_query(*columns: str) -> Statement:
    conditions = matches(logs, "agent_id", *columns)
    return Statement(lambda _: select(*LOG).where(conditions).order_by(NEWEST_FIRST).limit(limit_parameter()))


LOG_LISTS: dict[tuple[str, ...], Statement] = {
    columns: _logs_query(*columns)
    for number in range(len(LOG_FILTERS) + 1)
    for columns in combinations(LOG_FILTERS, number)
}


def _delete_all_but(count: int) -> Statement:
    """Return a statement that deletes all but the latest entries of a kind."""
    newest_deleted = select(logs.c.position).where(SAME_KIND).order_by(NEWEST_FIRST).limit(1).offset(count)
    return Statement(lambda _: delete(logs).where(SAME_KIND, logs.c.position <= newest_deleted.scalar_subquery()))


DELETE_OLD_LOGS, DELETE_OLD_DECISIONS = _delete_all_but(MAX_LOGS), _delete_all_but(MAX_DECISIONS)


class SqlCache(SqlStorePart):
    """Stores small values; see `CacheStore`. Setting a value deletes expired ones."""

    def __init__(self, database: Access, agent_row: AgentRow, clock: Clock) -> None:
        super().__init__(database, agent_row)
        self._clock = clock

    async def get(self, key: str) -> Any | None:
        row = await self._database.read(lambda db: GET_VALUE.first(db, self._agent, storable_text(key)))
        cached = None if row is None else CACHED.read_or_report(row)
        if cached is None:
            return None
        value, expires_at = cached
        return None if expires_at is not None and expires_at <= microseconds_of(self._clock()) else value

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        row = (self._agent, storable_text(key), json.dumps(value), microseconds_or_none(expires_at))
        await self._database.write(partial(_set_value, row, microseconds_of(self._clock())))

    async def delete(self, key: str) -> None:
        await self._database.write(lambda db: DELETE_VALUE.run(db, self._agent, storable_text(key)))


class SqlLogs(SqlStorePart):
    """Stores the latest 10,000 entries of each kind and a million decisions; see `LogStore`."""

    def __init__(self, database: Access, agent_row: AgentRow, clock: Clock) -> None:
        super().__init__(database, agent_row)
        self._clock = clock
        self._written_counts: Counter[str] = Counter()

    async def log(
        self, kind: str, body: Mapping[str, Any], *, room_id: UUID | None = None, entity_id: UUID | None = None
    ) -> None:
        await self._insert([LogEntry(kind, body, room_id, entity_id)], durable=True)

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        await self._insert(entries, durable=False)

    async def _insert(self, entries: Sequence[LogEntry], *, durable: bool) -> None:
        at = microseconds_of(self._clock())
        rows = [_log_row(self._agent, at, entry) for entry in entries]
        await self._database.write(partial(_insert_logs, rows, self._kinds_to_trim(entries)), durable=durable)

    def _kinds_to_trim(self, entries: Sequence[LogEntry]) -> list[str]:
        """Count the new entries; return the kinds of which old entries are to be deleted now."""
        kinds = []
        for kind, count in Counter(entry.kind for entry in entries).items():
            before = self._written_counts[kind]
            self._written_counts[kind] += count
            if not before or before // TRIM_INTERVAL != self._written_counts[kind] // TRIM_INTERVAL:
                kinds.append(storable_text(kind))
        return kinds

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, entity_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        filters = (id_bytes(room_id), kind, id_bytes(entity_id))
        rows = await self._database.read(partial(_find_logs, self._agent, filters, limit))
        return [entry for entry in LOG.read_all(rows) if entry["body"] is not None]


def _set_value(row: Row, now: int, connection: Connection) -> None:
    DELETE_EXPIRED.run(connection, row[0], now)
    SET_VALUE.run(connection, *row)


def _log_row(agent: int, at: int, entry: LogEntry) -> Row:
    return (agent, storable_text(entry.kind), at, id_bytes(entry.room_id), id_bytes(entry.entity_id), dumps(entry.body))


def _insert_logs(rows: Sequence[Row], kinds_to_trim: Sequence[str], connection: Connection) -> None:
    INSERT_LOG.run_many(connection, seal_entries(connection, rows))
    for kind in kinds_to_trim:
        (DELETE_OLD_DECISIONS if kind == LogKind.AUTHORIZATION else DELETE_OLD_LOGS).run(connection, rows[0][0], kind)


def _find_logs(agent: int, filters: Sequence[Any], limit: int, connection: Connection) -> Sequence[Row]:
    given = {column: value for column, value in zip(LOG_FILTERS, filters, strict=True) if value is not None}
    return LOG_LISTS[tuple(given)].rows(connection, agent, *given.values(), limit)


def _add_to(table: Table, keys: Sequence[str]) -> Statement:
    """Return a statement that adds a row of sums to the row of that key."""
    begin = insert_into(table, (*keys, *COST_SUMS))

    def build(insert: Insert) -> Executable:
        statement = begin(insert)
        sums: dict[str, Any] = {name: table.c[name] + statement.excluded[name] for name in COST_SUMS}
        return statement.on_conflict_do_update(index_elements=list(keys), set_=sums)  # type: ignore[no-any-return]

    return Statement(build)


ADD_COST, ADD_SUM = _add_to(spending, COST_KEYS), _add_to(spending_sums, SUM_KEYS)


def _in_period(table: Table, *columns: str) -> ColumnElement[bool]:
    return and_(
        matches(table, "agent_id", *columns),
        table.c.day >= typed_parameter(table.c.day, "since"),
        table.c.day <= typed_parameter(table.c.day, "until"),
    )


IN_PERIOD = _in_period(spending)
COSTS_BETWEEN = Statement(
    lambda _: select(*(spending.c[name] for name in COST_NAMES[1:])).where(IN_PERIOD).order_by(spending.c.day)
)


def _sums_query(by: tuple[str, ...], table: Table, period: ColumnElement[bool]) -> Statement:
    keys = [table.c[name] for name in by]
    sums = [func.coalesce(func.sum(table.c[name]), 0) for name in COST_SUMS]
    return Statement(lambda _: select(*keys, *sums).where(period).group_by(*keys))


GROUPS_OF_COSTS = [
    by for count in range(3) for by in combinations((dimension.value for dimension in CostDimension), count)
]
SUMS_BETWEEN = {by: _sums_query(by, spending, IN_PERIOD) for by in GROUPS_OF_COSTS}
GROUPED_SUMS_BETWEEN = {
    by: _sums_query(by, spending_sums, _in_period(spending_sums, "grouping")) for by in GROUPS_OF_COSTS
}


class SqlCosts(SqlStorePart):
    """Keeps the sums; see `CostStore`."""

    async def add(self, entries: Sequence[CostEntry]) -> None:
        rows = sorted(cost_row(self._agent, entry) for entry in entries)
        await self._database.write(partial(add_costs, rows), durable=False)

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        return await self._database.search(partial(_find_costs, self._agent, since, until))

    async def sums_between(self, since: date, until: date, by: Sequence[CostDimension]) -> list[CostEntry]:
        dimensions = tuple(dimension for dimension in CostDimension if dimension in by)
        return await self._database.search(partial(_sum_costs, self._agent, since, until, dimensions))

    async def erased_usage(self, day: date) -> ErasedUsage:
        return await self._database.search(partial(find_erased_usage, self._agent, day))


def find_erased_usage(agent: int, day: date, connection: Connection, find: Statement = GET_VALUE) -> ErasedUsage:
    """Return what erased people had used on a day."""
    row = find.first(connection, agent, ERASED_USAGE_KEY)
    return ErasedUsage.from_json(None if row is None else loads(row[-1]), day)


def _keep_usage(connection: Connection, agent: int, person_id: bytes, today: date, usage: CostUsage) -> None:
    """Add to what erased people had used today; of concurrent processes one after another."""
    new = ErasedUsage(today)
    row = (agent, ERASED_USAGE_KEY, json.dumps(new.to_json()), microseconds_of(new.expires_at))
    ADD_VALUE.run(connection, *row)
    erased = find_erased_usage(agent, today, connection, LOCK_VALUE).plus(id_of(person_id), usage)
    SET_VALUE.run(connection, *row[:2], json.dumps(erased.to_json()), row[-1])


def add_costs(rows: Sequence[Row], connection: Connection) -> None:
    """Add rows of `cost_row`, which are sorted so that transactions cannot deadlock."""
    ADD_COST.run_many(connection, rows)
    ADD_SUM.run_many(connection, _group_rows(rows))


def _removal_of_person(table: Table, keys: Sequence[str]) -> Statement:
    """Return the statement that deletes a person's rows and returns them, so that nothing added meanwhile is lost."""
    names = (*keys, *COST_SUMS)
    return Statement(lambda _: delete(table).where(_is_of_person(table)).returning(*(table.c[name] for name in names)))


def _is_of_person(table: Table) -> ColumnElement[bool]:
    """Return the condition on a person's rows of a day."""
    of_day = matches(table, "agent_id", "day", "person_id")
    return of_day if table is spending else and_(of_day, table.c.grouping == literal_column("'person'"))


REMOVE_COSTS_OF_PERSON = _removal_of_person(spending, COST_KEYS)
REMOVE_SUMS_OF_PERSON = _removal_of_person(spending_sums, SUM_KEYS)


DAYS_OF_PERSON = Statement(
    lambda _: (
        select(spending_sums.c.day)
        .where(matches(spending_sums, "agent_id", "person_id"), spending_sums.c.grouping == literal_column("'person'"))
        .order_by(spending_sums.c.day)
    )
)


def anonymize_costs(agent: int, person_id: bytes, day: str, today: date, connection: Connection) -> int:
    """Add a person's costs of a day to those of no person; return the number of rows that named them.

    What they have used today is kept for `find_erased_usage`.
    """
    spent = REMOVE_COSTS_OF_PERSON.rows(connection, agent, day, person_id)
    sums = REMOVE_SUMS_OF_PERSON.rows(connection, agent, day, person_id)
    for rows, add, keys in ((spent, ADD_COST, COST_KEYS), (sums, ADD_SUM, SUM_KEYS)):
        index = keys.index("person_id")
        add.run_many(connection, sorted((*row[:index], NO_ID, *row[index + 1 :]) for row in rows))
    if day == today.isoformat():
        entries = [_cost_entry_of(row[1:]) for row in spent]
        usage = CostUsage(sum(entry.cost for entry in entries), sum(entry.tokens for entry in entries))
        _keep_usage(connection, agent, person_id, today, usage)
    return len(spent)


def _group_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of `spending_sums` for new rows of `spending`, in the order of their keys."""
    sums: dict[Row, list[int]] = {}
    for row in rows:
        keys = dict(zip(COST_KEYS, row, strict=False))
        for grouping, group_keys in GROUPINGS.items():
            kept = (keys[name] if name in group_keys else unused for name, unused in UNUSED_KEYS.items())
            amounts = sums.setdefault((keys["agent_id"], grouping, keys["day"], *kept), [0] * len(COST_SUMS))
            amounts[:] = map(operator.add, amounts, row[len(COST_KEYS) :])
    return sorted((*key, *amounts) for key, amounts in sums.items())


def _find_costs(agent: int, since: date, until: date, connection: Connection) -> list[CostEntry]:
    rows = COSTS_BETWEEN.rows(connection, agent, since.isoformat(), until.isoformat())
    return [_cost_entry_of(row) for row in rows]


def _sum_costs(
    agent: int, since: date, until: date, by: tuple[CostDimension, ...], connection: Connection
) -> list[CostEntry]:
    period = (since.isoformat(), until.isoformat())
    dimensions = {dimension for dimension in by if dimension is not CostDimension.DAY}
    grouping = next((name for name, group_keys in GROUPINGS.items() if dimensions <= group_keys), None)
    if grouping is None:
        rows = SUMS_BETWEEN[by].rows(connection, agent, *period)
    else:
        rows = GROUPED_SUMS_BETWEEN[by].rows(connection, agent, grouping, *period)
    unused: dict[str, Any] = {"day": since.isoformat(), "room_id": None, "person_id": None, "model": "", "purpose": ""}
    entries = []
    for row in rows:
        keys = {**unused, **{dimension.value: row[index] for index, dimension in enumerate(by)}}
        entries.append(_cost_entry_of((*keys.values(), *map(int, row[len(by) :]))))
    return [entry for entry in entries if entry.calls]


def cost_row(agent: int, entry: CostEntry) -> tuple[Any, ...]:
    """Return the row that is added to `spending` for an entry."""
    return (
        agent,
        entry.day.isoformat(),
        entry.room_id.bytes if entry.room_id else NO_ID,
        entry.person_id.bytes if entry.person_id else NO_ID,
        storable_text(entry.model),
        storable_text(entry.purpose),
        entry.calls,
        entry.tokens_in,
        entry.tokens_cached,
        entry.tokens_out,
        round(entry.cost * NANO),
        entry.unpriced_calls,
        entry.estimated_calls,
        entry.failed_calls,
    )


def _cost_entry_of(row: Row) -> CostEntry:
    day, room_id, person_id, model, purpose, calls, tokens_in, tokens_cached, tokens_out, cost, *rest = row
    unpriced, estimated, failed = rest
    return CostEntry(
        day=date.fromisoformat(day),
        model=model,
        room_id=id_or_none(room_id),
        person_id=id_or_none(person_id),
        calls=calls,
        tokens_in=tokens_in,
        tokens_cached=tokens_cached,
        tokens_out=tokens_out,
        cost=cost / NANO,
        unpriced_calls=unpriced,
        estimated_calls=estimated,
        failed_calls=failed,
        purpose=purpose,
    )
