"""The cache, the log with its audit entries, the sums of model costs, and the activity; see `ActivityStore`.

Each entry about a decision on authorization is sealed with a hash that includes the previous seal: changing or deleting
one breaks the chain, and `bot db check` reports where. The entries of an erased person remain without content.

Rows are found by their position, which is in the order of arrival: so reading a span of time needs no index of
its own, which would cost time with every message. Grouping sorts no more than the rows of that span.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from itertools import combinations
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Delete, Select, Table

from bot.concurrency.clock import Clock
from bot.domain.ledger import (
    DROPPED_CAUSE,
    CostDimension,
    CostEntry,
    CostUsage,
    DeliveryState,
    ErasedUsage,
    Outcome,
    Rule,
)
from bot.store.activity import ActivityBucket, Backlog, OpenItems, PlatformHour, TaskBacklog, VoteSum
from bot.store.protocols import LogEntry, LogKind
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart, searches, writes, writes_not_durably
from bot.store.sql.core.mapping import (
    LIMIT,
    MICROSECOND,
    InsertStatement,
    Row,
    RowMapping,
    Values,
    datetime_of,
    dumps,
    insert_if_new,
    is_flag,
    loads,
    matches,
    microseconds_of,
    text_literal,
    upsert,
)
from bot.store.sql.core.schema import (
    COST_FIGURES,
    IS_PARKED,
    IS_VOTE,
    UNFINISHED,
    cache,
    cost_sums,
    costs,
    deliveries,
    entities,
    logs,
    memories,
    receipts,
    tasks,
)

PREVIOUS_SEAL, SEAL, ERASED = "$after", "$seal", "$forgotten"  # keys beside an entry's own
MAX_BREAKS = 5  # reported by a check: the others are alike
SUSPECT = "the bot never does that; find out which other program can write to the database"
LOCK_KEY = int.from_bytes(b"decision")

LAST_ENTRY = sa.select(logs.c.body).where(matches(logs, "kind")).order_by(logs.c.position.desc()).limit(1)
ENTRIES_OF_ENTITY = sa.select(logs.c.position, logs.c.body).where(
    matches(logs, "kind", "entity_id"), logs.c.position > sa.bindparam("after"), logs.c.position <= sa.bindparam("last")
)
ALL_ENTRIES = "SELECT agent_id, at, body FROM logs WHERE kind = '{}' ORDER BY agent_id, position"


def seal_entries(connection: Connection, rows: Sequence[Values]) -> Sequence[Values]:
    """Return one agent's new entries with decisions sealed; other processes wait until the commit."""
    if not any(row["kind"] == LogKind.AUTHORIZATION for row in rows):
        return rows
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
    key = {"agent": rows[0]["agent_id"], "kind_": LogKind.AUTHORIZATION}
    last_body = connection.execute(LAST_ENTRY, key).scalar()
    previous = str(last_body.get(SEAL, "")) if isinstance(last_body, Mapping) else ""
    sealed_rows: list[Values] = []
    for row in rows:
        if row["kind"] == LogKind.AUTHORIZATION:
            body = loads(dumps(row["body"]))  # as it will be read
            links = {PREVIOUS_SEAL: previous, SEAL: _seal(previous, microseconds_of(row["at"]), body)}
            row, previous = {**row, "body": {**body, **links}}, links[SEAL]
        sealed_rows.append(row)
    return sealed_rows


def _read_body(text: str) -> Mapping[str, Any] | None:
    """Return the body of an entry; None if another program has made it something else than a JSON object."""
    try:
        body = loads(text)
    except ValueError:
        return None
    return body if isinstance(body, Mapping) else None


