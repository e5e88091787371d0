"""Check the roles that actions need, and log each decision."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bot import ActionResult, Agent, ExampleLine, Role, Room, Turn, World
from bot.store import LogKind

logger = logging.getLogger(__name__)

AuthorizationRule = Callable[[World, Role], str]


def no_additional_rule(world: World, role: Role) -> str:
    """Refuse nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An operation that needs permission.

    `actors` are the authors of the messages that ask for it; the lowest of their stored roles counts.
    `rule` returns another reason to refuse, or nothing. `event` is the id of the message that caused the request.
    """

    action: str
    actors: tuple[UUID, ...]
    room: Room
    world: World
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required_role: Role = Role.NONE
    rule: AuthorizationRule = no_additional_rule
    event: UUID | None = None


def build_request(turn: Turn, action: str, arguments: Mapping[str, Any], **details: Any) -> AuthorizationRequest:
    """Return a request of the turn's authors; `details` replace the room, world and other fields."""
    actors = tuple(dict.fromkeys(item.author.id for item in turn.inputs))
    fields = {"room": turn.room, "world": turn.world, "event": turn.message.id}
    return AuthorizationRequest(action, actors, arguments=arguments, **{**fields, **details})


async def authorize(agent: Agent, request: AuthorizationRequest, *, is_preview: bool = False) -> str:
    """Log the decision about a request and return the reason to refuse it; empty if it is allowed.

    For a preview only refusals are logged: what is allowed is decided, and logged, when it is done.
    """
    world = await agent.store.worlds.world(request.world.id) or request.world
    role = min((world.role_of(actor) for actor in request.actors), key=lambda actor: actor.rank)
    refusal = _find_refusal(request, world, role)
    if is_preview and not refusal:
        return ""
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
    await agent.store.logs.log(LogKind.AUTHORIZATION, body, room_id=request.room.id, entity_id=request.actors[-1])
    if refusal:
        logger.info("%s refused in room %s: %s", request.action, request.room.id, refusal)
    return refusal


def _find_refusal(request: AuthorizationRequest, world: World, role: Role) -> str:
    if not role.is_at_least(request.required_role):
        return f"{request.action} needs the role {request.required_role} here, and this is a {role}"
    return request.rule(world, role)


def request_example(request: str, answer: str, action: str) -> list[ExampleLine]:
    """Return the example of a user who asks for an action, and the character that answers and takes it."""
    return [ExampleLine("Robin", request), ExampleLine("Ada", answer, ("REPLY", action))]


def refusal_result(refusal: str) -> ActionResult:
    """Return a failed result whose reason the model and the receipt show."""
    return ActionResult(False, error=refusal)


def required_role(room: Room) -> Role:
    """Return the role needed to change a room: none in a direct room, else ADMIN."""
    return Role.NONE if room.type.is_direct else Role.ADMIN


def is_room_admin(turn: Turn) -> bool:
    """Return whether the author may change this room."""
    return turn.role.is_at_least(required_role(turn.room))


def find_role_change_refusal(
    actor: Role, current: Role, new_role: Role, owners: int, *, is_platform_owner: bool = False
) -> str:
    """Return why a role may not be changed this way; empty if it may.

    Only roles below the actor's own can be given or taken, except by owners. A world keeps at least one
    owner, and the owner on the platform stays an owner.
    """
    if actor is not Role.OWNER and (current.rank >= actor.rank or new_role.rank >= actor.rank):
        return f"a role at or above their own ({actor}) can neither be given nor taken"
    if current is Role.OWNER and new_role is not Role.OWNER:
        if is_platform_owner:
            return "the platform itself says that this is the owner"
        if owners <= 1:
            return "a world keeps at least one owner"
    return ""
