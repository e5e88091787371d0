"""Edits, deletions, reactions, membership, erasure and migration of stored data.

A migration keeps receipts in the old room: the new one may number its messages from 1 again.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Table, Update

from bot.domain.environment import ParticipantState, Room, World
from bot.domain.inbound import (
    MAX_SCANNED_ROWS,
    MEMBERSHIP_EVENT_TTL,
    DeletionResult,
    EditResult,
    ErasureResult,
    InboundMessage,
    MembershipChange,
    MembershipUpdate,
    Reaction,
    StoredEvent,
    cancel_receipt,
    cancel_unsent,
    messages_by_external_id,
    orphaned_deliveries,
    plan_edit,
)
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.store.search import audience_mark
from bot.store.sql.core.base import SqlStorePart, reads, writes
from bot.store.sql.core.mapping import LIMIT, matches, storable_text, text_literal
from bot.store.sql.core.schema import (
    components,
    deliveries,
    embeddings,
    logs,
    memories,
    participants,
    proposals,
    receipts,
    take_overs,
    tasks,
)
from bot.store.sql.stores import search
from bot.store.sql.stores.cache_logs_costs import ADD_VALUE, DELETE_EXPIRED
from bot.store.sql.stores.erasure import Erasure, OnCancelled, delete_traces, remove_quotations_in_room
from bot.store.sql.stores.ledger import (
    DELIVERY,
    IN_ROOM,
    RECEIPT,
    Arrival,
    find_by_keys,
    find_deliveries,
    insert_receipts,
    list_deliveries,
    list_receipts,
    list_unsent,
    receive,
    save_deliveries,
    save_receipts,
    store_events,
    withdraw_proposals,
)
from bot.store.sql.stores.memories import FIND_MEMORIES, MEMORY, delete_with_derived, put_memories
from bot.store.sql.stores.summaries import DELETE_SUMMARY, EMPTY_IN_ROOM, empty_summaries_with
from bot.store.sql.stores.worlds import (
    ROOM,
    ROOM_IDS_OF_WORLD,
    UPSERT_LISTED_ROOM,
    find_entities,
    find_room,
    find_rooms,
    find_world,
    put_entities,
    put_environment,
    put_rooms,
    put_worlds,
    rooms_of_world,
)

NO_LIMIT = 2**31 - 1
SOURCE_MEMORIES = memories.alias("said")

RECEIPTS_OF_MESSAGES = sa.select(*RECEIPT).where(IN_ROOM, receipts.c.message_id.in_(sa.bindparam("items")))
LATEST_DELIVERIES = (
    sa.select(*DELIVERY).where(matches(deliveries, "room_id")).order_by(deliveries.c.seq.desc()).limit(LIMIT)
)
DERIVED_FROM_ROOM = sa.select(memories.c.id).where(
    matches(memories),
    memories.c.source_id.in_(
        sa.select(SOURCE_MEMORIES.c.id).where(
            SOURCE_MEMORIES.c.agent_id == memories.c.agent_id, matches(SOURCE_MEMORIES, "room_id")
        )
    ),
)
DELETE_KIND_IN_ROOM = sa.delete(memories).where(matches(memories, "room_id", "kind"))
REMOVE_MEMBER = sa.delete(participants).where(
    matches(participants, "entity_id"),
    participants.c.state == text_literal(ParticipantState.DEFAULT),  # keep rows that contain a decision about the room
    participants.c.room_id.in_(ROOM_IDS_OF_WORLD),
)


def _is_new_event(connection: Connection, agent: int, key: str, now: datetime) -> bool:
    connection.execute(DELETE_EXPIRED, {"agent": agent, "now": now})
    row = {"agent_id": agent, "key": key, "value": True, "expires_at": now + MEMBERSHIP_EVENT_TTL}
    return bool(ADD_VALUE.execute(connection, row).rowcount)


def _upsert_listed_rooms(connection: Connection, agent: int, listed: tuple[Room, ...]) -> frozenset[UUID]:
    existing = find_rooms(connection, agent, {room.id for room in listed})
    changed = [ROOM.values(room, agent) for room in listed if existing.get(room.id) != room]
    UPSERT_LISTED_ROOM.execute_all(connection, changed)
    return frozenset(room.id for room in listed) - existing.keys()


TARGET_PARTICIPANTS, TARGET_DELIVERIES = participants.alias("there"), deliveries.alias("placed")
TARGET_COMPONENTS = components.alias("kept")


def _replace_mark(terms: ColumnElement[str], place: str) -> ColumnElement[str]:
    """Return terms with the mark of another room or world: `old_` and `new_` are parameters."""
    return sa.func.replace(terms, sa.bindparam(f"old_{place}_mark"), sa.bindparam(f"new_{place}_mark"))


MOVE_MEMORIES = (
    sa.update(memories)
    .where(matches(memories, "room_id"))
    .values(
        room_id=sa.bindparam("new"),
        world_id=sa.bindparam("new_world"),
        terms=_replace_mark(_replace_mark(memories.c.terms, "room"), "world"),
    )
)
MOVE_PARTICIPANTS = (
    sa.update(participants)
    .where(
        matches(participants, "room_id"),
        participants.c.entity_id.not_in(
            sa.select(TARGET_PARTICIPANTS.c.entity_id).where(
                matches(TARGET_PARTICIPANTS), TARGET_PARTICIPANTS.c.room_id == sa.bindparam("new")
            )
        ),
    )
    .values(room_id=sa.bindparam("new"))
)
DELETE_OLD_PARTICIPANTS = sa.delete(participants).where(matches(participants, "room_id"))
RETARGET_DELIVERY = (
    sa.update(deliveries)
    .where(matches(deliveries, "id"))
    .values(
        room_id=sa.bindparam("new"),
        account=sa.bindparam("account"),
        target=sa.bindparam("target"),
        seq=sa.select(sa.func.coalesce(sa.func.max(TARGET_DELIVERIES.c.seq), 0) + 1)
        .where(matches(TARGET_DELIVERIES), TARGET_DELIVERIES.c.room_id == sa.bindparam("new"))
        .scalar_subquery(),
    )
)
MOVE_WORLD_COMPONENTS = (
    sa.update(components)
    .where(
        matches(components, "world_id"),
        ~sa.select(TARGET_COMPONENTS.c.id)
        .where(
            *(
                TARGET_COMPONENTS.c[name] == components.c[name]
                for name in ("agent_id", "entity_id", "type", "source_entity_id")
            ),
            TARGET_COMPONENTS.c.world_id == sa.bindparam("new"),
        )
        .exists(),
    )
    .values(world_id=sa.bindparam("new"))
)


def _update_audience(place: str) -> Update:
    """Return a statement that sets the audience of the vectors of a room or world to that of their memories."""
    audience = sa.select(search.AUDIENCE).where(memories.c.position == embeddings.c.memory).scalar_subquery()
    in_place = sa.select(memories.c.position).where(matches(memories), memories.c[place] == sa.bindparam("new"))
    return sa.update(embeddings).where(embeddings.c.memory.in_(in_place)).values(audience=audience)


def _move_rows(table: Table, place: str) -> Update:
    return sa.update(table).where(matches(table, place)).values({place: sa.bindparam("new")})


MOVE_VECTORS, MOVE_WORLD_VECTORS = (_update_audience(place) for place in ("room_id", "world_id"))
MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS, MOVE_PROPOSALS = (
    _move_rows(table, "room_id") for table in (components, tasks, logs, proposals)
)
NEW_TAKE_OVERS = take_overs.alias("new_take_overs")
MOVE_TAKE_OVERS = _move_rows(take_overs, "room_id").where(  # what was decided in the new room since counts more
    take_overs.c.person_id.not_in(
        sa.select(NEW_TAKE_OVERS.c.person_id).where(
            matches(NEW_TAKE_OVERS), NEW_TAKE_OVERS.c.room_id == sa.bindparam("new")
        )
    )
)
MOVE_WORLD_MEMORIES = _move_rows(memories, "world_id").values(terms=_replace_mark(memories.c.terms, "world"))
MOVE_WORLD_TASKS = _move_rows(tasks, "world_id")


def _move_world(connection: Connection, agent: int, old: UUID, new: UUID) -> None:
    """Move the components, documents and tasks of a world that belong to none of its rooms."""
    values = {"agent": agent, "new": new}
    for statement in (MOVE_WORLD_COMPONENTS, MOVE_WORLD_MEMORIES, MOVE_WORLD_TASKS):
        connection.execute(statement, {**values, "world_id_": old, **_world_marks(old, new)})
    connection.execute(MOVE_WORLD_VECTORS, values)


def _world_marks(old: UUID, new: UUID) -> dict[str, str]:
    return {"old_world_mark": audience_mark(old), "new_world_mark": audience_mark(new)}


def _cancel_open_work(
    connection: Connection, agent: int, room_ids: Collection[UUID], now: datetime, reason: str
) -> DeletionResult:
    rooms = set(room_ids)  # a world may have thousands; few receipts are open at all
    open_receipts = list_receipts(connection, agent, is_open=True, limit=NO_LIMIT)
    result = DeletionResult(
        receipts=tuple(cancel_receipt(receipt, now, reason) for receipt in open_receipts if receipt.room_id in rooms),
        deliveries=tuple(cancel_unsent(_unsent_deliveries(connection, agent, rooms), reason)),
        proposals=withdraw_proposals(connection, agent, now, reason, lambda item: item.room_id in rooms),
    )
    _save_cancelled(connection, agent, result)
    return result


def _find_message(connection: Connection, agent: int, room_id: UUID, message_id: str) -> UUID | None:
    receipts = _receipts_of_messages(connection, agent, room_id, [message_id])
    memory_ids = {receipt.memory_id for receipt in receipts}
    memory_ids |= messages_by_external_id(_latest_deliveries(connection, agent, room_id), [message_id])
    return next(iter(_find_memories(connection, agent, memory_ids)), None)


def _receipts_of_messages(
    connection: Connection, agent: int, room_id: UUID, message_ids: Collection[str]
) -> list[Receipt]:
    """Return the receipts of all revisions of messages."""
    return RECEIPT.find(connection, RECEIPTS_OF_MESSAGES, message_ids, agent=agent, room_id_=room_id)


def _find_memories(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Memory]:
    """Return memories by id, without their vectors."""
    return {memory.id: memory for memory in MEMORY.find(connection, FIND_MEMORIES, ids, agent=agent)}


def _latest_deliveries(connection: Connection, agent: int, room_id: UUID) -> list[Delivery]:
    values = {"agent": agent, "room_id_": room_id, "limit": MAX_SCANNED_ROWS}
    return list(DELIVERY.read_all(connection.execute(LATEST_DELIVERIES, values)))


def _unsent_deliveries(connection: Connection, agent: int, room_ids: Collection[UUID]) -> list[Delivery]:
    return [delivery for delivery in list_unsent(connection, agent) if delivery.room_id in room_ids]


def _save_cancelled(connection: Connection, agent: int, result: DeletionResult) -> None:
    save_receipts(connection, agent, result.receipts)
    save_deliveries(connection, agent, result.deliveries)


class SqlEdits(SqlStorePart):
    """Changes stored data; see `EditStore`."""

    @writes
    def apply_edit(
        self, connection: Connection, edit: InboundMessage, now: datetime, *, is_answering: bool = False
    ) -> EditResult:
        agent, key = self._agent, edit.key
        receipt = next(iter(find_by_keys(connection, agent, [key]).values()), None)
        if receipt is not None:
            return EditResult(StoredEvent(receipt))
        revisions = _receipts_of_messages(connection, agent, key.room_id, [key.message_id])
        if not revisions:
            [[event]] = receive(connection, self._agent_row, [Arrival([edit], now)])
            return EditResult(event)
        previous = _find_memories(connection, agent, [revisions[0].memory_id]).get(revisions[0].memory_id)
        plan = plan_edit(edit, now, revisions, previous, is_answering=is_answering)
        save_receipts(connection, agent, plan.superseded)
        if plan.message is None:
            insert_receipts(connection, agent, [plan.receipt])
            return EditResult(StoredEvent(plan.receipt))
        message_id, cause = plan.message.id, "its message was edited"
        withdrawn = withdraw_proposals(connection, agent, now, cause, lambda item: message_id in item.subject_ids)
        search.delete_embeddings(connection, agent, [message_id])
        empty_summaries_with(connection, agent, [message_id])
        [received] = store_events(connection, self._agent_row, [(replace(edit, message=plan.message), plan.receipt)])
        return EditResult(received, previous, plan.superseded, withdrawn)

    @writes
    def delete_messages(
        self, connection: Connection, room_id: UUID, message_ids: Collection[str], now: datetime
    ) -> DeletionResult:
        agent, cause = self._agent, "its message was removed"
        message_receipts = _receipts_of_messages(connection, agent, room_id, message_ids)
        latest = _latest_deliveries(connection, agent, room_id)
        memory_ids = {receipt.memory_id for receipt in message_receipts} | messages_by_external_id(latest, message_ids)
        deleted_ids = tuple(_find_memories(connection, agent, memory_ids))
        room_receipts = list_receipts(connection, agent, room_id=room_id, limit=MAX_SCANNED_ROWS)
        unsent = _unsent_deliveries(connection, agent, {room_id})
        orphaned = orphaned_deliveries(unsent, message_receipts, room_receipts)
        open_receipts = (receipt for receipt in message_receipts if not receipt.outcome.is_final)
        result = DeletionResult(
            len(deleted_ids),
            deleted_ids,
            tuple(cancel_receipt(receipt, now, cause) for receipt in open_receipts),
            tuple(cancel_unsent(orphaned, "the message that it answers was removed")),
            withdraw_proposals(connection, agent, now, cause, lambda item: not item.subject_ids.isdisjoint(memory_ids)),
        )
        quoted_ids = list(map(storable_text, message_ids))
        is_quoted = remove_quotations_in_room(connection, agent, room_id, quoted_ids, deleted_ids)
        if message_receipts or deleted_ids or is_quoted:
            times = [receipt.received_at for receipt in message_receipts]
            delete_traces(connection, agent, [room_id], min(times) if times else None)
        delete_with_derived(connection, agent, deleted_ids)
        _save_cancelled(connection, agent, result)
        return result

    @writes
    def clear_room(self, connection: Connection, room_id: UUID, now: datetime) -> DeletionResult:
        agent = self._agent
        result = _cancel_open_work(connection, agent, [room_id], now, "its room was cleared")
        delete_traces(connection, agent, [room_id])
        key = {"agent": agent, "room_id_": room_id}
        connection.execute(EMPTY_IN_ROOM, key)
        derived = list(connection.execute(DERIVED_FROM_ROOM, key).scalars())
        counts = {kind: connection.execute(DELETE_KIND_IN_ROOM, {**key, "kind_": kind}).rowcount for kind in MemoryKind}
        delete_with_derived(connection, agent, derived)
        return replace(result, message_count=counts[MemoryKind.MESSAGE])

    @writes
    def cancel_open_work(
        self, connection: Connection, room_ids: Collection[UUID], now: datetime, reason: str
    ) -> DeletionResult:
        return _cancel_open_work(connection, self._agent, room_ids, now, reason)

    @writes
    def save_reaction(self, connection: Connection, reaction: Reaction) -> Memory | None:
        agent = self._agent
        memory = reaction.to_memory(_find_message(connection, agent, reaction.room.id, reaction.message_id))
        if _find_memories(connection, agent, [memory.id]):
            return None
        put_environment(connection, self._agent_row, [(reaction.world, reaction.room, reaction.author)])
        put_memories(connection, agent, [memory])
        return memory

    @reads
    def find_message(self, connection: Connection, room_id: UUID, message_id: str) -> UUID | None:
        return _find_message(connection, self._agent, room_id, message_id)

    @writes
    def apply_membership(self, connection: Connection, update: MembershipUpdate, now: datetime) -> MembershipChange:
        """Store it, unless its event was stored before."""
        agent = self._agent
        if update.event_key and not _is_new_event(connection, agent, update.event_key, now):
            return MembershipChange(is_new=False)
        previous_world = find_world(connection, agent, update.world.id)
        put_worlds(connection, agent, [update.world])
        new_rooms = _upsert_listed_rooms(connection, agent, update.rooms)
        people = sorted(update.entities, key=attrgetter("id"))  # one order, so that transactions cannot deadlock
        existing = find_entities(connection, agent, {person.id for person in people})
        stored = put_entities(connection, agent, people)
        if update.is_leaving and people:
            in_world = {"agent": agent, "world_id_": update.world.id}
            connection.execute(REMOVE_MEMBER, [{**in_world, "entity_id_": person.id} for person in people])
        return MembershipChange(
            previous_world=previous_world,
            new_room_ids=new_rooms,
            new_entity_ids=frozenset(stored.keys() - existing.keys()),
            changed_entity_ids=frozenset(
                entity_id for entity_id, entity in stored.items() if existing.get(entity_id) != entity
            ),
        )

    async def erase_entity(
        self, entity_id: UUID, now: datetime, on_cancelled: OnCancelled | None = None
    ) -> ErasureResult:
        return await Erasure(self._database, self._agent_row, entity_id, now, on_cancelled).run()

    @writes
    def migrate_room(self, connection: Connection, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        """Move a room's data, and that of its world if the world has no other room."""
        agent = self._agent
        old_room = find_room(connection, agent, room_id)
        old_world = find_world(connection, agent, old_room.world_id) if old_room else None
        if old_world is not None:
            stored = find_world(connection, agent, world.id)  # what was decided there since counts more
            world = (world.merge(stored) if stored else world).merge(old_world.migrate_room(room_id, room.id))
        put_worlds(connection, agent, [world])
        put_rooms(connection, agent, [room])
        old, new = {"agent": agent, "room_id_": room_id}, {"agent": agent, "new": room.id}
        marks = {"old_room_mark": audience_mark(room_id), "new_room_mark": audience_mark(room.id)}
        marks |= _world_marks(old_room.world_id if old_room else room.world_id, room.world_id)
        connection.execute(MOVE_MEMORIES, {**old, **new, "new_world": room.world_id, **marks})
        connection.execute(MOVE_VECTORS, new)
        connection.execute(MOVE_PARTICIPANTS, {**old, **new})
        connection.execute(DELETE_OLD_PARTICIPANTS, old)
        for statement in (MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS, MOVE_PROPOSALS, MOVE_TAKE_OVERS, DELETE_SUMMARY):
            connection.execute(statement, {**old, **new})
        if old_world is not None and rooms_of_world(connection, agent, old_world.id) == [room_id]:
            _move_world(connection, agent, old_world.id, room.world_id)
        pending_ids = [
            delivery.id
            for delivery in list_deliveries(connection, agent, is_open=True)
            if delivery.room_id == room_id and delivery.state is DeliveryState.PENDING
        ]
        for delivery_id in pending_ids:
            address = {"id_": delivery_id, "account": room.account, "target": room.external_id}
            connection.execute(RETARGET_DELIVERY, {**new, **address})
        return find_deliveries(connection, agent, pending_ids)
