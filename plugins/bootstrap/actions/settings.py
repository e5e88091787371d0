"""UPDATE_SETTINGS: change a setting of a world after confirmation.

UPDATE_SETTINGS where plugins declare settings of worlds: their owner fills them by talking.

Follow and mute rooms; change roles after confirmation.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import ValidationError

from bot import (
    ActionResult,
    Agent,
    Catalog,
    ChannelType,
    CoreSettings,
    Effect,
    Entity,
    ParticipantState,
    Role,
    SettingError,
    Turn,
    World,
    action,
    short_id,
)
from bot.prompts import ActionPreview, Authority
from bot.text import sanitize_name
from plugins.bootstrap.actions.permissions import (
    FOLLOW,
    GIVE_ROLE,
    MUTE,
    TAKE_ROLE,
    UNFOLLOW,
    UNMUTE,
    AuthorizationRequest,
    AuthorizationRule,
    NotFound,
    authorize,
    build_request,
    describe_confirmed,
    describe_entity,
    entity_titles,
    find_member,
    find_role_change_refusal,
    is_room_admin,
    refusal_result,
    request_example,
    required_role,
)

ChangeableSetting = Literal[
    "CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS", "SHOULD_RESPOND_BYPASS_TYPES", "TIMEZONE"
]
MAX_VALUE_LENGTH = 100
DEFAULT_VALUE = "default"
SIMILES = ("UPDATE_SETTING", "SAVE_SETTING", "SET_CONFIGURATION", "CONFIGURE")


async def preview_setting_change(turn: Turn, name: str, value: str) -> ActionPreview | ActionResult:
    """Return which setting would have which value, or why not."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value), is_preview=True):
        return refusal_result(refusal)
    text = f"{name} would be {value} here, instead of {turn.find_setting(name) or DEFAULT_VALUE}."
    return ActionPreview(text, ((name, name.replace("_", " ")), (value,)))


@action(
    "UPDATE_SETTINGS",
    "Change a setting for this world. Only for the person who asks for it in their own message.",
    similes=SIMILES,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_setting_change,
    examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
)
async def update_settings(
    turn: Turn,
    name: Annotated[ChangeableSetting, "Which setting"],
    value: Annotated[str, "Its new value, as they wrote it; default to reset it"],
) -> ActionResult:
    """Store a valid value of a setting."""
    return await run_setting_change(turn, name, value)


