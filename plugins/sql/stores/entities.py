"""Entities, participants, components and relationships."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Text, and_, bindparam, case, delete, func, or_, select, tuple_
from sqlalchemy.sql.expression import Executable

from bot import Component, Entity, ParticipantState, Relationship
from bot.store import MAX_NAME_MATCHES, PersonActivity
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.mapping import (
    EPOCH,
    InsertStatement,
    RowMapping,
    contains_text,
    count_changed,
    insert_if_new,
    items_parameter,
    limit_parameter,
    matches,
    parameter,
    rows_of,
    upsert,
)
from plugins.sql.core.schema import activity, components, entities, participants, relationships
from plugins.sql.core.values import dumps, storable_text

ENTITY = RowMapping(entities, Entity)
COMPONENT = RowMapping(components, Component)
RELATIONSHIP = RowMapping(relationships, Relationship)
ACTIVITY = RowMapping(activity, PersonActivity)
END = (EPOCH.replace(year=9999), UUID(int=2**128 - 1))  # after every time and id


def _add_activity(insert: Any) -> Executable:
    new, stored = insert.excluded, activity.c
    return insert.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "entity_id"],
        set_={
            "first_at": case((new.first_at < stored.first_at, new.first_at), else_=stored.first_at),
            "last_at": case((new.last_at > stored.last_at, new.last_at), else_=stored.last_at),
            "messages": stored.messages + new.messages,
            "answered": stored.answered + new.answered,
        },
    )


def _touch_participant(insert: Any) -> Executable:
    """Make a participant the most active of a room; write nothing if it is already."""
    return insert.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "room_id", "entity_id"],
        set_={"active": insert.excluded.active},
        where=participants.c.active < insert.excluded.active - 1,
    )


UPSERT_ENTITY = upsert(entities, ("agent_id", "id"), ENTITY.stored_names)
INSERT_ENTITY_IF_MISSING = insert_if_new(entities, ENTITY.stored_names)
NEXT_ACTIVE = select(func.coalesce(func.max(participants.c.active), 0) + 1).where(
    participants.c.agent_id == bindparam("agent_id"),
    participants.c.room_id == parameter(participants.c.room_id, "room_id"),
)
TOUCH_PARTICIPANT = InsertStatement(
    participants,
    ("agent_id", "room_id", "entity_id", "attendance"),
    _touch_participant,
    active=NEXT_ACTIVE.scalar_subquery(),
)
LEAVE_ROOMS = delete(participants).where(
    matches(participants, "entity_id"),
    participants.c.attendance == ParticipantState.DEFAULT.value,  # keep rows that hold a decision about the room
    participants.c.room_id.in_(items_parameter(participants.c.room_id)),
)
FIND_ENTITIES = select(*ENTITY).where(matches(entities), entities.c.id.in_(items_parameter(entities.c.id)))
FIND_PARTICIPANTS = (
    select(*ENTITY)
    .join(participants, and_(participants.c.agent_id == entities.c.agent_id, participants.c.entity_id == entities.c.id))
    .where(matches(participants, "room_id"), participants.c.active > 0)
    .order_by(participants.c.active.desc())
    .limit(limit_parameter())
)
FIND_BY_NAME = (
    select(*ENTITY)
    .where(
        matches(entities),
        or_(entities.c.external_id == bindparam("name", type_=Text()), contains_text(entities.c.names, "written")),
    )
    .order_by(entities.c.id)
)
UPSERT_COMPONENT = upsert(
    components, ("agent_id", "entity_id", "type", "world_id", "source_entity_id"), COMPONENT.stored_names
)
FIND_COMPONENTS = select(*COMPONENT).where(matches(components, "entity_id")).order_by(components.c.position)
UPSERT_RELATIONSHIP = upsert(relationships, ("agent_id", "source_id", "target_id"), RELATIONSHIP.stored_names)
FIND_RELATIONSHIPS = (
    select(*RELATIONSHIP)
    .where(matches(relationships, "source_id"))
    .order_by(relationships.c.interactions.desc(), relationships.c.position.desc())
)

ADD_ACTIVITY = InsertStatement(activity, ACTIVITY.stored_names, _add_activity)
FIND_ACTIVITY = select(*ACTIVITY).where(matches(activity, "entity_id"))
ACTIVE_ENTITIES = (
    select(*ENTITY, *ACTIVITY)
    .join_from(
        activity, entities, and_(entities.c.agent_id == activity.c.agent_id, entities.c.id == activity.c.entity_id)
    )
    .where(
        matches(activity),
        tuple_(activity.c.last_at, activity.c.entity_id)
        < tuple_(parameter(activity.c.last_at, "before"), parameter(activity.c.entity_id, "before_id")),
    )
    .order_by(activity.c.last_at.desc(), activity.c.entity_id.desc())
    .limit(limit_parameter())
)


def put_entities(connection: Connection, agent: int, people: Sequence[Entity]) -> dict[UUID, Entity]:
    """Insert or update entities, writing only changes; return them as they are stored."""
    stored = find_entities(connection, agent, {entity.id for entity in people})
    changed: dict[UUID, Entity] = {}
    for entity in people:
        stored_entity = stored.get(entity.id)
        names = dict.fromkeys((*entity.names, *(stored_entity.names if stored_entity else ())))
        merged = replace(entity, names=tuple(names)[: MAX_NAME_MATCHES if stored_entity else None])
        if stored_entity not in (entity, merged):
            stored[entity.id] = changed[entity.id] = merged
    UPSERT_ENTITY.execute_all(connection, [ENTITY.values(entity, agent) for entity in changed.values()])
    return stored


def touch_participants(connection: Connection, agent: int, active: Sequence[tuple[UUID, UUID]]) -> None:
    """Record pairs of room and active entity, the last pair as the latest."""
    rows = [
        {"agent_id": agent, "room_id": room_id, "entity_id": entity_id, "attendance": ParticipantState.DEFAULT}
        for room_id, entity_id in active
    ]
    TOUCH_PARTICIPANT.execute_all(connection, rows)


def ensure_entity(connection: Connection, agent: int, entity_id: UUID) -> None:
    """Insert an entity without names if it does not exist."""
    INSERT_ENTITY_IF_MISSING.execute(connection, ENTITY.values(Entity(entity_id, "greenroom", str(entity_id)), agent))


def find_entities(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Entity]:
    """Return entities by id."""
    return {entity.id: entity for entity in ENTITY.read_all(rows_of(connection, FIND_ENTITIES, ids, agent=agent))}


def save_component(agent: int, component: Component, connection: Connection) -> None:
    """Store a component; it replaces the one of the same entity, type, world and source."""
    UPSERT_COMPONENT.execute(connection, COMPONENT.values(component, agent))


def _save_entities(agent: int, people: Sequence[Entity], room_id: UUID | None, connection: Connection) -> None:
    put_entities(connection, agent, people)
    if room_id is not None:
        touch_participants(connection, agent, [(room_id, entity.id) for entity in people])


class SqlEntities(SqlStorePart):
    """Stores entities, components and relationships; see `EntityStore`."""

    _check_component: Callable[[Component], None] | None = None

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        if entities:
            await self._database.write(partial(_save_entities, self._agent, entities, room_id))

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        return await self._database.read(lambda db: find_entities(db, self._agent, ids)) if ids else {}

    async def leave_rooms(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        if room_ids:
            await self._database.write(
                lambda db: count_changed(db, LEAVE_ROOMS, room_ids, agent=self._agent, entity_id_=entity_id)
            )

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        return list(ENTITY.read_all(await self._read(FIND_PARTICIPANTS, room_id_=room_id, limit=limit)))

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        stored_name = storable_text(name)
        rows = await self._read(FIND_BY_NAME, name=stored_name, written=dumps(stored_name))
        people = (entity for entity in ENTITY.read_all(rows) if platform in (None, entity.platform))
        return [entity for entity in people if stored_name in (*entity.names, entity.external_id)][:limit]

    def check_components(self, check: Callable[[Component], None]) -> None:
        self._check_component = check

    async def save_component(self, component: Component) -> None:
        if self._check_component is not None:
            self._check_component(component)
        await self._database.write(partial(save_component, self._agent, component))

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        rows = await self._read(FIND_COMPONENTS, entity_id_=entity_id)
        return [component for component in COMPONENT.read_all(rows) if kind in (None, component.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        row = RELATIONSHIP.values(relationship, self._agent)
        await self._database.write(lambda db: UPSERT_RELATIONSHIP.execute_all(db, [row]))

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        return list(RELATIONSHIP.read_all(await self._read(FIND_RELATIONSHIPS, source_id_=entity_id)))

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        rows = [ACTIVITY.values(item, self._agent) for item in activities]
        if rows:
            await self._database.write(lambda db: ADD_ACTIVITY.execute_all(db, rows), durable=False)

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        rows = await self._read(FIND_ACTIVITY, entity_id_=entity_id)
        return ACTIVITY.read(rows[0]) if rows else None

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        end, end_id = before or END
        rows = await self._read(ACTIVE_ENTITIES, before=end, before_id=end_id, limit=limit)
        values = map(iter, rows)
        return [(ENTITY.take(items), ACTIVITY.take(items)) for items in values]
