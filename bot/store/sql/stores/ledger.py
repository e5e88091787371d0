"""The ledger of an agent: receipts, steps, deliveries, unreadable events, and look-ups for operators."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, and_, delete, literal_column, select, text

from bot.concurrency.tasks import crash_point
from bot.domain.environment import Entity, Role, Room, World
from bot.domain.inbound import (
    MAX_UNREADABLE_EVENTS,
    InboundMessage,
    StoredEvent,
    StreamCursor,
    UnreadableEvent,
    new_receipt,
)
from bot.domain.ledger import Delivery, DeliveryState, EventOrigin, ModelCall, Receipt, Step
from bot.store.ledger import TurnCommit
from bot.store.sql.core.base import Access, AgentRow
from bot.store.sql.core.mapping import (
    RowMapping,
    count_changed,
    insert_if_new,
    items_parameter,
    limit_parameter,
    matches,
    parameter,
    rows_of,
    text_literal,
    upsert,
)
from bot.store.sql.core.schema import (
    UNFINISHED,
    cursors,
    deliveries,
    entities,
    memories,
    receipts,
    rooms,
    steps,
    unreadable_events,
    worlds,
)
from bot.store.sql.stores.deliveries import DELIVERY, find_deliveries, insert_deliveries, list_deliveries, save_delivery
from bot.store.sql.stores.memories import MEMORY, put_memories
from bot.store.sql.stores.receipts import (
    INSERT_IF_NEW,
    MARK_EVALUATED,
    RECEIPT,
    UNEVALUATED,
    SqlReceiptLists,
    add_model_calls,
    event_key,
    find_by_keys,
    find_receipt,
    insert_receipts,
    list_receipts,
    message_key,
    save_receipts,
)
from bot.store.sql.stores.worlds import (
    ENTITY,
    ROOM,
    WORLD,
    find_entities,
    find_rooms,
    participant_states,
    put_entities,
    put_rooms,
    put_worlds,
    touch_participants,
)

FIND_INBOUND_ROWS = (
    select(*WORLD, *ROOM, *ENTITY, *MEMORY)
    .select_from(memories)
    .join(rooms, and_(rooms.c.agent_id == memories.c.agent_id, rooms.c.id == memories.c.room_id))
    .join(worlds, and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
    .join(
        entities, and_(entities.c.agent_id == memories.c.agent_id, entities.c.id == parameter(entities.c.id, "author"))
    )
    .where(matches(memories, "id"))
)
CURSOR = RowMapping(cursors, StreamCursor)
CURSOR_KEY = ("agent_id", "platform", "account", "name")
SAVE_CURSOR = upsert(cursors, CURSOR_KEY, CURSOR.stored_names)
FIND_CURSOR = select(cursors.c.value).where(matches(cursors, "platform", "account", "name"))
# By room, so that an index is used.
RECEIPTS_OF_MESSAGE = select(*RECEIPT, receipts.c.position).where(
    matches(receipts, "message_id"), receipts.c.room_id.in_(select(rooms.c.id).where(matches(rooms)))
)
# By room as well: each reads one entry at the end of an index.
LAST_MESSAGE_IDS = select(
    rooms.c.id,
    select(receipts.c.message_id)
    .where(
        receipts.c.agent_id == rooms.c.agent_id,
        receipts.c.room_id == rooms.c.id,
        receipts.c.revision == literal_column("0"),
        receipts.c.origin == text_literal(EventOrigin.PLATFORM),
    )
    .order_by(receipts.c.position.desc())
    .limit(literal_column("1"))
    .correlate(rooms)
    .scalar_subquery(),
).where(matches(rooms), rooms.c.id.in_(items_parameter(rooms.c.id)))
UNDELIVERED = (
    select(*DELIVERY)
    .where(matches(deliveries), text(UNFINISHED))
    .order_by(deliveries.c.position.desc())
    .limit(limit_parameter())
)
STEP = RowMapping(steps, Step)
SAVE_STEP = upsert(steps, ("agent_id", "turn_id", "key"), STEP.stored_names)
STEPS_OF_TURN = select(*STEP).where(matches(steps, "turn_id"))
UNREADABLE = RowMapping(unreadable_events, UnreadableEvent)
NEWEST_UNREADABLE = unreadable_events.c.position.desc()
INSERT_UNREADABLE = insert_if_new(unreadable_events, UNREADABLE.stored_names)
LIST_UNREADABLE = (
    select(*UNREADABLE).where(matches(unreadable_events)).order_by(NEWEST_UNREADABLE).limit(limit_parameter())
)
DELETE_SURPLUS_UNREADABLE = delete(unreadable_events).where(
    matches(unreadable_events),
    unreadable_events.c.position
    <= select(unreadable_events.c.position)
    .where(matches(unreadable_events))
    .order_by(NEWEST_UNREADABLE)
    .limit(1)
    .offset(MAX_UNREADABLE_EVENTS)
    .scalar_subquery(),
)


def receive(
    agent_row: AgentRow,
    inbound_messages: Sequence[InboundMessage],
    now: datetime,
    cursor: StreamCursor | None,
    connection: Connection,
) -> list[StoredEvent]:
    """Store new events with the rows they need, and the cursor of their stream."""
    agent = agent_row.number
    if cursor is not None:
        SAVE_CURSOR.execute(connection, CURSOR.values(cursor, agent))
    existing = find_by_keys(connection, agent, [inbound.key for inbound in inbound_messages])
    results: list[StoredEvent | None] = []
    new_events: list[tuple[InboundMessage, Receipt]] = []
    for inbound in inbound_messages:
        by_event, by_message = event_key(inbound.key), message_key(inbound.key)
        previous = existing.get(by_event) or existing.get(by_message)
        if previous is None:
            existing[by_event] = existing[by_message] = receipt = new_receipt(inbound, now)
            new_events.append((inbound, receipt))
        results.append(None if previous is None else StoredEvent(previous))
    stored = iter(store_events(connection, agent_row, new_events))
    return [event or next(stored) for event in results]


def store_events(
    connection: Connection, agent_row: AgentRow, new_events: Sequence[tuple[InboundMessage, Receipt]]
) -> list[StoredEvent]:
    """Store events with their receipts and the rows they need."""
    if not new_events:
        return []
    agent, inbound_messages = agent_row.number, [inbound for inbound, _ in new_events]
    worlds = put_worlds(connection, agent, [inbound.world for inbound in inbound_messages])
    rooms = put_rooms(connection, agent, [inbound.room for inbound in inbound_messages])
    people = put_entities(connection, agent, [inbound.author for inbound in inbound_messages])
    touch_participants(connection, agent, [(inbound.room.id, inbound.author.id) for inbound in inbound_messages])
    put_memories(connection, agent, [inbound.message for inbound in inbound_messages])
    states = participant_states(connection, agent_row, rooms)
    received = []
    for inbound, receipt in new_events:
        author, room = people[inbound.author.id], rooms[inbound.room.id]
        world = with_role(worlds[inbound.world.id], author)
        stored = InboundMessage(inbound.key, world, room, author, inbound.message)
        received.append(StoredEvent(receipt, stored, states[room.id], is_new=True))
    crash_point("ingress.batch")
    insert_receipts(connection, agent, [receipt for _, receipt in new_events])
    return received


def _receive_command(
    agent: int, receipt: Receipt, world: World, room: Room, author: Entity, connection: Connection
) -> Receipt:
    """Store the receipt of a command and the rows it needs; return the one that the command has already."""
    if (existing := _find_known(connection, agent, receipt)) is not None:
        return existing
    if not find_rooms(connection, agent, {room.id}):
        put_worlds(connection, agent, [world])
        put_rooms(connection, agent, [room])
    if not find_entities(connection, agent, {author.id}):
        put_entities(connection, agent, [author])
        touch_participants(connection, agent, [(room.id, author.id)])
    if INSERT_IF_NEW.execute(connection, RECEIPT.values(receipt, agent)).rowcount:
        return receipt
    return _find_known(connection, agent, receipt) or receipt


def _find_known(connection: Connection, agent: int, receipt: Receipt) -> Receipt | None:
    known = find_by_keys(connection, agent, [receipt.key])
    return known.get(event_key(receipt.key)) or known.get(message_key(receipt.key))


def with_role(world: World, author: Entity) -> World:
    """Return the world with the author's role; members are added, since their role is not stored."""
    if author.id in world.roles:
        return world
    return replace(world, roles={author.id: Role.MEMBER, **world.roles})