async def run_setting_change(turn: Turn, name: str, value: str) -> ActionResult:
    """Store a valid value of a setting that every world has, for an admin."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value)):
        return refusal_result(refusal)
    await turn.agent.store.worlds.set_setting(turn.world.id, name, "" if value.casefold() == DEFAULT_VALUE else value)
    return ActionResult(text=f"{name} is {value} here now.")


def _setting_request(turn: Turn, name: str, value: str) -> AuthorizationRequest:
    arguments = {"name": name, "old": turn.find_setting(name) or DEFAULT_VALUE, "new": value}
    return build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.ADMIN)


def find_problem(name: str, value: str) -> str:
    """Return what is wrong with a value; empty if it is valid."""
    if value.casefold() == DEFAULT_VALUE:
        return ""
    if not value or len(value) > MAX_VALUE_LENGTH:
        return f"{name}: a value of at most {MAX_VALUE_LENGTH} characters, or {DEFAULT_VALUE}"
    try:
        settings = CoreSettings().for_world({name: value})
        for channel_type in settings.should_respond_bypass_types:
            ChannelType(channel_type)
    except ValidationError as error:
        return f"{name}: {error.errors(include_url=False, include_input=False)[0]['msg']}"
    except ValueError:
        return f"{name}: one or more of {', '.join(ChannelType)}"
    return ""


CORE_NAMES = frozenset(get_args(ChangeableSetting))


async def register_update_settings(agent: Agent) -> None:
    """Register the action where plugins declare settings; without them it stays as it is."""
    if agent.catalog.world_settings:
        agent.components.register("bootstrap", build_update_settings(agent.catalog), replaces_own=True)


def build_update_settings(catalog: Catalog) -> Any:
    """Return the action for the settings that plugins declare and for those that every world has."""
    specs = catalog.world_settings
    secrets = {spec.name for spec in specs if spec.is_secret}
    names = ", ".join([*sorted(CORE_NAMES), *(spec.name for spec in specs if not spec.is_secret)])

    async def preview(turn: Turn, name: str, value: str, world: str = "") -> ActionPreview | ActionResult:
        name = name.strip().upper()
        if name in CORE_NAMES:
            return await preview_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        text = (
            f"{name} of {sanitize_name(change.world.name or change.world.external_id)} would be "
            f"{change.value or DEFAULT_VALUE}, instead of {change.before or 'not set'}."
        )
        return ActionPreview(text, ((value.strip(),),), {"name": name, "world": str(change.world.id)})

    @action(
        "UPDATE_SETTINGS",
        "Change a setting of a world of the person who asks for it in their own message, in a direct chat.",
        similes=SIMILES,
        when=may_change_settings,
        effect=Effect.KEYED,
        authority=Authority.confirmed(),
        preview=preview,
        examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
    )
    async def update_settings(
        turn: Turn,
        name: Annotated[str, f"One of {names}; never a secret"],
        value: Annotated[str, "Its new value, as the person wrote it; default to reset it"],
        world: Annotated[str, "Name or id of the world, if they own several"] = "",
    ) -> ActionResult:
        """Store a valid value of a setting."""
        if name in CORE_NAMES:
            return await run_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        try:
            note = await turn.agent.world_settings.change(
                change.world.id, name, change.value, actor=turn.author.id, source=str(turn.message.id)
            )
        except SettingError as error:
            return refusal_result(str(error))
        return ActionResult(text=" ".join(filter(None, [f"{name} is {change.value or DEFAULT_VALUE} now.", note])))

    return update_settings


async def may_change_settings(turn: Turn) -> bool:
    """Return whether the author is an admin here, or in a direct chat owns a world."""
    return turn.role.is_at_least(Role.ADMIN) or bool(await find_own_worlds(turn))


async def find_own_worlds(turn: Turn) -> list[World]:
    """Return the worlds that the author owns; none in a room of several people."""
    if not turn.room.type.is_private_chat or any(item.author.id != turn.author.id for item in turn.inputs):
        return []
    return await turn.agent.world_settings.worlds_of(turn.author.id)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change that may be made: in which world, to which value (blank: removed), from which."""

    world: World
    value: str
    before: str


async def _find_change(
    turn: Turn, secrets: set[str], name: str, value: str, title: str
) -> SettingChange | ActionResult:
    """Return the change, checked; a failed result if it is none or its author may not make it."""
    if name in secrets:
        return refusal_result(
            f"{name} is a secret and must not be in a conversation: the person sends /settings {name} and the value, "
            "in this direct chat; it is then stored encrypted"
        )
    worlds = await find_own_worlds(turn)
    matching = [world for world in worlds if title in (world.name, str(world.id), short_id(world.id))]
    chosen = matching if title else worlds
    if len(chosen) != 1:
        known = ", ".join(map(describe_world, worlds)) or "none"
        return refusal_result(f"ask which world is meant; they own: {known} (settings are changed in a direct chat)")
    value = "" if value.casefold() == DEFAULT_VALUE else value
    if problem := await turn.agent.world_settings.find_problem(chosen[0], name, value):
        return refusal_result(problem)
    arguments = {"name": name, "new": value}
    request = build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.OWNER, world=chosen[0])
    if refusal := await authorize(turn.agent, request, is_preview=True):  # what is done is logged with the change
        return refusal_result(refusal)
    return SettingChange(chosen[0], value, turn.agent.world_settings.value(chosen[0], name))


def describe_world(world: World) -> str:
    return f"{sanitize_name(world.name or world.external_id)} (id {short_id(world.id)}, {world.platform})"


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
