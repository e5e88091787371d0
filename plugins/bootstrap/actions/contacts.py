"""UPDATE_CONTACT: how somebody can be reached, as they have said it themselves."""

import re
from typing import Annotated, Any, Literal

from bot import (
    ActionResult,
    Agent,
    ChannelType,
    Component,
    Effect,
    Entity,
    ExampleLine,
    Role,
    Turn,
    World,
    action,
    derived_id,
)
from plugins.bootstrap.actions.lookup import NotFound, described, find_member, titles
from plugins.bootstrap.actions.permissions import Rule, asked_by, authorize, no_rule, refused

CONTACT, MESSAGES = "CONTACT", "MESSAGES"
Kind = Literal["email", "phone", "website", "handle", "timezone", "messages"]
LONGEST = 200
SHAPES = {
    "email": re.compile(r"[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+"),
    "phone": re.compile(r"\+?[\d\s()/.-]{4,30}"),
    "website": re.compile(r"https?://\S+"),
    "handle": re.compile(r"[a-z0-9]+:\S+", re.IGNORECASE),
    "timezone": re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"),
    "messages": re.compile(r"yes|no"),
}


@action(
    "UPDATE_CONTACT",
    "Remember how somebody can be reached, as they have just told it.",
    similes=["UPDATE_ENTITY"],
    effect=Effect.IDEMPOTENT,
    examples=[
        [
            ExampleLine("Robin", "My mail is robin@example.org"),
            ExampleLine("Ada", "Noted.", ("REPLY", "UPDATE_CONTACT")),
        ]
    ],
)
async def update_contact(
    turn: Turn,
    kind: Annotated[Kind, "What it is; messages: whether others may have me write to them, yes or no"],
    value: Annotated[str, "The address; a handle as platform:name; empty to forget it"],
    person: Annotated[str, "Whose, if not the speaker's"] = "",
) -> ActionResult:
    """Keep one piece of how somebody can be reached: one's own, or for admins anybody's of their world."""
    value = value.strip()
    if value and (len(value) > LONGEST or not SHAPES[kind].fullmatch(value)):
        return refused(f"that is no {kind}")
    try:
        target = await find_member(turn, person) if person.strip() else turn.author
    except NotFound as error:
        return refused(str(error))
    is_own = all(one.author.id == target.id for one in turn.inputs)
    request = asked_by(
        turn,
        "UPDATE_CONTACT",
        {"person": target.id, "kind": kind, "value": value},
        needs=Role.NONE if is_own else Role.ADMIN,
        spoken=() if is_own else (titles(target),),
        rule=_consenting(turn, is_own=is_own) if kind == "messages" else no_rule,
    )
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    entities = turn.agent.store.entities
    await entities.save_component(await _changed(turn, target, kind, value, None if is_own else turn.world))
    return ActionResult(text=f"kept for {described(target)}: {kind} {value or 'forgotten'}")


async def accepts_messages(agent: Agent, person: Entity) -> bool:
    """Tell whether somebody has said, in private, that others may have the character write to them."""
    known = await agent.store.entities.components(person.id, MESSAGES)
    return any(one.source_entity_id == person.id and one.data.get("messages") == "yes" for one in known)


def _consenting(turn: Turn, *, is_own: bool) -> Rule:
    """Object to a consent that is not one's own, or not given in private."""

    def object_to(world: World, role: Role) -> str:
        if is_own and turn.room.type is ChannelType.DM:
            return ""
        return "whether others may have me write to somebody is theirs to say, in private"

    return object_to


async def _changed(turn: Turn, target: Entity, name: Kind, value: str, world: World | None) -> Component:
    """Add to what the same person has said of them: one's own counts everywhere, an admin's in the world."""
    agent, source = turn.agent, turn.author
    kind = MESSAGES if name == "messages" else CONTACT
    world_id = world.id if world else None
    known: dict[str, Any] = {}
    for one in await agent.store.entities.components(target.id, kind):
        if (one.world_id, one.source_entity_id) == (world_id, source.id):
            known = dict(one.data)
    return Component(
        id=derived_id(target.id, kind, str(world_id), str(source.id)),
        entity_id=target.id,
        type=kind,
        data={key: one for key, one in {**known, name: value}.items() if one},
        room_id=turn.room.id,
        world_id=world_id,
        source_entity_id=source.id,
        created_at=agent.clock(),
    )
