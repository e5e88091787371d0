"""Filling a SQLite file with what a long life would have left in it, row upon row beside the store."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.exchange import Exchange, attempting, closed, make_exchange, sent
from bot.store import first_claim
from plugins.sql.core.values import moment
from plugins.sql.stores.deliveries import NAMES as DELIVERY_NAMES
from plugins.sql.stores.deliveries import part_values
from plugins.sql.stores.ledger import STEP_NAMES, step_values
from plugins.sql.stores.memories import MEMORY_NAMES, memory_values
from plugins.sql.stores.receipts import NAMES as RECEIPT_NAMES
from plugins.sql.stores.receipts import first_values, later_values

APART = timedelta(seconds=0.5)  # so that nothing is old enough to be removed
Rows = Iterator[Sequence[Any]]


def fill(path: Path, agent: int, rooms: Sequence[str], exchanges: range) -> None:
    """Put exchanges of these rooms into a file, room after room in turn; their numbers say when they were."""
    samples = [make_exchange(room) for room in rooms]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("synchronous = OFF", "cache_size = -400000", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        for table, names, rows in (
            ("receipts", RECEIPT_NAMES, _receipts(agent, samples, exchanges)),
            ("memories", MEMORY_NAMES, _memories(agent, samples, exchanges)),
            ("steps", STEP_NAMES, _steps(agent, samples, exchanges)),
            ("deliveries", (*DELIVERY_NAMES, "seq"), _deliveries(agent, samples, exchanges)),
        ):
            _insert(connection, table, names, rows)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _insert(connection: sqlite3.Connection, table: str, names: Sequence[str], rows: Rows) -> None:
    columns, places = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)


def _receipts(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    drafts = []
    for one in samples:
        receipt = closed(first_claim(one.arrival, one.at), one)
        values = dict(zip(RECEIPT_NAMES, first_values(agent, receipt) + later_values(receipt), strict=True))
        drafts.append(values)
    for number in exchanges:
        values, at = drafts[number % len(drafts)], _at(samples, number)
        values |= {"id": _id(number, 1), "memory_id": _id(number, 2), "turn_id": _id(number, 4)}
        values |= {"event_id": f"event-{number:032x}", "message_id": f"{number:032x}"}
        values |= {"received_at": at, "claimed_at": at, "closed_at": at}
        yield tuple(values.values())


def _memories(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    drafts = [
        [
            dict(zip(MEMORY_NAMES, memory_values(agent, memory), strict=True))
            for memory in (one.arrival.message, one.reply)
        ]
        for one in samples
    ]
    for number in exchanges:
        said, replied = drafts[number % len(drafts)]
        at = _at(samples, number)
        said |= {"id": _id(number, 2), "created_at": at, "external_id": f"{number:032x}"}
        yield tuple(said.values())
        replied |= {"id": _id(number, 3), "created_at": at + 1000, "turn_id": _id(number, 4)}
        yield tuple(replied.values())


def _steps(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    values = dict(zip(STEP_NAMES, step_values(agent, samples[0].step), strict=True))
    for number in exchanges:
        values |= {"turn_id": _id(number, 4), "at": _at(samples, number)}
        yield tuple(values.values())


def _deliveries(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    parts = [sent(attempting(one.part, one)) for one in samples]
    drafts = [dict(zip(DELIVERY_NAMES, part_values(agent, part), strict=True)) for part in parts]
    for number in exchanges:
        values, at = drafts[number % len(drafts)], _at(samples, number)
        values |= {"id": f"{number:032x}", "turn_id": _id(number, 4), "memory_id": _id(number, 3)}
        values |= {"created_at": at, "first_attempt_at": at, "reply_to": f"{number:032x}"}
        values["seq"] = 1 + number // len(drafts)
        yield tuple(values.values())


def _id(number: int, which: int) -> bytes:
    """Make an id that is in the order of time, as ours are, and older than any that is made now."""
    return (1 << 64 | number << 3 | which).to_bytes(16, "big")


def _at(samples: Sequence[Exchange], number: int) -> int:
    """Say when an exchange was: the first a long time ago, all of them before now."""
    return moment(samples[0].at - timedelta(days=6)) + number * (APART // timedelta(microseconds=1))
