"""Entities, participants, components and relationships."""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from uuid import UUID

from sqlalchemy import Connection, case, delete, func, or_, select, tuple_
from sqlalchemy.sql.expression import Executable

from bot import Component, Entity, ParticipantState, Relationship
from bot.store import MAX_NAME_MATCHES, PersonActivity
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.columns import text_position
from plugins.sql.core.inserts import insert_into, upsert
from plugins.sql.core.people_cache import people_cache_of
from plugins.sql.core.row_cache import cache_row, row_cache_of
from plugins.sql.core.schema import activity, components, entities, participants, relationships
from plugins.sql.core.statements import (
    Columns,
    Insert,
    ListStatement,
    Row,
    Statement,
    column_names,
    equals,
    limit_parameter,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import (
    NO_ID,
    datetime_of,
    datetime_or_none,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)


@lru_cache(maxsize=4096)
def _read_entity(row: Row) -> Entity:
    entity_id, platform, external_id, names, is_bot, metadata = row
    return Entity(id_of(entity_id), platform, external_id, tuple(loads(names)), bool(is_bot), loads(metadata))


def _read_component(row: Row) -> Component:
    component_id, entity_id, kind, world_id, source_id, room_id, data, created_at = row
    return Component(
        id_of(component_id),
        id_of(entity_id),
        kind,
        loads(data),
        room_id=id_or_none(room_id),
        world_id=id_or_none(world_id),
        source_entity_id=id_or_none(source_id),
        created_at=datetime_or_none(created_at),
    )


def _read_relationship(row: Row) -> Relationship:
    source, target, tags, interactions, metadata = row
    return Relationship(id_of(source), id_of(target), tuple(loads(tags)), interactions, loads(metadata))


def _read_activity(row: Row) -> PersonActivity:
    entity_id, first_at, last_at, messages, answered = row
    return PersonActivity(id_of(entity_id), datetime_of(first_at), datetime_of(last_at), messages, answered)


ENTITY_NAMES = column_names(entities)
ENTITY = Columns(entities, ENTITY_NAMES[1:], _read_entity)
COMPONENT_NAMES = column_names(components)
COMPONENT = Columns(components, COMPONENT_NAMES[1:], _read_component)
RELATIONSHIP_NAMES = column_names(relationships)
RELATIONSHIP = Columns(relationships, RELATIONSHIP_NAMES[1:], _read_relationship)

ACTIVITY_NAMES = column_names(activity)
ACTIVITY = Columns(activity, ACTIVITY_NAMES[1:], _read_activity)
END = (2**62, b"\xff" * 16)  # after every time and id


def _add_activity(insert: Insert) -> Executable:
    statement = insert_into(activity, ACTIVITY_NAMES)(insert)
    new, stored = statement.excluded, activity.c
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "entity_id"],
        set_={
            "first_at": case((new.first_at < stored.first_at, new.first_at), else_=stored.first_at),
            "last_at": case((new.last_at > stored.last_at, new.last_at), else_=stored.last_at),
            "messages": stored.messages + new.messages,
            "answered": stored.answered + new.answered,
        },
    )


def _touch_participant(insert: Insert) -> Executable:
    """Make a participant the most active of a room; write nothing if it is already."""
    latest = select(func.coalesce(func.max(participants.c.active), 0) + 1).where(
        matches(participants, "agent_id", "room_id")
    )
    names = ("agent_id", "room_id", "entity_id", "attendance")
    statement = insert_into(participants, names, active=latest.scalar_subquery())(insert)
    new = statement.excluded
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "room_id", "entity_id"],
        set_={"active": new.active},
        where=participants.c.active < new.active - 1,
    )


