"""Receiving of inbound messages: their receipts, the rows they need, and stream cursors."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, and_, select

from bot import Entity, Receipt, Role, Room, World, crash_point
from bot.platform import InboundMessage, StreamCursor
from bot.store import StoredEvent, new_receipt
from plugins.sql.core.base import AgentRow
from plugins.sql.core.inserts import upsert
from plugins.sql.core.memory_rows import MEMORY
from plugins.sql.core.schema import cursors, entities, memories, rooms, worlds
from plugins.sql.core.statements import Row, Statement, equals, matches
from plugins.sql.core.values import storable_text
from plugins.sql.stores.entities import ENTITY, find_entities, is_entity_unchanged, put_entities, touch_participants
from plugins.sql.stores.memories import put_memories
from plugins.sql.stores.receipts import (
    INSERT_IF_NEW,
    event_key,
    find_by_keys,
    fixed_values,
    insert_receipts,
    message_key,
    state_values,
)
from plugins.sql.stores.worlds import (
    FIND_ROOMS,
    ROOM,
    WORLD,
    is_place_unchanged,
    participant_state,
    put_rooms,
    put_worlds,
)

FIND_INBOUND_ROWS = Statement(
    lambda _: (
        select(*WORLD, *ROOM, *ENTITY, *MEMORY)
        .select_from(memories)
        .join(rooms, and_(rooms.c.agent_id == memories.c.agent_id, rooms.c.id == memories.c.room_id))
        .join(worlds, and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
        .join(entities, and_(entities.c.agent_id == memories.c.agent_id, equals(entities.c.id, "author")))
        .where(matches(memories, "agent_id", "id"))
    )
)
CURSOR_KEY = ("agent_id", "platform", "account", "name")
CURSOR_NAMES = (*CURSOR_KEY, "value")
SAVE_CURSOR = upsert(cursors, CURSOR_KEY, CURSOR_NAMES)
FIND_CURSOR = Statement(
    lambda _: select(cursors.c.value).where(matches(cursors, "agent_id", "platform", "account", "name"))
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
        save_cursor(connection, agent, cursor)
    if len(inbound_messages) == 1 and (received := _receive_unchanged(connection, agent_row, inbound_messages[0], now)):
        return [received]
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
    received = _store_rows(connection, agent_row, new_events)
    crash_point("ingress.batch")
    insert_receipts(connection, agent_row.number, [receipt for _, receipt in new_events])
    return received


def receive_command(
    agent: int, receipt: Receipt, world: World, room: Room, author: Entity, connection: Connection
) -> Receipt:
    """Store the receipt of a command and the rows it needs; return the one that the command has already."""
    if (existing := _find_known(connection, agent, receipt)) is not None:
        return existing
    if not FIND_ROOMS.rows(connection, agent, ids=[room.id.bytes]):
        put_worlds(connection, agent, [world])
        put_rooms(connection, agent, [room])
    if not find_entities(connection, agent, {author.id}):
        put_entities(connection, agent, [author])
        touch_participants(connection, agent, [(room.id, author.id)])
    if INSERT_IF_NEW.run(connection, *fixed_values(agent, receipt), *state_values(receipt)):
        return receipt
    return _find_known(connection, agent, receipt) or receipt


def _find_known(connection: Connection, agent: int, receipt: Receipt) -> Receipt | None:
    known = find_by_keys(connection, agent, [receipt.key])
    return known.get(event_key(receipt.key)) or known.get(message_key(receipt.key))


def find_inbound(agent: int, receipt: Receipt, connection: Connection) -> InboundMessage | None:
    """Return the message of a receipt with its rows."""
    ids = (receipt.author_id.bytes, agent, receipt.memory_id.bytes)
    row = FIND_INBOUND_ROWS.first(connection, *ids)
    if row is None:
        return None
    values = iter(row)
    world, room = WORLD.take(values), ROOM.take(values)
    author, message = ENTITY.take(values), MEMORY.take(values)
    return InboundMessage(receipt.key, with_role(world, author), room, author, message)


def save_cursor(connection: Connection, agent: int, cursor: StreamCursor) -> None:
    """Store how far a stream has been read."""
    SAVE_CURSOR.run(connection, agent, *cursor_values(cursor))


def cursor_values(cursor: StreamCursor) -> Row:
    """Return the column values of a cursor, without the agent."""
    return tuple(map(storable_text, (cursor.platform, cursor.account, cursor.name, cursor.value)))


def find_cursor(agent: int, platform: str, account: str, name: str, connection: Connection) -> str | None:
    """Return how far a stream has been read."""
    row = FIND_CURSOR.first(connection, agent, storable_text(platform), storable_text(account), storable_text(name))
    return str(row[0]) if row else None


def with_role(world: World, author: Entity) -> World:
    """Return the world with the author's role; members are added, since their role is not stored."""
    if author.id in world.roles:
        return world
    return replace(world, roles={author.id: Role.MEMBER, **world.roles})


def _receive_unchanged(
    connection: Connection, agent_row: AgentRow, inbound: InboundMessage, now: datetime
) -> StoredEvent | None:
    """Store an event whose world, room and author are cached and unchanged; nearly every event is.

    The receipt is inserted first: if the event is known already, nothing else has changed then.
    """
    agent = agent_row.number
    if not is_place_unchanged(connection, agent, inbound.world, inbound.room):
        return None
    if not is_entity_unchanged(connection, agent, inbound.author):
        return None
    receipt = new_receipt(inbound, now)
    if not INSERT_IF_NEW.run(connection, *fixed_values(agent, receipt), *state_values(receipt)):
        return None
    return _store_rows(connection, agent_row, [(inbound, receipt)])[0]


def _store_rows(
    connection: Connection, agent_row: AgentRow, new_events: Sequence[tuple[InboundMessage, Receipt]]
) -> list[StoredEvent]:
    agent, inbound_messages = agent_row.number, [inbound for inbound, _ in new_events]
    worlds = put_worlds(connection, agent, [inbound.world for inbound in inbound_messages])
    rooms = put_rooms(connection, agent, [inbound.room for inbound in inbound_messages])
    people = put_entities(connection, agent, [inbound.author for inbound in inbound_messages])
    touch_participants(connection, agent, [(inbound.room.id, inbound.author.id) for inbound in inbound_messages])
    put_memories(connection, agent, [inbound.message for inbound in inbound_messages])
    received = []
    for inbound, receipt in new_events:
        author = people[inbound.author.id]
        world = with_role(worlds[inbound.world.id], author)
        stored = InboundMessage(inbound.key, world, rooms[inbound.room.id], author, inbound.message)
        participant = participant_state(connection, agent, agent_row.id, inbound.room.id)
        received.append(StoredEvent(receipt, stored, participant, is_new=True))
    return received
