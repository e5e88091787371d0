"""The respond stage: asks the large model, streams its text as a draft, reads tags and native tool calls.

Only the text of a plain reply is streamed. Once a draft is visible the turn is committed: it cannot be
superseded any more.

What the reader of an answer knows: the requested form, the offered actions, and who is in the room.

Turns a reply of the model into text to send and actions to call.

The request for a reply as plain text, for models that are too small to write a form: no actions, no thought.

The character and the earlier conversation are the system prompt, the messages to answer are the prompt: a model of this
size answers what looks like one message of a chat.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from typing import Any

from pydantic import ValidationError

from bot.concurrency.tasks import crash_point
from bot.domain.character import Effect, ProviderKind
from bot.domain.ids import short_id
from bot.errors import ModelError, NoAnswer
from bot.models.types import Purpose, TextRequest, TextResult, TextSink, Tool, ToolCall
from bot.outbound.content_filter import is_empty_reply
from bot.outbound.drafts import Draft
from bot.pipeline.attachments import ConcurrencyLimits, read_recent_attachments
from bot.pipeline.commit import cached_response, save_response
from bot.pipeline.compose import Composer, generate_text
from bot.plugin_system.components import Action
from bot.plugin_system.registry import CONFIRM, Registry, find_answered_task, fold_name
from bot.prompts.reply_parser.dialects import fold
from bot.prompts.reply_parser.offered_calls import resolve_name
from bot.prompts.reply_parser.reader import (
    HOLD_BACK,
    MAX_ACTIONS,
    NO_CONTEXT,
    AnswerContext,
    AnswerForm,
    NextStep,
    Reply,
    is_reply_call,
    partial_reply_text,
    read_reply,
    read_step,
    text_of,
)
from bot.prompts.templates import CONTINUE, MESSAGE_HANDLER
from bot.text import (
    MAX_OPEN_MESSAGE_LENGTH,
    HistoryLine,
    end_at_sentence,
    grapheme_boundary_before,
    parse_history,
    render_history,
    sanitize_name,
    shorten,
    truncate_line,
)
from bot.turn import MAX_ANSWERED_INPUTS, Turn, TurnInput
from bot.user_texts import user_text

MAX_RECALLED = 100  # messages whose authors may be in an answer that an earlier process was given


def answer_context(turn: Turn, request: TextRequest) -> AnswerContext:
    """Return the context of the answer to a request."""
    names = {line.name for line in parse_history(request.prompt) if not line.is_agent}
    form = AnswerForm.TAGS if request.schema is None else AnswerForm.JSON
    return _build_context(turn, names, form)


def plain_context(turn: Turn, names: set[str]) -> AnswerContext:
    """Return the context of an answer that was requested as plain text, with the names in the conversation."""
    return _build_context(turn, names, AnswerForm.TEXT)


async def recall_context(turn: Turn) -> AnswerContext:
    """Return the context of an answer from the journal: the request was made by an earlier process."""
    store = turn.agent.store
    recent = await store.memories.recent(turn.room.id, MAX_RECALLED)
    authors = await store.entities.entities({memory.entity_id for memory in recent} - {turn.agent.id})
    return _build_context(turn, {sanitize_name(author.name) for author in authors.values()}, AnswerForm.TAGS)


def _build_context(turn: Turn, names: set[str], form: AnswerForm) -> AnswerContext:
    own_name = sanitize_name(turn.definition.character.name)
    authors = [sanitize_name(turn_input.author.name) for turn_input in turn.inputs]
    actions = [name for spec in turn.actions for name in (spec.name, *spec.similes)]
    people = tuple(sorted({*names, *authors} - {own_name}))
    return AnswerContext(form, own_name, people, frozenset(map(fold, actions)), person=authors[-1])


logger = logging.getLogger(__name__)
REPLY_ACTION = "REPLY"
SILENT_ACTIONS = frozenset({"IGNORE", "NONE"})
REACT_ACTION = "REACT"
MAX_NAME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One action to run, with the parameters the model gave it."""

    action: Action[Any]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """Whether a reply has text to send, which actions it calls, and names that match no action."""

    has_text: bool
    calls: tuple[ActionCall, ...]
    unknown: tuple[str, ...] = ()

    @property
    def is_simple(self) -> bool:
        """Whether there is only text to send."""
        return self.has_text and not (self.calls or self.unknown)

    @property
    def has_effects(self) -> bool:
        """Whether the text may promise something that an action has yet to do, or that none will do."""
        return bool(self.unknown) or any(call.action.spec.effect is not Effect.PURE for call in self.calls)

    @property
    def is_reaction(self) -> bool:
        """Whether it calls nothing but REACT."""
        return (
            bool(self.calls) and not self.unknown and {call.action.spec.name for call in self.calls} == {REACT_ACTION}
        )

    @property
    def is_silent(self) -> bool:
        """Whether the character chose to neither write nor act."""
        return not (self.has_text or self.calls or self.unknown)


