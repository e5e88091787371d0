"""What a person told alone with the agent, wherever they talk with it alone."""

from uuid import UUID

from bot import Memory, Room, Turn
from bot.platform import ACCESS_TOKEN_KEY
from plugins.bootstrap.evaluators.facts import fact_tellers

MAX_PRIVATE_FACTS = 100  # the latest of a person
SETTING, EACH_ROOM = "PRIVATE_FACTS", "room"


async def find_private_facts(turn: Turn) -> list[Memory]:
    """Return what the author of a turn told in other talks with the agent alone, oldest first.

    It is empty unless they are alone here too. The talks are in the same world, by the same account of the platform,
    and on the web the facts were told with the same token. With `PRIVATE_FACTS=room` there are none.
    """
    agent, room, person_id = turn.agent, turn.room, turn.author.id
    if not room.type.is_direct or agent.settings.get(SETTING) == EACH_ROOM:
        return []
    token_ids = {turn_input.message.metadata.get(ACCESS_TOKEN_KEY) for turn_input in turn.inputs}
    page = await agent.store.memories.facts(person_id, MAX_PRIVATE_FACTS)
    facts = [
        fact
        for fact in page.memories
        if fact.room_id != room.id
        and fact.world_id == turn.world.id
        and token_ids == {fact.metadata.get(ACCESS_TOKEN_KEY)}
        and fact_tellers(fact) == [person_id]
    ]
    if not facts or not await _is_alone(turn, room):
        return []
    source_ids = {fact.room_id for fact in facts}
    private_ids: set[UUID] = set()
    for other in await agent.store.worlds.rooms_of(person_id):
        is_same_account = (other.platform, other.account) == (room.platform, room.account)
        if other.id in source_ids and is_same_account and other.type.is_direct and await _is_alone(turn, other):
            private_ids.add(other.id)
    return [fact for fact in reversed(facts) if fact.room_id in private_ids]


async def _is_alone(turn: Turn, room: Room) -> bool:
    """Return whether the author alone has written to the agent in a room; an API client may write for several."""
    people = await turn.agent.store.entities.participants(room.id, 3)
    return {person.id for person in people} <= {turn.author.id, turn.agent.id}
