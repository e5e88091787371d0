"""Store relationships between users, with tags and counts per room."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from bot import Entity, Relationship, Turn, short_id
from bot.prompts import ANYBODY, AUTHORS_KEY
from bot.text import sanitize_name
from plugins.bootstrap.evaluators.fact_filters import addresses_character, is_order
from plugins.bootstrap.evaluators.model_output import RelationshipClaim
from plugins.bootstrap.evaluators.progress import MessagePosition, ReflectionInput, count_until

ROOMS_KEY = "rooms"
MAX_ROOMS = 50
MAX_TAGS = 8
MAX_AUTHORS = 50
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
