"""The REFLECTION evaluator; it stores facts and relationships from conversations.

Store relationships between users, with tags and counts per room.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any
from uuid import UUID

from bot import Agent, Entity, Memory, Relationship, Service, Turn, evaluator, on, short_id
from bot.events import ChannelCleared, MessageReceived
from bot.models import ModelError, ModelType, PromptTooLong, Purpose, TextRequest
from bot.platform import BoundedDict
from bot.prompts import ANYBODY, AUTHORS_KEY, render_template
from bot.text import sanitize_name
from plugins.bootstrap.evaluators.facts import (
    RelationshipClaim,
    addresses_character,
    build_tombstone,
    by_number,
    find_known_facts,
    find_private_facts,
    is_order,
    parse_output,
    quote_fact,
    select_facts,
    within_daily_limit,
)
from plugins.bootstrap.evaluators.progress import (
    MessagePosition,
    ReflectionInput,
    build_progress_marker,
    count_until,
    gather_input,
)

ROOMS_KEY = "rooms"
MAX_ROOMS = 50
MAX_TAGS = 8
MAX_AUTHORS = 50
MAX_TRACKED_ROOMS = 10_000
CONVERSATION_PAUSE = timedelta(hours=1)
MAX_TAG_LENGTH, MAX_TAG_WORDS = 30, 2


async def save_relationships(
    turn: Turn,
    claims: Sequence[RelationshipClaim],
    reflection_input: ReflectionInput,
    entities_by_id: Mapping[UUID, Entity],
) -> None:
    """Store the claimed relationships; each message is counted once."""
    entities = turn.agent.store.entities
    for (source, target), tags in _entity_pairs(turn, claims, entities_by_id).items():
        by_target = {relationship.target_id: relationship for relationship in await entities.relationships(source)}
        relationship = by_target.get(target, Relationship(source, target))
        if (updated := _merge_metadata(turn, relationship, tags, reflection_input)) is not None:
            await entities.save_relationship(updated)


def without_room(relationship: Relationship, room_id: UUID) -> Relationship:
    """Return the relationship without what one room contributed; tags that another room has too stay."""
    rooms: dict[str, Any] = dict(relationship.metadata.get(ROOMS_KEY, {}))
    room_metadata = rooms.pop(str(room_id), None)
    if room_metadata is None:
        return relationship
    other_rooms = {tag for room_data in rooms.values() for tag in room_data["tags"]}
    removed_tags = set(room_metadata["tags"]) - other_rooms
    return replace(
        relationship,
        tags=tuple(tag for tag in relationship.tags if tag not in removed_tags),
        interactions=max(relationship.interactions - room_metadata["interactions"], 0),
        metadata={**relationship.metadata, ROOMS_KEY: rooms},
    )


def _entity_pairs(
    turn: Turn, claims: Sequence[RelationshipClaim], people: Mapping[UUID, Entity]
) -> dict[tuple[UUID, UUID], tuple[str, ...]]:
    """Return the tags by source and target; unknown users and relationships to oneself are skipped."""
    by_name = _entities_by_name(turn, people)
    pairs: dict[tuple[UUID, UUID], tuple[str, ...]] = {}
    for claim in claims:
        source, target = by_name.get(claim.source.casefold()), by_name.get(claim.target.casefold())
        if source is not None and target is not None and source != target:
            tags = (*pairs.get((source, target), ()), *_clean_tags(turn, claim.tags))
            pairs[source, target] = tuple(dict.fromkeys(tags))[:MAX_TAGS]
    return pairs


def _entities_by_name(turn: Turn, people: Mapping[UUID, Entity]) -> dict[str, UUID]:
    """Return the users' ids by short id and by unambiguous name; `you` is the agent."""
    names = Counter(entity.name.casefold() for entity in people.values())
    by_name = {entity.name.casefold(): entity.id for entity in people.values() if names[entity.name.casefold()] == 1}
    by_name |= {"you": turn.agent.id, turn.agent.name.casefold(): turn.agent.id}
    return by_name | {short_id(entity.id): entity.id for entity in people.values()}


