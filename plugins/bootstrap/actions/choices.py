"""Choosing: a task that waits for somebody's choice goes on with it, or is dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from bot import (
    AWAITING_CHOICE,
    QUEUE,
    ActionResult,
    Effect,
    Example,
    Role,
    Task,
    Turn,
    World,
    action,
    short_id,
)
from plugins.bootstrap.actions.authority import Rule, asked_by, authorize, refused

ABORT = frozenset({"ABORT", "CANCEL"})
CHOOSERS = ("OWNER", "ADMIN")
SEEN = "openChoices"


async def open_choices(turn: Turn) -> list[Task]:
    """List what waits for a choice in this room, and still may be chosen."""
    tasks = await turn.agent.store.tasks.tasks(room_id=turn.room.id, tags={AWAITING_CHOICE})
    now = turn.agent.clock()
    return [task for task in tasks if (end := _end(task)) is None or end > now]


async def choices_seen(turn: Turn) -> list[Task]:
    """List them as this turn has seen them first: the prompt asks more than once."""
    if SEEN not in turn.state.data:
        turn.state.data[SEEN] = await open_choices(turn)
    seen: list[Task] = turn.state.data[SEEN]
    return seen


async def has_choices(turn: Turn) -> bool:
    """Whether there is anything here that this turn's authors may choose."""
    return any(_is_for(turn, task) for task in await choices_seen(turn))


def options_of(task: Task) -> list[str]:
    """List the names of a task's options, in their order."""
    options = task.metadata.get("options", ())
    names = (one.get("name") if isinstance(one, Mapping) else one for one in options)
    return [str(name) for name in names if name]


@action(
    "CHOOSE_OPTION",
    "Pass on the choice somebody has made among the options that wait for one.",
    similes=["SELECT_OPTION", "SELECT", "PICK", "CHOOSE"],
    when=has_choices,
    effect=Effect.UNSAFE,
    examples=[
        [
            Example("Robin", "Take the second one"),
            Example("Ada", "As you wish.", ("REPLY", "CHOOSE_OPTION")),
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
    choice = _chosen(option, options_of(found))
    if not choice:
        return refused(f"the options are: {', '.join(options_of(found))}, ABORT")
    code = str(found.metadata.get("code", ""))
    request = asked_by(
        turn,
        "CHOOSE_OPTION",
        {"task": found.id, "name": found.name, "option": choice},
        spoken=((choice,), (code,)) if code and choice not in ABORT else (),
        rule=_rule(turn, found),
    )
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    tasks = turn.agent.store.tasks
    if choice in ABORT:
        await tasks.delete_task(found.id)
        return ActionResult(text="it was dropped; nothing is done")
    metadata = {**found.metadata, "choice": choice, "chosenBy": str(turn.author.id)}
    tags = (found.tags - {AWAITING_CHOICE}) | {QUEUE}
    await tasks.save_task(replace(found, tags=tags, metadata=metadata, next_run=turn.agent.clock()))
    return ActionResult(text=f"chosen: {choice}; it is carried out now", values={"choice": choice})


def _chosen(option: str, options: Sequence[str]) -> str:
    """Give the option that was named exactly, or by its number; ABORT; empty for anything else."""
    said = option.strip()
    if said in options:
        return said
    if said.isascii() and said.isdigit() and 1 <= int(said[:4]) <= len(options):
        return options[int(said[:4]) - 1]
    return "ABORT" if said.upper() in ABORT else ""


def _rule(turn: Turn, task: Task) -> Rule:
    authors = {str(one.author.id) for one in turn.inputs}

    def object_to(world: World, role: Role) -> str:
        choosers = set(_words(task.metadata.get("choosers")))
        if choosers:
            return "" if authors <= choosers else "it is another person's choice"
        allowed = _words(task.metadata.get("roles")) or CHOOSERS
        return "" if role.value in allowed else f"only {' or '.join(allowed)} may choose here"

    return object_to


def _is_for(turn: Turn, task: Task) -> bool:
    return not _rule(turn, task)(turn.world, turn.role)


def _is_called(task: Task, name: str) -> bool:
    return not name or name.strip() in (short_id(task.id), str(task.id), task.name)


def _words(written: Any) -> tuple[str, ...]:
    return tuple(map(str, written)) if isinstance(written, list | tuple) else ()


def _end(task: Task) -> datetime | None:
    written = task.metadata.get("expiresAt")
    return datetime.fromisoformat(written) if isinstance(written, str) else None


def chooser_of(task: Task) -> UUID:
    """Tell who has chosen."""
    return UUID(str(task.metadata["chosenBy"]))
