"""Follow and mute rooms; change roles after confirmation."""

from typing import Annotated
from uuid import UUID

from bot import (
    ActionResult,
    Agent,
    ChoiceRequest,
    Effect,
    Entity,
    ParticipantState,
    Role,
    Task,
    Turn,
    World,
    action,
    worker,
)
from plugins.bootstrap.actions.lookup import NotFound, describe_entity, entity_titles, find_member
from plugins.bootstrap.actions.permissions import (
    AuthorizationRequest,
    AuthorizationRule,
    authorize,
    build_request,
    find_role_change_refusal,
    is_room_admin,
    refusal_result,
    report_outcome,
    request_confirmation,
    request_example,
    required_role,
)

SPOKEN_STATES = {
    ParticipantState.FOLLOWED: "this room is followed: every message here is answered",
    ParticipantState.MUTED: "this room is muted: only messages that name the character are answered",
    ParticipantState.DEFAULT: "this room is neither followed nor muted",
}


def can_follow(turn: Turn) -> bool:
    """Return whether the author may follow this room; in a direct room every message is answered anyway."""
    return not turn.room.type.is_direct and is_room_admin(turn)


async def _set_state(
    turn: Turn, name: str, new_state: ParticipantState, *, only_from: ParticipantState | None = None
) -> ActionResult:
    """Set the room's state, if `only_from` is given only from that one; return the resulting state."""
    request = build_request(turn, name, {"room": turn.room.id}, required_role=required_role(turn.room))
    if refusal := await authorize(turn.agent, request):
        return refusal_result(refusal)
    worlds = turn.agent.store.worlds
    old_state = await worlds.participant_state(turn.room.id)
    current_state = new_state if only_from in (None, old_state) else old_state
    if current_state is not old_state:
        await worlds.set_participant_state(turn.room.id, current_state)
    return ActionResult(text=SPOKEN_STATES[current_state], values={"attendance": current_state.value})


@action(
    "FOLLOW_ROOM",
    "Answer every message of this room from now on. Only when asked to.",
    similes=["FOLLOW_CHAT", "FOLLOW_CHANNEL", "FOLLOW_CONVERSATION", "FOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
    examples=[request_example("Ada, please take part in everything here", "Gladly.", "FOLLOW_ROOM")],
)
async def follow_room(turn: Turn) -> ActionResult:
    """Follow the room, muted or not."""
    return await _set_state(turn, "FOLLOW_ROOM", ParticipantState.FOLLOWED)


@action(
    "UNFOLLOW_ROOM",
    "Stop answering every message of this room.",
    similes=["UNFOLLOW_CHAT", "UNFOLLOW_CHANNEL", "UNFOLLOW_CONVERSATION", "UNFOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
)
async def unfollow_room(turn: Turn) -> ActionResult:
    """Stop following the room; a muted room stays muted."""
    return await _set_state(turn, "UNFOLLOW_ROOM", ParticipantState.DEFAULT, only_from=ParticipantState.FOLLOWED)


@action(
    "MUTE_ROOM",
    "Stop answering in this room unless addressed by name. Only when asked to.",
    similes=["MUTE_CHAT", "MUTE_CHANNEL", "MUTE_CONVERSATION", "MUTE_THREAD"],
    when=is_room_admin,
    effect=Effect.IDEMPOTENT,
    examples=[request_example("Ada, be quiet in here from now on", "Call me when you need me.", "MUTE_ROOM")],
)
async def mute_room(turn: Turn) -> ActionResult:
    """Mute the room, followed or not."""
    return await _set_state(turn, "MUTE_ROOM", ParticipantState.MUTED)


@action(
    "UNMUTE_ROOM",
    "Answer in this room again.",
    similes=["UNMUTE_CHAT", "UNMUTE_CHANNEL", "UNMUTE_CONVERSATION", "UNMUTE_THREAD"],
    when=is_room_admin,
    effect=Effect.IDEMPOTENT,
)
async def unmute_room(turn: Turn) -> ActionResult:
    """Unmute the room; a followed room stays followed."""
    return await _set_state(turn, "UNMUTE_ROOM", ParticipantState.DEFAULT, only_from=ParticipantState.MUTED)


def has_other_members(turn: Turn) -> bool:
    """Return whether the room has other members, whose roles could be changed."""
    return not turn.room.type.is_direct


@action(
    "UPDATE_ROLE",
    "Change somebody's role in this world. Only for the person who asks for it in their own message.",
    similes=["CHANGE_ROLE", "SET_PERMISSIONS", "ASSIGN_ROLE", "MAKE_ADMIN"],
    when=has_other_members,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    examples=[request_example("Ada, make Sam an admin", "One moment.", "UPDATE_ROLE")],
)
async def update_role(
    turn: Turn, person: Annotated[str, "Their exact name or id"], role: Annotated[Role, "The new role"]
) -> ActionResult:
    """Ask the author to confirm a change of role that the rules allow."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return refusal_result(str(error))
    current = turn.world.role_of(target.id)
    request = build_request(
        turn,
        "UPDATE_ROLE",
        {"person": target.id, "name": target.name, "old": current, "new": role},
        required_role=Role.ADMIN,
        spoken_text=(entity_titles(target), (role.value, current.value)),
        rule=role_change_rule(target, role),
    )
    change = {"person": str(target.id), "role": role.value}
    summary = f"{describe_entity(target)} would be {role} here, instead of {current}."
    return await request_confirmation(turn, request, "CHANGE_ROLE", change, summary)


def role_change_rule(target: Entity, new_role: Role) -> AuthorizationRule:
    """Return a rule that refuses a change of role, judged by the roles at the time of the check."""

    def find_refusal(world: World, role: Role) -> str:
        is_platform_owner = world.roles.get(target.id) is Role.OWNER
        current = world.role_of(target.id)
        return find_role_change_refusal(role, current, new_role, len(world.owners), is_platform_owner=is_platform_owner)

    return find_refusal


@worker("CHANGE_ROLE")
async def change_role(agent: Agent, task: Task) -> None:
    """Set the confirmed role if its requester may still do so."""
    store, confirmation = agent.store, ChoiceRequest.from_metadata(task.metadata)
    change = confirmation.operation
    person_id, new_role = UUID(change["person"]), Role(change["role"])
    room = await store.worlds.room(task.room_id) if task.room_id else None
    world = await store.worlds.world(room.world_id) if room else None
    target = (await store.entities.entities([person_id])).get(person_id)
    if room is None or world is None or target is None:
        return
    old_role = world.role_of(person_id)
    request = AuthorizationRequest(
        "UPDATE_ROLE",
        (confirmation.chooser,),
        room,
        world,
        {"person": person_id, "name": target.name, "old": old_role, "new": new_role, "step": "confirmed"},
        required_role=Role.ADMIN,
        rule=role_change_rule(target, new_role),
        event=task.id,
    )
    if refusal := await authorize(agent, request):
        await report_outcome(agent, task, room, f"Nothing was changed: {refusal}.")
        return
    await store.worlds.set_role(world.id, person_id, new_role)
    await report_outcome(agent, task, room, f"{describe_entity(target)} is {new_role} here now.")
