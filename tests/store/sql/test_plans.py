"""Every statement uses an index, and its order."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import CompoundSelect, Connection, Delete, Select, Update

import bot.store.sql
from bot import Outcome, derived_id
from bot.store import ReceiptQuery
from bot.store.sql.core import upgrade
from bot.store.sql.core.base import Synchronous
from bot.store.sql.core.mapping import InsertStatement
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.stores.ledger import select_by_keys, select_counts, select_page
from tests.store.sql.conftest import expand

MODULES = [
    import_module(module.name) for module in walk_packages(bot.store.sql.__path__, "bot.store.sql.") if not module.ispkg
]
Statement = Select[Any] | CompoundSelect[Any] | Update | Delete | InsertStatement
STATEMENTS = (Select, CompoundSelect, Update, Delete, InsertStatement)
AGENT, NOON = derived_id("agent"), datetime(2026, 5, 4, 12, tzinfo=UTC)
GIVEN_ROWS = re.compile(r"SCAN (given VIRTUAL TABLE|anon_|(\d+ )?CONSTANT ROWS?)")  # lists, a limited subquery
FOR_POSTGRESQL = ("search.NEAREST",)
# They group a range of rows that an index finds, in groups of any order: the costs of some days, a span of time.
GROUPED = (
    *("cache_logs_costs.SUMS_BETWEEN", "cache_logs_costs.GROUPED_SUMS_BETWEEN"),
    *("cache_logs_costs.COUNT_OUTCOMES", "cache_logs_costs.FIND_PERCENTILES", "cache_logs_costs.COUNT_HOURS"),
    *("cache_logs_costs.COUNT_PARTS", "cache_logs_costs.LAST_SENT", "cache_logs_costs.COUNT_VOTES"),
)


def statements_of(module: ModuleType) -> Iterator[tuple[str, Statement]]:
    """Yield the statements of a module with their names, those in dictionaries included."""
    prefix = module.__name__.rpartition(".")[2]
    for name, value in vars(module).items():
        if isinstance(value, STATEMENTS):
            yield f"{prefix}.{name}", value
        elif isinstance(value, dict) and name.isupper():
            for key, item in value.items():
                if isinstance(item, STATEMENTS):
                    yield f"{prefix}.{name}{list(key) if isinstance(key, tuple) else [key]}", item


NAMED = {
    name: statement for module in MODULES for name, statement in statements_of(module) if name not in FOR_POSTGRESQL
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    path: Path = tmp_path_factory.mktemp("plans") / "greenroom.db"
    sqlite.create_file(path)
    opened = sqlite.open_writer(sqlite.build_engine(path), Synchronous.NORMAL)
    upgrade.upgrade_schemas(opened, path)
    yield opened
    sqlite.close_writer(opened)


def plan(connection: Connection, statement: Statement, size: int) -> list[str]:
    """Return the plan of a statement, with that many items in each of its lists."""
    clause = statement.statement("sqlite") if isinstance(statement, InsertStatement) else statement
    text, count = expand(clause, connection.dialect, size)
    return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", (None,) * count)]


def test_statements_are_found() -> None:
    assert len(NAMED) > 50


@pytest.mark.failure("I-14")
@pytest.mark.parametrize("name", sorted(NAMED))
def test_no_statement_scans_or_sorts(connection: Connection, name: str) -> None:
    for line in (line for size in (1, 4, 32) for line in plan(connection, NAMED[name], size)):
        is_grouping = name.startswith(GROUPED)
        given = GIVEN_ROWS.sub("", line)
        assert "SCAN" not in given or (is_grouping and "SCAN (subquery-" in line)
        assert "TEMP B-TREE" not in line or is_grouping


@pytest.mark.failure("I-14")
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("memories.RECENT", "ix_memories_room"),
        ("memories.CONVERSATION", "ix_memories_room"),
        ("memories.RECENT_BEFORE", "ix_memories_room"),
        ("memories.MEMORIES_OF_TURN", "ix_memories_turn"),
        ("memories.COUNT_IN_ROOM", "COVERING INDEX ix_memories_room"),
        ("search.COUNT_LINES", "COVERING INDEX ix_memories_room"),
        ("search.CANDIDATE_ROWS", "INTEGER PRIMARY KEY"),
        ("search.NEIGHBOURS", "COVERING INDEX ix_memories_room"),
        ("ledger.RECEIPT_LISTS[True, False]", "ix_receipts_open"),
        ("ledger.OPEN_DELIVERIES", "ix_deliveries_open"),
        ("ledger.UNDELIVERED", "ix_deliveries_unfinished"),
        ("tasks.FIND_DUE", "ix_tasks_due"),
        ("tasks.NEXT_DUE", "ix_tasks_due"),
        ("tasks.COUNT_TASKS", "ix_tasks_name"),
        ("cache_logs_costs.NEXT_RECEIPT", "ix_receipts_all (agent_id=? AND position>?)"),
        ("cache_logs_costs.COUNT_OUTCOMES['']", "ix_receipts_all (agent_id=? AND position>? AND position<?)"),
        ("cache_logs_costs.FIND_PERCENTILES['platform']", "ix_receipts_all (agent_id=? AND position>? AND position<?)"),
        ("cache_logs_costs.COUNT_HOURS", "ix_receipts_all (agent_id=? AND position>? AND position<?)"),
        ("cache_logs_costs.COUNT_TURNS", "ix_receipts_open"),
        ("cache_logs_costs.COUNT_PARKED", "COVERING INDEX ix_receipts_parked"),
        ("cache_logs_costs.COUNT_PARTS", "ix_deliveries_unfinished"),
        ("cache_logs_costs.COUNT_LATE_TASKS", "ix_tasks_due"),
        ("worlds.FIND_PARTICIPANTS", "ix_participants_active"),
    ],
)
def test_the_pipeline_uses_the_intended_index(connection: Connection, name: str, index: str) -> None:
    assert index in " ".join(plan(connection, NAMED[name], 1))


@pytest.mark.parametrize("count", [1, 4, 64])
def test_each_event_of_a_batch_is_found_by_the_index_of_its_key(connection: Connection, count: int) -> None:
    lines = " ".join(plan(connection, select_by_keys(count), 1))
    assert lines.count("(agent_id=? AND platform=? AND account=? AND event_id=?)") == count
    assert lines.count("(agent_id=? AND room_id=? AND message_id=? AND revision=?)") == count


FILTERS: list[dict[str, Any]] = [
    {},
    {"outcomes": [Outcome.IGNORED]},
    {"rules": ["MUTED"]},
    {"outcomes": [Outcome.IGNORED, Outcome.FAILED], "rules": ["MUTED", "BUDGET_USD"]},
    {"author_id": AGENT},
    {"platforms": ["discord", "telegram"]},
    {"since": NOON, "until": NOON + timedelta(days=1)},
    {"platforms": ["discord"], "author_id": AGENT, "outcomes": [Outcome.IGNORED], "rules": ["MUTED"], "since": NOON},
]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("last", [None, (1, 1)])
def test_no_page_of_receipts_scans_or_sorts(
    connection: Connection, filters: dict[str, Any], last: tuple[int, int] | None
) -> None:
    lines = explain(connection, select_page(1, ReceiptQuery(**filters), last, 50))
    assert all("USING COVERING INDEX ix_receipts_time (agent_id=?" in line for line in lines)
    lines = explain(connection, select_page(1, ReceiptQuery(room_id=AGENT, **filters), last, 50))
    index = (
        "ix_receipts_time (agent_id=? AND received_at"
        if "since" in filters
        else "ix_receipts_room (agent_id=? AND room_id=?"
    )
    assert all(index in line for line in lines)


def test_counts_of_receipts_read_only_their_time(connection: Connection) -> None:
    lines = explain(connection, select_counts(1, ReceiptQuery(since=NOON, until=NOON + timedelta(days=1))))
    assert "USING COVERING INDEX ix_receipts_time (agent_id=? AND received_at>? AND received_at<?)" in lines[0]


def explain(connection: Connection, query: Select[Any]) -> list[str]:
    compiled = query.compile(connection, compile_kwargs={"render_postcompile": True})
    values = (None,) * len(compiled.positiontup or ())
    return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values)]
