"""What models have cost, in SQL: sums that grow where they stand."""

from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.sql.expression import Executable

from bot import Spending
from plugins.sql.book import Book
from plugins.sql.schema import spending
from plugins.sql.statements import Insert, Row, Statement, insert_into, same, value
from plugins.sql.values import NO_ID, id_or_none, words

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
        rows = sorted(_row(self._agent, one) for one in spendings)  # in one order: nobody waits in a circle
        await self._database.write(lambda db: ADD.run_many(db, rows), lasting=False)

    async def spent(self, since: date, until: date) -> list[Spending]:
        return await self._database.search(partial(_spent, self._agent, since, until))


def _spent(agent: int, since: date, until: date, connection: Connection) -> list[Spending]:
    rows = SPENT.rows(connection, agent, since.isoformat(), until.isoformat())
    return [_spending_of(row) for row in rows]


def _row(agent: int, one: Spending) -> tuple[Any, ...]:
    return (
        agent,
        one.day.isoformat(),
        one.room_id.bytes if one.room_id else NO_ID,
        one.person_id.bytes if one.person_id else NO_ID,
        words(one.model),
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
