"""The log of authorization decisions: each entry is sealed with a hash that includes the previous seal.

Changing or deleting an entry breaks the chain, and `bot db check` reports where. The entries of an erased
person remain as links without content.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from bot.store.protocols import LogKind
from bot.store.sql.core.mapping import Values, datetime_of, dumps, loads, matches, microseconds_of, parameter
from bot.store.sql.core.schema import logs

PREVIOUS_SEAL, SEAL, ERASED = "$after", "$seal", "$forgotten"  # keys beside an entry's own
MAX_BREAKS = 5  # reported by a check: the others are alike
SUSPECT = "the bot never does that; find out which other program can write to the database"
LOCK_KEY = int.from_bytes(b"decision")

LAST_ENTRY = select(logs.c.body).where(matches(logs, "kind")).order_by(logs.c.position.desc()).limit(1)
ENTRIES_OF_ENTITY = select(logs.c.position, logs.c.body).where(
    matches(logs, "kind", "entity_id"),
    logs.c.position > parameter(logs.c.position, "after"),
    logs.c.position <= parameter(logs.c.position, "last"),
)
ALL_ENTRIES = "SELECT agent_id, at, body FROM logs WHERE kind = '{}' ORDER BY agent_id, position"


def seal_entries(connection: Connection, rows: Sequence[Values]) -> Sequence[Values]:
    """Return one agent's new entries with decisions sealed; other processes wait until the commit."""
    if not any(row["kind"] == LogKind.AUTHORIZATION for row in rows):
        return rows
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK_KEY)))
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
