"""Texts in a SQLite file that are no UTF-8, for which the driver fails to read a whole result."""

import logging
import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from bot.store import UnreadableRow

logger = logging.getLogger(__name__)

UNDECODABLE = "Could not decode to UTF-8"  # with the stored text behind it, which must not be shown
COLUMN = re.compile(r"column '(\w+)'")
TABLE = re.compile(r"\bFROM (\w+)")


def is_invalid_text(error: BaseException) -> bool:
    """Return whether the driver could not decode a stored text."""
    return isinstance(error, UnicodeDecodeError) or str(error).startswith(UNDECODABLE)


def invalid_text_error(error: BaseException) -> UnreadableRow:
    """Return the error of a result with such a text."""
    column = COLUMN.search(str(error))
    name = f"in the column {column[1]} " if column else ""
    return UnreadableRow(f"a text {name}of the database is no UTF-8: `bot db check` names the row")


def read_rows(connection: Connection, text: str, values: Sequence[Any], error: sqlite3.Error) -> Sequence[Any]:
    """Return the rows of a query that failed with `error`, with U+FFFD for what is no UTF-8; raise any other error."""
    if not is_invalid_text(error) or not text.startswith("SELECT"):
        raise error
    table = TABLE.search(text)
    _report(table[1] if table else "", str(invalid_text_error(error)))
    driver: Any = connection.connection.driver_connection
    driver.text_factory = _decode
    try:
        return list(driver.execute(text, values))
    finally:
        driver.text_factory = str


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def _report(table: str, problem: str) -> None:
    """Log a problem once: a row may be read for every message."""
    logger.error("table %s: %s; it is read with replacement characters", table, problem)
