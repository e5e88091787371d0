"""Follow and mute rooms; change roles after confirmation."""

from typing import Annotated

from bot import ActionResult, Effect, Entity, ParticipantState, Role, Turn, World, action
from bot.prompts import ActionPreview, Authority
from plugins.bootstrap.actions.lookup import NotFound, describe_confirmed, describe_entity, entity_titles, find_member
from plugins.bootstrap.actions.permissions import (
    AuthorizationRequest,
    AuthorizationRule,
    authorize,
    build_request,
    find_role_change_refusal,
    is_room_admin,
    refusal_result,
    request_example,
    required_role,
)
from plugins.bootstrap.actions.words import FOLLOW, GIVE_ROLE, MUTE, TAKE_ROLE, UNFOLLOW, UNMUTE

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
    authority=Authority.named(*FOLLOW),
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
    authority=Authority.named(*UNFOLLOW),
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
    authority=Authority.named(*MUTE),
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
    authority=Authority.named(*UNMUTE),
)
async def unmute_room(turn: Turn) -> ActionResult:
    """Unmute the room; a followed room stays followed."""
    return await _set_state(turn, "UNMUTE_ROOM", ParticipantState.DEFAULT, only_from=ParticipantState.MUTED)


def has_other_members(turn: Turn) -> bool:
    """Return whether the room has other members, whose roles could be changed."""
    return not turn.room.type.is_direct


async def preview_role_change(turn: Turn, person: str, role: Role) -> ActionPreview | ActionResult:
    """Return who would have which role, or why not."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return error.result
    current = turn.world.role_of(target.id)
    if refusal := await authorize(turn.agent, _role_request(turn, target, role), is_preview=True):
        return refusal_result(refusal)
    text = f"{await describe_confirmed(turn, target)} would be {role} here, instead of {current}."
    is_taken = role.rank < current.rank
    changed_role = current if is_taken else role  # who takes or gives a role names that one, and never NONE
    other_role = role if is_taken else current
    role_names = (changed_role.value, other_role.value, *(TAKE_ROLE if is_taken else GIVE_ROLE))
    return ActionPreview(text, (entity_titles(target), role_names), {"person": str(target.id)})


@action(
    "UPDATE_ROLE",
    "Change somebody's role in this world. Only for the person who asks for it in their own message.",
    similes=["CHANGE_ROLE", "SET_PERMISSIONS", "ASSIGN_ROLE", "MAKE_ADMIN"],
    when=has_other_members,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_role_change,
    confirm="code",
    examples=[request_example("Ada, make Sam an admin", "One moment.", "UPDATE_ROLE")],
)
async def update_role(
    turn: Turn, person: Annotated[str, "Their exact name or id"], role: Annotated[Role, "The new role"]
) -> ActionResult:
    """Set a role that the rules allow."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return error.result
    if refusal := await authorize(turn.agent, _role_request(turn, target, role)):
        return refusal_result(refusal)
    await turn.agent.store.worlds.set_role(turn.world.id, target.id, role)
    return ActionResult(text=f"{describe_entity(target)} is {role} here now.", authors=(target.id,))


def _role_request(turn: Turn, target: Entity, role: Role) -> AuthorizationRequest:
    arguments = {"person": target.id, "name": target.name, "old": turn.world.role_of(target.id), "new": role}
    rule = role_change_rule(target, role)
    return build_request(turn, "UPDATE_ROLE", arguments, required_role=Role.ADMIN, rule=rule)


def role_change_rule(target: Entity, new_role: Role) -> AuthorizationRule:
    """Return a rule that refuses a change of role, judged by the roles at the time of the check."""

    def find_refusal(world: World, role: Role) -> str:
        is_platform_owner = world.roles.get(target.id) is Role.OWNER
        current = world.role_of(target.id)
        return find_role_change_refusal(role, current, new_role, len(world.owners), is_platform_owner=is_platform_owner)

    return find_refusal
