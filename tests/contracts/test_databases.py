"""Databases of every schema since 0.1.0, with a value in every column, open in this version with all of their values.

`rows.json` has the rows in the columns of the newest schema. A row is inserted into an earlier one as far as that has
its columns: for a new table or column add rows or values there. What a row had in other columns, or as other values, up
to a schema stands under the version of that; a table that was renamed is there twice.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from bot import MemoryKind, RecallScope, Settings, derived_id
from bot.settings import Layer
from bot.store import CostDimension, Store
from bot.store.sql.core.schema import VERSION
from bot.store.sql.storage import SqlStorage
from tests.contracts.snapshot import check_snapshot
from tests.store.sql.core.test_recorded_schemas import FOLDER, load_postgres, load_sqlite

AGENT_ID = derived_id("agent", "Ada")
Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # by table
ROWS: Rows = json.loads(Path(__file__).with_name("rows.json").read_text(encoding="utf-8"))
RECORDED = sorted(file.name.partition(".")[0] for file in FOLDER.glob("*.sqlite.sql.xz"))
VERSIONS = sorted({*RECORDED, VERSION})
MODEL = "embed-1"
CASTS = {"halfvec": "::text::halfvec"}  # asyncpg does not know the type
Columns = Mapping[str, Mapping[str, str]]  # types by column, by table


def to_column(value: Any, kind: str) -> Any:
    """Return a value of `rows.json` as it is stored in a column of this type."""
    if value is not None and kind in ("BLOB", "bytea"):
        return struct.pack(f"<{len(value)}e", *value) if isinstance(value, list) else bytes.fromhex(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list | dict) else value


def rows_of_schema(version: str) -> Rows:
    """Return the rows as they were in a schema."""

    def as_in_schema(row: Mapping[str, Any]) -> dict[str, Any]:
        former = sorted((key for key in row if key.isdecimal()), reverse=True)
        values = {name: value for name, value in row.items() if name not in former}
        for key in former:
            values |= row[key] if version <= key else {}
        return values

    return {table: [as_in_schema(row) for row in rows] for table, rows in ROWS.items()}


def check_complete(columns: Columns, rows: Rows) -> None:
    """Fail if a column has no value in `rows.json`."""
    empty = [
        f"{table}.{name}"
        for table, names in columns.items()
        for name in names
        if not any(row.get(name) is not None for row in rows.get(table, ()))
    ]
    assert not empty, f"add values to tests/contracts/rows.json: {', '.join(empty)}"


def fill_sqlite(file: Path, rows: Rows) -> None:
    """Replace the rows of a database of any schema by others."""
    with closing(sqlite3.connect(file)) as connection, connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "AND name NOT LIKE 'memory_terms%'"  # the index of SQLite's full-text search
        )
        columns = {
            table: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
            for (table,) in names
            if table != "alembic_version_sql"
        }
        check_complete(columns, rows)
        for table, kinds in columns.items():
            connection.execute(f"DELETE FROM {table}")
            for row in rows[table]:
                known = [name for name in row if name in kinds]
                marks = ", ".join("?" * len(known))
                statement = f"INSERT INTO {table} ({', '.join(map(quote, known))}) VALUES ({marks})"
                connection.execute(statement, [to_column(row[name], kinds[name]) for name in known])


async def fill_postgres(url: str, rows: Rows) -> None:
    """Replace the rows of a database of any schema by others."""
    connection = await asyncpg.connect(url)
    try:
        columns: dict[str, dict[str, str]] = {}
        for row in await connection.fetch(
            "SELECT table_name, column_name, udt_name FROM information_schema.columns WHERE table_schema = 'public'"
            " AND table_name <> 'alembic_version_sql' ORDER BY table_name, ordinal_position"
        ):
            columns.setdefault(row[0], {})[row[1]] = row[2]
        check_complete(columns, rows)
        await connection.execute("SET session_replication_role = replica")  # without foreign keys
        await connection.execute(f"TRUNCATE {', '.join(columns)}")
        for table, kinds in columns.items():
            for row in rows[table]:
                known = [name for name in row if name in kinds]
                marks = ", ".join(f"${at}{CASTS.get(kinds[name], '')}" for at, name in enumerate(known, 1))
                statement = f"INSERT INTO {table} ({', '.join(map(quote, known))}) VALUES ({marks})"
                await connection.execute(statement, *(to_column(row[name], kinds[name]) for name in known))
            for key in {"position", "id"} & kinds.keys():
                sequence = await connection.fetchval("SELECT pg_get_serial_sequence($1, $2)", table, key)
                if sequence:
                    await connection.execute(f"SELECT setval('{sequence}', (SELECT max({key}) FROM {table}))")
    finally:
        await connection.close()


async def execute(url: str, statements: str) -> None:
    """Execute statements with a connection of their own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


