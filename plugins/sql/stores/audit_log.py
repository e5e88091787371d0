"""The log of what somebody was allowed, or denied: each entry is sealed onto the one before it.

Whoever changes an entry afterwards, or takes one out, breaks the chain, and `bot db check` says where. Of
somebody who is forgotten the entries stay as links that say nothing any more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, select

from bot.store import AUDIT
from plugins.sql.core.schema import logs
from plugins.sql.core.statements import Row, Spelled, Statement, same
from plugins.sql.core.values import dumps, loads, moment_of

AFTER, SEAL, FORGOTTEN = "$after", "$seal", "$forgotten"  # beside whatever an entry says
KIND, AT, BODY = 1, 2, 5  # where a row for the table has them
MOST_BREAKS = 5  # told by a check: they are alike
SUSPECT = "the bot never does that; find out who else can write to the database"
LOCK = int.from_bytes(b"decision")

_OF_AGENT = (same(logs.c.agent_id, "agent"), same(logs.c.kind, "kind"))
LAST = Statement(
    lambda _: select(logs.c.body).where(*_OF_AGENT).order_by(logs.c.position.desc()).limit(1), "agent", "kind"
)
THEIRS = Statement(
    lambda _: select(logs.c.position, logs.c.body).where(*_OF_AGENT, same(logs.c.entity_id, "entity")),
    "agent",
    "kind",
    "entity",
)
ALONE = Spelled("SELECT pg_advisory_xact_lock(?)")
ALL = "SELECT agent_id, at, body FROM logs WHERE kind = '{}' ORDER BY agent_id, position"


def sealed(connection: Connection, rows: Sequence[Row]) -> Sequence[Row]:
    """Seal those of one agent's new entries that are decisions; nobody else does so until the commit."""
    if not any(row[KIND] == AUDIT for row in rows):
        return rows
    if connection.dialect.name == "postgresql":
        ALONE.rows(connection, LOCK)
    last = LAST.first(connection, rows[0][0], AUDIT)
    after = str(loads(last[0]).get(SEAL, "")) if last else ""
    done: list[Row] = []
    for row in rows:
        if row[KIND] == AUDIT:
            body = loads(row[BODY])
            links = {AFTER: after, SEAL: _seal(after, row[AT], body)}
            row, after = (*row[:BODY], dumps({**body, **links})), links[SEAL]
        done.append(row)
    return done


def said(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what an entry says, without its seal; None where whoever it was about is forgotten."""
    if body.get(FORGOTTEN) is True:
        return None
    return {name: value for name, value in body.items() if name not in (AFTER, SEAL)}


def emptied(connection: Connection, agent: int, entity: bytes) -> list[tuple[int, str]]:
    """Give, by its position, what is left of each decision on somebody's request when they are forgotten."""
    return [
        (position, dumps({FORGOTTEN: True, AFTER: body.get(AFTER, ""), SEAL: body.get(SEAL, "")}))
        for position, text in THEIRS.rows(connection, agent, AUDIT, entity)
        for body in [loads(text)]
    ]


def breaks(connection: Connection) -> Iterator[str]:
    """Tell of each place in which the log is not as it was written; of what came before seals, nothing."""
    last: dict[int, str] = {}
    for agent, at, text in connection.exec_driver_sql(ALL.format(AUDIT)):
        body = loads(text)
        after, seal, content = body.get(AFTER), body.get(SEAL), said(body)
        moment = f"{moment_of(at):%Y-%m-%d %H:%M:%S}"
        if agent in last and after != last[agent]:
            yield f"before the decision of {moment}, others were taken out of the log: {SUSPECT}"
        if content is not None and seal is not None and seal != _seal(str(after), at, content):
            yield f"the decision of {moment} was changed afterwards: {SUSPECT}"
        if seal is not None or agent in last:
            last[agent] = str(seal)


def _seal(after: str, at: int, body: Mapping[str, Any]) -> str:
    written = json.dumps([after, at, body], sort_keys=True, separators=(",", ":"))
    return sha256(written.encode()).hexdigest()