def plan_reply(reply: Reply, registry: Registry) -> ReplyPlan:
    """Return the plan for a reply.

    Names are matched exactly, folded, then as similes; unknown ones are not run. IGNORE or NONE alone is
    silence, whatever the text; together with other actions they are left out.
    """
    calls: dict[str, ActionCall] = {}
    unknown: dict[str, str] = {}
    has_text, action_count = False, 0
    requested = _list_requested(reply, registry)
    for written, action, parameters in requested:
        name = action.spec.name if action is not None else fold_name(written)
        if name in SILENT_ACTIONS:
            continue
        action_count += 1
        if name == REPLY_ACTION:
            has_text = bool(reply.text)
        elif action is None:
            unknown.setdefault(name, shorten(written, MAX_NAME_LENGTH))
        else:
            calls.setdefault(call_key(action, parameters), ActionCall(action, parameters))
    if not requested or (action_count and not calls):
        has_text = bool(reply.text)
    return ReplyPlan(has_text, tuple(calls.values()), tuple(unknown.values()))


def _list_requested(reply: Reply, registry: Registry) -> list[tuple[str, Action[Any] | None, Mapping[str, object]]]:
    """Return the actions of a reply with their parameters, an action once for each set of parameters."""
    if reply.calls:
        calls = [*((name, {}) for name in reply.actions[: -len(reply.calls)]), *reply.calls]
        return [(name, registry.find_action(name), values) for name, values in calls]
    parameters = {fold_name(name): [values, *reply.repeated.get(name, ())] for name, values in reply.parameters.items()}
    named = [(name, folded, registry.find_action(folded)) for name in reply.actions if (folded := fold_name(name))]
    remaining, taken = Counter(folded for _, folded, _ in named), Counter[str]()
    requested: list[tuple[str, Action[Any] | None, Mapping[str, object]]] = []
    for name, folded, action in named:
        entries = parameters.get(folded) or [{}]
        if action is not None and parameters and folded not in parameters:  # they may be under the name of this simile
            entries = parameters.get(fold_name(action.spec.name)) or entries
        remaining[folded] -= 1
        count = 1 if remaining[folded] else max(1, len(entries))
        added = entries[taken[folded] : taken[folded] + count]
        taken[folded] += len(added)
        requested += [(name, action, values) for values in added]
    return requested[:MAX_ACTIONS]


def call_key(action: Action[Any], parameters: Mapping[str, Any]) -> str:
    """Return a key that is the same for two calls of an action with equal validated parameters."""
    try:
        parameters = action.arguments.model_validate(dict(parameters)).model_dump(by_alias=True)
    except ValidationError:
        logger.debug("parameters of %s are invalid and compared unvalidated", action.spec.name)
    return f"{action.spec.name} {json.dumps(parameters, sort_keys=True, default=str)}"


KINDS = (ProviderKind.PERSONA, ProviderKind.HISTORY, ProviderKind.ATTACHMENTS)
MAX_TOKENS, REPETITION_PENALTY = 256, 1.15  # a small model writes on and on, in the same words
MAX_EARLIER = 8  # lines of the conversation; a small model is confused by more


async def compose_plain(turn: Turn, composer: Composer) -> None:
    """Run the providers whose texts are in the request."""
    await composer.compose(turn, composer.registry.provider_names(*KINDS), only_included=True)


