"""Fill a SQLite file with the rows of many exchanges, without the store."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.exchange import Exchange, close_receipt, make_exchange, mark_attempting, mark_sent
from bot.store import new_receipt
from bot.store.sql.core.mapping import microseconds_of
from bot.store.sql.stores.ledger import DELIVERY, RECEIPT, STEP, delivery_columns, receipt_columns
from bot.store.sql.stores.memories import MEMORY, memory_columns

INTERVAL = timedelta(seconds=0.5)  # so that no row is old enough to expire
Rows = Iterator[Sequence[Any]]


def fill(path: Path, agent: int, rooms: Sequence[str], exchanges: range) -> None:
    """Insert exchanges into a file, in each room in turn; the number determines the time."""
    samples = [make_exchange(room) for room in rooms]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("synchronous = OFF", "cache_size = -400000", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        for table, names, rows in (
            ("receipts", RECEIPT.stored_names, _receipts(agent, samples, exchanges)),
            ("memories", MEMORY.stored_names, _memories(agent, samples, exchanges)),
            ("steps", STEP.stored_names, _steps(agent, samples, exchanges)),
            ("deliveries", DELIVERY.stored_names, _deliveries(agent, samples, exchanges)),
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
    for exchange in samples:
        receipt = close_receipt(new_receipt(exchange.inbound, exchange.at), exchange)
        values = dict(zip(RECEIPT.stored_names, RECEIPT.encode(receipt, agent, receipt_columns(receipt)), strict=True))
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
            dict(zip(MEMORY.stored_names, MEMORY.encode(memory, agent, memory_columns(memory)), strict=True))
            for memory in (exchange.inbound.message, exchange.reply)
        ]
        for exchange in samples
    ]
    for number in exchanges:
        message, reply = drafts[number % len(drafts)]
        at = _at(samples, number)
        message |= {"id": _id(number, 2), "created_at": at, "external_id": f"{number:032x}"}
        yield tuple(message.values())
        reply |= {"id": _id(number, 3), "created_at": at + 1000, "turn_id": _id(number, 4)}
        yield tuple(reply.values())


def _steps(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    values = dict(zip(STEP.stored_names, STEP.encode(samples[0].step, agent), strict=True))
    for number in exchanges:
        values |= {"turn_id": _id(number, 4), "at": _at(samples, number)}
        yield tuple(values.values())


def _deliveries(agent: int, samples: Sequence[Exchange], exchanges: range) -> Rows:
    parts = [mark_sent(mark_attempting(exchange.delivery, exchange)) for exchange in samples]
    drafts = [
        dict(zip(DELIVERY.stored_names, DELIVERY.encode(part, agent, delivery_columns(part)), strict=True))
        for part in parts
    ]
    for number in exchanges:
        values, at = drafts[number % len(drafts)], _at(samples, number)
        values |= {"id": f"{number:032x}", "turn_id": _id(number, 4), "memory_id": _id(number, 3)}
        values |= {"created_at": at, "first_attempt_at": at, "reply_to": f"{number:032x}"}
        values["seq"] = 1 + number // len(drafts)
        yield tuple(values.values())


def _id(number: int, part: int) -> bytes:
    """Return an id in the order of time, older than any new id."""
    return (1 << 64 | number << 3 | part).to_bytes(16, "big")


def _at(samples: Sequence[Exchange], number: int) -> int:
    """Return the time of an exchange in µs: the first six days ago, all before now."""
    return microseconds_of(samples[0].at - timedelta(days=6)) + number * (INTERVAL // timedelta(microseconds=1))
