"""SEND_MESSAGE: write to this room, another room, or one user in private."""

from dataclasses import dataclass
from typing import Annotated

from bot import ActionResult, Effect, Entity, Role, Room, Turn, World, action, short_id
from bot.prompts import ANYBODY, ActionPreview, Authority
from bot.text import sanitize_name
from plugins.bootstrap.actions.contacts import accepts_messages
from plugins.bootstrap.actions.lookup import (
    NotFound,
    describe_confirmed,
    describe_entity,
    direct_rooms,
    entity_titles,
    find_people,
    find_rooms,
    only_match,
    quote_name,
    strip_prefix,
)
from plugins.bootstrap.actions.permissions import (
    AuthorizationRequest,
    authorize,
    build_request,
    refusal_result,
    request_example,
)
from plugins.bootstrap.actions.words import SEND

MAX_TEXT_LENGTH = 4_000
CURRENT_ROOM_NAMES = frozenset({"", "here", "this room"})


@dataclass(frozen=True, slots=True)
class MessageTarget:
    """The room of a message, its display name, and the role in `world` needed to write there.

    `id` finds the room or the person again. Unless the message is for the requester, or the room of the request,
    the requester's own text must contain one of `titles`, so that quoted text or a file sends nothing.
    """

    room: Room
    name: str
    world: World
    required_role: Role
    titles: tuple[str, ...] = ()
    id: str = ""
    person: Entity | None = None


async def preview_message(turn: Turn, text: str, to: str = "", platform: str = "") -> ActionPreview | ActionResult:
    """Return what would be sent to whom, or why it cannot be."""
    found = await _find_request(turn, text, to, platform)
    if isinstance(found, ActionResult):
        return found
    target, request = found
    if refusal := await authorize(turn.agent, request, is_preview=True):
        return refusal_result(refusal)
    if not target.titles:
        return ActionPreview("", is_harmless=True)
    name = target.name if target.person is None else await describe_confirmed(turn, target.person)
    summary = f"I would send to {name}: “{text.strip()}”"
    return ActionPreview(summary, (target.titles,), {"to": target.id, "platform": target.room.platform})


@action(
    "SEND_MESSAGE",
    "Send a message to another room, or to a person in private.",
    similes=["DM", "MESSAGE", "SEND_DM", "POST_MESSAGE"],
    effect=Effect.KEYED,
    authority=Authority.named(*SEND),
    preview=preview_message,
    examples=[request_example("Ada, tell #news that the engine is repaired", "They will be glad.", "SEND_MESSAGE")],
)
async def send_message(
    turn: Turn,
    text: Annotated[str, "The message, in your own words"],
    to: Annotated[str, "The room's or the person's exact name or id; empty for this room"] = "",
    platform: Annotated[str, "Its platform, if the name is ambiguous"] = "",
) -> ActionResult:
    """Send the text to the target room if the authors of the turn may write there."""
    found = await _find_request(turn, text, to, platform)
    if isinstance(found, ActionResult):
        return found
    target, request = found
    if refusal := await authorize(turn.agent, request):
        return refusal_result(refusal)
    is_here, key = target.room.id == turn.room.id, f"{turn.id} {turn.next_reply_index}"
    text = text.strip()
    message = await turn.reply(text) if is_here else await turn.agent.say(target.room, text, key=key)
    if message is None:
        return refusal_result("nothing was left to say")
    place = "here" if is_here else f"to {target.name}"
    return ActionResult(text=f"said {place}: {message.content.text}", authors=(ANYBODY,) if target.id else ())


async def _find_request(
    turn: Turn, text: str, to: str, platform: str
) -> tuple[MessageTarget, AuthorizationRequest] | ActionResult:
    """Return where a message goes and what that needs, or why it cannot be sent."""
    text = text.strip()
    if not text or len(text) > MAX_TEXT_LENGTH:
        return refusal_result(f"a text of at most {MAX_TEXT_LENGTH} characters is needed")
    if text.casefold() in {item.message.content.text.strip().casefold() for item in turn.inputs}:
        return refusal_result("that is the request itself; say it in your own words")
    try:
        target = await _find_target(turn, strip_prefix(to), platform.strip().casefold())
    except NotFound as error:
        return error.result
    arguments = {"to": target.room.id, "name": target.name, "text": text}
    request = build_request(turn, "SEND_MESSAGE", arguments, world=target.world, required_role=target.required_role)
    return target, request


async def _find_target(turn: Turn, name: str, platform: str) -> MessageTarget:
    """Return the one room or user with this name or id. Raises NotFound."""
    current_room = turn.room
    if name.casefold() in CURRENT_ROOM_NAMES or name in (current_room.external_id, str(current_room.id)):
        return MessageTarget(current_room, "this room", turn.world, Role.NONE)
    rooms = [room for room in await find_rooms(turn, name) if platform in ("", room.platform)]
    people = await find_people(turn, name, platform or None)
    if len(rooms) + (1 if people else 0) > 1:
        choice = [f"room {sanitize_name(room.name)} ({room.platform}, {room.external_id})" for room in rooms]
        choice += [describe_entity(person) for person in people]
        raise NotFound(f"{quote_name(name)} may be {', '.join(choice[:5])}: ask which one is meant")
    if rooms:
        return await _room_target(turn, rooms[0])
    return await _direct_target(turn, only_match(name, people))


async def _room_target(turn: Turn, room: Room) -> MessageTarget:
    if not turn.agent.outbox.ownership.is_connected(room.platform):
        raise NotFound(f"{room.platform} is not connected just now")
    world = await turn.agent.store.worlds.world(room.world_id)
    if world is None:
        raise NotFound("that room does not exist any more")
    if room.id == turn.room.id:
        return MessageTarget(room, "this room", world, Role.NONE)
    names = tuple(filter(None, (room.name, room.external_id, short_id(room.id), str(room.id))))
    return MessageTarget(room, f"room {sanitize_name(room.name)}", world, Role.ADMIN, names, str(room.id))


async def _direct_target(turn: Turn, person: Entity) -> MessageTarget:
    """Return the direct-message room of a user.

    If the user agreed to it, everyone may write to them; otherwise only admins of a world they are in.
    """
    worlds, outbox = turn.agent.store.worlds, turn.agent.outbox
    rooms = await worlds.rooms_of(person.id)
    connected = filter(outbox.ownership.is_connected, {room.platform for room in rooms})
    alone = direct_rooms(rooms, set(connected))
    if not alone:
        raise NotFound(f"{describe_entity(person)} has never written to me in private where I am connected")
    worlds_or_none = [await worlds.world(world_id) for world_id in dict.fromkeys(room.world_id for room in rooms)]
    shared_worlds = [world for world in worlds_or_none if world is not None]
    actors = {item.author.id for item in turn.inputs}
    if actors == {person.id}:
        return MessageTarget(alone[0], describe_entity(person), turn.world, Role.NONE)
    if await accepts_messages(turn.agent, person):
        return MessageTarget(
            alone[0], describe_entity(person), turn.world, Role.NONE, entity_titles(person), str(person.id), person
        )
    administered = [
        world for world in shared_worlds if all(world.role_of(actor).is_at_least(Role.ADMIN) for actor in actors)
    ]
    return MessageTarget(
        alone[0],
        describe_entity(person),
        (administered or shared_worlds)[0],
        Role.ADMIN,
        entity_titles(person),
        str(person.id),
        person,
    )