def entry_content(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an entry's content without its seal; None if its person was erased."""
    if body.get(ERASED) is True:
        return None
    return {name: value for name, value in body.items() if name not in (PREVIOUS_SEAL, SEAL)}


def build_tombstones(
    connection: Connection, agent: int, entity_id: UUID, after: int, last: int
) -> list[tuple[int, dict[str, Any]]]:
    """Return position and remaining body of each decision about a person to be erased, in a part of the log."""
    key = {"agent": agent, "kind_": LogKind.AUTHORIZATION, "entity_id_": entity_id, "after": after, "last": last}
    entries = ((position, body) for position, body in connection.execute(ENTRIES_OF_ENTITY, key))
    return [
        (position, {ERASED: True, **{name: links.get(name, "") for name in (PREVIOUS_SEAL, SEAL)}})
        for position, body in entries
        for links in [body if isinstance(body, Mapping) else {}]
    ]


def find_breaks(connection: Connection) -> Iterator[str]:
    """Yield a problem for each break of the chain; entries from before seals, or that cannot be read, are skipped."""
    last_seals: dict[int, str] = {}
    for agent, at, stored in connection.exec_driver_sql(ALL_ENTRIES.format(LogKind.AUTHORIZATION)):
        body = _read_body(stored)
        if body is None:  # which the check reports as an unreadable row
            last_seals.pop(agent, None)
            continue
        previous, seal, content = body.get(PREVIOUS_SEAL), body.get(SEAL), entry_content(body)
        time_text = f"{datetime_of(at):%Y-%m-%d %H:%M:%S}"
        if agent in last_seals and previous != last_seals[agent]:
            yield f"before the decision of {time_text}, others were deleted from the log: {SUSPECT}"
        if content is not None and seal is not None and seal != _seal(str(previous), at, content):
            yield f"the decision of {time_text} was changed afterwards: {SUSPECT}"
        if seal is not None or agent in last_seals:
            last_seals[agent] = str(seal)


def _seal(previous: str, at: int, body: Mapping[str, Any]) -> str:
    serialized = json.dumps([previous, at, body], sort_keys=True, separators=(",", ":"))
    return sha256(serialized.encode()).hexdigest()


MAX_LOGS, MAX_DECISIONS = 10_000, 1_000_000
TRIM_INTERVAL = 500
NEWEST_FIRST = logs.c.position.desc()
SAME_KIND = matches(logs, "kind")
LOG_FILTERS = ("room_id", "kind", "entity_id")


CACHED: RowMapping[dict[str, Any]] = RowMapping(cache, dict)
LOG: RowMapping[Any] = RowMapping(logs, LogEntry, build=dict)  # entries are stored, and read as dicts
SET_VALUE = upsert(cache, ("agent_id", "key"), CACHED.stored_names)
GET_VALUE = sa.select(*CACHED).where(matches(cache, "key"))
LOCK_VALUE = GET_VALUE.with_for_update()
ADD_VALUE = insert_if_new(cache, CACHED.stored_names)
DELETE_VALUE = sa.delete(cache).where(matches(cache, "key"))
DELETE_EXPIRED = sa.delete(cache).where(matches(cache), cache.c.expires_at <= sa.bindparam("now"))
INSERT_LOG = InsertStatement(logs, LOG.stored_names)
LOG_LISTS: dict[tuple[str, ...], Select[Any]] = {
    columns: sa.select(*LOG).where(matches(logs, *columns)).order_by(NEWEST_FIRST).limit(LIMIT)
    for number in range(len(LOG_FILTERS) + 1)
    for columns in combinations(LOG_FILTERS, number)
}


def _delete_all_but(count: int) -> Delete:
    """Return a statement that deletes all but the latest entries of a kind."""
    newest_deleted = sa.select(logs.c.position).where(SAME_KIND).order_by(NEWEST_FIRST).limit(1).offset(count)
    return sa.delete(logs).where(SAME_KIND, logs.c.position <= newest_deleted.scalar_subquery())


DELETE_OLD_LOGS, DELETE_OLD_DECISIONS = _delete_all_but(MAX_LOGS), _delete_all_but(MAX_DECISIONS)


class SqlCache(SqlStorePart):
    """Stores small values; see `CacheStore`. Setting a value deletes expired ones."""

    def __init__(self, database: Access, agent_row: AgentRow, clock: Clock) -> None:
        super().__init__(database, agent_row)
        self._clock = clock

    async def get(self, key: str) -> Any | None:
        rows = await self._read(GET_VALUE, key_=key)
        cached = CACHED.read_or_report(rows[0]) if rows else None
        if cached is None or (cached["expires_at"] is not None and cached["expires_at"] <= self._clock()):
            return None
        return cached["value"]

    @writes
    def set(self, connection: Connection, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        connection.execute(DELETE_EXPIRED, {"agent": self._agent, "now": self._clock()})
        row = {"agent_id": self._agent, "key": key, "value": value, "expires_at": expires_at}
        SET_VALUE.execute(connection, row)

    @writes
    def delete(self, connection: Connection, key: str) -> None:
        connection.execute(DELETE_VALUE, {"agent": self._agent, "key_": key})


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
        derived = {"at": self._clock()}
        rows = [LOG.values(entry, self._agent, derived) for entry in entries]
        kinds_to_trim = self._kinds_to_trim(entries)

        def insert(connection: Connection) -> None:
            INSERT_LOG.execute_all(connection, seal_entries(connection, rows))
            for kind in kinds_to_trim:
                statement = DELETE_OLD_DECISIONS if kind == LogKind.AUTHORIZATION else DELETE_OLD_LOGS
                connection.execute(statement, {"agent": self._agent, "kind_": kind})

        await self._database.write(insert, durable=durable)

    def _kinds_to_trim(self, entries: Sequence[LogEntry]) -> list[str]:
        """Count the new entries; return the kinds of which old entries are to be deleted now."""
        kinds = []
        for kind, count in Counter(entry.kind for entry in entries).items():
            before = self._written_counts[kind]
            self._written_counts[kind] += count
            if not before or before // TRIM_INTERVAL != self._written_counts[kind] // TRIM_INTERVAL:
                kinds.append(kind)
        return kinds

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, entity_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        filters = dict(zip(LOG_FILTERS, (room_id, kind, entity_id), strict=True))
        given = {name: value for name, value in filters.items() if value is not None}
        values = {f"{name}_": value for name, value in given.items()}
        entries = list(LOG.read_all(await self._read(LOG_LISTS[tuple(given)], **values, limit=limit)))
        for entry in entries:
            if entry["kind"] == LogKind.AUTHORIZATION:
                entry["body"] = entry_content(entry["body"])
        for entry in entries:
            if entry["entity_id"] in self._agent_row.not_read and "arguments" in (entry["body"] or ()):
                entry["body"] = {**entry["body"], "arguments": {}}
        return [entry for entry in entries if entry["body"] is not None]


ERASED_USAGE_KEY = "costs:erased"
COST = RowMapping(costs, CostEntry)
COST_KEYS = tuple(name for name in COST.stored_names if name not in COST_FIGURES)
SUM_KEYS = ("agent_id", "grouping", *COST_KEYS[1:])
# What the rows of `cost_sums` tell apart besides the day.
GROUPINGS = {
    "work": frozenset({CostDimension.MODEL, CostDimension.PURPOSE}),
    "room": frozenset({CostDimension.ROOM}),
    "person": frozenset({CostDimension.PERSON}),
}
UNUSED_KEYS = {"room_id": None, "person_id": None, "model": "", "purpose": ""}


ADD_COST, ADD_SUM = (
    upsert(table, keys, (*keys, *COST_FIGURES), added=COST_FIGURES)
    for table, keys in ((costs, COST_KEYS), (cost_sums, SUM_KEYS))
)


def _in_period(table: Table, *columns: str) -> ColumnElement[bool]:
    day = table.c.day
    return sa.and_(matches(table, *columns), day >= sa.bindparam("since"), day <= sa.bindparam("until"))


COSTS_BETWEEN = sa.select(*COST).where(_in_period(costs)).order_by(costs.c.day)


def _sums_query(by: tuple[str, ...], table: Table, period: ColumnElement[bool]) -> Select[Any]:
    keys = [table.c[name] for name in by]
    # PostgreSQL's sums are decimal numbers
    sums = [
        sa.type_coerce(sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger), column.type).label(column.name)
        for column in (table.c[name] for name in COST_FIGURES)
    ]
    return sa.select(*keys, *sums).where(period).group_by(*keys)


GROUPS_OF_COSTS = [
    by for count in range(3) for by in combinations((dimension.value for dimension in CostDimension), count)
]
SUMS_BETWEEN = {by: _sums_query(by, costs, _in_period(costs)) for by in GROUPS_OF_COSTS}
GROUPED_SUMS_BETWEEN = {by: _sums_query(by, cost_sums, _in_period(cost_sums, "grouping")) for by in GROUPS_OF_COSTS}
OF_PERSON = sa.and_(matches(cost_sums, "person_id"), cost_sums.c.grouping == text_literal("person"))
DAYS_OF_PERSON = sa.select(cost_sums.c.day).where(OF_PERSON).order_by(cost_sums.c.day)
# They return what they delete, so that nothing added meanwhile is lost.
REMOVE_COSTS_OF_PERSON = sa.delete(costs).where(matches(costs, "day", "person_id")).returning(*costs.c)
REMOVE_SUMS_OF_PERSON = (
    sa.delete(cost_sums).where(OF_PERSON, cost_sums.c.day == sa.bindparam("day_")).returning(*cost_sums.c)
)


class SqlCosts(SqlStorePart):
    """Keeps the sums; see `CostStore`."""

    @writes_not_durably
    def add(self, connection: Connection, entries: Sequence[CostEntry]) -> None:
        add_costs(connection, self._agent, entries)

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        return list(COST.read_all(await self._search(COSTS_BETWEEN, since=since, until=until)))

    async def sums_between(self, since: date, until: date, by: Sequence[CostDimension]) -> list[CostEntry]:
        dimensions = tuple(dimension for dimension in CostDimension if dimension in by)
        others = {dimension for dimension in dimensions if dimension is not CostDimension.DAY}
        grouping = next((name for name, group_keys in GROUPINGS.items() if others <= group_keys), None)
        if grouping is None:
            rows = await self._search(SUMS_BETWEEN[dimensions], since=since, until=until)
        else:
            rows = await self._search(GROUPED_SUMS_BETWEEN[dimensions], grouping_=grouping, since=since, until=until)
        names = [*dimensions, *COST_FIGURES]
        unused = {**UNUSED_KEYS, "day": since}
        entries = [CostEntry(**{**unused, **dict(zip(names, row, strict=True))}) for row in rows]
        return [entry for entry in entries if entry.calls]

    @searches
    def erased_usage(self, connection: Connection, day: date) -> ErasedUsage:
        return find_erased_usage(connection, self._agent, day)


def find_erased_usage(connection: Connection, agent: int, day: date, find: Select[Any] = GET_VALUE) -> ErasedUsage:
    """Return what erased people had used on a day."""
    row = connection.execute(find, {"agent": agent, "key_": ERASED_USAGE_KEY}).first()
    return ErasedUsage.from_json(None if row is None else CACHED.read(row)["value"], day)


def _keep_usage(connection: Connection, agent: int, person_id: UUID, today: date, usage: CostUsage) -> None:
    """Add to what erased people had used today; of concurrent processes one after another."""
    new = ErasedUsage(today)
    row = {"agent_id": agent, "key": ERASED_USAGE_KEY, "value": new.to_json(), "expires_at": new.expires_at}
    ADD_VALUE.execute(connection, row)
    erased = find_erased_usage(connection, agent, today, LOCK_VALUE).plus(person_id, usage)
    SET_VALUE.execute(connection, {**row, "value": erased.to_json()})


def add_costs(connection: Connection, agent: int, entries: Sequence[CostEntry]) -> None:
    """Add entries to both tables, in the order of their keys, so that transactions cannot deadlock."""
    rows = [COST.values(entry, agent) for entry in entries]
    ADD_COST.execute_all(connection, _in_order(rows))
    ADD_SUM.execute_all(connection, _in_order(_group_rows(rows)))


def _in_order(rows: Sequence[Values]) -> list[Values]:
    return sorted(rows, key=lambda row: [str(row.get(name)) for name in SUM_KEYS])


def anonymize_costs(connection: Connection, agent: int, person_id: UUID, day: date, today: date) -> int:
    """Add a person's costs of a day to those of no person; return the number of rows that named them.

    What they have used today is kept for `find_erased_usage`.
    """
    key = {"agent": agent, "day_": day, "person_id_": person_id}
    spent = connection.execute(REMOVE_COSTS_OF_PERSON, key).mappings().all()
    sums = connection.execute(REMOVE_SUMS_OF_PERSON, key).mappings().all()
    for rows, add in ((spent, ADD_COST), (sums, ADD_SUM)):
        add.execute_all(connection, _in_order([{**row, "person_id": None} for row in rows]))
    if day == today:
        tokens = sum(row["tokens_in"] + row["tokens_out"] for row in spent)
        _keep_usage(connection, agent, person_id, today, CostUsage(sum(row["cost"] for row in spent), tokens))
    return len(spent)


def _group_rows(rows: Sequence[Values]) -> list[Values]:
    """Return the rows of `cost_sums` for new rows of `costs`."""
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        for grouping, group_keys in GROUPINGS.items():
            key = {**{name: row[name] for name in COST_KEYS}, "grouping": grouping}
            key |= {name: unused for name, unused in UNUSED_KEYS.items() if name not in group_keys}
            total = sums.setdefault(tuple(key.values()), {**key, **dict.fromkeys(COST_FIGURES, 0)})
            for name in COST_FIGURES:
                total[name] += row[name]
    return list(sums.values())


MAX_SENT_PARTS = 500  # of the latest parts, in which the last sent ones are looked for
OF_AGENT = matches(receipts)
SPAN = (OF_AGENT, receipts.c.position >= sa.bindparam("first"), receipts.c.position < sa.bindparam("end"))
OPEN_OUTCOMES = (Outcome.RECEIVED, Outcome.CLAIMED)
RECEIVED, CLOSED = (sa.type_coerce(receipts.c[name], sa.BigInteger) for name in ("received_at", "closed_at"))

FIRST_POSITION = sa.select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position).limit(1)
LAST_POSITION = sa.select(receipts.c.position).where(OF_AGENT).order_by(receipts.c.position.desc()).limit(1)
NEXT_RECEIPT = (
    sa.select(receipts.c.position, receipts.c.received_at)
    .where(OF_AGENT, receipts.c.position >= sa.bindparam("first"))
    .order_by(receipts.c.position)
    .limit(1)
)


