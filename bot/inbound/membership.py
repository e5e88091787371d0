"""What platforms tell of places and people: kept before the platform is told so, then told to listeners."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.environment import Entity, Room, World
from bot.domain.events import (
    EntityJoined,
    EntityLeft,
    EntityUpdated,
    Event,
    RoomJoined,
    WorldConnected,
    WorldJoined,
)
from bot.domain.inbound import Notice, Noticed, without_role
from bot.event_bus import EventBus
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import tidied_notice
from bot.store.protocols import Store

AT_ONCE = 500  # in some twenty milliseconds


class News:
    """Takes in that the agent came into a world, which rooms and people are there, and who comes and goes.

    However many rows a call is about, it takes a few statements, and lets others write in between. It is
    kept when its method returns; repeated it changes nothing more. `event_id` is the platform's own name
    for what has happened. All raise IntakeClosed while the bot is stopping and StoreUnavailable while
    nothing can be kept: the platform must then not be told. What is left, cleared or moved is told to
    `Changes`.
    """

    def __init__(
        self, agent_id: UUID, *, store: Store, inbox: Inbox, events: EventBus, clock: Clock = system_clock
    ) -> None:
        self._agent_id = agent_id
        self._store, self._inbox, self._events = store, inbox, events
        self._clock = clock
        self._in_turn = asyncio.Lock()

    async def world_joined(
        self, world: World, rooms: Sequence[Room] = (), people: Sequence[Entity] = (), *, event_id: str = ""
    ) -> None:
        """Take in a world with what is there; to be told at every connect, and when the agent is invited.

        Listeners hear WorldJoined where it was not known, or was joined by an event that was not known;
        else WorldConnected.
        """
        notice = Notice(world, tuple(rooms), tuple(people), event_id)
        await self._inbox.carry_out(self._join_world(tidied_notice(notice)))

    async def world_updated(
        self, world: World, rooms: Sequence[Room] = (), people: Sequence[Entity] = ()
    ) -> None:
        """Take in what a world is called now, and who has which role there."""
        notice = Notice(world, tuple(rooms), tuple(people))
        await self._inbox.carry_out(self._keep(tidied_notice(notice)))

    async def room_joined(self, world: World, room: Room) -> None:
        """Take in a room of which nothing was known: a channel, a thread, a topic."""
        await self._inbox.carry_out(self._join_room(tidied_notice(Notice(world, (room,)))))

    async def room_updated(self, world: World, room: Room) -> None:
        """Take in what a room is called now; one that is not known is joined."""
        await self.room_joined(world, room)

    async def person_joined(self, world: World, person: Entity, *, event_id: str = "") -> None:
        """Take in that somebody came into a world; where that is a single room, that is where they are."""
        notice = Notice(world, people=(person,), event_id=f"joined:{event_id}" if event_id else "")
        await self._inbox.carry_out(self._join(tidied_notice(notice)))

    async def person_updated(self, world: World, person: Entity) -> None:
        """Take in a new name, picture or role; listeners hear of it where it is one."""
        await self._inbox.carry_out(self._update(tidied_notice(Notice(world, people=(person,)))))

    async def person_left(self, world: World, person: Entity, *, event_id: str = "") -> None:
        """Take in that somebody left a world: they take part in its rooms no longer, and have no role by it.

        What is known of them stays.
        """
        world = replace(world, roles=without_role(world, [person]))
        key = f"left:{event_id}" if event_id else ""
        notice = Notice(world, people=(person,), event_id=key, is_leaving=True)
        await self._inbox.carry_out(self._leave(tidied_notice(notice)))

    async def _keep(self, notice: Notice) -> Noticed:
        """Keep a notice, so many people at a time."""
        keep, now = self._store.changes.notice, self._clock()
        noticed = await keep(replace(notice, people=notice.people[:AT_ONCE]), now)
        if noticed.is_new:
            for start in range(AT_ONCE, len(notice.people), AT_ONCE):
                await keep(Notice(notice.world, people=notice.people[start : start + AT_ONCE]), now)
        return noticed

    async def _join_world(self, notice: Notice) -> None:
        async with self._in_turn:
            noticed = await self._keep(notice)
            if not noticed.is_new:
                return
            world = notice.world
            if noticed.before is None or notice.event_id:
                self._tell(WorldJoined(self._agent_id, world, notice.rooms, notice.people))
            else:
                self._tell(WorldConnected(self._agent_id, world))

    async def _join_room(self, notice: Notice) -> None:
        async with self._in_turn:
            noticed = await self._keep(notice)
            for room in notice.rooms:
                if room.id in noticed.rooms:
                    self._tell(RoomJoined(self._agent_id, room))

    async def _join(self, notice: Notice) -> None:
        async with self._in_turn:
            noticed = await self._keep(notice)
            [person] = notice.people
            if noticed.is_new and (notice.event_id or person.id in noticed.new_people):
                rooms = await self._store.worlds.rooms(notice.world.id)
                if len(rooms) == 1:
                    await self._store.entities.save_entities([person], rooms[0].id)
                self._tell(EntityJoined(self._agent_id, person, notice.world))

    async def _update(self, notice: Notice) -> None:
        async with self._in_turn:
            noticed = await self._keep(notice)
            [person] = notice.people
            if noticed.has_changed(person, notice.world):
                self._tell(EntityUpdated(self._agent_id, person, notice.world))

    async def _leave(self, notice: Notice) -> None:
        async with self._in_turn:
            noticed = await self._keep(notice)
            if noticed.is_new:
                [person] = notice.people
                self._tell(EntityLeft(self._agent_id, person, notice.world))

    def _tell(self, event: Event) -> None:
        self._events.emit(event)
