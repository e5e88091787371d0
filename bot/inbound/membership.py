"""`MembershipReporter`: joins, leaves and renames, stored before the platform is told."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.environment import Entity, Room, World
from bot.domain.events import EntityJoined, EntityLeft, EntityUpdated, Event, RoomJoined, WorldConnected, WorldJoined
from bot.domain.inbound import MembershipChange, MembershipUpdate, roles_after_leaving
from bot.event_bus import EventBus
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import sanitize_membership
from bot.store.protocols import Store

BATCH_SIZE = 500  # in some twenty milliseconds


class MembershipReporter:
    """Stores which worlds, rooms and members exist, and who joins and leaves.

    However many rows a call is about, it takes a few statements and lets others write in between. It is
    stored when its method returns; repeating it changes nothing more. `event_id` is the platform's id of the
    event. All methods raise InboxClosed while the bot is stopping and StoreUnavailable while nothing can be
    stored: the platform must not acknowledge the event then. Left, cleared and migrated rooms are reported to
    `EditReporter`.
    """

    def __init__(
        self, agent_id: UUID, *, store: Store, inbox: Inbox, events: EventBus, clock: Clock = system_clock
    ) -> None:
        self._agent_id = agent_id
        self._store, self._inbox, self._events = store, inbox, events
        self._clock = clock
        self._lock = asyncio.Lock()

    async def join_world(
        self, world: World, rooms: Sequence[Room] = (), members: Sequence[Entity] = (), *, event_id: str = ""
    ) -> None:
        """Store a world with its rooms and members; call it at every connect and when the agent is invited.

        Emit WorldJoined where the world or the event was not known, else WorldConnected.
        """
        update = MembershipUpdate(world, tuple(rooms), tuple(members), event_id)
        await self._inbox.run_shielded(self._apply_world_join(sanitize_membership(update)))

    async def update_world(self, world: World, rooms: Sequence[Room] = (), members: Sequence[Entity] = ()) -> None:
        """Store a world's new name and the roles in it."""
        update = MembershipUpdate(world, tuple(rooms), tuple(members))
        await self._inbox.run_shielded(self._apply_in_batches(sanitize_membership(update)))

    async def join_room(self, world: World, room: Room) -> None:
        """Store a new room: a channel, a thread, a topic."""
        await self._inbox.run_shielded(self._apply_room_join(sanitize_membership(MembershipUpdate(world, (room,)))))

    async def update_room(self, world: World, room: Room) -> None:
        """Store a room's new name; an unknown room is joined."""
        await self.join_room(world, room)

    async def add_member(self, world: World, member: Entity, *, event_id: str = "") -> None:
        """Store that a user joined a world; where it has a single room, they are in that room."""
        update = MembershipUpdate(world, entities=(member,), event_id=f"joined:{event_id}" if event_id else "")
        await self._inbox.run_shielded(self._apply_member_join(sanitize_membership(update)))

    async def update_member(self, world: World, member: Entity) -> None:
        """Store a new name, picture or role, and emit EntityUpdated where it differs."""
        await self._inbox.run_shielded(
            self._apply_member_update(sanitize_membership(MembershipUpdate(world, entities=(member,))))
        )

    async def remove_member(self, world: World, member: Entity, *, event_id: str = "") -> None:
        """Store that a user left a world: they are in none of its rooms and have no role in it.

        Their other data stays.
        """
        world = replace(world, roles=roles_after_leaving(world, [member]))
        key = f"left:{event_id}" if event_id else ""
        update = MembershipUpdate(world, entities=(member,), event_id=key, is_leaving=True)
        await self._inbox.run_shielded(self._apply_member_leave(sanitize_membership(update)))

    async def _apply_in_batches(self, update: MembershipUpdate) -> MembershipChange:
        """Store an update, a limited number of members at a time."""
        apply, now = self._store.edits.apply_membership, self._clock()
        change = await apply(replace(update, entities=update.entities[:BATCH_SIZE]), now)
        if change.is_new:
            for start in range(BATCH_SIZE, len(update.entities), BATCH_SIZE):
                await apply(MembershipUpdate(update.world, entities=update.entities[start : start + BATCH_SIZE]), now)
        return change

    async def _apply_world_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            if not change.is_new:
                return
            world = update.world
            if change.previous_world is None or update.event_id:
                self._emit(WorldJoined(self._agent_id, world, update.rooms, update.entities))
            else:
                self._emit(WorldConnected(self._agent_id, world))

    async def _apply_room_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            for room in update.rooms:
                if room.id in change.new_room_ids:
                    self._emit(RoomJoined(self._agent_id, room))

    async def _apply_member_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            [member] = update.entities
            if change.is_new and (update.event_id or member.id in change.new_entity_ids):
                rooms = await self._store.worlds.rooms(update.world.id)
                if len(rooms) == 1:
                    await self._store.entities.save_entities([member], rooms[0].id)
                self._emit(EntityJoined(self._agent_id, member, update.world))

    async def _apply_member_update(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            [member] = update.entities
            if change.has_changed(member, update.world):
                self._emit(EntityUpdated(self._agent_id, member, update.world))

    async def _apply_member_leave(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            if change.is_new:
                [member] = update.entities
                self._emit(EntityLeft(self._agent_id, member, update.world))

    def _emit(self, event: Event) -> None:
        self._events.emit(event)
