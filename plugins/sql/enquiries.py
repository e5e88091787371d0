"""What people ask the books for, in SQL; it may take longer than what stands on a message's road."""

from collections.abc import Collection
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, literal_column, select, text

from bot import Delivery, Receipt
from plugins.sql.book import Book
from plugins.sql.deliveries import DELIVERY, FIND, delivery_of
from plugins.sql.receipts import RECEIPT, receipt_of
from plugins.sql.schema import UNFINISHED, deliveries, receipts, rooms
from plugins.sql.statements import Listing, Statement, limit, same
from plugins.sql.values import id_of, words

# Room by room, so that it is an index that finds them.
CALLED = Statement(
    lambda _: select(*RECEIPT, receipts.c.position).where(
        same(receipts.c.agent_id, "agent"),
        receipts.c.room_id.in_(select(rooms.c.id).where(same(rooms.c.agent_id, "of_agent"))),
        same(receipts.c.message_id, "message"),
    ),
    "agent",
    "of_agent",
    "message",
)
# Room by room likewise: each is one step to the end of an index.
LAST_SEEN = Listing(
    lambda ids: select(
        rooms.c.id,
        select(receipts.c.message_id)
        .where(
            receipts.c.agent_id == rooms.c.agent_id,
            receipts.c.room_id == rooms.c.id,
            receipts.c.revision == literal_column("0"),
        )
        .order_by(receipts.c.position.desc())
        .limit(literal_column("1"))
        .correlate(rooms)
        .scalar_subquery(),
    ).where(same(rooms.c.agent_id, "agent"), rooms.c.id.in_(ids)),
    "agent",
)
UNSENT = Statement(
    lambda _: (
        select(*DELIVERY)
        .where(same(deliveries.c.agent_id, "agent"), text(UNFINISHED))
        .order_by(deliveries.c.position.desc())
        .limit(limit())
    ),
    "agent",
    "limit",
)


def _called(agent: int, message_id: str, connection: Connection) -> list[Receipt]:
    rows = CALLED.rows(connection, agent, agent, words(message_id))
    newest_first = sorted(rows, key=lambda row: int(row[-1]), reverse=True)
    return [receipt_of(row[:-1]) for row in newest_first]


def _last_seen(agent: int, room_ids: Collection[UUID], connection: Connection) -> dict[UUID, str]:
    rows = LAST_SEEN.rows(connection, agent, ids=[one.bytes for one in room_ids])
    return {id_of(room_id): message_id for room_id, message_id in rows if message_id is not None}


def _delivery(agent: int, delivery_id: str, connection: Connection) -> Delivery | None:
    rows = FIND.rows(connection, agent, ids=[words(delivery_id)])
    return delivery_of(rows[0]) if rows else None


def _unsent(agent: int, most: int, connection: Connection) -> list[Delivery]:
    return [delivery_of(row) for row in reversed(UNSENT.rows(connection, agent, most))]


class SqlEnquiries(Book):
    """Answers people; see `EnquiryStore`."""

    async def called(self, message_id: str) -> list[Receipt]:
        return await self._database.search(partial(_called, self._agent, message_id))

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        return await self._database.search(partial(_last_seen, self._agent, room_ids))

    async def delivery(self, delivery_id: str) -> Delivery | None:
        return await self._database.read(partial(_delivery, self._agent, delivery_id))

    async def unsent(self, limit: int = 100) -> list[Delivery]:
        return await self._database.search(partial(_unsent, self._agent, limit))