def _clean_tags(turn: Turn, tags: Sequence[str]) -> Iterator[str]:
    for tag in tags:
        is_short = len(tag) <= MAX_TAG_LENGTH and len(tag.split()) <= MAX_TAG_WORDS
        if is_short and not addresses_character(tag) and not is_order(tag, turn.agent.name):
            yield sanitize_name(tag).casefold()


def _merge_metadata(
    turn: Turn, relationship: Relationship, tags: Sequence[str], reflection_input: ReflectionInput
) -> Relationship | None:
    """Return the relationship with this room's tags and count added; None if no message is new."""
    rooms: dict[str, Any] = dict(relationship.metadata.get(ROOMS_KEY, {}))
    room_data = rooms.pop(str(turn.room.id), {})
    position = MessagePosition.parse(room_data.get("until"))
    counted = max(reflection_input.evaluated, count_until(reflection_input.messages, position))
    count = sum(item.entity_id == relationship.source_id for item in reflection_input.messages[counted:])
    if not count:
        return None
    room_tags = list(dict.fromkeys((*tags, *room_data.get("tags", ()))))[:MAX_TAGS]
    new_count = room_data.get("interactions", 0) + count
    rooms[str(turn.room.id)] = {
        "tags": room_tags,
        "interactions": new_count,
        "until": reflection_input.last_position.to_json,
        AUTHORS_KEY: _merge_authors(room_data, reflection_input.authors),
    }
    rooms = dict(list(rooms.items())[-MAX_ROOMS:])
    all_tags = dict.fromkeys([*(tag for item in reversed(rooms.values()) for tag in item["tags"]), *relationship.tags])
    return replace(
        relationship,
        tags=tuple(all_tags)[:MAX_TAGS],
        interactions=relationship.interactions + count,
        metadata={**relationship.metadata, ROOMS_KEY: rooms},
    )


def _merge_authors(room_data: Mapping[str, Any], authors: Sequence[UUID]) -> list[str]:
    """Return whose words the tags of a room may repeat; ANYBODY for too many, and for tags of earlier versions."""
    unknown = [str(ANYBODY)]
    earlier = room_data.get(AUTHORS_KEY, unknown if room_data.get("tags") else [])
    merged = list(dict.fromkeys((*earlier, *map(str, authors))))
    return merged if len(merged) <= MAX_AUTHORS else unknown


logger = logging.getLogger(__name__)
MAX_RUNNING = 64  # each holds its turn, with all that the prompt was composed of


def min_new_messages(length: int) -> int:
    """Return how many new messages make a reflection due: a quarter of a conversation."""
    return ceil(length / 4)


@dataclass(slots=True)
class _Conversation:
    message_count: int
    last_at: datetime
    is_after_pause: bool = False


class MessageCounter:
    """Counts new user messages per room, starting from a count read from the store."""

    def __init__(self) -> None:
        self._conversations: BoundedDict[UUID, _Conversation] = BoundedDict(MAX_TRACKED_ROOMS)

    def count(self, room_id: UUID, messages: Sequence[Memory]) -> None:
        """Set a room's count to the new messages read from the store."""
        if messages:
            self._conversations[room_id] = _Conversation(len(messages), messages[-1].created_at)
        else:
            self._conversations.pop(room_id, None)

    def mark_evaluated(self, room_id: UUID, messages: Sequence[Memory]) -> None:
        """Subtract evaluated messages from the room's count."""
        conversation = self._conversations.get(room_id)
        if conversation is None:
            self._conversations[room_id] = _Conversation(0, messages[-1].created_at)
        else:
            remaining = max(0, conversation.message_count - len(messages))
            self._conversations[room_id] = _Conversation(remaining, conversation.last_at)

    def add(self, message: Memory) -> None:
        """Count a new message, if its room is tracked."""
        conversation = self._conversations.get(message.room_id)
        if conversation is not None:
            conversation.message_count += 1
            conversation.is_after_pause = (
                conversation.is_after_pause or message.created_at - conversation.last_at >= CONVERSATION_PAUSE
            )
            conversation.last_at = message.created_at

    def is_enough(self, room_id: UUID, length: int) -> bool | None:
        """Return whether enough messages are new; None if the store must be read to know."""
        conversation = self._conversations.get(room_id)
        if conversation is None or (
            conversation.is_after_pause and conversation.message_count < min_new_messages(length)
        ):
            return None
        return conversation.message_count >= min_new_messages(length)


