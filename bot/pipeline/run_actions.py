"""The run_actions stage: runs the actions of a reply in order, journalled; each sees earlier results.

Multi-step mode: choose a step, run it, observe the result; at the end a summary is the reply.

Whether an action has the authority it needs, by who wrote the texts that the model has read.

This is decided once, before an action runs, and by code: what the model says of it does not count.

The message that says that a long-running action is under way, edited with the progress that it reports.

The closing text of a turn with actions: a summary by the model, else a fixed text.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from bot.concurrency.tasks import Failure, crash_point, log_failure, run_isolated
from bot.domain.character import ActionSpec, Effect, ProviderKind
from bot.domain.content import Choice, Content
from bot.domain.environment import (
    ANYBODY,
    UNKNOWN_AUTHORS,
    AuthorityKind,
    Role,
    contains_words,
    is_all_own,
    names_action,
)
from bot.domain.events import ActionCompleted, ActionStarted
from bot.domain.ids import derived_id
from bot.domain.instructions import RoomInstructions
from bot.domain.ledger import (
    ActionPlan,
    ActionPreview,
    ActionResult,
    DeliveryState,
    Outcome,
    PlanStep,
    Rule,
    Step,
    StepState,
)
from bot.domain.memory import AUTHORS_KEY, PROGRESS_KEY, Memory, MemoryKind
from bot.domain.proposal import ProposalState, proposal_id
from bot.errors import ModelError, NoAnswer, StoreUnavailable
from bot.models.types import ModelType, Purpose, TextRequest
from bot.outbound.sender import OutgoingReply
from bot.pipeline.commit import (
    PUBLIC_TYPES,
    ActionParked,
    TurnResult,
    cached_response,
    load_steps,
    propose,
    result_from_step,
    result_to_journal,
    save_response,
)
from bot.pipeline.compose import Composer, are_authors, generate_text
from bot.pipeline.respond import (
    CHOOSE_OPTION,
    MAX_NAME_LENGTH,
    REPLY_ACTION,
    SILENT_ACTIONS,
    ActionCall,
    ReplyPlan,
    answer_context,
    build_reply,
    build_step,
    build_tools,
    call_key,
    plan_reply,
    recall_context,
)
from bot.pipeline.should_respond import ResponseDecision
from bot.plugin_system.components import Action
from bot.plugin_system.registry import CONFIRMED_WORKER, Registry, ask_to_confirm, confirmed_operation, fold_name
from bot.prompts.reply_parser.dialects import ARGUMENT_KEYS, calls_from_value, fold, name_positional
from bot.prompts.reply_parser.reader import NO_CONTEXT, NextStep, Reply, read_object
from bot.prompts.templates import MULTI_STEP_DECISION, MULTI_STEP_SUMMARY, PARAMETER_REPAIR, REPLY
from bot.receipts import NotedAction
from bot.store.protocols import LogKind
from bot.text import MAX_OPEN_MESSAGE_LENGTH, escape_line, shorten, truncate_line
from bot.turn import REPLIES_PER_STEP, Turn
from bot.user_texts import user_text

MAX_CHECKED_MESSAGES = 100  # more than most prompts contain: older text may have been paraphrased since
MAX_QUESTION_LENGTH = 3_000
MAX_SHOWN_ARGUMENT = 600  # characters, to who approves an action
RunDegrading = Callable[[Turn, Callable[[], Awaitable[Any]]], Awaitable[Any]]
MayCause = Callable[[UUID], bool]


async def reason_to_confirm(
    turn: Turn, action: Action[Any], arguments: Mapping[str, Any], preview: ActionPreview | None
) -> str:
    """Return why an action must be confirmed before it runs; empty if it may run at once."""
    authority = action.spec.authority
    if authority.kind is AuthorityKind.HARMLESS or (preview is not None and preview.is_harmless):
        return ""
    if authority.must_confirm(arguments):
        return "it is always confirmed"
    if is_named(turn, action, arguments, preview):
        return ""
    return await _find_foreign_text(turn, action.spec)


def is_named(turn: Turn, action: Action[Any], arguments: Mapping[str, Any], preview: ActionPreview | None) -> bool:
    """Return whether the author's own words name the action and each of its targets."""
    spec, text = action.spec, turn.own_text
    authority = spec.authority
    if not (authority.by_targets or names_action(text, (spec.name, *spec.similes), authority.words)):
        return False
    groups = _target_values(action, arguments) if preview is None else preview.names
    return (bool(groups) or not authority.by_targets) and all(contains_words(text, *group) for group in groups)