def _number() -> Any:
    """Return the number of the span in which a receipt's event came in."""
    offset = RECEIVED - sa.bindparam("start", type_=sa.BigInteger())
    return (offset // sa.bindparam("step", type_=sa.BigInteger())).label("number")


def _count_outcomes(*conditions: Any) -> Select[Any]:
    cause = sa.case(
        (receipts.c.outcome == text_literal(Outcome.FAILED), receipts.c.rule), else_=sa.literal_column("''")
    ).label("cause")
    number = _number()
    counted = sa.select(number, receipts.c.outcome, cause).where(*SPAN, *conditions).subquery()
    columns = (counted.c.number, counted.c.outcome, counted.c.cause)
    return sa.select(*columns, sa.func.count()).group_by(*columns)


def _find_percentiles(*conditions: Any) -> Select[Any]:
    took, number = (CLOSED - RECEIVED).label("took"), _number()
    answered = receipts.c.outcome == text_literal(Outcome.ANSWERED)
    times = sa.select(number, took).where(*SPAN, answered, receipts.c.closed_at.is_not(None), *conditions).subquery()
    ranked = sa.select(
        times.c.number,
        times.c.took,
        sa.func.row_number().over(partition_by=times.c.number, order_by=times.c.took).label("rank"),
        sa.func.count().over(partition_by=times.c.number).label("size"),
    ).subquery()

    def percentile(percent: int) -> Any:
        rank = (ranked.c.size * sa.literal_column(str(percent)) + sa.literal_column("99")) // sa.literal_column("100")
        return sa.func.max(sa.case((ranked.c.rank == rank, ranked.c.took)))

    return sa.select(ranked.c.number, percentile(50), percentile(95)).group_by(ranked.c.number)


OF_PLATFORM = receipts.c.platform == sa.bindparam("platform")
COUNT_OUTCOMES = {"": _count_outcomes(), "platform": _count_outcomes(OF_PLATFORM)}
FIND_PERCENTILES = {"": _find_percentiles(), "platform": _find_percentiles(OF_PLATFORM)}


def _count_hours() -> Select[Any]:
    counted = sa.select(_number(), receipts.c.platform, receipts.c.received_at).where(*SPAN).subquery()
    columns = (counted.c.number, counted.c.platform)
    return sa.select(*columns, sa.func.count(), sa.func.max(counted.c.received_at)).group_by(*columns)


def _find_last_sent() -> Select[Any]:
    names = ("platform", "state", "first_attempt_at", "created_at")
    latest = (
        sa.select(*(deliveries.c[name] for name in names))
        .where(matches(deliveries))
        .order_by(deliveries.c.position.desc())
        .limit(sa.literal_column(str(MAX_SENT_PARTS)))
        .subquery()
    )
    sent_at = sa.func.coalesce(latest.c.first_attempt_at, latest.c.created_at)
    sent = latest.c.state == text_literal(DeliveryState.SENT)
    return sa.select(latest.c.platform, sa.func.max(sent_at)).where(sent).group_by(latest.c.platform)


COUNT_HOURS = _count_hours()
LAST_SENT = _find_last_sent()
COUNT_TURNS = sa.select(sa.func.count(), sa.func.min(receipts.c.received_at)).where(
    OF_AGENT, is_flag(receipts.c.is_open)
)
COUNT_PARKED = sa.select(sa.func.count(), sa.func.min(receipts.c.received_at)).where(
    OF_AGENT, sa.text(IS_PARKED), receipts.c.rule != text_literal(Rule.DRAFT)
)
COUNT_PARTS = (
    sa.select(deliveries.c.state, sa.func.count(), sa.func.min(deliveries.c.created_at))
    .where(matches(deliveries), sa.text(UNFINISHED), deliveries.c.cause != sa.bindparam("dropped"))
    .group_by(deliveries.c.state)
)
QUEUED_TASKS = (matches(tasks), is_flag(tasks.c.is_queued), is_flag(tasks.c.is_parked, is_set=False))
COUNT_LATE_TASKS = sa.select(sa.func.count(), sa.func.min(tasks.c.next_run)).where(
    *QUEUED_TASKS, tasks.c.next_run < sa.bindparam("due_before")
)
NEXT_TASK = sa.select(tasks.c.next_run).where(*QUEUED_TASKS).order_by(tasks.c.next_run).limit(1)


DAY = timedelta(days=1)
REPLIES, LATER = memories.alias("replies"), memories.alias("later")


def _count_votes(*conditions: Any) -> Select[Any]:
    """Select the days of votes, as numbers since 1970, with how many like and how many do not."""
    day = (sa.type_coerce(memories.c.created_at, sa.BigInteger) // sa.literal_column(str(DAY // MICROSECOND))).label(
        "day"
    )
    is_replaced = sa.exists().where(
        *(LATER.c[name] == memories.c[name] for name in ("agent_id", "source_id", "entity_id")),
        LATER.c.vote != sa.literal_column("0"),
        LATER.c.position > memories.c.position,
    )
    counts: list[Any] = [
        sa.func.sum(sa.case((memories.c.vote == sa.literal_column(vote), 1), else_=0)) for vote in ("1", "-1")
    ]
    return (
        sa.select(day, *counts)
        .join(REPLIES, sa.and_(REPLIES.c.agent_id == memories.c.agent_id, REPLIES.c.id == memories.c.source_id))
        .join(entities, sa.and_(entities.c.agent_id == memories.c.agent_id, entities.c.id == memories.c.entity_id))
        .where(
            matches(memories),
            sa.literal_column(f"memories.{IS_VOTE}"),
            REPLIES.c.turn_id.is_not(None),  # only messages of the agent have a turn
            memories.c.entity_id != REPLIES.c.entity_id,
            is_flag(entities.c.is_bot, is_set=False),
            ~is_replaced,
            *conditions,
        )
        .group_by(day)
        .order_by(day)
    )


COUNT_VOTES = _count_votes(memories.c.created_at >= sa.bindparam("since"))
COUNT_VOTES_OF_TURN = _count_votes(REPLIES.c.turn_id == sa.bindparam("turn_id"))


class SqlActivity(SqlStorePart):
    """Counts by grouped queries; see `ActivityStore`."""

    @searches
    def buckets(
        self, connection: Connection, start: datetime, step: timedelta, count: int, platform: str = ""
    ) -> list[ActivityBucket]:
        values = self._span_values(connection, start, step, count) | ({"platform": platform} if platform else {})
        kind = "platform" if platform else ""
        received, answered, unfinished = (defaultdict[int, int](int) for _ in range(3))
        failures = defaultdict[int, dict[str, int]](dict)
        for number, outcome, cause, amount in connection.execute(COUNT_OUTCOMES[kind], values):
            received[number] += amount
            if outcome == Outcome.ANSWERED:
                answered[number] += amount
            elif outcome == Outcome.FAILED:
                failures[number][cause] = amount
            elif outcome in OPEN_OUTCOMES:
                unfinished[number] += amount
        times: dict[int, Row] = {row[0]: row[1:] for row in connection.execute(FIND_PERCENTILES[kind], values)}
        return [
            ActivityBucket(
                start + step * number,
                received[number],
                answered[number],
                unfinished[number],
                failures[number],
                *(took // 1000 for took in times.get(number, ())),
            )
            for number in range(count)
        ]

    @searches
    def platform_hours(self, connection: Connection, start: datetime, hours: int) -> list[PlatformHour]:
        hour = timedelta(hours=1)
        rows = connection.execute(COUNT_HOURS, self._span_values(connection, start, hour, hours))
        return [
            PlatformHour(platform, start + hour * number, count, last_at)
            for number, platform, count, last_at in rows
            if 0 <= number < hours  # a clock may have stepped back
        ]

    def _span_values(self, connection: Connection, start: datetime, step: timedelta, count: int) -> dict[str, Any]:
        """Return the values for statements about a number of steps in time."""
        return {
            "agent": self._agent,
            "start": microseconds_of(start),
            "step": step // MICROSECOND,
            "first": _find_position(connection, self._agent, start),
            "end": _find_position(connection, self._agent, start + step * count),
        }

    async def last_sent(self) -> Mapping[str, datetime]:
        return {row[0]: row[1] for row in await self._search(LAST_SENT)}

    @searches
    def open_items(self, connection: Connection) -> OpenItems:
        key = {"agent": self._agent}
        rows = connection.execute(COUNT_PARTS, {**key, "dropped": DROPPED_CAUSE})
        parts = {state: Backlog(*backlog) for state, *backlog in rows}
        pending, attempting, held, failed = (
            parts.get(state, Backlog())
            for state in (DeliveryState.PENDING, DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN, DeliveryState.FAILED)
        )
        return OpenItems(
            turns=Backlog(*connection.execute(COUNT_TURNS, key).one()),
            waiting=pending.plus(attempting),
            held=held,
            failed=failed,
            parked=Backlog(*connection.execute(COUNT_PARKED, key).one()),
        )

    async def votes(self, since: date) -> list[VoteSum]:
        start = datetime.combine(since, time(), UTC)
        return list(map(_build_votes, await self._search(COUNT_VOTES, since=start)))

    async def votes_of(self, turn_id: UUID) -> VoteSum | None:
        rows = await self._search(COUNT_VOTES_OF_TURN, turn_id=turn_id)
        sums = list(map(_build_votes, rows))
        liked, disliked = sum(item.liked for item in sums), sum(item.disliked for item in sums)
        return VoteSum(sums[-1].day, liked, disliked) if sums else None

    async def task_backlog(self, due_before: datetime) -> TaskBacklog:
        late = await self._search(COUNT_LATE_TASKS, due_before=due_before)
        next_task = await self._search(NEXT_TASK)
        return TaskBacklog(Backlog(*late[0]), next_task[0][0] if next_task else None)


def _build_votes(row: Row) -> VoteSum:
    number, liked, disliked = row
    return VoteSum(date(1970, 1, 1) + number * DAY, int(liked), int(disliked))


def _find_position(connection: Connection, agent: int, at: datetime) -> int:
    """Return the position of the first receipt of an event that came in at a time or later.

    It is found by halving: each look-up reads one row of an index.
    """
    first = connection.execute(FIRST_POSITION, {"agent": agent}).scalar()
    last = connection.execute(LAST_POSITION, {"agent": agent}).scalar()
    if first is None or last is None:
        return 0
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(NEXT_RECEIPT, {"agent": agent, "first": middle}).first()
        if row is None or row[1] >= at:
            high = middle
        else:
            low = row[0] + 1
    return int(low)
