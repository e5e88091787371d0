"""How far each platform's streams have been read, in SQL."""

from sqlalchemy import Connection, select

from bot import Cursor
from plugins.sql.schema import cursors
from plugins.sql.statements import Statement, same, upsert
from plugins.sql.values import words

KEY = ("agent_id", "platform", "account", "name")
SAVE = upsert(cursors, KEY, (*KEY, "value"))
FIND = Statement(
    lambda _: select(cursors.c.value).where(
        same(cursors.c.agent_id, "agent"),
        same(cursors.c.platform, "platform"),
        same(cursors.c.account, "account"),
        same(cursors.c.name, "name"),
    ),
    "agent",
    "platform",
    "account",
    "name",
)


def save_cursor(connection: Connection, agent: int, cursor: Cursor) -> None:
    """Note how far a stream has been read."""
    SAVE.run(connection, agent, *map(words, (cursor.platform, cursor.account, cursor.name, cursor.value)))


def find_cursor(agent: int, platform: str, account: str, name: str, connection: Connection) -> str | None:
    """Find how far a stream has been read."""
    row = FIND.first(connection, agent, words(platform), words(account), words(name))
    return str(row[0]) if row else None
