"""The run_actions stage: runs the actions of a reply in order, journalled; each sees earlier results."""

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from bot.concurrency.crash_points import crash_point
from bot.concurrency.isolation import Failure, call_isolated, run_isolated
from bot.domain.authority import ANYBODY, UNKNOWN_AUTHORS, AuthorityKind
from bot.domain.component_specs import ActionSpec, Effect, ProviderKind
from bot.domain.content import Choice, Content
from bot.domain.environment import ChannelType
from bot.domain.events import ActionCompleted, ActionStarted
from bot.domain.ledger import Outcome, Rule, Step, StepState
from bot.domain.results import ActionPlan, ActionPreview, ActionResult, PlanStep
from bot.errors import ModelError
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.authority import describe_call, is_named, reason_to_confirm
from bot.pipeline.closing_text import OUTCOME_UNKNOWN, find_unreported, format_result, write_closing_text
from bot.pipeline.commit import TurnResult
from bot.pipeline.compose import Composer
from bot.pipeline.journal import load_steps, result_from_step, result_to_journal
from bot.pipeline.progress import ActionProgress
from bot.pipeline.reply_plan import ActionCall, ReplyPlan, call_key, plan_reply
from bot.pipeline.should_respond import ResponseDecision
from bot.plugin_system.action import Action
from bot.plugin_system.confirmation import CONFIRMED_WORKER, ask_to_confirm, confirmed_operation
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import Reply, read_object
from bot.prompts.templates import PARAMETER_REPAIR
from bot.store.protocols import LogKind
from bot.text import escape_line
from bot.turn import REPLIES_PER_STEP, Turn
from bot.user_texts import user_text

logger = logging.getLogger(__name__)
VALIDATE_TIMEOUT = 2.0
ACTION_TIMEOUT = 60.0
MAX_WORKING_MEMORY = 50
MAX_RESULT_LENGTH = 262_144
PUBLIC_TYPES = (ChannelType.FEED, ChannelType.BROADCAST)  # where the rest of a text is not offered
CONTINUE_COMMAND = "/ask continue"
WRAPPERS = frozenset({"parameters", "arguments", "input", "args"})  # around the arguments of a call


async def refusal_for(turn: Turn, action: Action[Any], *, trusted: bool = False) -> str:
    """Return why the sender may not use an action now; empty if they may.

    Checked when the actions are listed for the model and again before an action runs.
    """
    if not turn.role.is_at_least(action.spec.role):
        return f"{action.spec.name} needs the role {action.spec.role}"
    return await _condition_refusal(turn, action, trusted=trusted)


async def _condition_refusal(turn: Turn, action: Action[Any], *, trusted: bool) -> str:
    if action.when is None:
        return ""
    allowed = await call_isolated(
        partial(action.when, turn), label=f"validating {action.spec.name}", timeout=VALIDATE_TIMEOUT, trusted=trusted
    )
    if isinstance(allowed, Failure):
        return f"{action.spec.name} could not be checked: {allowed.cause}"
    return "" if allowed else f"{action.spec.name} is not available here"


async def list_usable_actions(turn: Turn, registry: Registry) -> tuple[ActionSpec, ...]:
    """Return the actions that the author of the message may use now, in the registry's order.

    Conditions run one after another: nearly all return at once, and a task for each would cost more.
    """
    rank = turn.role.rank
    return tuple(
        [
            action.spec
            for action in registry.actions.values()
            if rank >= action.spec.role.rank
            and (action.when is None or not await _condition_refusal(turn, action, trusted=registry.is_trusted(action)))
        ]
    )


