"""Choosing: a task that waits for somebody's choice goes on with it, or is dropped."""

from typing import Annotated

from bot import (
    ActionResult,
    ChoiceRequest,
    Effect,
    ExampleLine,
    Role,
    Task,
    TaskTag,
    Turn,
    World,
    action,
    short_id,
)
from plugins.bootstrap.actions.permissions import Rule, asked_by, authorize, refused

SEEN = "openChoices"


async def open_choices(turn: Turn) -> list[Task]:
    """List what waits for a choice in this room, and still may be chosen."""
    tasks = await turn.agent.store.tasks.tasks(room_id=turn.room.id, tags={TaskTag.AWAITING_CHOICE})
    now = turn.agent.clock()
    return [task for task in tasks if ChoiceRequest.from_metadata(task.metadata).is_open(task, now)]


async def choices_seen(turn: Turn) -> list[Task]:
    """List them as this turn has seen them first: the prompt asks more than once."""
    seen = seen_already(turn)
    if seen is None:
        seen = turn.state.data[SEEN] = await open_choices(turn)
    return seen


def seen_already(turn: Turn) -> list[Task] | None:
    """Give what this turn has seen of them; None where it has not looked."""
    seen: list[Task] | None = turn.state.data.get(SEEN)
    return seen


async def has_choices(turn: Turn) -> bool:
    """Whether there is anything here that this turn's authors may choose."""
    return any(_is_for(turn, task) for task in await choices_seen(turn))


@action(
    "CHOOSE_OPTION",
    "Pass on the choice somebody has made among the options that wait for one.",
    similes=["SELECT_OPTION", "SELECT", "PICK", "CHOOSE"],
    when=has_choices,
    effect=Effect.UNSAFE,
    examples=[
        [
            ExampleLine("Robin", "Take the second one"),
            ExampleLine("Ada", "As you wish.", ("REPLY", "CHOOSE_OPTION")),
        ]
    ],
)
async def choose_option(
    turn: Turn,
    option: Annotated[str, "The option, word for word, or its number; ABORT to drop it"],
    task: Annotated[str, "The task's id, where several wait"] = "",
) -> ActionResult:
    """Queue the one task that is meant with the choice, or remove it."""
    meant = [one for one in await open_choices(turn) if _is_for(turn, one) and _is_called(one, task)]
    if len(meant) != 1:
        names = ", ".join(f"{one.name} (task {short_id(one.id)})" for one in meant)
        return refused(f"several wait for a choice, ask which: {names}" if meant else "no such choice")
    [found] = meant
    request = ChoiceRequest.from_metadata(found.metadata)
    choice = request.match(option)
    if not choice:
        return refused(f"the options are: {', '.join(request.options)}, ABORT")
    code = request.code
    authorization = asked_by(
        turn,
        "CHOOSE_OPTION",
        {"task": found.id, "name": found.name, "option": choice},
        spoken=((choice,), (code,)) if code and choice != ChoiceRequest.ABORT else (),
        rule=_rule(turn, found),
    )
    if cause := await authorize(turn.agent, authorization):
        return refused(cause)
    tasks = turn.agent.store.tasks
    if choice == ChoiceRequest.ABORT:
        await tasks.delete_task(found.id)
        return ActionResult(text="it was dropped; nothing is done")
    await tasks.save_task(request.choose(found, choice, turn.author.id, turn.agent.clock()))
    return ActionResult(text=f"chosen: {choice}; it is carried out now", values={"choice": choice})


def _rule(turn: Turn, task: Task) -> Rule:
    authors = {one.author.id for one in turn.inputs}
    request = ChoiceRequest.from_metadata(task.metadata)

    def object_to(world: World, role: Role) -> str:
        return request.refusal_for(authors, role)

    return object_to


def _is_for(turn: Turn, task: Task) -> bool:
    return not _rule(turn, task)(turn.world, turn.role)


def _is_called(task: Task, name: str) -> bool:
    return not name or name.strip() in (short_id(task.id), str(task.id), task.name)