class Reflections(Service):
    """Allows one reflection per room and MAX_RUNNING of all rooms at a time, and counts new messages."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.storing = asyncio.Lock()
        self.message_counter = MessageCounter()
        self._rooms: set[UUID] = set()

    def can_start(self, room_id: UUID) -> bool:
        """Return whether a reflection of this room may run now, besides those that are running."""
        return room_id not in self._rooms and len(self._rooms) < MAX_RUNNING

    @contextmanager
    def running(self, room_id: UUID) -> Iterator[bool]:
        """Mark the room as running inside the block; yield False if it may not start."""
        if not self.can_start(room_id):
            yield False
            return
        self._rooms.add(room_id)
        try:
            yield True
        finally:
            self._rooms.discard(room_id)


def is_due(turn: Turn) -> bool | Awaitable[bool]:
    """Return whether enough messages are new, or the conversation resumed after a long pause."""
    reflections = turn.agent.services[Reflections]
    if not reflections.can_start(turn.room.id):
        return False  # messages that arrive meanwhile are evaluated after the next one
    is_enough_new = reflections.message_counter.is_enough(turn.room.id, turn.conversation_length)
    if is_enough_new is False or not turn.agent.models.has_handler_for(ModelType.TEXT_SMALL):
        return False
    return is_enough_new or _is_due_by_store(turn)


async def _is_due_by_store(turn: Turn) -> bool:
    reflection_input = await gather_input(turn)
    turn.agent.services[Reflections].message_counter.count(turn.room.id, reflection_input.user_messages)
    return _is_enough(reflection_input.user_messages, turn.conversation_length)


def _is_enough(messages: Sequence[Memory], length: int) -> bool:
    """Return whether these new messages are enough, or the conversation resumed after a pause."""
    if len(messages) >= min_new_messages(length):
        return True
    return len(messages) > 1 and messages[-1].created_at - messages[-2].created_at >= CONVERSATION_PAUSE


@on(MessageReceived)
def on_message_received(agent: Agent, event: MessageReceived) -> None:
    """Count user messages, so that the store is not read after every message."""
    if event.message.entity_id != agent.id:
        agent.services[Reflections].message_counter.add(event.message)


@evaluator(
    "REFLECTION",
    "Keeps what people tell of themselves, and how they stand to one another.",
    similes=["REFLECT", "SELF_REFLECT", "EVALUATE_INTERACTION", "ASSESS_SITUATION"],
    when=is_due,
)
async def reflection(turn: Turn) -> None:
    """Ask the small model to read the room's new messages; store the facts and relationships it notes.

    Facts and the progress marker are stored in one transaction, so a repetition after a crash finds both or
    neither. If the model fails, the next message tries again. A model that writes plain text only is not asked.
    """
    if await turn.agent.models.writes_plain_text(ModelType.TEXT_SMALL):
        return
    reflections = turn.agent.services[Reflections]
    with reflections.running(turn.room.id) as is_first:
        reflection_input = await gather_input(turn)
        if not is_first:
            return
        if not _is_enough(reflection_input.user_messages, turn.conversation_length):  # messages were deleted meanwhile
            reflections.message_counter.count(turn.room.id, reflection_input.user_messages)
            return
        entities = await _find_entities(turn, reflection_input)
        # What was told in other talks with the same person alone may be corrected here.
        private = await find_private_facts(turn)
        known_facts = [*private, *await find_known_facts(turn)]
        try:
            answer, reflection_input = await _read_output(turn, reflection_input, entities, known_facts)
        except ModelError as error:
            logger.info("no reflection for room %s: %s", turn.room.id, error)
            return
        output = parse_output(answer)
        selection = await select_facts(turn, output, reflection_input, known_facts, entities)
        async with reflections.storing:
            if output.relationships and await _is_still_stored(turn, reflection_input):
                await save_relationships(turn, output.relationships, reflection_input, entities)
            await _store_selection(turn, selection.new, selection.forgotten, reflection_input)
        reflections.message_counter.mark_evaluated(turn.room.id, reflection_input.user_messages)


async def _is_still_stored(turn: Turn, reflection_input: ReflectionInput) -> bool:
    """Return whether the last message still exists: the room may have been cleared meanwhile."""
    last = reflection_input.messages[-1].id
    return last in await turn.agent.store.memories.memories([last])


async def _find_entities(turn: Turn, reflection_input: ReflectionInput) -> dict[UUID, Entity]:
    """Return the authors of the messages and the participants of the room, without the agent."""
    entities = turn.agent.store.entities
    members = {entity.id: entity for entity in await entities.participants(turn.room.id)}
    authors = {message.entity_id for message in reflection_input.messages}
    people = {**members, **await entities.entities(authors)}
    people.pop(turn.agent.id, None)
    return people


async def _read_output(
    turn: Turn, reflection_input: ReflectionInput, entities: Mapping[UUID, Entity], known_facts: Sequence[Memory]
) -> tuple[str, ReflectionInput]:
    """Return the model's answer and the input it read: the newer half if all of it was too long."""
    try:
        return await _ask_model(turn, reflection_input, entities, known_facts), reflection_input
    except PromptTooLong:
        shorter_input = reflection_input.without_oldest_half()
        if not shorter_input.user_messages:
            raise
        return await _ask_model(turn, shorter_input, entities, known_facts), shorter_input


