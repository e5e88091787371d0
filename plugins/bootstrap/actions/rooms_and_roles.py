"""FOLLOW/MUTE…, UPDATE_ROLE."""

from typing import Annotated
from uuid import UUID

from bot import (
    ActionResult,
    Agent,
    ChoiceRequest,
    Effect,
    Entity,
    ExampleLine,
    ParticipantState,
    Role,
    Task,
    Turn,
    World,
    action,
    worker,
)
from plugins.bootstrap.actions.lookup import NotFound, described, find_member, titles
from plugins.bootstrap.actions.permissions import (
    Request,
    Rule,
    ask_to_confirm_change,
    asked_by,
    authorize,
    decides_here,
    may_change_role,
    needed_in,
    refused,
    report,
)

STATED = {
    ParticipantState.FOLLOWED: "this room is followed: every message here is answered",
    ParticipantState.MUTED: "this room is muted: only messages that name the character are answered",
    ParticipantState.DEFAULT: "this room is neither followed nor muted",
}


def can_follow(turn: Turn) -> bool:
    """Whether there is somebody here who decides, and a choice: alone with somebody all is answered."""
    return not turn.room.type.is_direct and decides_here(turn)


async def _attend(
    turn: Turn, name: str, wanted: ParticipantState, *, over: frozenset[ParticipantState]
) -> ActionResult:
    """Change what was decided about the room, where it is one of `over`; else it stays as it is."""
    request = asked_by(turn, name, {"room": turn.room.id}, needs=needed_in(turn.room))
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    worlds = turn.agent.store.worlds
    before = await worlds.participant_state(turn.room.id)
    after = wanted if before in over else before
    if after is not before:
        await worlds.set_participant_state(turn.room.id, after)
    return ActionResult(text=STATED[after], values={"attendance": after.value})


@action(
    "FOLLOW_ROOM",
    "Answer every message of this room from now on. Only when asked to.",
    similes=["FOLLOW_CHAT", "FOLLOW_CHANNEL", "FOLLOW_CONVERSATION", "FOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
    examples=[
        [
            ExampleLine("Robin", "Ada, please take part in everything here"),
            ExampleLine("Ada", "Gladly.", ("REPLY", "FOLLOW_ROOM")),
        ]
    ],
)
async def follow_room(turn: Turn) -> ActionResult:
    """Follow the room, muted or not."""
    return await _attend(turn, "FOLLOW_ROOM", ParticipantState.FOLLOWED, over=frozenset(ParticipantState))


@action(
    "UNFOLLOW_ROOM",
    "Stop answering every message of this room.",
    similes=["UNFOLLOW_CHAT", "UNFOLLOW_CHANNEL", "UNFOLLOW_CONVERSATION", "UNFOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
)
async def unfollow_room(turn: Turn) -> ActionResult:
    """Follow the room no more; a muted one stays muted."""
    over = frozenset({ParticipantState.FOLLOWED})
    return await _attend(turn, "UNFOLLOW_ROOM", ParticipantState.DEFAULT, over=over)


@action(
    "MUTE_ROOM",
    "Say nothing here any more unless named. Only when asked to.",
    similes=["MUTE_CHAT", "MUTE_CHANNEL", "MUTE_CONVERSATION", "MUTE_THREAD"],
    when=decides_here,
    effect=Effect.IDEMPOTENT,
    examples=[
        [
            ExampleLine("Robin", "Ada, be quiet in here from now on"),
            ExampleLine("Ada", "Call me when you need me.", ("REPLY", "MUTE_ROOM")),
        ]
    ],
)
async def mute_room(turn: Turn) -> ActionResult:
    """Mute the room, followed or not."""
    return await _attend(turn, "MUTE_ROOM", ParticipantState.MUTED, over=frozenset(ParticipantState))


@action(
    "UNMUTE_ROOM",
    "Speak in this room again.",
    similes=["UNMUTE_CHAT", "UNMUTE_CHANNEL", "UNMUTE_CONVERSATION", "UNMUTE_THREAD"],
    when=decides_here,
    effect=Effect.IDEMPOTENT,
)
async def unmute_room(turn: Turn) -> ActionResult:
    """Mute the room no more; a followed one stays followed."""
    return await _attend(
        turn, "UNMUTE_ROOM", ParticipantState.DEFAULT, over=frozenset({ParticipantState.MUTED})
    )


def among_many(turn: Turn) -> bool:
    """Whether there is anybody here whose role could be changed."""
    return not turn.room.type.is_direct


@action(
    "UPDATE_ROLE",
    "Change somebody's role in this world. Only for whoever asks for it in their own words.",
    similes=["CHANGE_ROLE", "SET_PERMISSIONS", "ASSIGN_ROLE", "MAKE_ADMIN"],
    when=among_many,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    examples=[
        [
            ExampleLine("Robin", "Ada, make Sam an admin"),
            ExampleLine("Ada", "One moment.", ("REPLY", "UPDATE_ROLE")),
        ]
    ],
)
async def update_role(
    turn: Turn,
    person: Annotated[str, "Their exact name or id"],
    role: Annotated[Role, "The new role"],
) -> ActionResult:
    """Ask for confirmation of a change that the lattice of roles allows."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return refused(str(error))
    current = turn.world.role_of(target.id)
    request = asked_by(
        turn,
        "UPDATE_ROLE",
        {"person": target.id, "name": target.name, "old": current, "new": role},
        needs=Role.ADMIN,
        spoken=(titles(target), (role.value, current.value)),
        rule=changing(target, role),
    )
    change = {"person": str(target.id), "role": role.value}
    said = f"{described(target)} would be {role} here, instead of {current}."
    return await ask_to_confirm_change(turn, request, "CHANGE_ROLE", change, said)


def changing(target: Entity, new: Role) -> Rule:
    """Object to what the lattice of roles forbids, by the roles as they are then."""

    def object_to(world: World, role: Role) -> str:
        is_platforms = world.roles.get(target.id) is Role.OWNER
        current = world.role_of(target.id)
        return may_change_role(role, current, new, len(world.owners), is_platforms=is_platforms)

    return object_to


@worker("CHANGE_ROLE")
async def change_role(agent: Agent, task: Task) -> None:
    """Give the role that was confirmed, if whoever asked for it still may."""
    store, confirmation = agent.store, ChoiceRequest.from_metadata(task.metadata)
    change = confirmation.operation
    person_id, new = UUID(change["person"]), Role(change["role"])
    room = await store.worlds.room(task.room_id) if task.room_id else None
    world = await store.worlds.world(room.world_id) if room else None
    target = (await store.entities.entities([person_id])).get(person_id)
    if room is None or world is None or target is None:
        return
    old = world.role_of(person_id)
    request = Request(
        "UPDATE_ROLE",
        (confirmation.chooser,),
        room,
        world,
        {"person": person_id, "name": target.name, "old": old, "new": new, "step": "confirmed"},
        needs=Role.ADMIN,
        rule=changing(target, new),
        event=task.id,
    )
    if cause := await authorize(agent, request):
        await report(agent, task, room, f"Nothing was changed: {cause}.")
        return
    await store.worlds.set_role(world.id, person_id, new)
    await report(agent, task, room, f"{described(target)} is {new} here now.")
