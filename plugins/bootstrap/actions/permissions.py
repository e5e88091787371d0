"""Authorise actions, log each decision, and ask for confirmation."""

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
    ExampleLine,
    Memory,
    MemoryKind,
    Role,
    Room,
    Task,
    Turn,
    World,
    ask_to_confirm,
    derived_id,
)
from bot.platform import OutgoingReply
from bot.store import LogKind

logger = logging.getLogger(__name__)

QUOTED_TEXT = re.compile(r"^[^\S\n]*(?:>|\[(?:sticker|poll|contact|place|game)\b).*$", re.MULTILINE)
AuthorizationRule = Callable[[World, Role], str]


def no_additional_rule(world: World, role: Role) -> str:
    """Refuse nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An operation that needs permission.

    `actors` are the authors of the messages that ask for it; the lowest of their stored roles counts.
    `own_text` must contain one text of each group in `spoken_text`. `rule` returns another reason to refuse,
    or nothing. `event` is the id of the message or task that caused the request.
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


def build_request(turn: Turn, action: str, arguments: Mapping[str, Any], **details: Any) -> AuthorizationRequest:
    """Return a request of the turn's authors; `details` replace the room, world and other fields."""
    actors = tuple(dict.fromkeys(item.author.id for item in turn.inputs))
    fields = {"room": turn.room, "world": turn.world, "own_text": actors_own_text(turn), "event": turn.message.id}
    return AuthorizationRequest(action, actors, arguments=arguments, **{**fields, **details})


async def authorize(agent: Agent, request: AuthorizationRequest) -> str:
    """Log the decision about a request and return the reason to refuse it; empty if it is allowed."""
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
    await agent.store.logs.log(LogKind.AUTHORIZATION, body, room_id=request.room.id, entity_id=request.actors[-1])
    if refusal:
        logger.info("%s refused in room %s: %s", request.action, request.room.id, refusal)
    return refusal


def _find_refusal(request: AuthorizationRequest, world: World, role: Role) -> str:
    if not role.is_at_least(request.required_role):
        return f"{request.action} needs the role {request.required_role} here, and this is a {role}"
    for texts in request.spoken_text:
        if not any(contains_text(request.own_text, text) for text in texts):
            return f"the requester must name it in this message: {texts[0]}"
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


def actors_own_text(turn: Turn) -> str:
    """Return what the newest author wrote in this turn, without quotes and descriptions of media."""
    texts = (turn_input.message.content.text for turn_input in turn.inputs if turn_input.author.id == turn.author.id)
    return QUOTED_TEXT.sub("", "\n".join(texts))


def contains_text(text: str, label: str) -> bool:
    """Return whether a text contains the label as whole words, in any case."""
    expected = label.strip().casefold()
    return bool(expected) and bool(re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", text.casefold()))


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


async def request_confirmation(
    turn: Turn, request: AuthorizationRequest, worker: str, operation: Mapping[str, str], summary: str
) -> ActionResult:
    """Authorise a change, then ask its author to confirm it by a code."""
    if refusal := await authorize(turn.agent, request):
        return refusal_result(refusal)
    return await ask_to_confirm(turn, worker, operation, summary)


async def report_outcome(agent: Agent, task: Task, room: Room, text: str) -> None:
    """Send the outcome of a task to its room, once even if its worker runs again."""
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