def quote(name: str) -> str:
    """Return a column name for a statement."""
    return f'"{name}"'


def describe(value: Any) -> Any:
    """Return a value of the store as JSON; sets in order."""
    if is_dataclass(value):
        return {field.name: describe(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(describe(item) for item in value)
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, str | int | bool | None) else str(value)


async def read_values(store: Store) -> dict[str, Any]:
    """Return everything that the store returns of the rows, by what it was asked for."""
    rooms = await store.worlds.rooms()
    room_ids = [room.id for room in rooms]
    entities = await store.entities.entities([UUID(row["id"]) for row in ROWS["entities"]])
    receipts = await store.ledger.receipts()
    turn_ids = sorted({receipt.turn_id for receipt in receipts if receipt.turn_id is not None})
    kinds = sorted({row["kind"] for row in ROWS["memories"]})
    scope = RecallScope(rooms[0].id, rooms[0].world_id)
    days = date(2026, 5, 1), date(2026, 5, 31)

    async def of_each(items: Iterable[Any], query: Any) -> dict[str, Any]:
        return {str(item): await query(item) for item in items}

    return {
        "rooms": rooms,
        "worlds": await of_each({room.world_id for room in rooms}, store.worlds.world),
        "states in rooms": await of_each(room_ids, store.worlds.participant_state),
        "entities": entities,
        "participants": await of_each(room_ids, store.entities.participants),
        "components": await of_each(entities, store.entities.components),
        "relationships": await of_each(entities, store.entities.relationships),
        "activity": await of_each(entities, store.entities.activity),
        "memories": {
            f"{kind} in {room.name}": await store.memories.recent(room.id, kind=MemoryKind(kind))
            for kind in kinds
            for room in rooms
        },
        "recalled": await store.memories.recall((1.0, 0.5, 0.0), MODEL, scope, MemoryKind.FACT),
        "found by words": await store.memories.search("ferns", scope, MemoryKind.DOCUMENT),
        "tasks": await store.tasks.tasks(),
        "cached": await of_each([row["key"] for row in ROWS["cache"]], store.cache.get),
        "logs": await store.logs.logs(),
        "receipts": receipts,
        "not evaluated": [receipt.id for receipt in await store.ledger.unevaluated_receipts()],
        "open": [receipt.id for receipt in await store.ledger.receipts(is_open=True)],
        "inbound": {str(receipt.id): await store.ledger.inbound_message(receipt) for receipt in receipts},
        "steps": await of_each(turn_ids, store.ledger.steps),
        "deliveries": await store.ledger.deliveries(),
        "undelivered": [delivery.id for delivery in await store.ledger.undelivered()],
        "cursors": [await store.ledger.cursor(row["platform"], row["account"], row["name"]) for row in ROWS["cursors"]],
        "unreadable events": await store.ledger.unreadable_events(),
        "costs": await store.costs.costs_between(*days),
        "sums of costs": {
            by.name: [entry.to_json() for entry in await store.costs.sums_between(*days, [by])] for by in CostDimension
        },
    }


@pytest.mark.matrix(1)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_database_of_every_schema_opens_with_the_values_of_all_columns(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The snapshot has the values of the newest schema, and of each earlier one those that differ."""
    found: dict[str, dict[str, Any]] = {}
    for version in VERSIONS:
        file = tmp_path / version / "greenroom.db"
        url = "" if kind == "sqlite" else request.getfixturevalue("postgres_url")
        variables = {"POSTGRES_URL": url} if url else {"BOT_DATA_DIR": str(file.parent)}
        storage, settings = SqlStorage(), Settings([Layer("the test", variables)])
        if url:
            await execute(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        if version not in RECORDED:
            await storage.upgrade(settings)
        elif url:
            await load_postgres(version, url)
        else:
            load_sqlite(version, file)
        if url:
            await fill_postgres(url, rows_of_schema(version))
        else:
            fill_sqlite(file, rows_of_schema(version))
        await storage.upgrade(settings)
        assert (await storage.check(settings)).problems == (), version
        async with storage.open(AGENT_ID, settings) as store:
            found[version] = describe(await read_values(store))
    newest = found[VERSIONS[-1]]
    for version in VERSIONS[:-1]:
        found[version] = {name: value for name, value in found[version].items() if value != newest[name]}
    check_snapshot("stored_values.json", found)
