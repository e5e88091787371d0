"""Relationships as they are kept: what was learnt of two people stays with the room that showed it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from bot import Entity, Relationship, Turn, short_id
from bot.text import sanitize_name
from plugins.bootstrap.evaluators.fact_filters import addresses, is_order
from plugins.bootstrap.evaluators.model_output import Tie
from plugins.bootstrap.evaluators.progress import Material, Place

ROOMS = "rooms"
MOST_ROOMS = 50
MOST_TAGS = 8
LONGEST_TAG, MOST_WORDS = 30, 2


async def save_ties(
    turn: Turn, ties: Sequence[Tie], material: Material, people: Mapping[UUID, Entity]
) -> None:
    """Keep how people stand to one another; no message that was counted before is counted again."""
    entities = turn.agent.store.entities
    for (source, target), tags in _pairs(turn, ties, people).items():
        known = {one.target_id: one for one in await entities.relationships(source)}
        before = known.get(target, Relationship(source, target))
        if (after := _grown(turn, before, tags, material)) is not None:
            await entities.save_relationship(after)


def without_room(known: Relationship, room_id: UUID) -> Relationship:
    """Forget what a room has shown; tags that another room shows too stay."""
    rooms: dict[str, Any] = dict(known.metadata.get(ROOMS, {}))
    gone = rooms.pop(str(room_id), None)
    if gone is None:
        return known
    elsewhere = {tag for one in rooms.values() for tag in one["tags"]}
    lost = set(gone["tags"]) - elsewhere
    return replace(
        known,
        tags=tuple(tag for tag in known.tags if tag not in lost),
        interactions=max(known.interactions - gone["interactions"], 0),
        metadata={**known.metadata, ROOMS: rooms},
    )


def _pairs(
    turn: Turn, ties: Sequence[Tie], people: Mapping[UUID, Entity]
) -> dict[tuple[UUID, UUID], tuple[str, ...]]:
    """Find who is meant; what cannot be told, and what somebody is to themselves, is left out."""
    called = _called(turn, people)
    found: dict[tuple[UUID, UUID], tuple[str, ...]] = {}
    for tie in ties:
        source, target = called.get(tie.source.casefold()), called.get(tie.target.casefold())
        if source is not None and target is not None and source != target:
            tags = (*found.get((source, target), ()), *_clean(turn, tie.tags))
            found[source, target] = tuple(dict.fromkeys(tags))[:MOST_TAGS]
    return found


def _called(turn: Turn, people: Mapping[UUID, Entity]) -> dict[str, UUID]:
    """Map what a model may call people to who they are: ids, and names that only one of them has."""
    names = Counter(one.name.casefold() for one in people.values())
    called = {one.name.casefold(): one.id for one in people.values() if names[one.name.casefold()] == 1}
    called |= {"you": turn.agent.id, turn.agent.name.casefold(): turn.agent.id}
    return called | {short_id(one.id): one.id for one in people.values()}


def _clean(turn: Turn, tags: Sequence[str]) -> Iterator[str]:
    for tag in tags:
        is_short = len(tag) <= LONGEST_TAG and len(tag.split()) <= MOST_WORDS
        if is_short and not addresses(tag) and not is_order(tag, turn.agent.name):
            yield sanitize_name(tag).casefold()


def _grown(turn: Turn, known: Relationship, tags: Sequence[str], material: Material) -> Relationship | None:
    """Add what this room has shown; None where the source has said nothing that was not counted."""
    rooms: dict[str, Any] = dict(known.metadata.get(ROOMS, {}))
    here = rooms.pop(str(turn.room.id), {})
    until = Place.read(here.get("until"))
    theirs = (one for one in material.new if one.entity_id == known.source_id)
    count = sum(1 for one in theirs if until is None or Place.of(one) > until)
    if not count:
        return None
    shown = list(dict.fromkeys((*tags, *here.get("tags", ()))))[:MOST_TAGS]
    counted = here.get("interactions", 0) + count
    rooms[str(turn.room.id)] = {"tags": shown, "interactions": counted, "until": material.end.written}
    rooms = dict(list(rooms.items())[-MOST_ROOMS:])
    every = dict.fromkeys([*(tag for one in reversed(rooms.values()) for tag in one["tags"]), *known.tags])
    return replace(
        known,
        tags=tuple(every)[:MOST_TAGS],
        interactions=known.interactions + count,
        metadata={**known.metadata, ROOMS: rooms},
    )