async def run_actions(
    turn: Turn,
    reply: Reply,
    decision: ResponseDecision,
    registry: Registry,
    runner: "ActionRunner",
    *,
    is_confirmed: bool = False,
) -> TurnResult:
    """Run the actions of a reply in order; return the answer with the content that remains to be sent.

    Where `is_confirmed`, the author's message asks for exactly these actions, and none is confirmed once more.

    A reply that asks for neither text nor action is silence. Text that comes with effects may promise them:
    it is sent after the actions, and only if all succeeded, none of them replied, and it tells all that they
    returned. Else one closing text tells all results, unless the actions have told each of theirs.
    """
    plan = plan_reply(reply, registry)
    if not reply.is_complete:
        turn.notes.append("the model's answer breaks off")
    for name in plan.unknown:
        runner.reject_unknown(turn, name)
    if plan.is_silent:
        return TurnResult(Outcome.IGNORED, reply.thought or "it chose silence", Rule.CHOSE_SILENCE)
    choices: tuple[Choice, ...] = ()
    if reply.is_truncated and turn.room.type not in PUBLIC_TYPES:
        choices = (Choice(user_text("notices.continue"), CONTINUE_COMMAND),)
    content = Content(text=reply.text, thought=reply.thought, actions=reply.actions, choices=choices)
    if plan.is_simple:
        return TurnResult.answered(decision, content)
    content_left = await _run_plan(turn, plan, content, runner, is_confirmed=is_confirmed)
    return TurnResult.answered(decision, content_left)


async def _run_plan(
    turn: Turn, plan: ReplyPlan, content: Content, runner: "ActionRunner", *, is_confirmed: bool
) -> Content | None:
    """Run the actions of a plan; return what remains to be sent, None if nothing does."""
    is_text_waiting = plan.has_effects and bool(content.text)
    if plan.has_effects:
        await _withdraw_draft(turn)
    elif content.text:
        await turn.reply(content)
    await runner.run_plan(turn, plan.calls, content.thought, is_confirmed=is_confirmed)
    results: list[ActionResult] = turn.state.data["actionResults"]  # one action may have several
    has_replied = any(result.is_reported for result in results)
    is_text_due = is_text_waiting and not has_replied
    if find_unreported(turn, results, content.text if is_text_due else "") or not (content.text or has_replied):
        draft = content.text if is_text_waiting else ""
        return replace(content, text=await write_closing_text(turn, runner.composer, draft))
    if is_text_waiting and has_replied:
        turn.notes.append("the text of the answer was not sent, because the actions replied")
    return content if is_text_due else None


async def _withdraw_draft(turn: Turn) -> None:
    """Remove a draft that showed the text before it was known that actions follow."""
    if turn.agent.outbox.has_draft(turn.id):
        await turn.agent.outbox.remove_draft(turn.id)


class RepeatedCall(Exception):
    """An action was called again with the same parameters."""


