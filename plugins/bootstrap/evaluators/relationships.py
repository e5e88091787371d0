"""Relationships as they are kept: what was learnt of two people stays with the room that showed it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from bot import Entity, Relationship, Turn, short_id
from bot.text import sanitize_name
from plugins.bootstrap.evaluators.fact_filters import addresses_character, is_order
from plugins.bootstrap.evaluators.model_output import RelationshipClaim
from plugins.bootstrap.evaluators.progress import MessagePosition, ReflectionInput

ROOMS_KEY = "rooms"
MAX_ROOMS = 50
MAX_TAGS = 8
MAX_TAG_LENGTH, MAX_TAG_WORDS = 30, 2


async def save_relationships(
    turn: Turn,
    claims: Sequence[RelationshipClaim],
    reflection_input: ReflectionInput,
    entities_by_id: Mapping[UUID, Entity],
) -> None:
    """Keep how people stand to one another; no message that was counted before is counted again."""
    entities = turn.agent.store.entities
    for (source, target), tags in _entity_pairs(turn, claims, entities_by_id).items():
        stored = {
            relationship.target_id: relationship for relationship in await entities.relationships(source)
        }
        old_metadata = stored.get(target, Relationship(source, target))
        if (new_metadata := _merge_metadata(turn, old_metadata, tags, reflection_input)) is not None:
            await entities.save_relationship(new_metadata)


def without_room(relationship: Relationship, room_id: UUID) -> Relationship:
    """Forget what a room has shown; tags that another room shows too stay."""
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
    """Find who is meant; what cannot be told, and what somebody is to themselves, is left out."""
    by_name = _entities_by_name(turn, people)
    pairs: dict[tuple[UUID, UUID], tuple[str, ...]] = {}
    for claim in claims:
        source, target = by_name.get(claim.source.casefold()), by_name.get(claim.target.casefold())
        if source is not None and target is not None and source != target:
            tags = (*pairs.get((source, target), ()), *_clean_tags(turn, claim.tags))
            pairs[source, target] = tuple(dict.fromkeys(tags))[:MAX_TAGS]
    return pairs


def _entities_by_name(turn: Turn, people: Mapping[UUID, Entity]) -> dict[str, UUID]:
    """Map what a model may call people to who they are: ids, and names that only one of them has."""
    names = Counter(entity.name.casefold() for entity in people.values())
    by_name = {
        entity.name.casefold(): entity.id for entity in people.values() if names[entity.name.casefold()] == 1
    }
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
    """Add what this room has shown; None where the source has said nothing that was not counted."""
    rooms: dict[str, Any] = dict(relationship.metadata.get(ROOMS_KEY, {}))
    room_data = rooms.pop(str(turn.room.id), {})
    position = MessagePosition.parse(room_data.get("until"))
    stored_tags = (item for item in reflection_input.new_messages if item.entity_id == relationship.source_id)
    count = sum(1 for item in stored_tags if position is None or MessagePosition.of_message(item) > position)
    if not count:
        return None
    counted_until = list(dict.fromkeys((*tags, *room_data.get("tags", ()))))[:MAX_TAGS]
    new_count = room_data.get("interactions", 0) + count
    rooms[str(turn.room.id)] = {
        "tags": counted_until,
        "interactions": new_count,
        "until": reflection_input.last_position.to_text,
    }
    rooms = dict(list(rooms.items())[-MAX_ROOMS:])
    all_tags = dict.fromkeys(
        [*(tag for item in reversed(rooms.values()) for tag in item["tags"]), *relationship.tags]
    )
    return replace(
        relationship,
        tags=tuple(all_tags)[:MAX_TAGS],
        interactions=relationship.interactions + count,
        metadata={**relationship.metadata, ROOMS_KEY: rooms},
    )
