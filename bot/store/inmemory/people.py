"""People in memory."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from bot.domain.edits import nobody
from bot.domain.environment import Component, Entity, Relationship
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