UPSERT_ENTITY = upsert(entities, ("agent_id", "id"), ENTITY_NAMES)
INSERT_ENTITY_IF_MISSING = Statement(
    lambda insert: insert_into(entities, ENTITY_NAMES)(insert).on_conflict_do_nothing()
)
TOUCH_PARTICIPANT = Statement(_touch_participant)
LEAVE_ROOMS = ListStatement(
    lambda ids: delete(participants).where(
        matches(participants, "agent_id", "entity_id"),
        participants.c.attendance == ParticipantState.DEFAULT.value,  # keep rows that hold a decision about the room
        participants.c.room_id.in_(ids),
    )
)
FIND_ENTITIES = ListStatement(lambda ids: select(*ENTITY).where(matches(entities, "agent_id"), entities.c.id.in_(ids)))
FIND_PARTICIPANTS = Statement(
    lambda _: (
        select(*ENTITY)
        .join(
            participants, (participants.c.agent_id == entities.c.agent_id) & (participants.c.entity_id == entities.c.id)
        )
        .where(matches(participants, "agent_id", "room_id"), participants.c.active > 0)
        .order_by(participants.c.active.desc())
        .limit(limit_parameter())
    )
)
FIND_BY_NAME = Statement(
    lambda _: (
        select(*ENTITY)
        .where(
            matches(entities, "agent_id"),
            or_(
                equals(entities.c.external_id, "name"),
                text_position(entities.c.names, typed_parameter(entities.c.names, "written")) > 0,
            ),
        )
        .order_by(entities.c.id)
    )
)
UPSERT_COMPONENT = upsert(
    components, ("agent_id", "entity_id", "type", "world_id", "source_entity_id"), COMPONENT_NAMES
)
FIND_COMPONENTS = Statement(
    lambda _: select(*COMPONENT).where(matches(components, "agent_id", "entity_id")).order_by(components.c.position)
)
UPSERT_RELATIONSHIP = upsert(relationships, ("agent_id", "source_id", "target_id"), RELATIONSHIP_NAMES)
FIND_RELATIONSHIPS = Statement(
    lambda _: (
        select(*RELATIONSHIP)
        .where(matches(relationships, "agent_id", "source_id"))
        .order_by(relationships.c.interactions.desc(), relationships.c.position.desc())
    )
)

ADD_ACTIVITY = Statement(_add_activity)
FIND_ACTIVITY = Statement(lambda _: select(*ACTIVITY).where(matches(activity, "agent_id", "entity_id")))
ACTIVE_ENTITIES = Statement(
    lambda _: (
        select(*ENTITY, *ACTIVITY)
        .join_from(
            activity, entities, (entities.c.agent_id == activity.c.agent_id) & (entities.c.id == activity.c.entity_id)
        )
        .where(
            matches(activity, "agent_id"),
            tuple_(activity.c.last_at, activity.c.entity_id)
            < tuple_(typed_parameter(activity.c.last_at, "before"), typed_parameter(activity.c.entity_id, "before_id")),
        )
        .order_by(activity.c.last_at.desc(), activity.c.entity_id.desc())
        .limit(limit_parameter())
    )
)


def put_entities(connection: Connection, agent: int, people: Sequence[Entity]) -> dict[UUID, Entity]:
    """Insert or update entities, writing only changes; return them as they are stored."""
    cache = row_cache_of(connection).entities
    stored = {
        entity.id: stored_entity for entity in people if (stored_entity := cache.get((agent, entity.id))) is not None
    }
    if missing := {entity.id for entity in people if entity.id not in stored}:
        stored |= find_entities(connection, agent, missing)
    changed: dict[UUID, Entity] = {}
    for entity in people:
        stored_entity = stored.get(entity.id)
        if stored_entity == entity:
            cache_row(cache, (agent, entity.id), entity)
            continue
        names = dict.fromkeys((*entity.names, *(stored_entity.names if stored_entity else ())))
        merged = replace(entity, names=tuple(names)[: MAX_NAME_MATCHES if stored_entity else None])
        if merged != stored_entity:
            stored[entity.id] = changed[entity.id] = merged
        cache_row(cache, (agent, entity.id), merged)
    UPSERT_ENTITY.run_many(connection, [entity_values(agent, entity) for entity in changed.values()])
    return stored


def is_entity_unchanged(connection: Connection, agent: int, entity: Entity) -> bool:
    """Return whether the cache has exactly this entity; False if it is not cached."""
    return row_cache_of(connection).entities.get((agent, entity.id)) == entity


def touch_participants(connection: Connection, agent: int, active: Sequence[tuple[UUID, UUID]]) -> None:
    """Record pairs of room and active entity, the last pair as the latest."""
    cache = row_cache_of(connection).latest_speakers
    rows: list[Row] = []
    for room_id, entity_id in active:
        if cache.get((agent, room_id)) != entity_id:
            cache_row(cache, (agent, room_id), entity_id)
            rows.append((agent, room_id.bytes, entity_id.bytes, "DEFAULT"))
    people_cache = people_cache_of(connection)
    with people_cache.note_speakers(agent, active) if people_cache is not None else nullcontext():
        TOUCH_PARTICIPANT.run_many(connection, rows)


def ensure_entity(connection: Connection, agent: int, entity_id: UUID) -> None:
    """Insert an entity without names if it does not exist."""
    entity = Entity(entity_id, "greenroom", str(entity_id))
    INSERT_ENTITY_IF_MISSING.run(connection, *entity_values(agent, entity))


def find_entities(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Entity]:
    """Return entities by id."""
    rows = FIND_ENTITIES.rows(connection, agent, ids=[entity_id.bytes for entity_id in ids])
    return {entity.id: entity for entity in ENTITY.read_all(rows)}


