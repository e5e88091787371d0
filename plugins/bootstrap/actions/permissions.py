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

QUOTED = re.compile(r"^[^\S\n]*(?:>|\[(?:sticker|poll|contact|place|game)\b).*$", re.MULTILINE)
Rule = Callable[[World, Role], str]


def no_rule(world: World, role: Role) -> str:
    """Object to nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Request:
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
    needs: Role = Role.NONE
    spoken: tuple[tuple[str, ...], ...] = ()
    words: str = ""
    rule: Rule = no_rule
    event: UUID | None = None


def asked_by(turn: Turn, action: str, arguments: Mapping[str, Any], **details: Any) -> Request:
    """Make a request of what a turn's authors ask for, in their room and world unless told otherwise."""
    actors = tuple(dict.fromkeys(one.author.id for one in turn.inputs))
    kept = {"room": turn.room, "world": turn.world, "words": own_words(turn), "event": turn.message.id}
    return Request(action, actors, arguments=arguments, **{**kept, **details})


async def authorize(agent: Agent, request: Request) -> str:
    """Decide, write the decision down, and give the reason for refusing; empty where it is allowed."""
    world = await agent.store.worlds.world(request.world.id) or request.world
    role = min((world.role_of(one) for one in request.actors), key=lambda one: one.rank)
    refusal = _refusal(request, world, role)
    body = {
        "action": request.action,
        "allowed": not refusal,
        "reason": refusal,
        "role": role.value,
        "actors": [str(one) for one in request.actors],
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


def _refusal(request: Request, world: World, role: Role) -> str:
    if not role.is_at_least(request.needs):
        return f"{request.action} needs the role {request.needs} here, and this is a {role}"
    for group in request.spoken:
        if not any(says(request.words, one) for one in group):
            return f"whoever asks must say it themselves, in this message: {group[0]}"
    return request.rule(world, role)


def refused(cause: str) -> ActionResult:
    """Give the result of what was not allowed or cannot be; the model and the receipt are told why."""
    return ActionResult(False, error=cause)


def needed_in(room: Room) -> Role:
    """Tell who decides about a room: its one person, or the admins of the world."""
    return Role.NONE if room.type.is_direct else Role.ADMIN


def decides_here(turn: Turn) -> bool:
    """Whether the author is one who decides about this room."""
    return turn.role.is_at_least(needed_in(turn.room))


def own_words(turn: Turn) -> str:
    """Give what the newest author has written of what this turn answers, without lines of others.

    Those quote somebody, or tell what a sticker, a poll or the like is called.
    """
    texts = (one.message.content.text for one in turn.inputs if one.author.id == turn.author.id)
    return QUOTED.sub("", "\n".join(texts))


def says(words: str, what: str) -> bool:
    """Tell whether something stands in a text as words of its own, in either case."""
    wanted = what.strip().casefold()
    return bool(wanted) and bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", words.casefold()))


def may_change_role(actor: Role, current: Role, new: Role, owners: int, *, is_platforms: bool = False) -> str:
    """Say why a role may not be changed so; empty where it may.

    Nobody gives or takes what is not below their own role; owners alone stand among equals. A world
    keeps an owner, and whoever owns it on its platform stays one.
    """
    if actor is not Role.OWNER and (current.rank >= actor.rank or new.rank >= actor.rank):
        return f"a role at or above their own ({actor}) can neither be given nor taken"
    if current is Role.OWNER and new is not Role.OWNER:
        if is_platforms:
            return "the platform itself says that this is the owner"
        if owners <= 1:
            return "a world keeps at least one owner"
    return ""


async def ask_to_confirm_change(
    turn: Turn, request: Request, worker: str, change: Mapping[str, str], said: str
) -> ActionResult:
    """Ask for the code of a change that the author may have done, and refuse any other."""
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    return await ask_to_confirm(turn, worker, change, said)


async def report(agent: Agent, task: Task, room: Room, text: str) -> None:
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