async def _ask_model(
    turn: Turn, reflection_input: ReflectionInput, entities: Mapping[UUID, Entity], known_facts: Sequence[Memory]
) -> str:
    conversation = reflection_input.to_text(entities, turn.agent.name, turn.time_zone)
    facts = "\n".join(
        f"{number}. {quote_fact(fact, entities, turn.time_zone)}" for number, fact in by_number(known_facts).items()
    )
    values = {
        **turn.template_values(),
        "actionResults": "",  # what it is not shown cannot be noted as said by the authors of the conversation
        "agentName": turn.agent.name,
        "conversation": conversation,
        "recentMessages": conversation,
        "knownFacts": facts,
        "providers": f"Known already:\n{facts}" if facts else "",
        "seen": reflection_input.evaluated,
    }
    prompt = render_template(turn.find_template(TEMPLATE), values)
    request = TextRequest(prompt, purpose=Purpose.REFLECTION)
    return (await turn.agent.models.text(request, ModelType.TEXT_SMALL)).text


async def _store_selection(
    turn: Turn, facts: Sequence[Memory], forgotten: Sequence[Memory], reflection_input: ReflectionInput
) -> None:
    """Store the facts, counts and marker in one transaction; facts of deleted messages are dropped."""
    store = turn.agent.store
    sources = {fact.source_id for fact in facts if fact.source_id is not None}
    existing = await store.memories.memories(sources)
    sourced_facts = [fact for fact in facts if fact.source_id in existing]
    accepted, daily_counts = await within_daily_limit(turn, sourced_facts, f"{turn.agent.clock():%Y-%m-%d}")
    erasures = [build_tombstone(fact) for fact in forgotten]
    await store.memories.add(
        [*accepted, *erasures, *daily_counts, build_progress_marker(turn, reflection_input.last_position)]
    )
    if not forgotten:
        return
    await store.memories.remove([fact.id for fact in forgotten])
    for fact in forgotten:
        body = {"fact": str(fact.id), "by": short_id(fact.entity_id)}
        await store.logs.log("fact_forgotten", body, room_id=turn.room.id, entity_id=fact.entity_id)


MAX_ENTITIES = 1_000
TEMPLATE = "reflectionTemplate"


@on(ChannelCleared)
async def on_channel_cleared(agent: Agent, event: ChannelCleared) -> None:
    """Remove what a cleared room contributed to the relationships of its participants."""
    entities = agent.store.entities
    participants = await entities.participants(event.room_id, MAX_ENTITIES)
    async with agent.services[Reflections].storing:
        for entity_id in {agent.id, *(entity.id for entity in participants)}:
            for relationship in await entities.relationships(entity_id):
                remaining = without_room(relationship, event.room_id)
                if remaining != relationship:
                    await entities.save_relationship(remaining)
