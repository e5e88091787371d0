"""Worlds and rooms in memory."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from bot.domain.environment import Attendance, Role, Room, World
from bot.store.inmemory.people import InMemoryEntities


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
