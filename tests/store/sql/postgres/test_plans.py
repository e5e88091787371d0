"""On PostgreSQL the statements of the pipeline use an index, and its order."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest
from sqlalchemy import Column, Table
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from bot import system_clock
from bot.store.sql.core.schema import add_postgres_options, metadata
from bot.store.sql.postgres import database as postgres_database
from bot.store.sql.postgres import ledger_statements as committing
from bot.store.sql.postgres import ledger_statements as receiving
from bot.store.sql.postgres.ledger_statements import RawStatement
from bot.store.sql.stores import cache_logs_costs, ledger, memories, search, tasks, worlds
from bot.testing import make_message
from tests.postgres import PostgresServer
from tests.store.sql.conftest import expand
from tests.store.sql.postgres.stores import open_store

DIALECT = dialect()  # type: ignore[no-untyped-call]
INDEXES = {
    "RECENT": (memories.RECENT, "ix_memories_room"),
    "RECENT_BEFORE": (memories.RECENT_BEFORE, "ix_memories_room"),
    "BY_TURN": (memories.MEMORIES_OF_TURN, "ix_memories_turn"),
    "UNEMBEDDED": (memories.UNEMBEDDED, "pk_memories"),
    "COUNT_IN_ROOM": (memories.COUNT_IN_ROOM, "ix_memories_room"),
    "COUNT_LINES": (search.COUNT_LINES, "ix_memories_room"),
    "CANDIDATES": (search.CANDIDATE_ROWS, "pk_memories"),
    "NEIGHBOURS": (search.NEIGHBOURS, "ix_memories_room"),
    "FIND": (ledger.RECEIPT.by_id, "uq_receipts_agent_id_id"),
    "FIND_BY_MEMORY": (ledger.FIND_BY_MEMORY, "ix_receipts_memory"),
    "ALL_OPEN": (ledger.RECEIPT_LISTS[True, False], "ix_receipts_open"),
    "OF_ROOM": (ledger.RECEIPT_LISTS[None, True], "ix_receipts_room"),
    "OPEN_PARTS": (ledger.OPEN_DELIVERIES, "ix_deliveries_open"),
    "OF_ONE_TURN": (ledger.DELIVERIES_OF_TURN, "ix_deliveries_turn"),
    "PARTICIPANTS": (worlds.FIND_PARTICIPANTS, "ix_participants_active"),
    "ROOMS": (worlds.ALL_ROOMS, "ix_rooms_active"),
    "FIND_DUE": (tasks.FIND_DUE, "ix_tasks_due"),
    "NEXT_DUE": (tasks.NEXT_DUE, "ix_tasks_due"),
    "PARKED": (cache_logs_costs.COUNT_PARKED, "ix_receipts_parked"),
    "COSTS": (cache_logs_costs.GROUPED_SUMS_BETWEEN["model",], "pk_cost_sums"),
    "NEAREST": (search.NEAREST, "pk_embeddings"),
    "RECEIVE": (receiving.RECEIVE, "uq_receipts_agent_id_room_id_message_id_revision"),
    "COMMIT": (committing.COMMIT_TURN, "uq_deliveries_agent_id_room_id_seq"),
    "SAVE_PART": (committing.SAVE_DELIVERY, "uq_deliveries_agent_id_id"),
}
SORTING = ("BY_TURN", "COMMIT", "COSTS", "FIND_BY_MEMORY", "FIND_DUE", "NEAREST")  # few rows, once they are found
FEW = {"room_id": 60, "world_id": 60, "turn_id": 60, "name": 5}
WITHOUT = "".join(f"SET enable_{way} = off; " for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"))


ROWS = 3_000


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the name of a database with filled tables."""
    with postgres_server.database() as name:
        postgres_server.run("CREATE EXTENSION vector", name)
        postgres_server.run(create_statements(), name)
        tables = [table for table in metadata.sorted_tables if table.name != "summaries"]  # it has one row a room
        rows = "; ".join(map(filled, tables))
        postgres_server.run(f"SET session_replication_role = replica; {rows}; ANALYZE", name)
        yield name


def create_statements() -> str:
    """Return the statements that create all tables."""
    add_postgres_options(metadata)
    elements = [
        element
        for table in metadata.sorted_tables
        for element in (CreateTable(table), *map(CreateIndex, table.indexes))
    ]
    return ";\n".join(str(element.compile(dialect=DIALECT)) for element in elements)


def filled(table: Table) -> str:
    """Fill a table with rows that differ in every key."""
    columns = [column for column in table.columns if column.identity is None]
    names = ", ".join(column.name for column in columns)
    values = ", ".join(map(made, columns))
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM generate_series(1, {ROWS}) AS g"


def made(column: Column[Any]) -> str:
    if column.name == "agent_id":
        return "1"
    if column.name.startswith("is_"):
        return "CAST(g % 50 = 0 AS integer)"
    kind = column.type.compile(dialect=DIALECT)
    spread = "g" if column.table.name == "room_leases" else f"g % {FEW.get(column.name, ROWS + 1)}"
    return {
        "BYTEA": f"decode(lpad(to_hex({spread}), 32, '0'), 'hex')",
        "TEXT": f"'x' || {spread}",
        "HALFVEC": "'[1,2,3]'",
    }.get(kind, "g")


def text_of(statement: Any) -> str:
    """Return the text of a statement, with two items in each of its lists."""
    if isinstance(statement, RawStatement):
        return statement.text
    return expand(statement, DIALECT, 2)[0]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", INDEXES)
def test_the_pipeline_uses_the_intended_index(postgres_server: PostgresServer, database: str, name: str) -> None:
    statement, index = INDEXES[name]
    plan = postgres_server.run(f"{WITHOUT} EXPLAIN (GENERIC_PLAN) {text_of(statement)}", database)

    assert index in plan
    assert "Seq Scan" not in plan
    assert name in SORTING or "Sort" not in plan


def test_a_search_by_terms_uses_their_index(postgres_server: PostgresServer, database: str) -> None:
    statement = str(search.select_positions("postgresql", 1)).replace(":terms0", "'x1 x2'")
    assert "ix_memories_terms" in postgres_server.run(f"SET enable_seqscan = off; EXPLAIN {statement}", database)


@pytest.mark.long
async def test_a_table_that_has_grown_gets_statistics_at_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "RECHECK_SECONDS", 0.0)
    store_of = open_store(postgres_url)
    async with asyncio.timeout(20), store_of as store:
        connection = await asyncpg.connect(postgres_url)
        while await connection.fetchval("SELECT reltuples FROM pg_class WHERE relname = 'receipts'") <= 0:
            await store.ledger.receive([make_message("Hello", sent_at=system_clock())], system_clock())
        never = "SELECT reltuples FROM pg_class WHERE relname = 'worlds'"
        assert await connection.fetchval(never) == -1  # one row says nothing
        await connection.close()


def test_the_vectors_of_a_room_are_read_by_their_key_where_nearly_all_are_of_another(
    postgres_server: PostgresServer, database: str
) -> None:
    with postgres_server.database(database) as copy:
        values = "agent_id = 1, model = 'm', dimension = 3, kind = 'MESSAGE', audience = 'another'"
        postgres_server.run(f"UPDATE embeddings SET {values}", copy)
        postgres_server.run("VACUUM ANALYZE embeddings", copy)
        plan = postgres_server.run(f"EXPLAIN (GENERIC_PLAN) {text_of(search.NEAREST)}", copy)

    assert "using pk_embeddings" in plan
    assert "uq_embeddings_memory" not in plan
