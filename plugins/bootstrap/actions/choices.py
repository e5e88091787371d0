"""CHOOSE_OPTION: answer or abort a task that waits for a choice."""

import re
from typing import Annotated

from bot import ActionResult, ChoiceRequest, Effect, Role, Task, TaskTag, Turn, World, action, short_id
from bot.prompts import ActionPreview, Authority, contains_words
from bot.text import user_phrases, user_text
from plugins.bootstrap.actions.permissions import (
    AuthorizationRule,
    authorize,
    build_request,
    refusal_result,
    request_example,
)
from plugins.bootstrap.actions.words import ABORT, ORDINALS

CHOICES_SHOWN_KEY = "openChoices"
CLAUSE_END = re.compile(r"[^\w\s'’]+|[\r\n]+")


async def find_open_choices(turn: Turn) -> list[Task]:
    """Return the tasks of this room that wait for a choice and are still open."""
    tasks = await turn.agent.store.tasks.tasks(room_id=turn.room.id, tags={TaskTag.AWAITING_CHOICE})
    now = turn.agent.clock()
    return [task for task in tasks if ChoiceRequest.from_metadata(task.metadata).is_open(task, now)]


async def remember_shown_choices(turn: Turn) -> list[Task]:
    """Return the open choices; they are read from the store once per turn."""
    shown = shown_choices(turn)
    if shown is None:
        shown = turn.state.data[CHOICES_SHOWN_KEY] = await find_open_choices(turn)
    return shown


def shown_choices(turn: Turn) -> list[Task] | None:
    """Return the open choices this turn has read; None if it has not read them."""
    shown: list[Task] | None = turn.state.data.get(CHOICES_SHOWN_KEY)
    return shown


async def has_choices(turn: Turn) -> bool:
    """Return whether this turn's authors may answer an open choice."""
    return any(_is_for(turn, task) for task in await remember_shown_choices(turn))


async def preview_choice(turn: Turn, option: str, task: str = "") -> ActionPreview | ActionResult:
    """Return what would be chosen, or why it cannot be; a code must be repeated by the chooser."""
    found = await _find_choice(turn, option, task)
    if isinstance(found, ActionResult):
        return found
    matching_task, request, choice = found
    if choice != request.ABORT and request.code:
        for text in (choice, request.code):
            if not contains_words(turn.own_text, text):
                return refusal_result(f"the requester must name it in this message: {text}")
        return ActionPreview("", is_harmless=True)
    text = f"I would choose “{choice}” for “{matching_task.description or matching_task.name}”."
    return ActionPreview(
        text, (_names_of_option(turn, request, choice),), {"option": choice, "task": str(matching_task.id)}
    )


@action(
    "CHOOSE_OPTION",
    "Record which of the options that await a choice somebody has chosen.",
    similes=["SELECT_OPTION", "SELECT", "PICK", "CHOOSE"],
    when=has_choices,
    effect=Effect.UNSAFE,
    authority=Authority.named(by_targets=True),
    preview=preview_choice,
    examples=[request_example("Take the second one", "As you wish.", "CHOOSE_OPTION")],
)
async def choose_option(
    turn: Turn,
    option: Annotated[str, "The option, word for word, or its number; ABORT to drop it"],
    task: Annotated[str, "The task's id, if several await a choice"] = "",
) -> ActionResult:
    """Queue the matching task with the choice, or delete it on ABORT."""
    found = await _find_choice(turn, option, task)
    if isinstance(found, ActionResult):
        return found
    matching_task, request, choice = found
    arguments = {"task": matching_task.id, "name": matching_task.name, "option": choice}
    rule = choice_rule(turn, matching_task)
    if refusal := await authorize(turn.agent, build_request(turn, "CHOOSE_OPTION", arguments, rule=rule)):
        return refusal_result(refusal)
    tasks = turn.agent.store.tasks
    if choice == ChoiceRequest.ABORT:
        await tasks.delete_task(matching_task.id)
        return ActionResult(text=user_text("choices.dropped"))
    await tasks.save_task(request.choose(matching_task, choice, turn.author.id, turn.agent.clock()))
    return ActionResult(text=user_text("choices.done", choice=choice), values={"choice": choice})


async def _find_choice(turn: Turn, option: str, task: str) -> tuple[Task, ChoiceRequest, str] | ActionResult:
    """Return the task that waits for the choice, its request and the option that is meant, or why there is none."""
    matching_tasks = [
        candidate
        for candidate in await find_open_choices(turn)
        if _is_for(turn, candidate) and _has_name(candidate, task)
    ]
    if len(matching_tasks) > 1:  # an option that only one of them has says which is meant
        offering = [task for task in matching_tasks if _offers(task, option)]
        matching_tasks = offering if len(offering) == 1 else matching_tasks
    if len(matching_tasks) != 1:
        names = ", ".join(f"{candidate.name} (task {short_id(candidate.id)})" for candidate in matching_tasks)
        return refusal_result(f"several wait for a choice, ask which: {names}" if matching_tasks else "no such choice")
    request = ChoiceRequest.from_metadata(matching_tasks[0].metadata)
    choice = request.match(option)
    if not choice:
        return refusal_result(f"the options are: {', '.join(request.options)}, ABORT")
    return matching_tasks[0], request, choice


def _offers(task: Task, option: str) -> bool:
    return ChoiceRequest.from_metadata(task.metadata).match(option) not in ("", ChoiceRequest.ABORT)


def _names_of_option(turn: Turn, request: ChoiceRequest, choice: str) -> tuple[str, ...]:
    """Return how a person may name an option: word for word, by its number, as the first one.

    A mere "no" names none in words that ask for something else: "set messages to no".
    """
    if choice == ChoiceRequest.ABORT:
        words = turn.own_text.casefold().replace(turn.agent.name.casefold(), ",")
        clauses = {" ".join(clause.split()) for clause in CLAUSE_END.split(words)}
        return (*ABORT, *(phrase for phrase in user_phrases("choices.no") if phrase in clauses))
    number = request.options.index(choice)
    ordinals = ORDINALS[number] if number < len(ORDINALS) else ()
    return (choice, str(number + 1), *ordinals)


def choice_rule(turn: Turn, task: Task) -> AuthorizationRule:
    """Return a rule that refuses a choice the turn's authors may not make."""
    authors = {item.author.id for item in turn.inputs}
    request = ChoiceRequest.from_metadata(task.metadata)

    def find_refusal(world: World, role: Role) -> str:
        return request.refusal_for(authors, role)

    return find_refusal


def _is_for(turn: Turn, task: Task) -> bool:
    return not choice_rule(turn, task)(turn.world, turn.role)


def _has_name(task: Task, name: str) -> bool:
    return not name or name.strip() in (short_id(task.id), str(task.id), task.name)
