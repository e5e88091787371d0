"""What a cleared room had shown of how people stand to one another goes with it."""

from bot import Agent, ChannelCleared, on
from plugins.bootstrap.evaluators.reflection import Reflections
from plugins.bootstrap.evaluators.ties import without_room

MOST_PEOPLE = 1_000


@on(ChannelCleared)
async def channel_cleared(agent: Agent, event: ChannelCleared) -> None:
    """Take the room out of what is known of whoever takes part in it."""
    entities = agent.store.entities
    people = await entities.participants(event.room_id, MOST_PEOPLE)
    async with agent.services[Reflections].keeping:
        for person_id in {agent.id, *(one.id for one in people)}:
            for known in await entities.relationships(person_id):
                left = without_room(known, event.room_id)
                if left != known:
                    await entities.save_relationship(left)
