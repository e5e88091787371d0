"""Worlds and rooms in memory."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from bot.domain.people import Attendance
from bot.domain.places import Role, Room, World


class InMemoryWorlds:
    """Keeps worlds and rooms; see `WorldStore`."""

    def __init__(self) -> None:
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

    async def attendance(self, room_id: UUID) -> Attendance:
        return self.attendance_of(room_id)

    async def set_attendance(self, room_id: UUID, attendance: Attendance) -> None:
        self._attendance[room_id] = attendance

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        world = self._worlds[world_id]
        self._worlds[world_id] = replace(world, roles={**world.roles, entity_id: role})

    def attendance_of(self, room_id: UUID) -> Attendance:
        """Tell what the agent has decided about a room."""
        return self._attendance.get(room_id, Attendance.DEFAULT)

    def put(self, world: World, rooms: Sequence[Room]) -> tuple[World, list[Room]]:
        """Insert or update; the most recently named room moves to the end. They come back as kept."""
        known = self._worlds.get(world.id)
        if known is not None:
            world = replace(world, name=world.name or known.name, roles={**known.roles, **world.roles})
        self._worlds[world.id] = world
        for room in rooms:
            before = self._rooms.pop(room.id, None)
            self._rooms[room.id] = replace(room, name=room.name or (before.name if before else ""))
        return world, [self._rooms[room.id] for room in rooms]

    def move(self, room_id: UUID, world: World, room: Room) -> None:
        """Have a room go on as another one, with the roles that its world knows and what was decided."""
        before = self._rooms.get(room_id)
        left = self._worlds.get(before.world_id) if before else None
        self.put(replace(world, roles={**(left.roles if left else {}), **world.roles}), [room])
        decided = self._attendance.pop(room_id, None)
        if decided is not None:
            self._attendance.setdefault(room.id, decided)
