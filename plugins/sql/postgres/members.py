"""The processes that share an agent's work: what each is, what it owns, and the request to release it."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from bot import derived_id
from bot.store import Duty, Member, ProcessRole, WorkLag, account_name, connection_name, part_name
from plugins.sql.core.base import AgentRow
from plugins.sql.core.mapping import Row, datetime_of
from plugins.sql.postgres.batches import RawStatement
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.heartbeat import LEASE_SECONDS, MEMBER_KEY

SHARED_KEY = "shared lease:"  # likewise, followed by its name: the number of its parts

# Written when a process joins; those of processes that have ended are deleted then.
DESCRIBE = RawStatement(
    f"INSERT INTO cache (agent_id, key, value) VALUES (?, '{MEMBER_KEY}' || CAST(? AS bigint), ?) "
    "ON CONFLICT (agent_id, key) DO UPDATE SET value = excluded.value"
)
FORGET = RawStatement(
    f"DELETE FROM cache c WHERE c.agent_id = ? AND c.key LIKE '{MEMBER_KEY}%' AND NOT EXISTS ("
    f"SELECT FROM workers w WHERE w.agent_id = c.agent_id AND c.key = '{MEMBER_KEY}' || w.position)"
)
DRAIN = RawStatement(
    f"UPDATE cache SET value = CAST(CAST(value AS jsonb) || '{{\"is_draining\": true}}' AS text) "
    f"WHERE agent_id = ? AND key = '{MEMBER_KEY}' || CAST(? AS bigint) RETURNING 1"
)
OTHER_ROLES = RawStatement(
    f"SELECT DISTINCT coalesce(CAST(c.value AS jsonb) ->> 'role', '{ProcessRole.ALL}') FROM workers w "
    f"LEFT JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? AND w.alive_until > CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
)
LIST_MEMBERS = RawStatement(
    f"SELECT w.position, w.alive_until, c.value FROM workers w "
    f"LEFT JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? ORDER BY w.position"
)
COUNT_PROCESSES = RawStatement(
    f"SELECT count(*) FROM workers w JOIN cache c ON c.agent_id = w.agent_id AND c.key = '{MEMBER_KEY}' || w.position "
    "WHERE w.agent_id = ? AND CAST(c.value AS jsonb) ->> 'role' = ? "
    "AND CAST(c.value AS jsonb) ->> 'is_draining' IS DISTINCT FROM 'true'"
)
STORE_PARTS = RawStatement(
    f"INSERT INTO cache (agent_id, key, value) VALUES (?, '{SHARED_KEY}' || CAST(? AS text), CAST(? AS text)) "
    "ON CONFLICT (agent_id, key) DO UPDATE SET value = excluded.value RETURNING 1"
)
LIST_PARTS = RawStatement(f"SELECT key, value FROM cache WHERE agent_id = ? AND key LIKE '{SHARED_KEY}%'")
LIST_LEASES = RawStatement("SELECT owner, room_id FROM lanes WHERE agent_id = ? AND owner IS NOT NULL")
LIST_ACCOUNTS = RawStatement("SELECT DISTINCT platform, account FROM rooms WHERE agent_id = ?")
FIND_LAG = RawStatement(
    "SELECT (SELECT min(received_at) FROM receipts WHERE agent_id = ? AND is_open = 1), "
    "(SELECT min(created_at) FROM deliveries WHERE agent_id = ? AND is_open = 1)"
)


def describe_process(role: ProcessRole, now: datetime) -> str:
    """Return what is known about this process, as JSON."""
    return json.dumps(
        {
            "role": role,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "version": version("greenroom"),
            "since": now.isoformat(),
        }
    )


class PostgresMembers:
    """Lists and drains the processes of one agent; see `Members`."""

    def __init__(self, database: PostgresDatabase, agent_row: AgentRow) -> None:
        self._database = database
        self._agent = agent_row.number
        self._stored_parts: dict[str, int] = {}

    async def find(self) -> tuple[list[Member], WorkLag]:
        """Return the processes in the order in which they joined, and how late the work is."""
        return await self._database.read(self._find)

    async def drain(self, number: int) -> bool:
        """Request that a process release its rooms and accounts and take no others; return whether it exists."""
        rows = await self._database.write(lambda db: DRAIN.rows(db, self._agent, number))
        return bool(rows)

    async def count_sharing(self, name: str, count: int, role: ProcessRole) -> int:
        """Return the number of processes that share the parts of a lease: those of a role that are not drained.

        How many parts there are is stored, so that `find` knows their names.
        """
        if self._stored_parts.get(name) != count:
            await self._database.write(lambda db: STORE_PARTS.rows(db, self._agent, name, str(count)))
            self._stored_parts[name] = count
        rows = await self._database.read(lambda db: COUNT_PROCESSES.rows(db, self._agent, role.value))
        return int(rows[0][0])

    def _find(self, connection: Connection) -> tuple[list[Member], WorkLag]:
        pairs = list(map(tuple, LIST_ACCOUNTS.rows(connection, self._agent)))
        names = {account_name(*pair) for pair in pairs} | {connection_name(platform) for platform, _ in pairs} | {*Duty}
        for key, count in LIST_PARTS.rows(connection, self._agent):
            name = key.removeprefix(SHARED_KEY)
            names |= {part_name(name, number, int(count)) for number in range(int(count))}
        accounts = {derived_id("account", name): name for name in names}
        leases: dict[int, list[UUID]] = {}
        for owner, room_id in LIST_LEASES.rows(connection, self._agent):
            leases.setdefault(owner, []).append(UUID(bytes=room_id))
        rows = LIST_MEMBERS.rows(connection, self._agent)
        [(unanswered, undelivered)] = FIND_LAG.rows(connection, self._agent, self._agent)
        lag = WorkLag(*(None if at is None else datetime_of(at) for at in (unanswered, undelivered)))
        return [_read_member(row, leases.get(row[0], ()), accounts) for row in rows], lag


def _read_member(row: Row, leases: Sequence[UUID], accounts: Mapping[UUID, str]) -> Member:
    number, alive_until, text = row
    about: dict[str, Any] = json.loads(text) if text else {}
    held = sorted(accounts[lease_id] for lease_id in leases if lease_id in accounts)
    return Member(
        number=number,
        role=about.get("role", ProcessRole.ALL.value),
        host=about.get("host", ""),
        process=about.get("process", 0),
        version=about.get("version", ""),
        since=datetime.fromisoformat(about["since"]) if "since" in about else None,
        last_heartbeat=datetime_of(alive_until - int(LEASE_SECONDS * 1_000_000)),
        is_draining=about.get("is_draining", False),
        rooms=len(leases) - len(held),
        accounts=held,
    )
