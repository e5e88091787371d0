"""Measure how fast the Console's requests are answered with 100,000 receipts and 1,000,000 messages.

Each is asked twice: first as after a start, then again. The figures of past hours are stored before, as the bot does
while it runs.
"""

import asyncio
import sqlite3
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.exchange import AGENT, make_exchanges, store_exchanges
from benchmarks.figures import Row, report_progress
from benchmarks.filling import fill
from bot import derived_id
from bot.store import CostEntry
from bot.store.protocols import CostStore
from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite.storage import OpenFiles
from tests.adapters.web.conftest import RunningServer, run_server

RECEIPTS, MESSAGES = 100_000, 1_000_000
ROOMS = 2_000
PEOPLE_A_DAY, DAYS = 3_000, 30
ALLOWED_MS = 200.0
FIRST_AGENT = 1  # its number in a new file
NAMES = [f"room {number}" for number in range(ROOMS)]
LISTS = (
    *("overview", "metrics", "metrics?range=day", "metrics?range=month", "models", "receipts/counts", "agents"),
    *("rooms?limit=200", "rooms?q=room 19", "rooms/{room}/messages?limit=100", "rooms/{room}/messages?outcome=failed"),
    *("receipts", "receipts?outcome=parked", "receipts?rule=MUTED", "receipts?room={room}", "receipts?outcome=expired"),
    *("outbox", "outbox?state=failed", "people", "people?q=person", "tasks", "conversations", "search?q=room 19"),
    *("costs?by=day&by=model", "costs?by=model", "costs?by=purpose", "costs?by=room&limit=50", "limits"),
    *("costs?by=person&limit=50", "memories?query=second half of the plan", "logs"),
)


def measure_console() -> list[Row]:
    """Fill a file, start a server with it, and ask for each list and figure."""
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "console.db")
        files = OpenFiles()
        async with files.open_store(path, AGENT, synchronous=Synchronous.NORMAL) as store:
            await store_exchanges(store, make_exchanges(NAMES, ROOMS), 8)
            await _add_costs(store.costs)
        report_progress(f"filling a file with {RECEIPTS:,} receipts and {MESSAGES:,} messages")
        fill(path, FIRST_AGENT, NAMES, range(ROOMS, RECEIPTS))
        await asyncio.to_thread(_vary, path)
        async with (
            files.open_store(path, AGENT, synchronous=Synchronous.NORMAL) as store,
            run_server(stores={"Ada": store}) as server,
        ):
            await server.runtime.handles[0].activity.refresh()
            room = (await server.get("/api/rooms?limit=1"))["rooms"][0]["id"]
            return [await _ask(server, f"/api/{item.format(room=room)}") for item in LISTS]


async def _ask(server: RunningServer, path: str) -> Row:
    times = []
    for _ in range(2):
        started = time.perf_counter()
        answer = await server.request("GET", path, headers=server.bearer)
        body = await answer.read()
        times.append(1e3 * (time.perf_counter() - started))
        if answer.status != 200:
            raise SystemExit(f"GET {path}: {answer.status} {body.decode()}")
    verdict = "" if max(times) < ALLOWED_MS else f" (goal: less than {ALLOWED_MS:.0f} ms)"
    report_progress(f"GET {path}: {times[0]:.1f}, {times[1]:.1f} ms")
    return f"GET {path}", f"{times[0]:6.1f} ms, again {times[1]:6.1f} ms, {len(body):,} bytes{verdict}"


def _vary(path: Path) -> None:
    """Spread the receipts over a month, with several outcomes, and add what they do not bring."""
    now = datetime.now(UTC)
    start = int((now - timedelta(days=DAYS)).timestamp() * 1e6)
    step = int(timedelta(days=DAYS) / timedelta(microseconds=1)) // RECEIPTS
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.execute(
            f"UPDATE receipts SET received_at = {start} + position * {step}, "
            f"closed_at = {start} + position * {step} + 900000 + position % 97 * 30000, "
            "outcome = CASE WHEN position % 10 < 5 THEN 'ignored' WHEN position % 50 = 9 THEN 'failed' "
            "WHEN position % 5000 = 6 THEN 'parked' ELSE outcome END, "
            "rule = CASE WHEN position % 10 < 3 THEN 'MUTED' WHEN position % 10 < 5 THEN 'IGNORE' "
            "WHEN position % 50 = 9 THEN 'ModelUnavailable' WHEN position % 5000 = 6 THEN 'restore' ELSE rule END"
        )
        connection.execute("UPDATE deliveries SET state = 'failed', cause = 'refused' WHERE position % 500 = 0")
        connection.execute("UPDATE deliveries SET state = 'unknown', cause = 'timeout' WHERE position % 700 = 1")
        _copy(connection, "memories", MESSAGES - 2 * RECEIPTS, "kind = 'MESSAGE'")
        _add_people(connection, start)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _copy(connection: sqlite3.Connection, table: str, count: int, condition: str) -> None:
    """Insert rows like the first ones, with new ids."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")][1:]
    values = {"id": "randomblob(16)", "external_id": "'copy ' || position || ' ' || n", "turn_id": "NULL"}
    connection.execute(
        f"INSERT INTO {table} ({', '.join(names)}) WITH numbers (n) AS "
        f"(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <= {count} / 10000) "
        f"SELECT {', '.join(values.get(name, name) for name in names)} FROM numbers, "
        f"(SELECT * FROM {table} WHERE {condition} ORDER BY position LIMIT 10000) LIMIT {count}"
    )


def _add_people(connection: sqlite3.Connection, start: int) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO activity (agent_id, entity_id, first_at, last_at, messages, answered) "
        f"SELECT agent_id, id, {start}, {start} + position * 1000, 30, 10 FROM entities WHERE platform <> 'greenroom'"
    )


async def _add_costs(costs: CostStore) -> None:
    """Add a row of costs for each person, day and purpose."""
    today = datetime.now(UTC).date()
    for age in range(DAYS):
        await costs.add(
            [
                CostEntry(
                    today - timedelta(days=age),
                    "a-model",
                    derived_id(NAMES[number % 500]),
                    derived_id(str(number)),
                    calls=1,
                    tokens_in=900,
                    tokens_out=60,
                    cost=0.002,
                    purpose=purpose,
                )
                for number in range(PEOPLE_A_DAY)
                for purpose in ("reply", "should respond")
            ]
        )
