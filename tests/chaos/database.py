"""Queries of the database of a running bot, from outside."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

RECEIPTS = """
SELECT message_id, outcome, rule, hex(turn_id), attempts, hex(memory_id), hex(superseded_by), reason
FROM receipts ORDER BY position
"""
DELIVERIES = """
SELECT d.id, hex(d.turn_id), r.external_id, d.seq, d.part, d.state, d.attempts, d.cause, d.content
FROM deliveries d JOIN rooms r ON r.id = d.room_id ORDER BY d.position
"""

ANSWERS = "SELECT hex(turn_id), result FROM steps WHERE kind = 'model' ORDER BY turn_id, key"


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """A receipt as the database has it."""

    name: str
    outcome: str
    rule: str
    turn: str
    attempts: int
    memory: str
    superseded_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A part as the database has it."""

    id: str
    turn: str
    room: str
    seq: int
    part: int
    state: str
    attempts: int
    cause: str
    content: str


class BotDatabase:
    """Reads and changes one database file; nothing is there before the bot has made it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def receipts(self) -> list[ReceiptRow]:
        """All receipts, the oldest first."""
        with self._open() as database:
            return [ReceiptRow(*row) for row in database.execute(RECEIPTS)]

    def deliveries(self) -> list[DeliveryRow]:
        """All parts, in the order in which they were committed."""
        with self._open() as database:
            return [DeliveryRow(*row) for row in database.execute(DELIVERIES)]

    def answers(self) -> list[tuple[str, str]]:
        """All that the model was paid for, with the turn it was for."""
        with self._open() as database:
            return list(database.execute(ANSWERS))

    def count(self, statement: str) -> int:
        """Ask for one number; zero while there is nothing."""
        try:
            with self._open() as database:
                return int(database.execute(statement).fetchone()[0])
        except sqlite3.OperationalError:  # not made yet
            return 0

    def change(self, statement: str) -> int:
        """Change rows while no bot runs, such as their times; return how many were changed."""
        with closing(sqlite3.connect(self.path, timeout=10)) as database, database:
            return database.execute(statement).rowcount

    def integrity_errors(self) -> list[str]:
        """What the database itself finds wrong."""
        with self._open() as database:
            found = [str(row[0]) for row in database.execute("PRAGMA integrity_check")]
            orphans = [f"a row of {row[0]} has no parent" for row in database.execute("PRAGMA foreign_key_check")]
        return [line for line in found if line != "ok"] + orphans

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)) as database:
            yield database
