"""Worlds, rooms, entities."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from bot.domain.edits import nobody
from bot.domain.environment import Attendance, Component, Entity, Relationship, Role, Room, World
from bot.store.protocols import MOST_NAMES


class InMemoryEntities:
    """Keeps people, components and relationships; see `EntityStore`."""

    def __init__(self) -> None:
        self._entities: dict[UUID, Entity] = {}
        self._participants: defaultdict[UUID, dict[UUID, None]] = defaultdict(dict)
        self._components: defaultdict[UUID, dict[tuple[str, UUID | None, UUID | None], Component]]
        self._components = defaultdict(dict)
        self._relationships: defaultdict[UUID, dict[UUID, Relationship]] = defaultdict(dict)

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        for entity in entities:
            self.put(entity, room_id)

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        return {one: self._entities[one] for one in ids if one in self._entities}

    async def leave(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        for room_id in room_ids:
            self._participants[room_id].pop(entity_id, None)

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        latest = list(self._participants.get(room_id, ()))[: -limit - 1 : -1]
        return [self._entities[one] for one in latest]

    async def named(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        people = (one for one in self._entities.values() if platform in (None, one.platform))
        return [one for one in people if name in (*one.names, one.external_id)][:limit]

    async def save_component(self, component: Component) -> None:
        key = (component.type, component.world_id, component.source_entity_id)
        self._components[component.entity_id][key] = component

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        found = self._components.get(entity_id, {}).values()
        return [component for component in found if kind in (None, component.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        self._relationships[relationship.source_id][relationship.target_id] = relationship

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        found = self._relationships.get(entity_id, {}).values()
        return sorted(found, key=lambda one: -one.interactions)

    def put(self, entity: Entity, room_id: UUID | None) -> Entity:
        """Insert or update; a new display name comes first, the former ones stay behind it."""
        known = self._entities.get(entity.id)
        if known is not None:
            names = dict.fromkeys((*entity.names, *known.names))
            entity = replace(entity, names=tuple(names)[:MOST_NAMES])
        self._entities[entity.id] = entity
        if room_id is not None:
            self._participants[room_id].pop(entity.id, None)
            self._participants[room_id][entity.id] = None
        return entity

    def rooms_of(self, entity_id: UUID) -> frozenset[UUID]:
        """Tell in which rooms somebody takes part."""
        return frozenset(room for room, present in self._participants.items() if entity_id in present)

    def forget(self, entity_id: UUID, mark: Component) -> tuple[int, int]:
        """Delete what is known of somebody, and by them; counts details and relationships."""
        if entity_id in self._entities:
            self._entities[entity_id] = nobody(self._entities[entity_id])
        for present in self._participants.values():
            present.pop(entity_id, None)
        details = len(self._components.pop(entity_id, {}))
        for known in self._components.values():
            for key in [key for key, one in known.items() if one.source_entity_id == entity_id]:
                del known[key]
                details += 1
        self._components[entity_id][mark.type, None, None] = mark
        ties = len(self._relationships.pop(entity_id, {}))
        return details, ties + sum(
            one.pop(entity_id, None) is not None for one in self._relationships.values()
        )

    def move(self, room_id: UUID, other_id: UUID) -> None:
        """Have all that belongs to a room belong to another one."""
        present = self._participants[other_id]
        self._participants[other_id] = {**self._participants.pop(room_id, {}), **present}
        for known in self._components.values():
            known.update(
                (key, replace(one, room_id=other_id)) for key, one in known.items() if one.room_id == room_id
            )


class InMemoryWorlds:
    """Keeps worlds and rooms; see `WorldStore`."""

    def __init__(self, people: InMemoryEntities) -> None:
        self._people = people
        self._worlds: dict[UUID, World] = {}
        self._rooms: dict[UUID, Room] = {}
        self._attendance: dict[UUID, Attendance] = {}

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        self.put(world, rooms)

    async def world(self, world_id: UUID) -> World | None:
        return self._worlds.get(world_id)

    async def room(self, room_id: UUID) -> Room | None:
        return self._rooms.get(room_id)

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        found = [room for room in self._rooms.values() if world_id in (None, room.world_id)]
        return found[::-1]

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        attended = self._people.rooms_of(entity_id)
        return [room for room in await self.rooms() if room.id in attended]

    async def attendance(self, room_id: UUID) -> Attendance:
        return self.attendance_of(room_id)

    async def set_attendance(self, room_id: UUID, attendance: Attendance) -> None:
        self._attendance[room_id] = attendance

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        world = self._worlds[world_id]
        self._worlds[world_id] = replace(world, grants={**world.grants, entity_id: role})

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        world = self._worlds[world_id]
        settings = {key: one for key, one in {**world.settings, name: value}.items() if one}
        self._worlds[world_id] = replace(world, settings=settings)

    def attendance_of(self, room_id: UUID) -> Attendance:
        """Tell what the agent has decided about a room."""
        return self._attendance.get(room_id, Attendance.DEFAULT)

    def put(self, world: World, rooms: Sequence[Room]) -> tuple[World, list[Room]]:
        """Insert or update; the most recently named room moves to the end. They come back as kept."""
        known = self._worlds.get(world.id)
        if known is not None:
            world = replace(world.added_to(known), name=world.name or known.name)
        self._worlds[world.id] = world
        for room in rooms:
            before = self._rooms.pop(room.id, None)
            self._rooms[room.id] = replace(room, name=room.name or (before.name if before else ""))
        return world, [self._rooms[room.id] for room in rooms]

    def list_rooms(self, rooms: Sequence[Room]) -> frozenset[UUID]:
        """Insert or update rooms where they stand; new ones count as the least active. Gives the new ones."""
        new: dict[UUID, Room] = {}
        for room in rooms:
            if (before := self._rooms.get(room.id)) is None:
                new[room.id] = room
            else:
                self._rooms[room.id] = replace(room, name=room.name or before.name)
        self._rooms = {**new, **self._rooms}
        return frozenset(new)

    def move(self, room_id: UUID, world: World, room: Room) -> None:
        """Have a room go on as another one, with the roles that its world knows and what was decided."""
        before = self._rooms.get(room_id)
        left = self._worlds.get(before.world_id) if before else None
        self.put(world.added_to(left) if left else world, [room])
        decided = self._attendance.pop(room_id, None)
        if decided is not None:
            self._attendance.setdefault(room.id, decided)