def build_plain_request(turn: Turn, composer: Composer) -> tuple[TextRequest, AnswerContext]:
    """Return the request with the texts composed last, and the context of its answer."""
    state, own_name = turn.state, sanitize_name(turn.agent.character.name)
    lines = parse_history(str(state.values.get("recentMessages", "")))
    open_texts = {item.message.content.render_text() for item in turn.inputs}
    while lines and not lines[-1].is_agent and lines[-1].text in open_texts:
        lines.pop()
    earlier = [f"{own_name if line.is_agent else line.name}: {line.text}" for line in lines[-MAX_EARLIER:]]
    kinds = {spec.name: spec.kind for spec in turn.agent.catalog.providers}
    texts = [state.results[name].text for name in state.composed_providers if kinds[name] is not ProviderKind.HISTORY]
    if earlier:
        texts.append("Earlier in this conversation:\n" + "\n".join(earlier))
    system = "\n\n".join([composer.render_system(turn), *filter(None, texts)])
    is_chat = turn.room.type.is_direct and len(turn.inputs) == 1
    said = []
    for item in turn.recent_inputs:
        text = item.message.content.render_text()
        text = text[: grapheme_boundary_before(text, state.max_message_length)]
        said.append(text if is_chat else f"{sanitize_name(item.author.name)}: {text}")
    names = {line.name for line in lines if not line.is_agent}
    request = TextRequest(
        "\n".join(said),
        purpose=Purpose.REPLY,
        system=system,
        max_tokens=MAX_TOKENS,
        repetition_penalty=REPETITION_PENALTY,
        model=turn.model_name,
    )
    return request, plain_context(turn, names)


WITHOUT_WORDS = re.compile(r"[\s.…·]+")
NO_TEXT = re.compile(r"[*_(\[<]+\s*no (?:response|reply|answer|output|text)\b[^\w\n]{0,3}\s*[*_)\]>]+", re.IGNORECASE)
MAX_TRIES = 2  # the request, and one for a repair
WITHOUT_TEXT = ("has neither a text nor an action", "ends before its text begins")
ANSWER_KEY = "answer"
CHOOSE_OPTION = "CHOOSE_OPTION"
EXCLUDED_TOOLS = frozenset({REPLY_ACTION, "NONE"})  # these are never offered as functions
MAX_TOOL_NAME_LENGTH = 64  # the limit of most model providers


async def respond(turn: Turn, composer: Composer, limits: ConcurrencyLimits | None = None) -> Reply:
    """Return the model's reply, from the journal if it is there, and commit the turn.

    If the model requests providers, they are run and it is called once more; for ATTACHMENTS the unread files of the
    room's last messages are read first, within `limits`. Text or actions that it wrote
    already are its draft: it is shown them then, and they are the reply if no other comes. An answer that cannot be
    used is requested once more, with the reason; a text beside calls of unknown functions is sent then all the same.
    Raises NoAnswer if nothing can be used, ModelError if no model can be called.
    """
    if not turn.is_fresh and (cached := await cached_response(turn, ANSWER_KEY)) is not None:
        return _known_calls(build_reply(cached, await recall_context(turn)), composer.registry)
    if (count := len(turn.inputs)) > MAX_ANSWERED_INPUTS:
        turn.notes.append(f"of {count} messages the newest {MAX_ANSWERED_INPUTS} were shown as still open")
    if await turn.agent.models.writes_plain_text(turn.reply_model):
        return await _respond_plainly(turn, composer)
    include = composer.context_providers(turn)
    may_ask = True
    tries, problem = 0, ""
    draft: TextResult | None = None
    while tries < MAX_TRIES:
        await composer.compose(turn, include)
        template = MESSAGE_HANDLER if may_ask else CONTINUE
        result, context = await _generate_reply(turn, composer, draft, template, problem)
        reply = build_reply(result, context)
        requested = composer.missing_providers(turn, reply.providers) if reply.providers else []
        if requested and may_ask:
            include, may_ask = [*include, *requested], False
            if limits is not None and set(requested) & set(composer.registry.provider_names(ProviderKind.ATTACHMENTS)):
                await read_recent_attachments(turn, limits)
            draft = None if _is_empty(reply) else result
            continue
        tries += 1
        is_empty = _is_empty(reply)
        problem = "ends within a call" if result.has_cut_call else ""
        problem = problem or _find_problem(reply, composer.registry, is_empty=is_empty)
        if problem and tries < MAX_TRIES and not (draft is not None and is_empty):
            turn.notes.append(f"the model's answer was requested once more: {problem}")
            draft = draft if is_empty else result
            continue
        known = _known_calls(reply, composer.registry)
        is_empty = is_empty if known is reply else _is_empty(known)
        if is_empty and draft is not None:
            result, known = draft, _known_calls(build_reply(draft, context), composer.registry)
            is_empty = _is_empty(known)
        if not is_empty:
            turn.commit()  # from here on the journal assigns these messages to this turn
            await save_response(turn, ANSWER_KEY, result)
            return known
    raise NoAnswer(f"the model gave {MAX_TRIES} answers that cannot be used; the last one {problem}")