class ActionRunner:
    """Runs actions and journals each before and after, so that a restart does not repeat it."""

    def __init__(self, composer: Composer) -> None:
        self.composer = composer

    async def run_plan(
        self, turn: Turn, calls: Sequence[ActionCall], thought: str, *, is_confirmed: bool = False
    ) -> None:
        """Run actions in order; a failure ends the chain only if the action is critical."""
        plan = ActionPlan(thought, [PlanStep(call.action.spec.name) for call in calls])
        turn.state.data["actionPlan"] = plan
        for number, call in enumerate(calls):
            plan.current_step = number
            result = await self.run(turn, call, number, is_confirmed=is_confirmed)
            crash_point(f"chain.{number + 1}")
            plan.finish_step(result)
            if call.action.spec.is_critical and not result.success:
                turn.notes.append(f"{result.action} failed and is critical; what came after it was not run")
                return

    def reject_unknown(self, turn: Turn, name: str) -> None:
        """Add a failed result for a name that matches no action, so that the model learns of it."""
        turn.notes.append(f"action {name!r} is not known; it was not run")
        _store_result(turn, ActionResult(False, error="there is no action of this name", action=escape_line(name)))

    async def run(
        self,
        turn: Turn,
        call: ActionCall,
        number: int,
        call_keys: set[str] | None = None,
        *,
        is_confirmed: bool = False,
    ) -> ActionResult:
        """Run one action, or take its result from the journal; errors of the action become the result.

        One without the authority it needs is not run: its asker is asked to confirm it, unless it
        `is_confirmed`. `call_keys` are the keys of earlier calls; this one is added. Raises RepeatedCall, without
        running the action, if its key is among them.
        """
        spec = call.action.spec
        turn.begin_step(number + 1)
        key = f"action:{number}:{spec.name}"
        earlier = (await load_steps(turn)).get(key)
        if earlier is not None and earlier.state is StepState.DONE:
            result = result_from_step(earlier)
            if call_keys is not None:
                call_keys.add(call_key(call.action, call.parameters))
        elif earlier is not None and spec.effect is Effect.UNSAFE:
            await turn.agent.store.ledger.save_step(replace(earlier, state=StepState.UNKNOWN))
            result = _build_failure(turn, spec.name, OUTCOME_UNKNOWN)
            turn.notes.append(f"{spec.name} was under way when the process died; it was not repeated")
        else:
            result = await self._execute(turn, call, key, call_keys, is_confirmed=is_confirmed)
        result = replace(result, is_reported=result.success and turn.has_replied_in(number + 1))
        _store_result(turn, result)
        turn.begin_step(number + 2)
        return result

    async def _execute(
        self, turn: Turn, call: ActionCall, key: str, call_keys: set[str] | None, *, is_confirmed: bool
    ) -> ActionResult:
        spec, agent = call.action.spec, turn.agent
        trusted = self.composer.registry.is_trusted(call.action)
        if cause := await refusal_for(turn, call.action, trusted=trusted):
            turn.notes.append(cause)
            await _log_denial(turn, spec, cause)
            return _build_failure(turn, spec.name, cause)
        arguments, cause = await self._validate_parameters(turn, call)
        if cause:
            turn.notes.append(f"{spec.name}: {cause}")
            return _build_failure(turn, spec.name, cause)
        if call_keys is not None:
            if (own_key := call_key(call.action, arguments)) in call_keys:
                raise RepeatedCall
            call_keys.add(own_key)
        step = Step(turn.id, key, "action", StepState.INTENDED, spec.effect.value, recorded_at=agent.clock())
        if not is_confirmed and (answer := await self._ask_first(turn, call.action, arguments, trusted=trusted)):
            if answer.success:  # asked: a repetition after a crash does not ask again
                await agent.store.ledger.save_step(
                    replace(step, state=StepState.DONE, result=result_to_journal(answer))
                )
            return answer
        return await self._run_handler(turn, call.action, arguments, step, trusted=trusted)

    async def _run_handler(
        self, turn: Turn, action: Action[Any], arguments: Mapping[str, Any], step: Step, *, trusted: bool
    ) -> ActionResult:
        spec, agent = action.spec, turn.agent
        read_authors = turn.foreign_authors()  # what they wrote may be in the arguments, and so in the result
        is_unknown = not trusted and ANYBODY not in turn.result_authors
        if is_unknown:  # what it says in the room meanwhile may be of others too
            turn.result_authors.add(ANYBODY)
        await agent.store.ledger.save_step(step)
        agent.events.emit(ActionStarted(agent.id, turn.id, turn.room.id, spec.name))
        turn.state.data["actionParams"], started = arguments, monotonic()
        crash_point("action.pre")
        turn.running_actions.append(spec.name)
        progress = ActionProgress(turn, turn.next_reply_index // REPLIES_PER_STEP)
        turn.on_progress = progress.report
        async with asyncio.TaskGroup() as group:
            message = group.create_task(progress.show(), name=f"progress of action {spec.name}")
            returned = await run_isolated(
                action.run(turn, arguments),
                label=f"action {spec.name}",
                timeout=spec.deadline or ACTION_TIMEOUT,
                trusted=trusted,
            )
            message.cancel()
        turn.on_progress = None
        turn.running_actions.remove(spec.name)
        crash_point("action.post")
        result = _normalize_result(turn, returned, spec.name)
        turn.trace.note("action", spec.name, started, "" if result.success else result.error or "failed")
        authors = result.authors if result.authors is not None or trusted else UNKNOWN_AUTHORS
        result = replace(result, authors=frozenset({*(authors or ()), *read_authors}))
        if is_unknown:
            turn.result_authors.discard(ANYBODY)  # `_store_result` adds those of the result
        await agent.store.ledger.save_step(replace(step, state=StepState.DONE, result=result_to_journal(result)))
        agent.events.emit(ActionCompleted(agent.id, turn.id, turn.room.id, result))
        if not result.success:
            turn.notes.append(f"{spec.name} failed: {result.error or result.text}")
        return result

    async def _ask_first(
        self, turn: Turn, action: Action[Any], arguments: Mapping[str, Any], *, trusted: bool
    ) -> ActionResult | None:
        """Ask the author to confirm an action that lacks authority; return the result, None if it may run."""
        name, kind = action.spec.name, action.spec.authority.kind
        if kind is AuthorityKind.HARMLESS:
            return None
        preview = None
        if action.preview is not None:
            previewed = await run_isolated(
                action.preview(turn, **action.validate(arguments)),
                label=f"preview of action {name}",
                timeout=ACTION_TIMEOUT,
                trusted=trusted,
            )
            if not isinstance(previewed, ActionPreview):
                refused = _normalize_result(turn, previewed, name)
                unknown = () if trusted else UNKNOWN_AUTHORS
                authors = unknown if refused.authors is None else refused.authors
                return _refuse(turn, name, refused.error or "it cannot be done", authors)
            preview = previewed
        cause = await reason_to_confirm(turn, action, arguments, preview)
        if not cause:
            return None
        if kind is AuthorityKind.CONFIRMED and preview and not is_named(turn, action, arguments, preview):
            cause = f"the requester must name it in this message: {', '.join(group[0] for group in preview.names)}"
            await _log_denial(turn, action.spec, cause)
            return _refuse(turn, name, cause, UNKNOWN_AUTHORS)
        summary = preview.text if preview is not None else describe_call(action, arguments)
        if not summary:
            return _refuse(turn, name, "it must be confirmed, and it is too long to be shown")
        turn.notes.append(f"{name} waits for confirmation: {cause}")
        await _log_denial(turn, action.spec, f"it waits for confirmation: {cause}")
        operation = confirmed_operation(turn, name, {**arguments, **(preview.arguments if preview else {})})
        needs_code = action.spec.confirm == "code"
        asked = await ask_to_confirm(turn, CONFIRMED_WORKER, operation, summary, needs_code=needs_code)
        return replace(asked, action=name)

    async def _validate_parameters(self, turn: Turn, call: ActionCall) -> tuple[Mapping[str, Any], str]:
        """Return valid parameters and an empty string, or the problem; the model may repair them once."""
        parameters, cause = _check_parameters(call.action, call.parameters)
        if not cause:
            return parameters, ""
        prompt = self.composer.render(
            turn,
            PARAMETER_REPAIR,
            actionName=call.action.spec.name,
            schema=json.dumps(call.action.spec.parameters),
            given=json.dumps(call.parameters, default=str),
            problems=cause,
        )
        request = TextRequest(prompt, purpose=Purpose.REPAIR, system=self.composer.render_system(turn))
        try:
            repaired = await turn.agent.models.text(request, ModelType.TEXT_SMALL)
        except ModelError:
            return {}, f"its parameters do not fit: {cause}"
        parameters, cause = _check_parameters(call.action, read_object(repaired.text))
        return parameters, f"its parameters do not fit: {cause}" if cause else ""


def _refuse(turn: Turn, name: str, cause: str, authors: Collection[UUID] = ()) -> ActionResult:
    turn.notes.append(f"{name} failed: {cause}")
    return _build_failure(turn, name, cause, authors)


def _build_failure(turn: Turn, name: str, cause: str, authors: Collection[UUID] = ()) -> ActionResult:
    """Return the result of an action that was not run: its cause may quote what the model has read."""
    return ActionResult(False, error=cause, action=name, authors=frozenset({*authors, *turn.foreign_authors()}))


async def _log_denial(turn: Turn, spec: ActionSpec, cause: str) -> None:
    body = {
        "action": spec.name,
        "allowed": False,
        "reason": cause,
        "role": turn.role.value,
        "actors": [str(turn_input.author.id) for turn_input in turn.inputs],
        "world": str(turn.world.id),
        "event": str(turn.message.id),
    }
    await turn.agent.store.logs.log(LogKind.AUTHORIZATION, body, room_id=turn.room.id, entity_id=turn.author.id)


def _check_parameters(action: Action[Any], parameters: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    schema, inner = action.spec.parameters, None
    if len(parameters) == 1 and (wrapper := WRAPPERS & parameters.keys() - schema.get("properties", {}).keys()):
        inner = _read_json(parameters[next(iter(wrapper))])
    parameters = inner if isinstance(inner, Mapping) else parameters
    if problems := _list_problems(action, parameters):
        wrong = {str(problem["loc"][0]) for problem in problems if problem["loc"]}
        repaired = {name: _read_json(value) if name in wrong else value for name, value in parameters.items()}
        kept = (repaired.keys() - wrong) | set(schema.get("required", ()))
        parameters = {name: value for name, value in repaired.items() if value is not None or name in kept}
    if problems := _list_problems(action, parameters):
        return {}, "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:5])
    return parameters, ""


def _list_problems(action: Action[Any], parameters: Mapping[str, Any]) -> Sequence[Any]:
    try:
        action.arguments.model_validate(dict(parameters))
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False, include_context=False)
    return ()


def _read_json(value: object) -> object:
    with suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) else value
    return value


