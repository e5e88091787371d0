"""The history of another program as worlds, rooms, people and memories, and its import into a store."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from bot.domain.environment import Entity, Relationship, Room, World
from bot.domain.memory import AUTHORS_KEY, Memory, MemoryKind
from bot.store.protocols import Store

IMPORTED_KEY = "imported_from"  # in the metadata of what was imported: the program and its id there
BATCH = 500
KNOWN = "already here"
NOT_READ = "their author, or whom they answer, is not read here"
FORGOTTEN = "their author, or whom they answer, was forgotten here"
LIVE_ROOM = "their room has newer messages here already, behind which they would appear"


@dataclass(slots=True)
class ImportReport:
    """How many of each thing were taken, and how many were left, by the reason."""

    taken: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the report as rows: what, how many were taken or left, and why they were left."""
        taken = [(what, f"{count:,} taken", "") for what, count in self.taken.items() if count]
        return taken + [(what, f"{count:,} left", why) for (what, why), count in self.left.items() if count]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        left = [{"what": what, "count": count, "reason": why} for (what, why), count in self.left.items() if count]
        return {"taken": {what: count for what, count in self.taken.items() if count}, "left": left}


@dataclass(slots=True)
class History:
    """What another program knows of one agent; `members` has the people of each room, by the ids of both.

    The ids are derived from those of the program, so that importing it again finds what is there.
    """

    worlds: dict[UUID, World] = field(default_factory=dict)
    rooms: dict[UUID, Room] = field(default_factory=dict)
    people: dict[UUID, Entity] = field(default_factory=dict)
    members: dict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    memories: list[Memory] = field(default_factory=list)
    relationships: list[Relationship] = field(default_factory=list)
    report: ImportReport = field(default_factory=ImportReport)


async def store_history(store: Store, history: History) -> ImportReport:
    """Store what is not there yet, the oldest memories first; return the completed report.

    A room that the store knows by its platform and external id is used in place of the history's own. Nothing that is
    stored already is changed, and nothing of people who are not read or were forgotten is stored.
    """
    report = history.report
    known_rooms = {(room.platform, room.external_id): room for room in await store.worlds.rooms()}
    places = {room.id: known_rooms.get((room.platform, room.external_id), room) for room in history.rooms.values()}
    known_people = await store.entities.entities(history.people.keys())
    forgotten = {entity_id for entity_id, entity in known_people.items() if not entity.external_id}
    omitted = dict.fromkeys(forgotten, FORGOTTEN) | dict.fromkeys(store.marks.not_read, NOT_READ)
    people = {
        entity_id: known_people.get(entity_id, entity)
        for entity_id, entity in history.people.items()
        if entity_id not in omitted
    }
    await _store_places(store, history, known_rooms.keys(), places, people)
    report.taken["people"] += len(people.keys() - known_people.keys())
    report.left["people", KNOWN] += len(people.keys() & known_people.keys())
    reasons = dict(omitted)
    for room in places.values():
        last = await store.memories.recent(room.id, 1)
        if last and IMPORTED_KEY not in last[0].metadata:
            reasons[room.id] = LIVE_ROOM
    written = {memory.id: omitted[memory.entity_id] for memory in history.memories if memory.entity_id in omitted}
    for memory in history.memories:  # an answer to them may repeat their words
        if (target := memory.content.in_reply_to) in written and target is not None:
            reasons[memory.id] = written[target]
    history.memories.sort(key=lambda memory: memory.created_at)
    for start in range(0, len(history.memories), BATCH):
        batch = history.memories[start : start + BATCH]
        await _store_memories(store, report, batch, places, reasons)
    await _store_relationships(store, history, people.keys())
    return report


async def _store_places(
    store: Store, history: History, known: Any, places: Mapping[UUID, Room], people: Mapping[UUID, Entity]
) -> None:
    """Store the rooms that are new with their worlds and, of all rooms, the people who are new there."""
    new = [room for room in history.rooms.values() if (room.platform, room.external_id) not in known]
    for world in history.worlds.values():
        if rooms := [room for room in new if room.world_id == world.id]:
            await store.worlds.save_world(world, rooms)
    history.report.taken["rooms"] += len(new)
    history.report.left["rooms", KNOWN] += len(history.rooms) - len(new)
    for room_id, member_ids in history.members.items():
        room = places[room_id]
        present = {entity.id for entity in await store.entities.participants(room.id, limit=len(people) + BATCH)}
        if members := [people[entity_id] for entity_id in member_ids - present if entity_id in people]:
            await store.entities.save_entities(members, room.id)


async def _store_memories(
    store: Store,
    report: ImportReport,
    batch: Sequence[Memory],
    places: Mapping[UUID, Room],
    reasons: Mapping[UUID, str],
) -> None:
    """Store a batch; `reasons` say why those of some people, rooms and memories are left."""
    known = await store.memories.memories([memory.id for memory in batch])
    new = []
    for memory in batch:
        what, room = "messages" if memory.kind is MemoryKind.MESSAGE else "facts", places[memory.room_id]
        sources = [memory.id, memory.entity_id, *map(UUID, memory.metadata.get(AUTHORS_KEY, ()))]
        if memory.kind is MemoryKind.MESSAGE:
            sources.append(room.id)
        reason = KNOWN if memory.id in known else next((reasons[key] for key in sources if key in reasons), "")
        if reason:
            report.left[what, reason] += 1
        else:
            report.taken[what] += 1
            new.append(replace(memory, room_id=room.id, world_id=room.world_id))
    await store.memories.add(new)


async def _store_relationships(store: Store, history: History, people: Collection[UUID]) -> None:
    known: dict[UUID, set[UUID]] = {}
    for relationship in history.relationships:
        source_id, target_id = relationship.source_id, relationship.target_id
        if source_id not in known:
            known[source_id] = {item.target_id for item in await store.entities.relationships(source_id)}
        if target_id in known[source_id]:
            history.report.left["relationships", KNOWN] += 1
        elif source_id in people and target_id in people:
            await store.entities.save_relationship(relationship)
            history.report.taken["relationships"] += 1
        else:
            history.report.left["relationships", "one of the two is not read, was forgotten or is unknown"] += 1