async def _respond_plainly(turn: Turn, composer: Composer) -> Reply:
    """Return the reply of a model that is too small for a form; raises NoAnswer after two answers without a text."""
    turn.trace.is_plain = True
    await compose_plain(turn, composer)
    for _ in range(MAX_TRIES):
        crash_point("model.reply")
        with stream_draft(turn, lambda: build_plain_request(turn, composer)[1]) as sink:
            result = await generate_text(
                turn, composer, lambda: replace(build_plain_request(turn, composer)[0], sink=sink), turn.reply_model
            )
        crash_point("model.post")
        reply = build_reply(result, build_plain_request(turn, composer)[1])
        if not is_empty_reply(reply.text):
            turn.commit()
            await save_response(turn, ANSWER_KEY, result)
            return replace(reply, actions=(REPLY_ACTION,), calls=())
    raise NoAnswer(f"the model gave {MAX_TRIES} answers without a text")


def _find_problem(reply: Reply, registry: Registry, *, is_empty: bool) -> str:
    """Return why a reply cannot be used as it is; empty if it can."""
    unknown = [name for name, _ in reply.calls if not (name in reply.native_names or _is_known(name, registry))]
    if unknown and len(unknown) == len(reply.calls):
        names = ", ".join(shorten(name, MAX_NAME_LENGTH) or "a function" for name in unknown)
        return f"calls {names}, which is not one of the actions"
    if not is_empty:
        return "has no words" if reply.actions == (REPLY_ACTION,) and WITHOUT_WORDS.fullmatch(reply.text) else ""
    return WITHOUT_TEXT[0 if reply.is_complete else 1]


def _is_known(name: str, registry: Registry) -> bool:
    return registry.find_action(name) is not None or fold_name(name) in (REPLY_ACTION, *SILENT_ACTIONS)


def _known_calls(reply: Reply, registry: Registry) -> Reply:
    """Return a reply without calls of functions that do not exist, which were written as text."""
    known = tuple(call for call in reply.calls if call[0] in reply.native_names or _is_known(call[0], registry))
    if len(known) == len(reply.calls):
        return reply
    others = reply.actions[: -len(reply.calls)]
    return replace(reply, calls=known, actions=(*others, *(name for name, _ in known)))


async def answer_confirmation(turn: Turn) -> Reply | None:
    """Return the reply that carries out what a message only confirms or declines, and commit the turn.

    No model is asked. None for any other message.
    """
    if not any(spec.name == CHOOSE_OPTION for spec in turn.actions):
        return None  # nothing waits for an answer
    answered = await find_answered_task(turn)
    if answered is None:
        return None
    task, option = answered
    if (cached := await cached_response(turn, ANSWER_KEY)) is not None:
        return build_reply(cached, await recall_context(turn))
    turn.commit()
    call = ToolCall(CHOOSE_OPTION, {"option": option, "task": str(task.id)})
    text = user_text("choices.done", choice=option) if option == CONFIRM else user_text("choices.dropped")
    result = TextResult(text, tool_calls=(call,))
    await save_response(turn, ANSWER_KEY, result)
    return build_reply(result, NO_CONTEXT)


