"""Actions as native function calls, where the model's handler can: read as if they stood in tags."""

from collections.abc import Collection
from dataclasses import replace

from bot.models.types import ModelType, TextResult, Tool
from bot.pipeline.course import REPLY, SILENT
from bot.prompts.reply_parser.reader import MAX_ACTIONS, NextStep, Reply, read_reply, read_step
from bot.turn import Turn

LONGEST_NAME = 64  # which providers let a function have


def tools_of(turn: Turn, besides: Collection[str]) -> tuple[Tool, ...]:
    """Offer the actions that the author may use as functions, `besides` these.

    There are none where the handler that is asked first cannot call any: then it writes tags.
    """
    if not turn.agent.models.can_call_tools(ModelType.TEXT_LARGE):
        return ()
    return tuple(
        Tool(spec.name, spec.description, spec.parameters)
        for spec in turn.actions
        if spec.name not in besides and len(spec.name) <= LONGEST_NAME
    )


def reply_of(result: TextResult) -> Reply:
    """Read an answer; where functions are called in it, those are its actions, whatever it names in tags.

    Its text is said before them, unless the functions come to silence.
    """
    reply = read_reply(result.text)
    calls = tuple((call.name, call.arguments) for call in result.calls[:MAX_ACTIONS])
    if not calls:
        return reply
    names = [name for name, _ in calls]
    if reply.text and not SILENT.issuperset(names):
        names.insert(0, REPLY)
    is_whole = reply.complete or not result.text.strip()
    return replace(reply, actions=tuple(names), parameters={}, calls=calls, complete=is_whole)


def step_of(result: TextResult) -> NextStep:
    """Read a step, likewise: the first function that is called is its action; words beside it end nothing."""
    step = read_step(result.text)
    if not result.calls:
        return step
    call = result.calls[0]
    is_finish = step.is_finish and not step.text
    return replace(
        step, action=call.name, parameters=call.arguments, is_finish=is_finish, text="", complete=True
    )
