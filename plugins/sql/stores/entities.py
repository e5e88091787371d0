"""People in SQL."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from uuid import UUID

from sqlalchemy import Connection, delete, func, or_, select
from sqlalchemy.sql.expression import Executable

from bot import Attendance, Component, Entity, Relationship
from bot.store import MOST_NAMES
from plugins.sql.core.base import Book
from plugins.sql.core.columns import place_of
from plugins.sql.core.row_cache import known_to
from plugins.sql.core.schema import components, entities, participants, relationships
from plugins.sql.core.statements import (
    Insert,
    Listing,
    Row,
    Statement,
    insert_into,
    limit,
    same,
    upsert,
    value,
)
from plugins.sql.core.values import (
    NO_ID,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    moment_of_or_none,
    moment_or_none,
    storable_text,
)

ENTITY = (
    entities.c.id,
    entities.c.platform,
    entities.c.external_id,
    entities.c.names,
    entities.c.is_bot,
    entities.c.metadata,
)
ENTITY_NAMES = ("agent_id", *(column.name for column in ENTITY))
COMPONENT_NAMES = (
    "agent_id",
    "id",
    "entity_id",
    "type",
    "world_id",
    "source_entity_id",
    "room_id",
    "data",
    "created_at",
)
COMPONENT = tuple(components.c[name] for name in COMPONENT_NAMES[1:])
RELATIONSHIP_NAMES = ("agent_id", "source_id", "target_id", "tags", "interactions", "metadata")
RELATIONSHIP = tuple(relationships.c[name] for name in RELATIONSHIP_NAMES[1:])


def _attend(insert: Insert) -> Executable:
    """Who was active last comes first; nothing is written where that is so already."""
    latest = select(func.coalesce(func.max(participants.c.active), 0) + 1).where(
        same(participants.c.agent_id, "agent_id"), same(participants.c.room_id, "room_id")
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
BARE_ENTITY = Statement(
    lambda insert: insert_into(entities, ENTITY_NAMES)(insert).on_conflict_do_nothing(), *ENTITY_NAMES
)
ATTEND = Statement(_attend, "agent_id", "room_id", "entity_id", "attendance")
LEAVE = Listing(
    lambda ids: delete(participants).where(
        same(participants.c.agent_id, "agent"),
        same(participants.c.entity_id, "entity"),
        participants.c.attendance == Attendance.DEFAULT.value,  # what was decided about a room stays
        participants.c.room_id.in_(ids),
    ),
    "agent",
    "entity",
)
FIND_ENTITIES = Listing(
    lambda ids: select(*ENTITY).where(same(entities.c.agent_id, "agent"), entities.c.id.in_(ids)), "agent"
)
PARTICIPANTS = Statement(
    lambda _: (
        select(*ENTITY)
        .join(
            participants,
            (participants.c.agent_id == entities.c.agent_id) & (participants.c.entity_id == entities.c.id),
        )
        .where(
            same(participants.c.agent_id, "agent"),
            same(participants.c.room_id, "room"),
            participants.c.active > 0,
        )
        .order_by(participants.c.active.desc())
        .limit(limit())
    ),
    "agent",
    "room",
    "limit",
)
NAMED = Statement(
    lambda _: (
        select(*ENTITY)
        .where(
            same(entities.c.agent_id, "agent"),
            or_(
                same(entities.c.external_id, "name"),
                place_of(entities.c.names, value(entities.c.names, "written")) > 0,
            ),
        )
        .order_by(entities.c.id)
    ),
    "agent",
    "name",
    "written",
)
UPSERT_COMPONENT = upsert(
    components, ("agent_id", "entity_id", "type", "world_id", "source_entity_id"), COMPONENT_NAMES
)
FIND_COMPONENTS = Statement(
    lambda _: (
        select(*COMPONENT)
        .where(same(components.c.agent_id, "agent"), same(components.c.entity_id, "entity"))
        .order_by(components.c.position)
    ),
    "agent",
    "entity",
)
UPSERT_RELATIONSHIP = upsert(relationships, ("agent_id", "source_id", "target_id"), RELATIONSHIP_NAMES)
FIND_RELATIONSHIPS = Statement(
    lambda _: (
        select(*RELATIONSHIP)
        .where(same(relationships.c.agent_id, "agent"), same(relationships.c.source_id, "source"))
        .order_by(relationships.c.interactions.desc(), relationships.c.position.desc())
    ),
    "agent",
    "source",
)


def put_entities(connection: Connection, agent: int, people: Sequence[Entity]) -> dict[UUID, Entity]:
    """Insert or update, writing only what is new; they come back as they are kept."""
    known = known_to(connection).entities
    kept = {one.id: before for one in people if (before := known.get((agent, one.id))) is not None}
    if missing := {one.id for one in people if one.id not in kept}:
        kept |= find_entities(connection, agent, missing)
    changed: dict[UUID, Entity] = {}
    for one in people:
        before = kept.get(one.id)
        if before == one:
            known.put((agent, one.id), one)
            continue
        names = dict.fromkeys((*one.names, *(before.names if before else ())))
        after = replace(one, names=tuple(names)[: MOST_NAMES if before else None])
        if after != before:
            kept[one.id] = changed[one.id] = after
        known.put((agent, one.id), after)
    UPSERT_ENTITY.run_many(connection, [entity_values(agent, one) for one in changed.values()])
    return kept


def person_stands(connection: Connection, agent: int, one: Entity) -> bool:
    """Tell whether somebody is surely kept as given."""
    return known_to(connection).entities.get((agent, one.id)) == one


def attend(connection: Connection, agent: int, active: Sequence[tuple[UUID, UUID]]) -> None:
    """Note who is active in which room, the last one latest."""
    known = known_to(connection).latest_speakers
    news: list[Row] = []
    for room_id, entity_id in active:
        if known.get((agent, room_id)) != entity_id:
            known.put((agent, room_id), entity_id)
            news.append((agent, room_id.bytes, entity_id.bytes, "DEFAULT"))
    ATTEND.run_many(connection, news)


def bare_entity(connection: Connection, agent: int, entity_id: UUID) -> None:
    """See to it that there is such an entity."""
    own = Entity(entity_id, "greenroom", str(entity_id))
    BARE_ENTITY.run(connection, *entity_values(agent, own))


def find_entities(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Entity]:
    """Find people by id."""
    rows = FIND_ENTITIES.rows(connection, agent, ids=[one.bytes for one in ids])
    return {one.id: one for one in map(entity_of, rows)}


@lru_cache(maxsize=4096)
def entity_of(row: Row) -> Entity:
    """Read an entity from its columns."""
    entity_id, platform, external_id, names, is_bot, metadata = row
    return Entity(id_of(entity_id), platform, external_id, tuple(loads(names)), bool(is_bot), loads(metadata))


def entity_values(agent: int, one: Entity) -> Row:
    """Write an entity."""
    return (
        agent,
        one.id.bytes,
        storable_text(one.platform),
        storable_text(one.external_id),
        dumps(one.names),
        int(one.is_bot),
        dumps(one.metadata),
    )


def component_values(agent: int, one: Component) -> Row:
    """Write a component."""
    return (
        agent,
        one.id.bytes,
        one.entity_id.bytes,
        storable_text(one.type),
        id_bytes(one.world_id) or NO_ID,
        id_bytes(one.source_entity_id) or NO_ID,
        id_bytes(one.room_id),
        dumps(one.data),
        moment_or_none(one.created_at),
    )


def _component_of(row: Row) -> Component:
    component_id, entity_id, kind, world_id, source_id, room_id, data, created_at = row
    return Component(
        id_of(component_id),
        id_of(entity_id),
        kind,
        loads(data),
        room_id=id_or_none(room_id),
        world_id=id_or_none(world_id),
        source_entity_id=id_or_none(source_id),
        created_at=moment_of_or_none(created_at),
    )


def _relationship_values(agent: int, one: Relationship) -> Row:
    source, target = one.source_id.bytes, one.target_id.bytes
    return (agent, source, target, dumps(one.tags), one.interactions, dumps(one.metadata))


def _relationship_of(row: Row) -> Relationship:
    source, target, tags, interactions, metadata = row
    return Relationship(id_of(source), id_of(target), tuple(loads(tags)), interactions, loads(metadata))


def _save(agent: int, people: Sequence[Entity], room_id: UUID | None, connection: Connection) -> None:
    put_entities(connection, agent, people)
    if room_id is not None:
        attend(connection, agent, [(room_id, one.id) for one in people])


def _leave(agent: int, entity_id: UUID, room_ids: Collection[UUID], connection: Connection) -> None:
    LEAVE.count(connection, agent, entity_id.bytes, ids=[one.bytes for one in room_ids])
    for room_id in room_ids:
        known_to(connection).latest_speakers.drop((agent, room_id))


class SqlEntities(Book):
    """Keeps people, components and relationships; see `EntityStore`."""

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        if entities:
            await self._database.write(partial(_save, self._agent, entities, room_id))

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        if not ids:
            return {}
        return await self._database.read(lambda db: find_entities(db, self._agent, ids))

    async def leave(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        if room_ids:
            await self._database.write(partial(_leave, self._agent, entity_id, room_ids))

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        key = (self._agent, room_id.bytes, limit)
        rows = await self._database.read(lambda db: PARTICIPANTS.rows(db, *key))
        return [entity_of(row) for row in rows]

    async def named(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        asked = storable_text(name)
        rows = await self._database.read(lambda db: NAMED.rows(db, self._agent, asked, dumps(asked)))
        people = (one for one in map(entity_of, rows) if platform in (None, one.platform))
        return [one for one in people if asked in (*one.names, one.external_id)][:limit]

    async def save_component(self, component: Component) -> None:
        values = component_values(self._agent, component)
        await self._database.write(lambda db: UPSERT_COMPONENT.run(db, *values))

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: FIND_COMPONENTS.rows(db, *key))
        return [one for one in map(_component_of, rows) if kind in (None, one.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        values = _relationship_values(self._agent, relationship)
        await self._database.write(lambda db: UPSERT_RELATIONSHIP.run(db, *values))

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: FIND_RELATIONSHIPS.rows(db, *key))
        return [_relationship_of(row) for row in rows]