async def build_first_request(turn: Turn, composer: Composer) -> TextRequest:
    """Compose the state and return the first request for a reply."""
    await composer.compose(turn, composer.context_providers(turn))
    return _build_request(turn, composer, build_tools(turn, EXCLUDED_TOOLS))


def _build_request(
    turn: Turn,
    composer: Composer,
    tools: tuple[Tool, ...],
    sink: TextSink | None = None,
    draft: TextResult | None = None,
    template: str = MESSAGE_HANDLER,
    problem: str = "",
) -> TextRequest:
    drafted = ""
    if draft is not None and not problem:
        drafted = truncate_line(build_reply(draft, NO_CONTEXT).text, MAX_OPEN_MESSAGE_LENGTH)
    min_count = 1 if turn.state.is_shortened else 2
    listed = ""
    if len(turn.inputs) >= min_count:
        listed = render_open_messages(turn.recent_inputs, min_count, turn.state.max_message_length, turn.time_zone)
    values = {"openMessages": listed, "hasFunctions": bool(tools), "draftText": drafted}
    request = composer.build_request(turn, template, Purpose.REPLY, turn.reply_model, **values)
    prompt = request.prompt
    if problem in WITHOUT_TEXT:  # a small model may be unable to write the form
        name = turn.agent.character.name
        prompt += f"\nYour last answer {problem}. Write only the words that {name} says next, as plain text.\n"
        request = replace(request, schema=None)
    elif problem:
        prompt += f"\nYour last answer {problem}. Answer again, in the form above and with nothing else.\n"
    return replace(request, prompt=prompt, tools=tools, sink=sink)


async def _generate_reply(
    turn: Turn, composer: Composer, draft: TextResult | None, template: str, problem: str
) -> tuple[TextResult, AnswerContext]:
    """Return the model's answer and its context; the draft, if there is one and no model can be called again."""
    crash_point("model.reply")
    context, tools = NO_CONTEXT, build_tools(turn, EXCLUDED_TOOLS)

    def build_request(sink: TextSink | None) -> TextRequest:
        nonlocal context
        request = _build_request(turn, composer, tools, sink, draft, template, problem)
        context = answer_context(turn, request)
        return request

    with stream_draft(turn, lambda: context, has_functions=bool(tools)) as sink:
        try:
            result = await generate_text(turn, composer, partial(build_request, sink), turn.reply_model)
        except ModelError as error:
            if draft is None:
                raise
            turn.notes.append(f"the draft was sent, written before the requested providers were read: {error}")
            result = draft
    crash_point("model.post")
    return result, context


def render_open_messages(
    inputs: Sequence[TurnInput], min_count: int = 2, max_length: int = MAX_OPEN_MESSAGE_LENGTH, zone: tzinfo = UTC
) -> str:
    """Render the messages that one reply must answer, each with at most `max_length` characters.

    The result is empty if there are fewer than `min_count`.
    """
    if len(inputs) < min_count:
        return ""
    return render_history([_to_history_line(item, max_length, is_newest=item is inputs[-1]) for item in inputs], zone)


def _to_history_line(turn_input: TurnInput, max_length: int, *, is_newest: bool) -> HistoryLine:
    message, author = turn_input.message, turn_input.author
    text = message.content.render_text()
    if len(text) > max_length:
        text = text[: grapheme_boundary_before(text, max_length)]
    return HistoryLine(message.created_at, author.name, short_id(author.id), text, is_open=is_newest)


def _is_empty(reply: Reply) -> bool:
    """Whether a reply has no action and no text that may be sent."""
    if not {REPLY_ACTION}.issuperset(map(fold_name, reply.actions)):
        return False
    return is_empty_reply(reply.text) or bool(NO_TEXT.fullmatch(reply.text))


