"""What the character does: the actions of its answer, in order, each seeing the results before it."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from bot.concurrency.crash_points import reached
from bot.concurrency.isolation import Failure, asked, contained
from bot.domain.component_specs import ActionSpec, Effect
from bot.domain.events import ActionCompleted, ActionStarted
from bot.domain.ledger import Step, StepState
from bot.domain.results import ActionPlan, ActionResult, PlanStep
from bot.errors import ModelError
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.compose import Composer
from bot.pipeline.journal import journalled
from bot.pipeline.reply_plan import Call, mark_of
from bot.plugin_system.action import Action
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import read_object
from bot.prompts.templates import PARAMETER_REPAIR
from bot.store.protocols import AUDIT
from bot.text import escape_line, shorten
from bot.turn import Turn

logger = logging.getLogger(__name__)
VALIDATE_DEADLINE = 2.0
ACTION_DEADLINE = 60.0
MOST_WORKING_MEMORY = 50
LONGEST_RESULT = 4_000
LARGEST_RESULT = 262_144
OUTCOME_UNKNOWN = "outcome unknown: the process died while it ran"


async def why_not(turn: Turn, action: Action[Any]) -> str:
    """Say why this sender may not use an action just now; empty where they may.

    The one place that decides it: asked for what the model is shown and again when it acts.
    """
    if not turn.role.reaches(action.spec.role):
        return f"{action.spec.name} needs the role {action.spec.role}"
    return await _objection(turn, action)


async def _objection(turn: Turn, action: Action[Any]) -> str:
    if action.when is None:
        return ""
    allowed = await asked(
        partial(action.when, turn), what=f"validating {action.spec.name}", deadline=VALIDATE_DEADLINE
    )
    if isinstance(allowed, Failure):
        return f"{action.spec.name} could not be checked: {allowed.cause}"
    return "" if allowed else f"{action.spec.name} is not available here"


async def usable_actions(turn: Turn, registry: Registry) -> tuple[ActionSpec, ...]:
    """List the actions the author of the message may use just now, in the registry's order.

    They are asked one after another: nearly all look at what is at hand, and a task for each costs more.
    """
    role = turn.role
    allowed = (action for action in registry.actions.values() if role.reaches(action.spec.role))
    return tuple([one.spec for one in allowed if one.when is None or not await _objection(turn, one)])


class Repeated(Exception):
    """An action was to be run with parameters with which it was run before."""


class Actor:
    """Runs actions, journalling each before and after, so that a restart repeats none unasked."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer

    async def run_all(self, turn: Turn, calls: Sequence[Call], thought: str) -> None:
        """Run a chain; a failed action does not end it unless it is marked critical."""
        plan = ActionPlan(thought, [PlanStep(call.action.spec.name) for call in calls])
        turn.state.data["actionPlan"] = plan
        for number, call in enumerate(calls):
            plan.current_step = number
            result = await self.run(turn, call, number)
            reached(f"chain.{number + 1}")
            plan.end(result)
            if call.action.spec.is_critical and not result.success:
                turn.notes.append(f"{result.action} failed and is critical; what came after it was not run")
                return

    def refuse(self, turn: Turn, name: str) -> None:
        """Have the model told, among the results, that there is no action of this name."""
        turn.notes.append(f"action {name!r} is not known; it was not run")
        _remember(
            turn, ActionResult(False, error="there is no action of this name", action=escape_line(name))
        )

    async def run(self, turn: Turn, call: Call, number: int, taken: set[str] | None = None) -> ActionResult:
        """Run one action, or take its result from the journal; never raises for what the action does.

        `taken` are the marks of what was run before: raises Repeated, and runs nothing, where this is
        one of them, and adds it otherwise.
        """
        spec = call.action.spec
        turn.begin_step(number + 1)
        key = f"action:{number}:{spec.name}"
        done = (await journalled(turn)).get(key)
        if done is not None and done.state is StepState.DONE:
            result = _restored(done)
            if taken is not None:
                taken.add(mark_of(call.action, call.parameters))
        elif done is not None and spec.effect is Effect.UNSAFE:
            await turn.agent.store.ledger.save_step(replace(done, state=StepState.UNKNOWN))
            result = ActionResult(False, error=OUTCOME_UNKNOWN, action=spec.name)
            turn.notes.append(f"{spec.name} was under way when the process died; it was not repeated")
        else:
            result = await self._run_fresh(turn, call, key, taken)
        _remember(turn, result)
        turn.begin_step(number + 2)
        return result

    async def _run_fresh(self, turn: Turn, call: Call, key: str, taken: set[str] | None) -> ActionResult:
        spec, agent = call.action.spec, turn.agent
        if cause := await why_not(turn, call.action):
            turn.notes.append(cause)
            await _write_down_denial(turn, spec, cause)
            return ActionResult(False, error=cause, action=spec.name)
        arguments, cause = await self._fitting(turn, call)
        if cause:
            turn.notes.append(f"{spec.name}: {cause}")
            return ActionResult(False, error=cause, action=spec.name)
        if taken is not None:
            if (mark := mark_of(call.action, arguments)) in taken:
                raise Repeated
            taken.add(mark)
        step = Step(turn.id, key, "action", StepState.INTENDED, spec.effect.value, at=agent.clock())
        await agent.store.ledger.save_step(step)
        agent.events.emit(ActionStarted(agent.id, turn.id, turn.room.id, spec.name))
        turn.state.data["actionParams"] = arguments
        reached("action.pre")
        given = await contained(
            call.action.run(turn, arguments), what=f"action {spec.name}", deadline=ACTION_DEADLINE
        )
        reached("action.post")
        result = _normalised(turn, given, spec.name)
        await agent.store.ledger.save_step(replace(step, state=StepState.DONE, result=_journalled(result)))
        agent.events.emit(ActionCompleted(agent.id, turn.id, turn.room.id, result))
        if not result.success:
            turn.notes.append(f"{spec.name} failed: {result.error or result.text}")
        return result

    async def _fitting(self, turn: Turn, call: Call) -> tuple[Mapping[str, Any], str]:
        """Check the parameters; where they do not fit, have the model mend them once."""
        given, cause = _checked(call.action, call.parameters)
        if not cause:
            return given, ""
        prompt = self._composer.render(
            turn,
            PARAMETER_REPAIR,
            actionName=call.action.spec.name,
            schema=json.dumps(call.action.spec.parameters),
            given=json.dumps(call.parameters, default=str),
            problems=cause,
        )
        request = TextRequest(prompt, purpose=Purpose.REPAIR, system=self._composer.system(turn))
        try:
            mended = await turn.agent.models.text(request, ModelType.TEXT_SMALL)
        except ModelError:
            return {}, f"its parameters do not fit: {cause}"
        given, cause = _checked(call.action, read_object(mended.text))
        return given, f"its parameters do not fit: {cause}" if cause else ""


