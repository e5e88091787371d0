"""Worlds, rooms and people that a platform tells of before anybody there has written."""

import asyncio

from bot import (
    Agent,
    EntityJoined,
    EntityLeft,
    EntityUpdated,
    RoomJoined,
    Service,
    WorldConnected,
    WorldJoined,
    on,
)

BATCH = 50


class Register(Service):
    """Has what is told of people and places kept in the order in which it was told."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.in_turn = asyncio.Lock()


@on(WorldJoined)
async def world_joined(agent: Agent, event: WorldJoined) -> None:
    """Keep a world with its rooms and its members, fifty of them in one transaction.

    They are known, but not active anywhere: a long list does not push those aside who speak.
    """
    async with agent.services[Register].in_turn:
        await agent.store.worlds.save_world(event.world, event.rooms)
        for start in range(0, len(event.entities), BATCH):
            await agent.store.entities.save_entities(event.entities[start : start + BATCH])


@on(WorldConnected)
async def world_connected(agent: Agent, event: WorldConnected) -> None:
    """Keep what the platform says of a world now."""
    async with agent.services[Register].in_turn:
        await agent.store.worlds.save_world(event.world)


@on(RoomJoined)
async def room_joined(agent: Agent, event: RoomJoined) -> None:
    """Keep a new room of a known world; that of an unknown one comes with its first message."""
    worlds = agent.store.worlds
    async with agent.services[Register].in_turn:
        world = await worlds.world(event.room.world_id)
        if world is not None:
            await worlds.save_world(world, [event.room])


@on(EntityJoined)
async def entity_joined(agent: Agent, event: EntityJoined) -> None:
    """Keep somebody new; where the world is a single room, that is where they are."""
    async with agent.services[Register].in_turn:
        rooms = await agent.store.worlds.rooms(event.world.id)
        await agent.store.entities.save_entities([event.entity], rooms[0].id if len(rooms) == 1 else None)


@on(EntityUpdated)
async def entity_updated(agent: Agent, event: EntityUpdated) -> None:
    """Keep a new name or picture."""
    async with agent.services[Register].in_turn:
        await agent.store.entities.save_entities([event.entity])


@on(EntityLeft)
async def entity_left(agent: Agent, event: EntityLeft) -> None:
    """Have somebody take part in none of the world's rooms; what is known of them stays."""
    async with agent.services[Register].in_turn:
        rooms = await agent.store.worlds.rooms(event.world.id)
        await agent.store.entities.leave(event.entity.id, [room.id for room in rooms])
