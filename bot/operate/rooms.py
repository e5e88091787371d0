"""Instructions of rooms and worlds, casts and take-overs, as operators and admins see and set them."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from bot.domain import instructions
from bot.domain.environment import Room, TakeOver, World
from bot.errors import SettingError
from bot.operate.results import Result, name_room
from bot.store.protocols import LogKind, Store


class TakeOverBody(Result):
    """Who has taken over a room, or one person there (`person_id`), where, why, since when, and until when."""

    room_id: UUID
    person_id: UUID | None
    name: str
    origin: str
    reason: str
    since: datetime
    ended_at: datetime | None


async def end_take_overs(store: Store, room_id: UUID, person_id: UUID | None, now: datetime) -> list[TakeOver]:
    """End the take-over of a room or of a person there, and return it.

    Without a person, and where the room as a whole is not taken over, those of all people there end.
    """
    person_ids = [person_id]
    if person_id is None and (room_id, None) not in store.take_overs.current:
        person_ids = [person for room, person in store.take_overs.current if room == room_id]
    ended = [await store.take_overs.end(room_id, person, now) for person in person_ids]
    return [take_over for take_over in ended if take_over is not None]


class InstructionBody(Result):
    """One value in effect, and where it is set: `file`, `world`, `parent` (the channel of a thread) or `room`.

    `place` is its key in the file; `by` is the name of the person who set it, empty for an operator and for one whose
    data was deleted; `source` says how it was set.
    """

    key: str
    value: str
    origin: str
    place: str
    by_id: UUID | None
    by: str
    source: str
    at: datetime | None


class RoomInstructionsBody(Result):
    """What is in effect in a room; `keys` are all that can be set, each with what fits."""

    room_id: UUID
    world_id: UUID
    room: str
    world: str
    values: list[InstructionBody]
    keys: dict[str, str] = instructions.USAGE


class CastMemberBody(Result):
    """One of the characters that share an account."""

    agent_id: UUID
    name: str


class CastBody(Result):
    """Which characters of an account speak in a room, in the order in which they were added, and which do not."""

    room_id: UUID
    members: list[CastMemberBody]
    others: list[CastMemberBody]


async def find_instructions(
    store: Store, rooms: Mapping[str, instructions.RoomInstructions], room: Room
) -> instructions.ResolvedInstructions:
    """Return what is in effect in a room; `rooms` is what the character's file says."""
    world = await store.worlds.world(room.world_id) or World(room.world_id, room.platform, "")
    parent = await store.worlds.room(room.parent_id) if rooms and room.parent_id is not None else None
    return instructions.resolve_instructions(rooms, world, room, parent)


async def describe_instructions(
    store: Store, rooms: Mapping[str, instructions.RoomInstructions], room: Room
) -> RoomInstructionsBody:
    """Return what is in effect in a room, with the names of those who set it."""
    found = (await find_instructions(store, rooms, room)).values
    people = await store.entities.entities({item.by_id for item in found if item.by_id is not None})
    world = await store.worlds.world(room.world_id)
    values = [
        InstructionBody.build(
            item,
            value=instructions.format_value(item.value),
            by=people[item.by_id].name if item.by_id in people else "",
        )
        for item in found
    ]
    return RoomInstructionsBody(
        room_id=room.id,
        world_id=room.world_id,
        room=name_room(room),
        world=(world.name or world.external_id) if world is not None else "",
        values=values,
    )


async def change_instructions(
    store: Store,
    room: Room,
    values: Mapping[str, str],
    *,
    now: datetime,
    source: str,
    by_id: UUID | None = None,
    of_world: bool = False,
) -> None:
    """Set values of a room, or of its world; a blank one removes what is set. The next message finds them.

    Raises SettingError for a value that does not fit, and then changes nothing, and LookupError for an unknown world.
    """
    world = await store.worlds.world(room.world_id)
    if world is None:
        raise LookupError(f"there is no world {room.world_id}")
    encoded: dict[str, str] = {}
    for key, text in values.items():
        try:
            value = instructions.parse_instruction(key, text)
        except ValueError as error:
            raise SettingError(str(error)) from None
        set_by = instructions.InstructionValue(key, value, "", by_id=by_id, source=source, at=now)
        encoded[instructions.setting_name(key, None if of_world else room.id)] = (
            "" if value is None else instructions.encode_value(set_by)
        )
    stored = {name: text for name, text in world.settings.items() if name.startswith(instructions.SETTING_PREFIX)}
    if sum(map(len, (stored | encoded).values())) > instructions.MAX_WORLD_LENGTH:
        raise SettingError(
            f"all instructions of a world together have at most {instructions.MAX_WORLD_LENGTH} characters"
        )
    for name, text in encoded.items():
        await store.worlds.set_setting(world.id, name, text)
    body = {
        "action": "SET_INSTRUCTIONS",
        "allowed": True,
        "actors": [str(by_id)] if by_id is not None else [],
        "world": str(world.id),
        "room": None if of_world else str(room.id),
        "arguments": dict(values),
        "event": source,
    }
    await store.logs.log(LogKind.AUTHORIZATION, body, entity_id=by_id)
