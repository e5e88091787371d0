"""UPDATE_ROLE: who may do what in a world, changed by those above, asked twice and written down."""

from typing import Annotated
from uuid import UUID

from bot import ActionResult, Agent, Effect, Entity, Example, Role, Task, Turn, World, action, worker
from plugins.bootstrap.actions.authority import (
    ALONE,
    Request,
    Rule,
    asked_by,
    authorize,
    may_change_role,
    refused,
)
from plugins.bootstrap.actions.choices import chooser_of
from plugins.bootstrap.actions.confirming import ask_to_confirm, report
from plugins.bootstrap.actions.finding import NotFound, described, find_member, titles


def among_many(turn: Turn) -> bool:
    """Whether there is anybody here whose role could be changed."""
    return turn.room.type not in ALONE


@action(
    "UPDATE_ROLE",
    "Change somebody's role in this world. Only for whoever asks for it in their own words.",
    similes=["CHANGE_ROLE", "SET_PERMISSIONS", "ASSIGN_ROLE", "MAKE_ADMIN"],
    when=among_many,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    examples=[
        [
            Example("Robin", "Ada, make Sam an admin"),
            Example("Ada", "One moment.", ("REPLY", "UPDATE_ROLE")),
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
    return await ask_to_confirm(turn, request, "CHANGE_ROLE", change, said)


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
    store, change = agent.store, task.metadata["change"]
    person_id, new = UUID(change["person"]), Role(change["role"])
    room = await store.worlds.room(task.room_id) if task.room_id else None
    world = await store.worlds.world(room.world_id) if room else None
    target = (await store.entities.entities([person_id])).get(person_id)
    if room is None or world is None or target is None:
        return
    old = world.role_of(person_id)
    request = Request(
        "UPDATE_ROLE",
        (chooser_of(task),),
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
