"""The ledger of an agent: receipts, steps, deliveries, unreadable events, and look-ups for operators."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, delete, literal_column, select, text

from bot import Entity, Receipt, Room, World
from bot.models import ModelCall
from bot.platform import Delivery, DeliveryState, InboundMessage, StreamCursor
from bot.store import (
    COMMAND_PREFIX,
    MAX_UNREADABLE_EVENTS,
    PLUGIN_MESSAGE_PREFIX,
    Step,
    StepState,
    StoredEvent,
    StoreHealth,
    TurnCommit,
    UnreadableEvent,
)
from plugins.sql.core.inserts import insert_into, upsert
from plugins.sql.core.schema import UNFINISHED, deliveries, receipts, rooms, steps, unreadable_events
from plugins.sql.core.statements import Columns, ListStatement, Row, Statement, column_names, limit_parameter, matches
from plugins.sql.core.values import (
    datetime_of,
    datetime_or_none,
    dumps,
    id_of,
    loads,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)
from plugins.sql.stores.deliveries import DELIVERY, find_deliveries, insert_deliveries, list_deliveries, save_delivery
from plugins.sql.stores.memories import put_memories
from plugins.sql.stores.receipts import (
    MARK_EVALUATED,
    RECEIPT,
    UNEVALUATED,
    SqlReceiptLists,
    add_model_calls,
    find_receipt,
    list_receipts,
    save_receipts,
)
from plugins.sql.stores.receiving import find_cursor, find_inbound, receive, receive_command

# By room, so that an index is used.
RECEIPTS_OF_MESSAGE = Statement(
    lambda _: select(*RECEIPT, receipts.c.position).where(
        matches(receipts, "agent_id"),
        receipts.c.room_id.in_(select(rooms.c.id).where(matches(rooms, "agent_id"))),
        matches(receipts, "message_id"),
    )
)
# By room as well: each reads one entry at the end of an index.
LAST_MESSAGE_IDS = ListStatement(
    lambda ids: select(
        rooms.c.id,
        select(receipts.c.message_id)
        .where(
            receipts.c.agent_id == rooms.c.agent_id,
            receipts.c.room_id == rooms.c.id,
            receipts.c.revision == literal_column("0"),
            *(
                receipts.c.message_id.not_like(literal_column(f"'{prefix}%'"))
                for prefix in (PLUGIN_MESSAGE_PREFIX, COMMAND_PREFIX)
            ),
        )
        .order_by(receipts.c.position.desc())
        .limit(literal_column("1"))
        .correlate(rooms)
        .scalar_subquery(),
    ).where(matches(rooms, "agent_id"), rooms.c.id.in_(ids))
)
UNDELIVERED = Statement(
    lambda _: (
        select(*DELIVERY)
        .where(matches(deliveries, "agent_id"), text(UNFINISHED))
        .order_by(deliveries.c.position.desc())
        .limit(limit_parameter())
    )
)


def _read_step(row: Row) -> Step:
    turn_id, key, kind, state, effect, result, at = row
    return Step(id_of(turn_id), key, kind, StepState(state), effect, loads(result), datetime_or_none(at))


STEP_NAMES = column_names(steps)
STEP = Columns(steps, STEP_NAMES[1:], _read_step)
SAVE_STEP = upsert(steps, ("agent_id", "turn_id", "key"), STEP_NAMES)
STEPS_OF_TURN = Statement(lambda _: select(*STEP).where(matches(steps, "agent_id", "turn_id")))


def _read_unreadable(row: Row) -> UnreadableEvent:
    platform, account, event_id, received_at, cause, raw = row
    return UnreadableEvent(platform, account, event_id, datetime_of(received_at), cause, raw)


UNREADABLE_NAMES = column_names(unreadable_events)
UNREADABLE = Columns(unreadable_events, UNREADABLE_NAMES[1:], _read_unreadable)
UNREADABLE_OF_AGENT = matches(unreadable_events, "agent_id")
NEWEST_UNREADABLE = unreadable_events.c.position.desc()
INSERT_UNREADABLE = Statement(
    lambda insert: insert_into(unreadable_events, UNREADABLE_NAMES)(insert).on_conflict_do_nothing()
)
LIST_UNREADABLE = Statement(
    lambda _: select(*UNREADABLE).where(UNREADABLE_OF_AGENT).order_by(NEWEST_UNREADABLE).limit(limit_parameter())
)
DELETE_SURPLUS_UNREADABLE = Statement(
    lambda _: delete(unreadable_events).where(
        UNREADABLE_OF_AGENT,
        unreadable_events.c.position
        <= select(unreadable_events.c.position)
        .where(UNREADABLE_OF_AGENT)
        .order_by(NEWEST_UNREADABLE)
        .limit(1)
        .offset(MAX_UNREADABLE_EVENTS)
        .scalar_subquery(),
    )
)


def _record_unreadable(agent: int, events: Sequence[UnreadableEvent], connection: Connection) -> None:
    rows = [
        (
            agent,
            storable_text(event.platform),
            storable_text(event.account),
            storable_text(event.event_id),
            microseconds_of(event.received_at),
            storable_text(event.cause),
            storable_text(event.raw),
        )
        for event in events
    ]
    INSERT_UNREADABLE.run_many(connection, rows)
    DELETE_SURPLUS_UNREADABLE.run(connection, agent)


def _receipts_of_message(agent: int, message_id: str, connection: Connection) -> list[Receipt]:
    rows = RECEIPTS_OF_MESSAGE.rows(connection, agent, storable_text(message_id))
    newest_first = sorted(rows, key=lambda row: int(row[-1]), reverse=True)
    return list(RECEIPT.read_all(newest_first))


def _last_message_ids(agent: int, room_ids: Collection[UUID], connection: Connection) -> dict[UUID, str]:
    rows = LAST_MESSAGE_IDS.rows(connection, agent, ids=[room_id.bytes for room_id in room_ids])
    return {id_of(room_id): message_id for room_id, message_id in rows if message_id is not None}


def _find_delivery(agent: int, delivery_id: str, connection: Connection) -> Delivery | None:
    return next(iter(find_deliveries(connection, agent, [storable_text(delivery_id)])), None)


def _find_undelivered(agent: int, limit: int, connection: Connection) -> list[Delivery]:
    return list(DELIVERY.read_all(reversed(UNDELIVERED.rows(connection, agent, limit))))


class SqlLookups(SqlReceiptLists):
    """Answers people; see `LookupStore` and `UnreadableEventStore`."""

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        return await self._database.search(partial(_receipts_of_message, self._agent, message_id))

    async def last_message_ids(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        return await self._database.search(partial(_last_message_ids, self._agent, room_ids))

    async def delivery(self, delivery_id: str) -> Delivery | None:
        return await self._database.read(partial(_find_delivery, self._agent, delivery_id))

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        return await self._database.search(partial(_find_undelivered, self._agent, limit))

    async def unreadable_events(self, limit: int = 100) -> list[UnreadableEvent]:
        rows = await self._database.read(lambda db: LIST_UNREADABLE.rows(db, self._agent, limit))
        return list(UNREADABLE.read_all(rows))


def _commit_turn(agent: int, turn_commit: TurnCommit, connection: Connection) -> list[Delivery]:
    if turn_commit.receipts and not save_receipts(connection, agent, turn_commit.receipts):
        return find_deliveries(connection, agent, [delivery.id for delivery in turn_commit.deliveries])
    put_memories(connection, agent, turn_commit.replies)
    return insert_deliveries(connection, agent, turn_commit.deliveries)


def _close_command(
    agent: int, receipt: Receipt, deliveries: Sequence[Delivery], response: Step | None, connection: Connection
) -> list[Delivery]:
    is_closed = save_receipts(connection, agent, [receipt])
    if is_closed and response is not None:
        SAVE_STEP.run(connection, *step_values(agent, response))
    return insert_deliveries(connection, agent, deliveries)


def _save_step(agent: int, step: Step, receipts: Sequence[Receipt], connection: Connection) -> None:
    SAVE_STEP.run(connection, *step_values(agent, step))
    save_receipts(connection, agent, receipts)


def step_values(agent: int, step: Step) -> Row:
    """Return the column values of a step."""
    return (
        agent,
        step.turn_id.bytes,
        storable_text(step.key),
        storable_text(step.kind),
        step.state.value,
        storable_text(step.effect),
        dumps(step.result),
        microseconds_or_none(step.recorded_at),
    )


class SqlLedger(SqlLookups):
    """Stores receipts, steps and deliveries; see `Ledger`."""

    @property
    def health(self) -> StoreHealth:
        return self._database.health

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        return await self._database.write(partial(receive, self._agent_row, messages, now, cursor))

    async def receive_command(self, receipt: Receipt, world: World, room: Room, author: Entity) -> Receipt:
        return await self._database.write(partial(receive_command, self._agent, receipt, world, room, author))

    async def close_command(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> list[Delivery]:
        return await self._database.write(partial(_close_command, self._agent, receipt, deliveries, response))

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        return await self._database.read(partial(find_cursor, self._agent, platform, account, name))

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self._database.write(lambda db: save_receipts(db, self._agent, receipts))

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return await self._database.read(partial(find_receipt, self._agent, receipt_id))

    async def inbound_message(self, receipt: Receipt) -> InboundMessage | None:
        return await self._database.read(partial(find_inbound, self._agent, receipt))

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        return await self._database.read(partial(list_receipts, self._agent, room_id, is_open, limit))

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        rows = await self._database.read(lambda db: UNEVALUATED.rows(db, self._agent, limit))
        return list(RECEIPT.read_all(rows))

    async def mark_evaluated(self, receipt_ids: Sequence[UUID]) -> None:
        ids = [receipt_id.bytes for receipt_id in receipt_ids]
        await self._database.write(lambda db: MARK_EVALUATED.count(db, self._agent, ids=ids), durable=False)

    async def add_model_calls(self, receipt_id: UUID, calls: Sequence[ModelCall]) -> bool:
        work = partial(add_model_calls, self._agent, receipt_id, calls)
        return await self._database.write(work, durable=False)

    async def record_unreadable(self, events: Sequence[UnreadableEvent]) -> None:
        await self._database.write(partial(_record_unreadable, self._agent, events))

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        return await self._database.write(partial(_commit_turn, self._agent, turn_commit))

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        is_durable = step.kind != "model"  # an answer lost in a power cut is requested again
        await self._database.write(partial(_save_step, self._agent, step, receipts), durable=is_durable)

    async def save_traces(self, steps: Sequence[Step]) -> None:
        rows = [step_values(self._agent, step) for step in steps]
        await self._database.write(lambda db: SAVE_STEP.run_many(db, rows), durable=False)

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        rows = await self._database.read(lambda db: STEPS_OF_TURN.rows(db, self._agent, turn_id.bytes))
        return {step.key: step for step in STEP.read_all(rows)}

    async def save_delivery(self, delivery: Delivery) -> None:
        is_durable = delivery.state is not DeliveryState.SENT  # durable with the next write or checkpoint
        await self._database.write(partial(save_delivery, self._agent, delivery), durable=is_durable)

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return await self._database.read(partial(list_deliveries, self._agent, is_open, room_id, turn_id))