async def _write_down_denial(turn: Turn, spec: ActionSpec, cause: str) -> None:
    body = {
        "action": spec.name,
        "allowed": False,
        "reason": cause,
        "role": turn.role.value,
        "actors": [str(one.author.id) for one in turn.inputs],
        "world": str(turn.world.id),
        "event": str(turn.message.id),
    }
    await turn.agent.store.logs.log(AUDIT, body, room_id=turn.room.id, entity_id=turn.author.id)


def _checked(action: Action[Any], parameters: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    try:
        action.arguments.model_validate(dict(parameters))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        return {}, "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems[:5])
    return parameters, ""


def _normalised(turn: Turn, given: object, name: str) -> ActionResult:
    if isinstance(given, Failure):
        return ActionResult(False, error=given.cause, action=name)
    if given is None:
        return ActionResult(action=name)
    if not isinstance(given, ActionResult):
        return ActionResult(False, error=f"it gave {type(given).__name__}, not ActionResult", action=name)
    texts = {key: getattr(given, key) for key in ("text", "error")}
    mappings = {key: getattr(given, key) for key in ("values", "data")}
    wrong = [key for key, value in texts.items() if not isinstance(value, str) or len(value) > LARGEST_RESULT]
    wrong += [key for key, value in mappings.items() if not isinstance(value, Mapping)]
    if wrong:
        turn.notes.append(f"{name} gave a result that had to be mended: {', '.join(wrong)}")
    mended: dict[str, Any] = {
        key: texts[key][:LARGEST_RESULT] for key in texts if isinstance(texts[key], str)
    }
    mended |= {key: mappings[key] for key in mappings if isinstance(mappings[key], Mapping)}
    return ActionResult(bool(given.success), **mended, action=name)


def _journalled(result: ActionResult) -> dict[str, Any]:
    return {
        "success": result.success,
        "text": result.text,
        "values": _as_json(result.values),
        "data": _as_json(result.data),
        "error": result.error,
    }


def _as_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of a mapping what a journal can hold: the rest is there in this process alone."""
    kept: dict[str, Any] = {}
    for key, value in given.items():
        try:
            written = json.dumps(value, default=str, skipkeys=True, allow_nan=False)
        except Exception:  # a plugin's object may do anything when it is shown
            logger.debug("%r of a result is not kept for a restart", key, exc_info=True)
            continue
        if len(written) <= LARGEST_RESULT:
            kept[str(key)] = json.loads(written)
    return kept


def _restored(step: Step) -> ActionResult:
    name = step.key.rsplit(":", 1)[-1]
    return ActionResult(**step.result, action=name)


def _remember(turn: Turn, result: ActionResult) -> None:
    turn.results[result.action] = result
    data = turn.state.data
    data.setdefault("actionResults", []).append(result)
    working = data.setdefault("workingMemory", [])
    working.append({"actionName": result.action, "result": result, "timestamp": turn.agent.clock()})
    del working[:-MOST_WORKING_MEMORY]
    turn.state.values.update(result.values)
    data["actionResultsText"] = "\n".join(map(result_line, data["actionResults"]))
    turn.state.values["actionResults"] = data["actionResultsText"]
    turn.state.forget("ACTION_STATE")


def result_line(result: ActionResult) -> str:
    """Tell an action's result in one line of a prompt."""
    said = escape_line(shorten(result.text or result.error or "done", LONGEST_RESULT))
    return f"- {result.action}: {'ok' if result.success else 'failed'}: {said}"
