"""The log of authorization decisions: each entry is sealed with a hash that includes the previous seal.

Changing or deleting an entry breaks the chain, and `bot db check` reports where. The entries of an erased
person remain as links without content.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, select

from bot.store import LogKind
from plugins.sql.core.schema import logs
from plugins.sql.core.statements import RawStatement, Row, Statement, matches, typed_parameter
from plugins.sql.core.values import datetime_of, dumps, loads

PREVIOUS_SEAL, SEAL, ERASED = "$after", "$seal", "$forgotten"  # keys beside an entry's own
KIND_INDEX, AT_INDEX, BODY_INDEX = 1, 2, 5  # in a row of the table
MAX_BREAKS = 5  # reported by a check: the others are alike
SUSPECT = "the bot never does that; find out which other program can write to the database"
LOCK_KEY = int.from_bytes(b"decision")

LAST_ENTRY = Statement(
    lambda _: select(logs.c.body).where(matches(logs, "agent_id", "kind")).order_by(logs.c.position.desc()).limit(1)
)
ENTRIES_OF_ENTITY = Statement(
    lambda _: select(logs.c.position, logs.c.body).where(
        matches(logs, "agent_id", "kind", "entity_id"),
        logs.c.position > typed_parameter(logs.c.position, "after"),
        logs.c.position <= typed_parameter(logs.c.position, "last"),
    )
)
ACQUIRE_LOCK = RawStatement("SELECT pg_advisory_xact_lock(?)")
ALL_ENTRIES = "SELECT agent_id, at, body FROM logs WHERE kind = '{}' ORDER BY agent_id, position"


def seal_entries(connection: Connection, rows: Sequence[Row]) -> Sequence[Row]:
    """Return one agent's new entries with decisions sealed; other processes wait until the commit."""
    if not any(row[KIND_INDEX] == LogKind.AUTHORIZATION for row in rows):
        return rows
    if connection.dialect.name == "postgresql":
        ACQUIRE_LOCK.rows(connection, LOCK_KEY)
    last_entry = LAST_ENTRY.first(connection, rows[0][0], LogKind.AUTHORIZATION)
    last_body = _read_body(last_entry[0]) if last_entry else None
    previous = str(last_body.get(SEAL, "")) if last_body else ""
    sealed_rows: list[Row] = []
    for row in rows:
        if row[KIND_INDEX] == LogKind.AUTHORIZATION:
            body = loads(row[BODY_INDEX])
            links = {PREVIOUS_SEAL: previous, SEAL: _seal(previous, row[AT_INDEX], body)}
            row, previous = (*row[:BODY_INDEX], dumps({**body, **links})), links[SEAL]
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


def build_tombstones(connection: Connection, agent: int, entity: bytes, after: int, last: int) -> list[tuple[str, int]]:
    """Return remaining body and position of each decision about a person to be erased, in a part of the log."""
    return [
        (dumps({ERASED: True, PREVIOUS_SEAL: body.get(PREVIOUS_SEAL, ""), SEAL: body.get(SEAL, "")}), position)
        for position, text in ENTRIES_OF_ENTITY.rows(connection, agent, LogKind.AUTHORIZATION, entity, after, last)
        for body in [_read_body(text) or {}]
    ]


def find_breaks(connection: Connection) -> Iterator[str]:
    """Yield a problem for each break of the chain; entries from before seals, or that cannot be read, are skipped."""
    last_seals: dict[int, str] = {}
    for agent, at, text in connection.exec_driver_sql(ALL_ENTRIES.format(LogKind.AUTHORIZATION)):
        body = _read_body(text)
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
