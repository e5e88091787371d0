"""Authorisation, audit entry, confirmation."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bot import (
    ActionResult,
    Agent,
    Content,
    Memory,
    MemoryKind,
    OutgoingReply,
    Role,
    Room,
    Task,
    Turn,
    World,
    ask_to_confirm,
    derived_id,
)
from bot.store import LogKind

logger = logging.getLogger(__name__)

QUOTED_TEXT = re.compile(r"^[^\S\n]*(?:>|\[(?:sticker|poll|contact|place|game)\b).*$", re.MULTILINE)
AuthorizationRule = Callable[[World, Role], str]


def no_additional_rule(world: World, role: Role) -> str:
    """Object to nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What somebody wants done that not everybody may.

    `actors` are all whose message asks for it: the lowest of their roles in the world counts, as it is
    kept just now. Of each group in `spoken` one must stand in `words`, their own. `rule` says, of the
    world and that role, what else there is against it. `event` is the message or the task behind it.
    """

    action: str
    actors: tuple[UUID, ...]
    room: Room
    world: World
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required_role: Role = Role.NONE
    spoken_text: tuple[tuple[str, ...], ...] = ()
    own_text: str = ""
    rule: AuthorizationRule = no_additional_rule
    event: UUID | None = None


def build_request(
    turn: Turn, action: str, arguments: Mapping[str, Any], **details: Any
) -> AuthorizationRequest:
    """Make a request of what a turn's authors ask for, in their room and world unless told otherwise."""
    actors = tuple(dict.fromkeys(item.author.id for item in turn.inputs))
    stored_arguments = {
        "room": turn.room,
        "world": turn.world,
        "own_text": actors_own_text(turn),
        "event": turn.message.id,
    }
    return AuthorizationRequest(action, actors, arguments=arguments, **{**stored_arguments, **details})


async def authorize(agent: Agent, request: AuthorizationRequest) -> str:
    """Decide, write the decision down, and give the reason for refusing; empty where it is allowed."""
    world = await agent.store.worlds.world(request.world.id) or request.world
    role = min((world.role_of(actor) for actor in request.actors), key=lambda actor: actor.rank)
    refusal = _find_refusal(request, world, role)
    body = {
        "action": request.action,
        "allowed": not refusal,
        "reason": refusal,
        "role": role.value,
        "actors": [str(actor) for actor in request.actors],
        "world": str(world.id),
        "arguments": {name: str(value) for name, value in request.arguments.items()},
        "event": str(request.event or ""),
    }
    await agent.store.logs.log(
        LogKind.AUTHORIZATION, body, room_id=request.room.id, entity_id=request.actors[-1]
    )
    if refusal:
        logger.info("%s refused in room %s: %s", request.action, request.room.id, refusal)
    return refusal


def _find_refusal(request: AuthorizationRequest, world: World, role: Role) -> str:
    if not role.is_at_least(request.required_role):
        return f"{request.action} needs the role {request.required_role} here, and this is a {role}"
    for is_group in request.spoken_text:
        if not any(contains_text(request.own_text, actor) for actor in is_group):
            return f"whoever asks must say it themselves, in this message: {is_group[0]}"
    return request.rule(world, role)


def refusal_result(refusal: str) -> ActionResult:
    """Give the result of what was not allowed or cannot be; the model and the receipt are told why."""
    return ActionResult(False, error=refusal)


def required_role(room: Room) -> Role:
    """Tell who decides about a room: its one person, or the admins of the world."""
    return Role.NONE if room.type.is_direct else Role.ADMIN


def is_room_admin(turn: Turn) -> bool:
    """Whether the author is one who decides about this room."""
    return turn.role.is_at_least(required_role(turn.room))


def actors_own_text(turn: Turn) -> str:
    """Give what the newest author has written of what this turn answers, without lines of others.

    Those quote somebody, or tell what a sticker, a poll or the like is called.
    """
    texts = (
        turn_input.message.content.text
        for turn_input in turn.inputs
        if turn_input.author.id == turn.author.id
    )
    return QUOTED_TEXT.sub("", "\n".join(texts))


def contains_text(text: str, label: str) -> bool:
    """Tell whether something stands in a text as words of its own, in either case."""
    expected = label.strip().casefold()
    return bool(expected) and bool(re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", text.casefold()))


def find_role_change_refusal(
    actor: Role, current: Role, new_role: Role, owners: int, *, is_platform_owner: bool = False
) -> str:
    """Say why a role may not be changed so; empty where it may.

    Nobody gives or takes what is not below their own role; owners alone stand among equals. A world
    keeps an owner, and whoever owns it on its platform stays one.
    """
    if actor is not Role.OWNER and (current.rank >= actor.rank or new_role.rank >= actor.rank):
        return f"a role at or above their own ({actor}) can neither be given nor taken"
    if current is Role.OWNER and new_role is not Role.OWNER:
        if is_platform_owner:
            return "the platform itself says that this is the owner"
        if owners <= 1:
            return "a world keeps at least one owner"
    return ""


async def request_confirmation(
    turn: Turn, request: AuthorizationRequest, worker: str, operation: Mapping[str, str], summary: str
) -> ActionResult:
    """Ask for the code of a change that the author may have done, and refuse any other."""
    if refusal := await authorize(turn.agent, request):
        return refusal_result(refusal)
    return await ask_to_confirm(turn, worker, operation, summary)


async def report_outcome(agent: Agent, task: Task, room: Room, text: str) -> None:
    """Say what has become of a task, once, however often its worker runs."""
    memory = Memory(
        id=derived_id(task.id, "report"),
        kind=MemoryKind.MESSAGE,
        entity_id=agent.id,
        room_id=room.id,
        world_id=room.world_id,
        content=Content(text=text),
        created_at=agent.clock(),
        turn_id=task.id,
    )
    await agent.outbox.commit([OutgoingReply(memory, room)])