def entity_values(agent: int, entity: Entity) -> Row:
    """Return the column values of an entity."""
    return (
        agent,
        entity.id.bytes,
        storable_text(entity.platform),
        storable_text(entity.external_id),
        dumps(entity.names),
        int(entity.is_bot),
        dumps(entity.metadata),
    )


def component_values(agent: int, component: Component) -> Row:
    """Return the column values of a component."""
    return (
        agent,
        component.id.bytes,
        component.entity_id.bytes,
        storable_text(component.type),
        id_bytes(component.world_id) or NO_ID,
        id_bytes(component.source_entity_id) or NO_ID,
        id_bytes(component.room_id),
        dumps(component.data),
        microseconds_or_none(component.created_at),
    )


def _relationship_values(agent: int, relationship: Relationship) -> Row:
    source, target = relationship.source_id.bytes, relationship.target_id.bytes
    return (agent, source, target, dumps(relationship.tags), relationship.interactions, dumps(relationship.metadata))


def _activity_values(agent: int, item: PersonActivity) -> Row:
    times = (microseconds_of(item.first_at), microseconds_of(item.last_at))
    return (agent, item.entity_id.bytes, *times, item.messages, item.answered)


def _save_entities(agent: int, people: Sequence[Entity], room_id: UUID | None, connection: Connection) -> None:
    put_entities(connection, agent, people)
    if room_id is not None:
        touch_participants(connection, agent, [(room_id, entity.id) for entity in people])


def _leave_rooms(agent: int, entity_id: UUID, room_ids: Collection[UUID], connection: Connection) -> None:
    LEAVE_ROOMS.count(connection, agent, entity_id.bytes, ids=[room_id.bytes for room_id in room_ids])
    for room_id in room_ids:
        row_cache_of(connection).latest_speakers.pop((agent, room_id), None)


class SqlEntities(SqlStorePart):
    """Stores entities, components and relationships; see `EntityStore`."""

    _check_component: Callable[[Component], None] | None = None

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        if entities:
            await self._database.write(partial(_save_entities, self._agent, entities, room_id))

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        cache = self._database.people_cache
        if cache is not None and (cached := cache.get_people(self._agent, ids)) is not None:
            return cached
        if not ids:
            return {}
        version = cache.version if cache is not None else 0
        people = await self._database.read(lambda db: find_entities(db, self._agent, ids))
        if cache is not None:
            cache.store_people(self._agent, people.values(), version)
        return people

    async def leave_rooms(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        if room_ids:
            await self._database.write(partial(_leave_rooms, self._agent, entity_id, room_ids))

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        cache = self._database.people_cache
        if cache is not None and (cached := cache.get_participants(self._agent, room_id, limit)) is not None:
            return cached
        version = cache.version if cache is not None else 0
        key = (self._agent, room_id.bytes, limit)
        rows = await self._database.read(lambda db: FIND_PARTICIPANTS.rows(db, *key))
        people = list(ENTITY.read_all(rows))
        if cache is not None:
            cache.store_participants(self._agent, room_id, limit, people, version)
        return people

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        stored_name = storable_text(name)
        rows = await self._database.read(lambda db: FIND_BY_NAME.rows(db, self._agent, stored_name, dumps(stored_name)))
        people = (entity for entity in ENTITY.read_all(rows) if platform in (None, entity.platform))
        return [entity for entity in people if stored_name in (*entity.names, entity.external_id)][:limit]

    def check_components(self, check: Callable[[Component], None]) -> None:
        self._check_component = check

    async def save_component(self, component: Component) -> None:
        if self._check_component is not None:
            self._check_component(component)
        values = component_values(self._agent, component)
        await self._database.write(lambda db: UPSERT_COMPONENT.run(db, *values))

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: FIND_COMPONENTS.rows(db, *key))
        return [component for component in COMPONENT.read_all(rows) if kind in (None, component.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        values = _relationship_values(self._agent, relationship)
        await self._database.write(lambda db: UPSERT_RELATIONSHIP.run(db, *values))

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: FIND_RELATIONSHIPS.rows(db, *key))
        return list(RELATIONSHIP.read_all(rows))

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        rows = [_activity_values(self._agent, item) for item in activities]
        if rows:
            await self._database.write(lambda db: ADD_ACTIVITY.run_many(db, rows), durable=False)

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        row = await self._database.read(lambda db: FIND_ACTIVITY.first(db, self._agent, entity_id.bytes))
        return ACTIVITY.read(row) if row else None

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        end = END if before is None else (microseconds_of(before[0]), before[1].bytes)
        rows = await self._database.read(lambda db: ACTIVE_ENTITIES.rows(db, self._agent, *end, limit))
        values = map(iter, rows)
        return [(ENTITY.take(items), ACTIVITY.take(items)) for items in values]
