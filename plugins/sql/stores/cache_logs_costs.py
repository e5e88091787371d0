"""Cache, logs, cost entries."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, delete, select
from sqlalchemy.sql.expression import Executable

from bot import Clock
from bot.store import AUDIT, LogEntry, Spending
from plugins.sql.core.base import Access, Book, Owner
from plugins.sql.core.schema import cache, logs, spending
from plugins.sql.core.statements import Insert, Row, Statement, insert_into, limit, same, upsert, value
from plugins.sql.core.values import (
    NO_ID,
    dumps,
    id_bytes,
    id_or_none,
    loads,
    moment,
    moment_of,
    moment_or_none,
    storable_text,
)
from plugins.sql.stores.audit_log import said, sealed

MOST_LOGS, MOST_DECISIONS = 10_000, 1_000_000
SWEEP_EVERY = 500

CACHE_NAMES = ("agent_id", "key", "value", "expires_at")
LOG_NAMES = ("agent_id", "kind", "at", "room_id", "entity_id", "body")
LOG = tuple(logs.c[name] for name in LOG_NAMES[1:])
OF_AGENT = same(logs.c.agent_id, "agent")
NEWEST = logs.c.position.desc()

SET = upsert(cache, ("agent_id", "key"), CACHE_NAMES)
GET = Statement(
    lambda _: select(cache.c.value, cache.c.expires_at).where(
        same(cache.c.agent_id, "agent"), same(cache.c.key, "key")
    ),
    "agent",
    "key",
)
DROP = Statement(
    lambda _: delete(cache).where(same(cache.c.agent_id, "agent"), same(cache.c.key, "key")), "agent", "key"
)
SWEEP = Statement(
    lambda _: delete(cache).where(
        same(cache.c.agent_id, "agent"), cache.c.expires_at <= value(cache.c.expires_at, "now")
    ),
    "agent",
    "now",
)
LOG_ENTRY = Statement(lambda insert: insert_into(logs, LOG_NAMES)(insert), *LOG_NAMES)
ALL = Statement(lambda _: select(*LOG).where(OF_AGENT).order_by(NEWEST).limit(limit()), "agent", "limit")
OF_KIND = Statement(
    lambda _: select(*LOG).where(OF_AGENT, same(logs.c.kind, "kind")).order_by(NEWEST).limit(limit()),
    "agent",
    "kind",
    "limit",
)
OF_ROOM = Statement(
    lambda _: select(*LOG).where(OF_AGENT, same(logs.c.room_id, "room")).order_by(NEWEST).limit(limit()),
    "agent",
    "room",
    "limit",
)
OF_BOTH = Statement(
    lambda _: (
        select(*LOG)
        .where(and_(OF_AGENT, same(logs.c.room_id, "room"), same(logs.c.kind, "kind")))
        .order_by(NEWEST)
        .limit(limit())
    ),
    "agent",
    "room",
    "kind",
    "limit",
)
SAME_KIND = and_(OF_AGENT, same(logs.c.kind, "kind"))


def _all_but(most: int) -> Statement:
    """Delete all but the last entries of a kind."""
    oldest_kept = select(logs.c.position).where(SAME_KIND).order_by(NEWEST).limit(1).offset(most)
    return Statement(
        lambda _: delete(logs).where(SAME_KIND, logs.c.position <= oldest_kept.scalar_subquery()),
        "agent",
        "kind",
    )


FORGET, FORGET_DECISIONS = _all_but(MOST_LOGS), _all_but(MOST_DECISIONS)


class SqlCache(Book):
    """Keeps small values; see `CacheStore`. Setting one takes out those that are over."""

    def __init__(self, database: Access, owner: Owner, clock: Clock) -> None:
        super().__init__(database, owner)
        self._clock = clock

    async def get(self, key: str) -> Any | None:
        row = await self._database.read(lambda db: GET.first(db, self._agent, storable_text(key)))
        if row is None or (row[1] is not None and row[1] <= moment(self._clock())):
            return None
        return loads(row[0])

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        row = (self._agent, storable_text(key), json.dumps(value), moment_or_none(expires_at))
        await self._database.write(partial(_set, row, moment(self._clock())))

    async def drop(self, key: str) -> None:
        await self._database.write(lambda db: DROP.run(db, self._agent, storable_text(key)))


class SqlLogs(Book):
    """Keeps the last ten thousand entries of each kind, of decisions the last million; see `LogStore`."""

    def __init__(self, database: Access, owner: Owner, clock: Clock) -> None:
        super().__init__(database, owner)
        self._clock = clock
        self._written: Counter[str] = Counter()

    async def log(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
    ) -> None:
        await self._keep([LogEntry(kind, body, room_id, entity_id)], lasting=True)

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        await self._keep(entries, lasting=False)

    async def _keep(self, entries: Sequence[LogEntry], *, lasting: bool) -> None:
        at = moment(self._clock())
        rows = [_log_row(self._agent, at, one) for one in entries]
        await self._database.write(partial(_log, rows, self._to_sweep(entries)), lasting=lasting)

    def _to_sweep(self, entries: Sequence[LogEntry]) -> list[str]:
        """Count what is kept, and tell of which kinds the oldest are to go now."""
        kinds = []
        for kind, count in Counter(one.kind for one in entries).items():
            before = self._written[kind]
            self._written[kind] += count
            if not before or before // SWEEP_EVERY != self._written[kind] // SWEEP_EVERY:
                kinds.append(storable_text(kind))
        return kinds

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        found = await self._database.read(partial(_logs, self._agent, kind, id_bytes(room_id), limit))
        entries = (_entry_of(row) for row in found)
        return [entry for entry in entries if entry["body"] is not None]


def _set(row: Row, now: int, connection: Connection) -> None:
    SWEEP.run(connection, row[0], now)
    SET.run(connection, *row)


def _log_row(agent: int, at: int, one: LogEntry) -> Row:
    return agent, storable_text(one.kind), at, id_bytes(one.room_id), id_bytes(one.entity_id), dumps(one.body)


def _log(rows: Sequence[Row], to_sweep: Sequence[str], connection: Connection) -> None:
    LOG_ENTRY.run_many(connection, sealed(connection, rows))
    for kind in to_sweep:
        (FORGET_DECISIONS if kind == AUDIT else FORGET).run(connection, rows[0][0], kind)


def _logs(agent: int, kind: str | None, room: bytes | None, most: int, connection: Connection) -> list[Row]:
    if room is None:
        return list(
            ALL.rows(connection, agent, most) if kind is None else OF_KIND.rows(connection, agent, kind, most)
        )
    if kind is None:
        return list(OF_ROOM.rows(connection, agent, room, most))
    return list(OF_BOTH.rows(connection, agent, room, kind, most))


def _entry_of(row: Row) -> dict[str, Any]:
    kind, at, room_id, entity_id, body = row
    return {
        "kind": kind,
        "at": moment_of(at),
        "room_id": id_or_none(room_id),
        "entity_id": id_or_none(entity_id),
        "body": said(loads(body)) if kind == AUDIT else loads(body),
    }


NANO = 1_000_000_000
KEYS = ("agent_id", "day", "room_id", "person_id", "model")
FIGURES = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")
NAMES = (*KEYS, *FIGURES)


def _adding(insert: Insert) -> Executable:
    statement = insert_into(spending, NAMES)(insert)
    sums: dict[str, Any] = {name: spending.c[name] + statement.excluded[name] for name in FIGURES}
    return statement.on_conflict_do_update(index_elements=list(KEYS), set_=sums)  # type: ignore[no-any-return]


ADD = Statement(_adding, *NAMES)
SPENT = Statement(
    lambda _: (
        select(*(spending.c[name] for name in NAMES[1:]))
        .where(
            same(spending.c.agent_id, "agent"),
            spending.c.day >= value(spending.c.day, "since"),
            spending.c.day <= value(spending.c.day, "until"),
        )
        .order_by(spending.c.day)
    ),
    "agent",
    "since",
    "until",
)


class SqlSpending(Book):
    """Keeps the sums; see `SpendingStore`."""

    async def add(self, spendings: Sequence[Spending]) -> None:
        rows = sorted(
            _cost_row(self._agent, one) for one in spendings
        )  # in one order: nobody waits in a circle
        await self._database.write(lambda db: ADD.run_many(db, rows), lasting=False)

    async def spent(self, since: date, until: date) -> list[Spending]:
        return await self._database.search(partial(_spent, self._agent, since, until))


def _spent(agent: int, since: date, until: date, connection: Connection) -> list[Spending]:
    rows = SPENT.rows(connection, agent, since.isoformat(), until.isoformat())
    return [_spending_of(row) for row in rows]


def _cost_row(agent: int, one: Spending) -> tuple[Any, ...]:
    return (
        agent,
        one.day.isoformat(),
        one.room_id.bytes if one.room_id else NO_ID,
        one.person_id.bytes if one.person_id else NO_ID,
        storable_text(one.model),
        one.calls,
        one.tokens_in,
        one.tokens_cached,
        one.tokens_out,
        round(one.cost * NANO),
        one.unpriced,
        one.estimated,
        one.failed,
    )


def _spending_of(row: Row) -> Spending:
    day, room_id, person_id, model, calls, tokens_in, tokens_cached, tokens_out, cost, *rest = row
    unpriced, estimated, failed = rest
    return Spending(
        day=date.fromisoformat(day),
        model=model,
        room_id=id_or_none(room_id),
        person_id=id_or_none(person_id),
        calls=calls,
        tokens_in=tokens_in,
        tokens_cached=tokens_cached,
        tokens_out=tokens_out,
        cost=cost / NANO,
        unpriced=unpriced,
        estimated=estimated,
        failed=failed,
    )