def _normalize_result(turn: Turn, returned: object, name: str) -> ActionResult:
    if isinstance(returned, Failure):
        return ActionResult(False, error=returned.cause, action=name)
    if returned is None or returned is True:
        return ActionResult(action=name)
    if returned is False:
        return ActionResult(False, error="it did not succeed", action=name)
    if not isinstance(returned, ActionResult):
        return ActionResult(False, error=f"it gave {type(returned).__name__}, not ActionResult", action=name)
    texts = {key: getattr(returned, key) for key in ("text", "error")}
    mappings = {key: getattr(returned, key) for key in ("values", "data")}
    invalid_keys = [key for key, value in texts.items() if not isinstance(value, str) or len(value) > MAX_RESULT_LENGTH]
    invalid_keys += [key for key, value in mappings.items() if not isinstance(value, Mapping)]
    if invalid_keys:
        turn.notes.append(f"{name} gave a result that had to be repaired: {', '.join(invalid_keys)}")
    repaired: dict[str, Any] = {key: texts[key][:MAX_RESULT_LENGTH] for key in texts if isinstance(texts[key], str)}
    repaired |= {key: mappings[key] for key in mappings if isinstance(mappings[key], Mapping)}
    authors = returned.authors if isinstance(returned.authors, Collection) else None
    return ActionResult(bool(returned.success), **repaired, action=name, authors=authors)


def _store_result(turn: Turn, result: ActionResult) -> None:
    turn.results[result.action] = result
    if result.text or result.error or result.values:
        turn.result_authors.update(result.authors or ())
    data = turn.state.data
    data.setdefault("actionResults", []).append(result)
    working_memory = data.setdefault("workingMemory", [])
    working_memory.append({"actionName": result.action, "result": result, "timestamp": turn.agent.clock()})
    del working_memory[:-MAX_WORKING_MEMORY]
    turn.state.values.update(result.values)
    data["actionResultsText"] = "\n".join(map(format_result, data["actionResults"]))
    turn.state.values["actionResults"] = data["actionResultsText"]
    for spec in turn.agent.catalog.providers:
        if spec.kind is ProviderKind.ACTION_RESULTS:
            turn.state.invalidate(spec.name)