@contextmanager
def stream_draft(
    turn: Turn, context: Callable[[], AnswerContext], *, has_functions: bool = False
) -> Iterator[TextSink | None]:
    """Stream the reply of a turn as a draft during the block; yields None if it is only sent when complete.

    A reply that replaces an earlier one is streamed only where the platform shows it beside the earlier one, which
    stays until the new one is complete. One that is spoken is not: a message that is shown already could not become
    a voice message. Neither is one that the AI notice precedes, one to a message of distress, one
    that waits for a person, or one where a filter checks replies.
    """
    adapter = turn.agent.outbox.adapters.get(turn.room.platform)
    is_kept = turn.replaces is not None and not (adapter and adapter.shows_versions)
    is_whole = turn.is_care or turn.is_spoken or bool(turn.unnotified) or is_kept
    if turn.hold_reason or turn.agent.outbox.approval is not None:
        is_whole = is_whole or bool(turn.find_hold_reason())
    filters = turn.agent.filters
    if filters.is_on or turn.world.settings:  # what is shown already cannot be held back
        is_whole = is_whole or filters.is_active("out", turn.agent, turn.room, turn.world)
    draft = None if is_whole else turn.agent.outbox.open_draft(turn.room, turn.id, turn.peek_reply)
    if draft is None:
        yield None
        return
    sink = _DraftSink(draft)

    def read_text() -> str:
        return partial_reply_text(sink.text, has_functions=has_functions, context=context())

    draft.follow(read_text, lambda: _commit_to_draft(turn))
    try:
        yield sink
    finally:
        sink.close()


def _commit_to_draft(turn: Turn) -> bool:
    """Commit the turn, unless it was superseded or cancelled; return whether the draft may be shown."""
    if turn.superseded_by is not None or turn.is_cancelled:
        return False
    turn.is_committed = True
    return True


@dataclass(slots=True, eq=False)
class _DraftSink:
    """Collects the text that a model streams and notifies the draft, until it is closed."""

    _draft: Draft | None
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text received so far."""
        return "".join(self._pieces)

    async def write(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            if self._draft is not None:
                self._draft.notify()

    async def restart(self) -> None:
        self._pieces.clear()

    def close(self) -> None:
        """Stop the draft and drop it: it refers to the turn, whose trace keeps the request with this sink."""
        if self._draft is not None:
            self._draft.stop()
            self._draft = None


def build_tools(turn: Turn, excluded: Collection[str]) -> tuple[Tool, ...]:
    """Return the actions the author may use as tools, without the excluded ones.

    Empty if the handler that is asked first cannot call tools: then the model writes tags.
    """
    if not turn.agent.models.can_call_tools(turn.reply_model):
        return ()
    return tuple(
        Tool(spec.name, spec.description, spec.parameters)
        for spec in turn.actions
        if spec.name not in excluded and len(spec.name) <= MAX_TOOL_NAME_LENGTH
    )


def build_reply(result: TextResult, context: AnswerContext) -> Reply:
    """Parse a result; if it calls tools, natively or in its text, these are the actions and tags are ignored.

    The text belongs to them, unless the tools only mean silence. A call of REPLY has the text as its argument.
    """
    reply = read_reply(result.text, context)
    if result.is_truncated and reply.text:
        reply = replace(reply, text=end_at_sentence(reply.text, HOLD_BACK), is_truncated=True)
    native = tuple((resolve_name(call.name, context.actions), call.arguments) for call in result.tool_calls)
    calls = (*native, *reply.calls)[:MAX_ACTIONS]
    if not calls:
        return reply
    answers = [given for name, given in calls if is_reply_call(name, given, context.actions)]
    text = reply.text or next(map(text_of, answers), "")
    calls = tuple(call for call in calls if call[1] not in answers and fold_name(call[0]) != REPLY_ACTION)
    names = [name for name, _ in calls]
    if text and not (names and SILENT_ACTIONS.issuperset(names)):
        names.insert(0, REPLY_ACTION)
    is_complete = reply.is_complete or not result.text.strip()
    return replace(
        reply,
        text=text,
        actions=tuple(names),
        parameters={},
        repeated={},
        calls=calls,
        native_names=frozenset(name for name, _ in native),
        is_complete=is_complete,
    )


def build_step(result: TextResult) -> NextStep:
    """Parse a step; the first tool call, if any, is its action."""
    step = read_step(result.text)
    if not result.tool_calls:
        return step
    call = result.tool_calls[0]
    is_finish = step.is_finish and not step.text
    return replace(step, action=call.name, parameters=call.arguments, is_finish=is_finish, text="", is_complete=True)
