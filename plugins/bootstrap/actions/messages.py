"""SEND_MESSAGE: say something here, in another room, or to somebody alone."""

from dataclasses import dataclass
from typing import Annotated

from bot import ActionResult, Effect, Entity, ExampleLine, Role, Room, Turn, World, action, short_id
from bot.text import sanitize_name
from plugins.bootstrap.actions.contacts import accepts_messages
from plugins.bootstrap.actions.lookup import (
    NotFound,
    bare,
    described,
    only,
    people_called,
    private_rooms,
    rooms_called,
    shown,
    titles,
)
from plugins.bootstrap.actions.permissions import asked_by, authorize, refused

LONGEST = 4_000
HERE = frozenset({"", "here", "this room"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes, what to call that, and what somebody must be, and where, to send it there.

    Of its `titles` whoever asks must say one themselves: what a file or another person says sends nothing.
    """

    room: Room
    name: str
    world: World
    needs: Role
    titles: tuple[str, ...] = ()


@action(
    "SEND_MESSAGE",
    "Say something in another room, or to somebody alone.",
    similes=["DM", "MESSAGE", "SEND_DM", "POST_MESSAGE"],
    effect=Effect.KEYED,
    examples=[
        [
            ExampleLine("Robin", "Ada, tell #news that the engine is repaired"),
            ExampleLine("Ada", "They will be glad.", ("REPLY", "SEND_MESSAGE")),
        ]
    ],
)
async def send_message(
    turn: Turn,
    text: Annotated[str, "What you say there, in your own words"],
    to: Annotated[str, "The room's or the person's exact name or id; empty for this room"] = "",
    platform: Annotated[str, "Its platform, where the name is not enough"] = "",
) -> ActionResult:
    """Say it where it is meant to go, if whoever asks for that may have it said there."""
    text = text.strip()
    if not text or len(text) > LONGEST:
        return refused(f"a text of at most {LONGEST} characters is needed")
    if text.casefold() in {one.message.content.text.strip().casefold() for one in turn.inputs}:
        return refused("that is the request itself; say it in your own words")
    try:
        target = await _target(turn, bare(to), platform.strip().casefold())
    except NotFound as error:
        return refused(str(error))
    arguments = {"to": target.room.id, "name": target.name, "text": text}
    spoken = (target.titles,) if target.titles else ()
    request = asked_by(turn, "SEND_MESSAGE", arguments, world=target.world, needs=target.needs, spoken=spoken)
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    is_here, key = target.room.id == turn.room.id, f"{turn.id} {turn.next_reply_index}"
    said = await turn.reply(text) if is_here else await turn.agent.say(target.room, text, key=key)
    if said is None:
        return refused("nothing was left to say")
    return ActionResult(text=f"said {'here' if is_here else 'to ' + target.name}: {said.content.text}")


async def _target(turn: Turn, name: str, platform: str) -> Target:
    """Find the one room or person that is meant; raises NotFound."""
    here = turn.room
    if name.casefold() in HERE or name in (here.external_id, str(here.id)):
        return Target(here, "this room", turn.world, Role.NONE)
    rooms = [one for one in await rooms_called(turn, name) if platform in ("", one.platform)]
    people = await people_called(turn, name, platform or None)
    if len(rooms) + (1 if people else 0) > 1:
        choice = [f"room {sanitize_name(one.name)} ({one.platform}, {one.external_id})" for one in rooms]
        choice += [described(one) for one in people]
        raise NotFound(f"{shown(name)} may be {', '.join(choice[:5])}: ask which one is meant")
    if rooms:
        return await _in_room(turn, rooms[0])
    return await _alone_with(turn, only(name, people))


async def _in_room(turn: Turn, room: Room) -> Target:
    if not turn.agent.outbox.ownership.is_connected(room.platform):
        raise NotFound(f"{room.platform} is not connected just now")
    world = await turn.agent.store.worlds.world(room.world_id)
    if world is None:
        raise NotFound("that room is gone")
    if room.id == turn.room.id:
        return Target(room, "this room", world, Role.NONE)
    names = tuple(filter(None, (room.name, room.external_id, short_id(room.id), str(room.id))))
    return Target(room, f"room {sanitize_name(room.name)}", world, Role.ADMIN, names)


async def _alone_with(turn: Turn, person: Entity) -> Target:
    """Take the room in which somebody was last met alone.

    Whoever has agreed to it may be written to by anybody; else by the admins of a world they are in.
    """
    worlds, outbox = turn.agent.store.worlds, turn.agent.outbox
    rooms = await worlds.rooms_of(person.id)
    connected = filter(outbox.ownership.is_connected, {room.platform for room in rooms})
    alone = private_rooms(rooms, set(connected))
    if not alone:
        raise NotFound(f"{described(person)} has never written to me in private where I am connected")
    found = [await worlds.world(one) for one in dict.fromkeys(room.world_id for room in rooms)]
    shared = [world for world in found if world is not None]
    actors = {one.author.id for one in turn.inputs}
    if actors == {person.id}:
        return Target(alone[0], described(person), turn.world, Role.NONE)
    if await accepts_messages(turn.agent, person):
        return Target(alone[0], described(person), turn.world, Role.NONE, titles(person))
    ruled = [
        world for world in shared if all(world.role_of(actor).is_at_least(Role.ADMIN) for actor in actors)
    ]
    return Target(alone[0], described(person), (ruled or shared)[0], Role.ADMIN, titles(person))
