"""Worlds, rooms and entities in memory."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.environment import Component, Entity, ParticipantState, PersonActivity, Relationship, Role, Room, World
from bot.domain.inbound import anonymize_entity, anonymize_private_chat
from bot.store.protocols import MAX_NAME_MATCHES


class InMemoryEntities:
    """Implements `EntityStore`."""

    def __init__(self) -> None:
        self._entities: dict[UUID, Entity] = {}
        self._participants: defaultdict[UUID, dict[UUID, None]] = defaultdict(dict)
        self._components: defaultdict[UUID, dict[tuple[str, UUID | None, UUID | None], Component]]
        self._components = defaultdict(dict)
        self._relationships: defaultdict[UUID, dict[UUID, Relationship]] = defaultdict(dict)
        self._check_component: Callable[[Component], None] | None = None
        self._activity: dict[UUID, PersonActivity] = {}

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        for entity in entities:
            self.upsert(entity, room_id)

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        return {entity_id: self._entities[entity_id] for entity_id in ids if entity_id in self._entities}

    async def leave_rooms(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        for room_id in room_ids:
            self._participants[room_id].pop(entity_id, None)

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        latest = list(self._participants.get(room_id, ()))[: -limit - 1 : -1]
        return [self._entities[entity_id] for entity_id in latest]

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        entities = (entity for entity in self._entities.values() if platform in (None, entity.platform))
        return [entity for entity in entities if name in (*entity.names, entity.external_id)][:limit]

    def check_components(self, check: Callable[[Component], None]) -> None:
        self._check_component = check

    async def save_component(self, component: Component) -> None:
        if self._check_component is not None:
            self._check_component(component)
        key = (component.type, component.world_id, component.source_entity_id)
        self._components[component.entity_id][key] = component

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        components = self._components.get(entity_id, {}).values()
        return [component for component in components if kind in (None, component.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        self._relationships[relationship.source_id][relationship.target_id] = relationship

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        relationships = self._relationships.get(entity_id, {}).values()
        return sorted(relationships, key=lambda relationship: -relationship.interactions)

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        for activity in activities:
            stored = self._activity.get(activity.entity_id)
            self._activity[activity.entity_id] = activity if stored is None else stored.plus(activity)

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        return self._activity.get(entity_id)

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        known = (activity for activity in self._activity.values() if activity.entity_id in self._entities)
        latest = sorted(known, key=lambda activity: (activity.last_at, activity.entity_id), reverse=True)
        if before is not None:
            latest = [activity for activity in latest if (activity.last_at, activity.entity_id) < before]
        return [(self._entities[activity.entity_id], activity) for activity in latest[:limit]]

    def upsert(self, entity: Entity, room_id: UUID | None) -> Entity:
        """Insert or update an entity; new names come first, known ones after them."""
        stored = self._entities.get(entity.id)
        if stored is not None:
            names = tuple(dict.fromkeys((*entity.names, *stored.names)))[:MAX_NAME_MATCHES]
            if names != entity.names:
                entity = replace(entity, names=names)
        self._entities[entity.id] = entity
        if room_id is not None:
            self._participants[room_id].pop(entity.id, None)
            self._participants[room_id][entity.id] = None
        return entity

    def rooms_of(self, entity_id: UUID) -> frozenset[UUID]:
        """Return the rooms in which an entity takes part."""
        return frozenset(room for room, participants in self._participants.items() if entity_id in participants)

    def erase(self, entity_id: UUID, opt_out: Component) -> tuple[int, int]:
        """Delete the data of an entity; return the numbers of components and relationships."""
        if entity_id in self._entities:
            self._entities[entity_id] = anonymize_entity(self._entities[entity_id])
        for participants in self._participants.values():
            participants.pop(entity_id, None)
        self._activity.pop(entity_id, None)
        deleted = self._components.pop(entity_id, {}).values()
        component_count = sum(item.type != opt_out.type for item in deleted)
        for components in self._components.values():
            for key in [key for key, item in components.items() if item.source_entity_id == entity_id]:
                del components[key]
                component_count += 1
        self._components[entity_id][opt_out.type, None, None] = opt_out
        relationship_count = len(self._relationships.pop(entity_id, {}))
        return component_count, relationship_count + sum(
            item.pop(entity_id, None) is not None for item in self._relationships.values()
        )

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> None:
        """Assign everything of a room to another one."""
        participants = self._participants[new_room_id]
        self._participants[new_room_id] = {**self._participants.pop(room_id, {}), **participants}
        for components in self._components.values():
            components.update(
                (key, replace(component, room_id=new_room_id))
                for key, component in components.items()
                if component.room_id == room_id
            )

    def migrate_world(self, world_id: UUID, new_world_id: UUID) -> None:
        """Assign what is noted of people in a world to another one, where nothing is noted of them yet."""
        for components in self._components.values():
            for kind, world, source in [key for key in components if key[1] == world_id]:
                if (kind, new_world_id, source) not in components:
                    component = components.pop((kind, world, source))
                    components[kind, new_world_id, source] = replace(component, world_id=new_world_id)


class InMemoryWorlds:
    """Implements `WorldStore`."""

    def __init__(self, entities: InMemoryEntities) -> None:
        self._entities = entities
        self._worlds: dict[UUID, World] = {}
        self._rooms: dict[UUID, Room] = {}
        self._participant_states: dict[UUID, ParticipantState] = {}

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        self.upsert(world, rooms)

    async def world(self, world_id: UUID) -> World | None:
        return self._worlds.get(world_id)

    async def room(self, room_id: UUID) -> Room | None:
        return self._rooms.get(room_id)

    async def worlds_by_id(self, ids: Collection[UUID]) -> dict[UUID, World]:
        return {world_id: self._worlds[world_id] for world_id in ids if world_id in self._worlds}

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        return {room_id: self._rooms[room_id] for room_id in ids if room_id in self._rooms}

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        rooms = [room for room in self._rooms.values() if world_id in (None, room.world_id)]
        return rooms[::-1]

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        room_ids = self._entities.rooms_of(entity_id)
        return [room for room in await self.rooms() if room.id in room_ids]

    async def worlds_owned_by(self, entity_id: UUID) -> list[World]:
        owned = [world for world in self._worlds.values() if world.role_of(entity_id) is Role.OWNER]
        return sorted(owned, key=lambda world: (world.name, world.id))

    async def participant_state(self, room_id: UUID) -> ParticipantState:
        return self.participant_state_of(room_id)

    async def set_participant_state(self, room_id: UUID, state: ParticipantState) -> None:
        self._participant_states[room_id] = state

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        world = self._worlds[world_id]
        self._worlds[world_id] = replace(world, grants={**world.grants, entity_id: role})

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        world = self._worlds[world_id]
        settings = {key: text for key, text in {**world.settings, name: value}.items() if text}
        self._worlds[world_id] = replace(world, settings=settings)

    def participant_state_of(self, room_id: UUID) -> ParticipantState:
        """Return what the agent has decided about a room."""
        return self._participant_states.get(room_id, ParticipantState.DEFAULT)

    def upsert(self, world: World, rooms: Sequence[Room]) -> tuple[World, list[Room]]:
        """Insert or update a world and rooms, which become the most active; return them as stored."""
        stored = self._worlds.get(world.id)
        if stored is not None:
            world = world.merge(stored)
        self._worlds[world.id] = world
        for room in rooms:
            stored_room = self._rooms.pop(room.id, None)
            self._rooms[room.id] = _keep_name(room, stored_room)
        return world, [self._rooms[room.id] for room in rooms]

    def add_rooms(self, rooms: Sequence[Room]) -> frozenset[UUID]:
        """Insert or update rooms without making them active; return the ids of the new ones."""
        new_rooms: dict[UUID, Room] = {}
        for room in rooms:
            if (stored := self._rooms.get(room.id)) is None:
                new_rooms[room.id] = room
            else:
                self._rooms[room.id] = _keep_name(room, stored)
        self._rooms = {**new_rooms, **self._rooms}
        return frozenset(new_rooms)

    def erase_names(self, entity_id: UUID) -> None:
        """Remove the names of an entity's private chats."""
        for room_id in self._entities.rooms_of(entity_id):
            room = self._rooms.get(room_id)
            if room is not None and room.type.is_direct:
                world, self._rooms[room_id] = anonymize_private_chat(self._worlds[room.world_id], room)
                self._worlds[world.id] = world

    def migrate_room(self, room_id: UUID, world: World, room: Room) -> UUID | None:
        """Continue a room under another id, with its participant state and its world's roles.

        Returns its earlier world if that has no other room.
        """
        previous_room = self._rooms.get(room_id)
        previous_world = self._worlds.get(previous_room.world_id) if previous_room else None
        if previous_world is not None:
            stored = self._worlds.get(world.id)  # what was decided there since counts more
            world = (world.merge(stored) if stored else world).merge(previous_world.migrate_room(room_id, room.id))
        self.upsert(world, [room])
        participant_state = self._participant_states.pop(room_id, None)
        if participant_state is not None:
            self._participant_states.setdefault(room.id, participant_state)
        if previous_world is None or previous_world.id == world.id:
            return None
        has_others = any(other.world_id == previous_world.id and other.id != room_id for other in self._rooms.values())
        return None if has_others else previous_world.id


def _keep_name(room: Room, stored: Room | None) -> Room:
    """Return a room with the name under which it is stored, if it has none itself."""
    return room if room.name or stored is None else replace(room, name=stored.name)