def _find_inbound(agent: int, receipt: Receipt, connection: Connection) -> InboundMessage | None:
    """Return the message of a receipt with its rows."""
    key = {"agent": agent, "id_": receipt.memory_id, "author": receipt.author_id}
    row = connection.execute(FIND_INBOUND_ROWS, key).first()
    if row is None:
        return None
    values = iter(row)
    world, room = WORLD.take(values), ROOM.take(values)
    author, message = ENTITY.take(values), MEMORY.take(values)
    return InboundMessage(receipt.key, with_role(world, author), room, author, message)


def _record_unreadable(agent: int, events: Sequence[UnreadableEvent], connection: Connection) -> None:
    INSERT_UNREADABLE.execute_all(connection, [UNREADABLE.values(event, agent) for event in events])
    connection.execute(DELETE_SURPLUS_UNREADABLE, {"agent": agent})


def _last_message_ids(agent: int, room_ids: Collection[UUID], connection: Connection) -> dict[UUID, str]:
    rows = rows_of(connection, LAST_MESSAGE_IDS, room_ids, agent=agent)
    return {room_id: message_id for room_id, message_id in rows if message_id is not None}


class SqlLookups(SqlReceiptLists):
    """Answers people; see `LookupStore` and `UnreadableEventStore`."""

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        rows = await self._search(RECEIPTS_OF_MESSAGE, message_id_=message_id)
        return list(RECEIPT.read_all(sorted(rows, key=lambda row: int(row[-1]), reverse=True)))

    async def last_message_ids(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        return await self._database.search(partial(_last_message_ids, self._agent, room_ids))

    async def delivery(self, delivery_id: str) -> Delivery | None:
        found = await self._database.read(lambda db: find_deliveries(db, self._agent, [delivery_id]))
        return next(iter(found), None)

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        return list(DELIVERY.read_all(reversed(await self._search(UNDELIVERED, limit=limit))))

    async def unreadable_events(self, limit: int = 100) -> list[UnreadableEvent]:
        return list(UNREADABLE.read_all(await self._read(LIST_UNREADABLE, limit=limit)))


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
        save_steps(agent, [response], (), connection)
    return insert_deliveries(connection, agent, deliveries)


def save_steps(agent: int, saved: Sequence[Step], receipts: Sequence[Receipt], connection: Connection) -> None:
    """Store steps together with receipts."""
    SAVE_STEP.execute_all(connection, [STEP.values(step, agent) for step in saved])
    save_receipts(connection, agent, receipts)


class SqlLedger(SqlLookups):
    """Stores receipts, steps and deliveries; see `Ledger`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self.health = database.health

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        return await self._database.write(partial(receive, self._agent_row, messages, now, cursor))

    async def receive_command(self, receipt: Receipt, world: World, room: Room, author: Entity) -> Receipt:
        return await self._database.write(partial(_receive_command, self._agent, receipt, world, room, author))

    async def close_command(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> list[Delivery]:
        return await self._database.write(partial(_close_command, self._agent, receipt, deliveries, response))

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        rows = await self._read(FIND_CURSOR, platform_=platform, account_=account, name_=name)
        return str(rows[0][0]) if rows else None

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        await self._database.write(lambda db: save_receipts(db, self._agent, receipts))

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        return await self._database.read(partial(find_receipt, self._agent, receipt_id))

    async def inbound_message(self, receipt: Receipt) -> InboundMessage | None:
        return await self._database.read(partial(_find_inbound, self._agent, receipt))

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        return await self._database.read(partial(list_receipts, self._agent, room_id, is_open, limit))

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        return list(RECEIPT.read_all(await self._read(UNEVALUATED, limit=limit)))

    async def mark_evaluated(self, receipt_ids: Sequence[UUID]) -> None:
        await self._database.write(
            lambda db: count_changed(db, MARK_EVALUATED, receipt_ids, agent=self._agent), durable=False
        )

    async def add_model_calls(self, receipt_id: UUID, calls: Sequence[ModelCall]) -> bool:
        work = partial(add_model_calls, self._agent, receipt_id, calls)
        return await self._database.write(work, durable=False)

    async def record_unreadable(self, events: Sequence[UnreadableEvent]) -> None:
        await self._database.write(partial(_record_unreadable, self._agent, events))

    async def commit(self, turn_commit: TurnCommit) -> list[Delivery]:
        return await self._database.write(partial(_commit_turn, self._agent, turn_commit))

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        is_durable = step.kind != "model"  # an answer lost in a power cut is requested again
        await self._database.write(partial(save_steps, self._agent, [step], receipts), durable=is_durable)

    async def save_traces(self, steps: Sequence[Step]) -> None:
        await self._database.write(partial(save_steps, self._agent, steps, ()), durable=False)

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        return {step.key: step for step in STEP.read_all(await self._read(STEPS_OF_TURN, turn_id_=turn_id))}

    async def save_delivery(self, delivery: Delivery) -> None:
        is_durable = delivery.state is not DeliveryState.SENT  # durable with the next write or checkpoint
        await self._database.write(partial(save_delivery, self._agent, delivery), durable=is_durable)

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        return await self._database.read(partial(list_deliveries, self._agent, is_open, room_id, turn_id))