def describe_call(action: Action[Any], arguments: Mapping[str, Any]) -> str:
    """Return what a call would do, with every argument, as a sentence; empty if it is too long to be read."""
    listed = [f"{name}: {_show(value)}" for name, value in action.validate(arguments).items() if value is not None]
    values = {"action": action.spec.name, "arguments": ", ".join(listed)}
    text = user_text("choices.action_with" if listed else "choices.action", **values)
    return text if len(text) <= MAX_QUESTION_LENGTH else ""


async def require_approval(
    turn: Turn, action: Action[Any], arguments: Mapping[str, Any], key: str
) -> ActionResult | None:
    """Return None once a person has approved an action, and the result if they have not, or not in time.

    Raises ActionParked until they have decided. The arguments are journalled before the proposal is stored: exactly
    those that were shown are used then. Raises StoreUnavailable.
    """
    agent = turn.agent
    turn.was_parked = True
    proposal = await agent.store.ledger.proposal(proposal_id(turn.id, key))
    if proposal is None:
        entry = {"arguments": dict(arguments)}
        step = Step(turn.id, approval_key(key), "approval", StepState.DONE, result=entry, recorded_at=agent.clock())
        await agent.store.ledger.save_step(step)
        text = _describe_bounded(action, arguments, agent.outbox.redact)
        proposal = propose(turn, Content(text=text), turn.find_hold_reason(), key)
    if proposal.state is ProposalState.SENT:
        return None
    if proposal.state is ProposalState.WAITING:
        raise ActionParked(proposal)
    return _refuse(turn, action.spec.name, "the people who run me did not approve it")


def needs_approval(turn: Turn, spec: ActionSpec) -> bool:
    """Return whether a person has to approve an action where the replies of the turn wait for one.

    Not one that only speaks, calls a person or records a choice: what is chosen is an action of its own.
    """
    if spec.effect not in (Effect.KEYED, Effect.UNSAFE) or spec.name == CHOOSE_OPTION:
        return False
    is_held = turn.hold_reason or turn.agent.outbox.approval is not None
    return bool(is_held and turn.find_hold_reason()) and spec.authority.kind is not AuthorityKind.HARMLESS


def approval_key(key: str) -> str:
    """Return the key of the step that holds the arguments of an action that waits for approval."""
    return f"approval:{key}"


def _describe_bounded(action: Action[Any], arguments: Mapping[str, Any], redact: Callable[[str], str]) -> str:
    """Return the name of an action with its arguments, one a line, without secrets and the middle of long ones."""
    values = action.validate(arguments).items()
    lines = [f"{name}: {_leave_out_middle(redact(_show(value)))}" for name, value in values if value is not None]
    return "\n".join([action.spec.name, *lines])


def _leave_out_middle(text: str) -> str:
    half = MAX_SHOWN_ARGUMENT // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else f"{text[:half]} … ({left_out} characters) … {text[-half:]}"


def _show(value: Any) -> str:
    """Return a value as one line, so that no text in it looks like another argument."""
    if not isinstance(value, str):
        return escape_line(json.dumps(value, ensure_ascii=False, default=str))
    text = escape_line(value).replace('"', '\\"')
    return f'"{text}"'


def _target_values(action: Action[Any], arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the values of the targets that a call gives, each in a group of its own; defaults are left out."""
    targets, values = action.spec.authority.targets, action.validate(arguments)
    defaults = {field.alias: field.default for field in action.arguments.model_fields.values()}
    given = [value for name, value in values.items() if targets is None or name in targets if value != defaults[name]]
    return tuple((str(leaf),) for value in given for leaf in _leaves(value))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list | tuple | set | frozenset):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


async def _find_foreign_text(turn: Turn, spec: ActionSpec) -> str:
    """Return where the prompt has text of people with less authority than an action needs; empty if nowhere.

    An action that needs no role of an admin concerns its asker alone: any other person's text is foreign.
    """
    own = {turn.author.id, turn.agent.id}

    def may_cause(author: UUID) -> bool:
        return author in own or (
            author != ANYBODY
            and spec.role.is_at_least(Role.ADMIN)
            and turn.world.role_of(author).is_at_least(spec.role)
        )

    if not all(map(may_cause, turn.state.result_authors)):
        return "an action before it returned text of others"
    for name, result in turn.state.results.items():
        if not all(map(may_cause, result.known_authors)):
            return f"its prompt has text of others ({name})"
    if not all(_is_by(turn, item.message, may_cause) for item in turn.inputs):
        return "the message has text of others"
    conversation = await turn.agent.store.memories.conversation(turn.room.id, MAX_CHECKED_MESSAGES)
    earlier = (message for message in conversation.messages if message.turn_id != turn.id)
    if not all(_is_by(turn, message, may_cause) for message in earlier):
        return "the conversation has text of others"
    if not all(may_cause(reaction.entity_id) for reaction in conversation.reactions):
        return "the conversation has reactions of others"
    if not all(_may_all_cause(result, may_cause, default=False) for result in conversation.results):
        return "the conversation has results of actions with text of others"
    return ""


def _is_by(turn: Turn, message: Memory, may_cause: MayCause) -> bool:
    """Return whether all of a message was written by people who may cause the action.

    The character's own messages repeat what it has read: in private they name the authors, elsewhere, and
    where it spoke without being asked, these are not known.
    """
    content = message.content
    if message.entity_id == turn.agent.id:
        is_answer = turn.room.type.is_direct and content.in_reply_to is not None
        return is_answer and _may_all_cause(message, may_cause, default=True)
    return may_cause(message.entity_id) and is_all_own(content)


def _may_all_cause(memory: Memory, may_cause: MayCause, *, default: bool) -> bool:
    authors = memory.metadata.get(AUTHORS_KEY)
    return default if authors is None else all(may_cause(UUID(str(author))) for author in authors)


ACKNOWLEDGE_SECONDS = 5.0
EDIT_SECONDS = 3.0  # between two edits of the message


class ActionProgress:
    """What the room sees of one action while it runs; `step` is the number of its replies' step.

    It is no reply of the turn: what the action found or did is still told.
    """

    def __init__(self, turn: Turn, step: int) -> None:
        self._turn, self._step = turn, step
        self._text = user_text("actions.under_way")
        self._changed = asyncio.Event()
        self._is_posted = False

    def report(self, text: str) -> None:
        """Show this text from the next edit on."""
        self._text = text
        self._changed.set()

    async def show(self) -> None:
        """Post the message once the action takes long, and edit it from then on, until cancelled.

        From the first message on, the next turn of the room does not wait for this one.
        """
        await asyncio.sleep(ACKNOWLEDGE_SECONDS)
        self._turn.release_room(self._turn)
        while True:
            self._changed.clear()
            with suppress(StoreUnavailable):  # the result is told all the same
                await self._show_text(self._text)
                self._is_posted = True
            await asyncio.sleep(EDIT_SECONDS)
            await self._changed.wait()

    async def finish(self) -> None:
        """Show what was reported last, where the room has the message and its last edit has arrived."""
        if self._is_posted:
            with suppress(StoreUnavailable):
                await self._show_text(self._text)

    async def _show_text(self, text: str) -> None:
        turn, agent = self._turn, self._turn.agent
        if turn.is_cancelled or turn.is_stopped:
            return
        if (turn.hold_reason or agent.outbox.approval is not None) and turn.find_hold_reason():
            return
        memory_id = derived_id(turn.id, "progress", str(self._step))
        earlier = (await agent.store.memories.memories([memory_id])).get(memory_id)
        if earlier is not None and not await self._can_edit(earlier, text):
            return
        content: Content | None = Content(text, in_reply_to=turn.message.id, source=turn.message.content.source)
        if content is not None and (agent.filters.is_on or turn.world.settings):
            content = await agent.filters.check_reply(turn, content)
        if content is None:
            return
        memory = Memory(
            id=memory_id,
            kind=MemoryKind.MESSAGE,
            entity_id=agent.id,
            room_id=turn.reply_room.id,
            world_id=turn.world.id,
            content=content,
            created_at=agent.clock(),
            turn_id=turn.id,
            metadata={PROGRESS_KEY: 1},
        )
        if earlier is not None:
            count = earlier.metadata[PROGRESS_KEY] + 1
            memory = replace(memory, created_at=earlier.created_at, metadata={PROGRESS_KEY: count})
        index = (self._step + 1) * REPLIES_PER_STEP - memory.metadata[PROGRESS_KEY]  # behind the replies of the step
        await turn.send([OutgoingReply(memory, turn.reply_room, index, turn.reply_to, earlier)])

    async def _can_edit(self, earlier: Memory, text: str) -> bool:
        """Return whether the message can show another text: it has arrived, and the platform has edits."""
        adapter = self._turn.agent.outbox.adapters.get(self._turn.room.platform)
        if adapter is None or not adapter.can_edit or earlier.content.text == text:
            return False
        parts = await self._turn.agent.store.ledger.deliveries(turn_id=self._turn.id)
        own = [part for part in parts if part.memory_id == earlier.id]
        return bool(own) and all(part.state is DeliveryState.SENT for part in own)


MAX_TRIES = 2
SUMMARY_KEY = "summary"
MAX_RESULT_LINE_LENGTH = 4_000
WORD = re.compile(r"\w+")
OUTCOME_UNKNOWN = "outcome unknown: the process died while it ran"


async def write_closing_text(turn: Turn, composer: Composer, draft: str = "") -> str:
    """Return what became of the turn's actions, in the character's words.

    `draft` was written before the actions ran, and was not sent: what holds of it is said too. Where no model can
    say it, or the budget is spent, the draft is all that is said; if an action failed, a fixed text instead.
    """
    try:
        return await write_summary(turn, composer, REPLY, draft)
    except (ModelError, NoAnswer) as error:
        turn.notes.append(f"no model could tell what became of the actions: {error}")
        results = _list_results(turn)
        has_failed = not all(result.success for result in results)
        return user_text(_find_fixed_text(results)) if has_failed or not draft else draft


async def write_summary(turn: Turn, composer: Composer, template: str = MULTI_STEP_SUMMARY, draft: str = "") -> str:
    """Return the results of the turn's actions in the character's words, which this template asks for.

    Raises NoAnswer after two empty answers, ModelError if no model can be asked.
    """
    if (cached := await cached_response(turn, SUMMARY_KEY)) is not None:
        return build_reply(cached, await recall_context(turn)).text
    if turn.replies:
        turn.state.invalidate(*composer.registry.provider_names(ProviderKind.HISTORY))  # shows what was said since
    await composer.compose(turn, composer.context_providers(turn))

    context = NO_CONTEXT

    def build_request() -> TextRequest:
        nonlocal context
        results = "\n".join(format_result(result, marks_reported=True) for result in _list_results(turn))
        values = {"actionResults": results, "draftText": truncate_line(draft, MAX_OPEN_MESSAGE_LENGTH)}
        request = composer.build_request(turn, template, Purpose.SUMMARY, turn.reply_model, **values)
        context = answer_context(turn, request)
        return request

    for _ in range(MAX_TRIES):
        result = await generate_text(turn, composer, build_request, turn.reply_model)
        if text := build_reply(result, context).text:
            await save_response(turn, SUMMARY_KEY, result)
            return text
    raise NoAnswer(f"the model gave {MAX_TRIES} summaries without a text")


def format_results(turn: Turn) -> str:
    """Return the results of the turn's actions, one a line."""
    return str(turn.state.data.get("actionResultsText", ""))


def _list_results(turn: Turn) -> Sequence[ActionResult]:
    results: list[ActionResult] = turn.state.data.get("actionResults", [])
    return results


def format_result(result: ActionResult, *, marks_reported: bool = False) -> str:
    """Return the result of an action as one line of a prompt."""
    text = escape_line(shorten(result.text or result.error or "done", MAX_RESULT_LINE_LENGTH))
    state = "ok, told already" if marks_reported and result.is_reported else "ok" if result.success else "failed"
    return f"- {result.action}: {state}: {text}"


def find_unreported(turn: Turn, results: Iterable[ActionResult], text: str) -> list[ActionResult]:
    """Return the results that people do not know once they have read `text` and the replies of the turn.

    These are failures, and texts that are in none of those, of actions that did not reply.
    """
    said_texts = [text, *(reply.content.text for reply in turn.replies)]
    said = [_fold(said_text) for said_text in said_texts if said_text]
    return [
        result
        for result in results
        if not result.success or (result.text and not result.is_reported and not _is_in(_fold(result.text), said))
    ]


def _fold(text: str) -> str:
    return f" {' '.join(WORD.findall(text.casefold()))} "


def _is_in(words: str, texts: Iterable[str]) -> bool:
    return any(words in text for text in texts)


def _find_fixed_text(results: Sequence[ActionResult]) -> str:
    """Return the key of the text that fits these results."""
    if any(result.is_outcome_unknown for result in results):
        return "actions.unknown"
    if all(result.success for result in results):
        return "actions.done"
    return "actions.partly_done" if any(result.success for result in results) else "actions.failed"


logger = logging.getLogger(__name__)
VALIDATE_TIMEOUT = 2.0
ACTION_TIMEOUT = 60.0
MAX_WORKING_MEMORY = 50
MAX_RESULT_LENGTH = 262_144
CONTINUE_COMMAND = "/ask continue"
REACT_ACTION = "REACT"
ALWAYS_ALLOWED = frozenset({"REPLY", "IGNORE", "NONE"})
WRAPPERS = frozenset((*ARGUMENT_KEYS, "call"))  # around the arguments of a call
NOTES = ("thought", "thoughts", "thinking", "reasoning", "explanation")  # that models add to the arguments of a call


def is_allowed_in_room(instructions: RoomInstructions, name: str) -> bool:
    """Return whether the instructions of a room allow an action; what only answers or is silent is always allowed."""
    if name == REACT_ACTION:
        return instructions.reactions is not False
    tools = instructions.tools
    return name in ALWAYS_ALLOWED or (name in tools if isinstance(tools, tuple) else tools is not False)


async def refusal_for(turn: Turn, action: Action[Any], *, trusted: bool = False) -> str:
    """Return why the sender may not use an action now; empty if they may.

    Checked when the actions are listed for the model and again before an action runs.
    """
    if not turn.role.is_at_least(action.spec.role):
        return f"{action.spec.name} needs the role {action.spec.role}"
    if not is_allowed_in_room(turn.instructions.current, action.spec.name):
        return f"{action.spec.name} is switched off in this room"
    allowed = (await _check_conditions(turn, [action], {id(action)} if trusted else ()))[id(action.when)]
    if isinstance(allowed, Failure):
        turn.notes.append(f"the condition of {action.spec.name} failed: {allowed.cause}")
        return f"{action.spec.name} could not be checked"
    return "" if allowed else f"{action.spec.name} is not available here"


async def _check_conditions(
    turn: Turn, actions: Iterable[Action[Any]], trusted_ids: Collection[int]
) -> dict[int, bool | Failure]:
    """Return what the conditions of actions say, by the id of the condition, which several actions may have.

    They run one after another: nearly all return at once, and a task for each would cost more.
    """
    answers: dict[int, bool | Failure] = {id(None): True}
    for action in actions:
        if action.when is None or id(action.when) in answers:
            continue
        label = f"validating {action.spec.name}"
        try:
            answer: Awaitable[bool] | bool | Failure = action.when(turn)
        except BaseException as error:  # plugin code may raise anything, SystemExit included
            answer = log_failure(error, label=label)
        if isinstance(answer, Awaitable):
            trusted = id(action) in trusted_ids
            answer = await run_isolated(answer, label=label, timeout=VALIDATE_TIMEOUT, trusted=trusted)
        answers[id(action.when)] = answer if isinstance(answer, Failure) else bool(answer)
    return answers


async def list_usable_actions(turn: Turn, registry: Registry) -> tuple[ActionSpec, ...]:
    """Return the actions that the author of the message may use now, in the registry's order."""
    rank, instructions = turn.role.rank, turn.instructions.current
    actions = [
        action
        for action in registry.actions.values()
        if rank >= action.spec.role.rank and is_allowed_in_room(instructions, action.spec.name)
    ]
    allowed = await _check_conditions(turn, actions, registry.trusted_ids)
    return tuple(action.spec for action in actions if allowed[id(action.when)] is True)


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
    if reply.is_truncated and turn.room.type not in PUBLIC_TYPES:  # there the rest of a text is not offered
        choices = (Choice(user_text("notices.continue"), CONTINUE_COMMAND),)
    content = Content(text=reply.text, thought=reply.thought, actions=reply.actions, choices=choices)
    if plan.is_simple:
        return TurnResult.answered(decision, content)
    if plan.is_reaction and not content.text:
        await runner.run_plan(turn, plan.calls, content.thought)
        if turn.reaction:
            return TurnResult.answered(decision)
        return TurnResult(Outcome.IGNORED, "it chose a reaction that is not possible here", Rule.CHOSE_SILENCE)
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
        key, reply_count = f"action:{number}:{spec.name}", len(turn.replies)
        steps = await load_steps(turn)
        earlier = steps.get(key)
        if earlier is not None and earlier.state is StepState.DONE:
            result = result_from_step(earlier)
            if call_keys is not None:
                call_keys.add(call_key(call.action, call.parameters))
        elif earlier is not None and spec.effect is Effect.UNSAFE:
            await turn.agent.store.ledger.save_step(replace(earlier, state=StepState.UNKNOWN))
            result = _build_failure(turn, spec.name, OUTCOME_UNKNOWN)
            turn.notes.append(f"{spec.name} was under way when the process died; it was not repeated")
        else:
            shown = steps.get(approval_key(key))
            result = await self._execute(turn, call, key, call_keys, is_confirmed=is_confirmed, shown=shown)
        return self._finish(turn, call, number, result, reply_count)

    def _finish(
        self, turn: Turn, call: ActionCall, number: int, result: ActionResult, reply_count: int
    ) -> ActionResult:
        """Store the result of an action in the turn, which had so many replies before; return it."""
        result = replace(result, is_reported=result.success and turn.has_replied_in(number + 1))
        noted = NotedAction(number, call.action.spec, call.parameters, result, turn.replies[reply_count:])
        turn.trace.actions.append(noted)
        _store_result(turn, result)
        turn.begin_step(number + 2)
        return result

    async def _execute(
        self,
        turn: Turn,
        call: ActionCall,
        key: str,
        call_keys: set[str] | None,
        *,
        is_confirmed: bool,
        shown: Step | None,
    ) -> ActionResult:
        """Run an action that may run; `shown` are the arguments that a person was asked to approve."""
        spec, agent = call.action.spec, turn.agent
        trusted = id(call.action) in self.composer.registry.trusted_ids
        if cause := await refusal_for(turn, call.action, trusted=trusted):
            turn.notes.append(cause)
            await _log_decision(turn, spec, cause)
            return _build_failure(turn, spec.name, cause)
        arguments, cause = (
            await self._validate_parameters(turn, call) if shown is None else (shown.result["arguments"], "")
        )
        if cause:
            turn.notes.append(f"{spec.name}: {cause}")
            return _build_failure(turn, spec.name, cause)
        if call_keys is not None:
            if (own_key := call_key(call.action, arguments)) in call_keys:
                raise RepeatedCall
            call_keys.add(own_key)
        step = Step(turn.id, key, "action", StepState.INTENDED, spec.effect.value, recorded_at=agent.clock())
        may_run = is_confirmed or shown is not None
        if not may_run and (answer := await self._ask_first(turn, call.action, arguments, trusted=trusted)):
            if answer.success:  # asked: a repetition after a crash does not ask again
                await agent.store.ledger.save_step(
                    replace(step, state=StepState.DONE, result=result_to_journal(answer))
                )
            return answer
        if shown is not None or needs_approval(turn, spec):
            refused = await require_approval(turn, call.action, arguments, key)
            if refused is not None:
                return refused
        if is_confirmed and spec.name != CHOOSE_OPTION:  # which records a choice, and logs that itself
            await _log_decision(turn, spec, "its asker has confirmed it", is_allowed=True)
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
        await progress.finish()
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
            await _log_decision(turn, action.spec, cause)
            return _refuse(turn, name, cause, UNKNOWN_AUTHORS)
        summary = preview.text if preview is not None else describe_call(action, arguments)
        if not summary:
            return _refuse(turn, name, "it must be confirmed, and it is too long to be shown")
        turn.notes.append(f"{name} waits for confirmation: {cause}")
        await _log_decision(turn, action.spec, f"it waits for confirmation: {cause}")
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


async def _log_decision(turn: Turn, spec: ActionSpec, cause: str, *, is_allowed: bool = False) -> None:
    body = {
        "action": spec.name,
        "allowed": is_allowed,
        "reason": cause,
        "role": turn.role.value,
        "actors": [str(turn_input.author.id) for turn_input in turn.inputs],
        "world": str(turn.world.id),
        "event": str(turn.message.id),
    }
    await turn.agent.store.logs.log(LogKind.AUTHORIZATION, body, room_id=turn.room.id, entity_id=turn.author.id)


def _check_parameters(action: Action[Any], parameters: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    names = list(action.spec.parameters.get("properties", {}))
    parameters = _unwrap(action, name_positional(parameters, names))
    if problems := _list_problems(action, parameters):
        by_folded = {fold(name): name for name in names}
        parameters = {by_folded.get(fold(name), name): value for name, value in parameters.items()}
        problems = _list_problems(action, parameters)
        wrong = {str(problem["loc"][0]) for problem in problems if problem["loc"]}
        repaired = {name: _repair(value) if name in wrong else value for name, value in parameters.items()}
        kept = (repaired.keys() - wrong) | set(action.spec.parameters.get("required", ()))
        parameters = {
            name: value
            for name, value in repaired.items()
            if (value is not None or name in kept) and (name in names or name not in NOTES)
        }
    if problems := _list_problems(action, parameters):
        return {}, "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:5])
    return parameters, ""


def _unwrap(action: Action[Any], parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call without a member, or a whole call, around them."""
    names = action.spec.parameters.get("properties", {}).keys()
    if not names & parameters.keys() and (calls := calls_from_value(dict(parameters))):
        return calls[0].arguments
    [(key, value), *others] = parameters.items() if parameters else [("", None)]
    if others or key in names or not (key in WRAPPERS or fold(key) == fold(action.spec.name)):
        return parameters
    inner = _read_json(value)
    return inner if isinstance(inner, Mapping) else parameters


def _list_problems(action: Action[Any], parameters: Mapping[str, Any]) -> Sequence[Any]:
    try:
        action.arguments.model_validate(dict(parameters))
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False, include_context=False)
    return ()


def _repair(value: object) -> object:
    """Return a value that does not fit without JSON, or a map with its type, around it."""
    value = _read_json(value)
    return value["value"] if isinstance(value, dict) and value.keys() in ({"value"}, {"value", "type"}) else value


def _read_json(value: object) -> object:
    with suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) else value
    return value


def _normalize_result(turn: Turn, returned: object, name: str) -> ActionResult:
    if isinstance(returned, Failure):
        return ActionResult(False, error=returned.cause, action=name, is_error_internal=True)
    if returned is None or returned is True:
        return ActionResult(action=name)
    if returned is False:
        return ActionResult(False, error="it did not succeed", action=name)
    if not isinstance(returned, ActionResult):
        error = f"it gave {type(returned).__name__}, not ActionResult"
        logger.warning("action %s failed: %s", name, error)
        return ActionResult(False, error=error, action=name, is_error_internal=True)
    texts = {key: getattr(returned, key) for key in ("text", "error")}
    mappings = {key: getattr(returned, key) for key in ("values", "data")}
    invalid_keys = [key for key, value in texts.items() if not isinstance(value, str) or len(value) > MAX_RESULT_LENGTH]
    invalid_keys += [key for key, value in mappings.items() if not isinstance(value, Mapping)]
    authors = returned.authors if are_authors(returned.authors) else None
    invalid_keys += ["authors"] if authors is not returned.authors else []
    if invalid_keys:
        turn.notes.append(f"{name} gave a result that had to be repaired: {', '.join(invalid_keys)}")
        logger.warning("action %s gave a result that had to be repaired: %s", name, ", ".join(invalid_keys))
    repaired: dict[str, Any] = {key: texts[key][:MAX_RESULT_LENGTH] for key in texts if isinstance(texts[key], str)}
    repaired |= {key: mappings[key] for key in mappings if isinstance(mappings[key], Mapping)}
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


SPEECH_ACTIONS = frozenset({REPLY_ACTION, *SILENT_ACTIONS})  # these are not steps


@dataclass(slots=True)
class StepLoop:
    """The state of one run: the plan, the calls made, and whether the last step had no effect.

    `hint` tells the model about the last step, in addition to the results.
    """

    plan: ActionPlan = field(default_factory=lambda: ActionPlan("", []))
    call_keys: set[str] = field(default_factory=set)
    include: list[str] = field(default_factory=list)
    is_stuck: bool = False
    hint: str = ""
    is_finished: bool = False

    def mark_stuck(self, hint: str = "") -> None:
        """Note that a step had no effect; the second such step in a row ends the loop."""
        self.is_finished |= self.is_stuck
        self.is_stuck, self.hint = True, hint


class MultiStep:
    """Runs at most `max_steps` steps; no action runs twice with the same parameters."""

    def __init__(self, registry: Registry, composer: Composer, action_runner: ActionRunner, *, max_steps: int) -> None:
        self._registry = registry
        self._composer = composer
        self._action_runner = action_runner
        self.max_steps = max_steps

    async def run(self, turn: Turn, run_degrading: RunDegrading) -> str:
        """Run the steps that a message asks for and return the summary to send.

        Where the budget does not pay for a call, `run_degrading` repeats it by the next step of DEGRADE.
        Raises ModelError or NoAnswer if no action has run and no model answers.
        """
        turn.commit()
        loop = StepLoop(include=self._composer.context_providers(turn))
        turn.state.data["actionPlan"] = loop.plan
        for number in range(self.max_steps):
            try:
                await self._run_step(turn, loop, number, run_degrading)
            except ModelError:
                if not turn.results:
                    raise
                turn.notes.append("no model could choose the next step; what was done until then is told")
                break
            if loop.is_finished:
                break
        if turn.results:
            return await write_closing_text(turn, self._composer)
        return str(await run_degrading(turn, lambda: write_summary(turn, self._composer)))

    async def _run_step(self, turn: Turn, loop: StepLoop, number: int, run_degrading: RunDegrading) -> None:
        """Run one step that the model chooses."""
        step: NextStep = await run_degrading(turn, lambda: self._choose_step(turn, loop, number))
        loop.plan.thought = step.thought
        requested = self._composer.missing_providers(turn, step.providers)
        loop.include += requested
        loop.is_finished = step.is_finish
        name = fold_name(step.action)
        action = self._registry.find_action(name)
        if not step.is_complete:
            loop.mark_stuck("The last step broke off.")
        elif action is None and name and name not in SPEECH_ACTIONS:
            self._action_runner.reject_unknown(turn, shorten(step.action, MAX_NAME_LENGTH))
            loop.mark_stuck()
        elif action is None or action.spec.name in SPEECH_ACTIONS:
            loop.is_finished |= not requested
        else:
            await self._run_action(turn, loop, ActionCall(action, step.parameters), number)

    async def _run_action(self, turn: Turn, loop: StepLoop, call: ActionCall, number: int) -> None:
        name = call.action.spec.name
        loop.plan.start_step(name)
        try:
            result = await self._action_runner.run(turn, call, number, loop.call_keys)
        except RepeatedCall:
            loop.plan.steps.pop()
            turn.notes.append(f"{name} was asked for twice with the same parameters")
            loop.mark_stuck(f"{name} was done with these parameters before; it was not repeated.")
            return
        loop.plan.finish_step(result)
        loop.is_stuck, loop.hint = False, ""
        loop.is_finished |= call.action.spec.is_critical and not result.success

    async def _choose_step(self, turn: Turn, loop: StepLoop, number: int) -> NextStep:
        await self._composer.compose(turn, loop.include)
        key = f"step:{number}"
        if (cached := await cached_response(turn, key)) is not None:
            return build_step(cached)
        result = await generate_text(
            turn, self._composer, partial(self._build_request, turn, loop, number), turn.reply_model
        )
        await save_response(turn, key, result)
        return build_step(result)

    def _build_request(self, turn: Turn, loop: StepLoop, number: int) -> TextRequest:
        tools = build_tools(turn, SPEECH_ACTIONS)
        request = self._composer.build_request(
            turn,
            MULTI_STEP_DECISION,
            Purpose.STEP,
            turn.reply_model,
            iterationCount=number,
            maxIterations=self.max_steps,
            actionResults="\n".join(filter(None, [format_results(turn), loop.hint])),
            hasFunctions=bool(tools),
        )
        return replace(request, tools=tools)
