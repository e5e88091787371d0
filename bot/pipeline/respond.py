"""The respond stage: asks the large model, streams its text as a draft, reads tags and native tool calls.

Only the text of a plain reply is streamed. Once a draft is visible the turn is committed: it cannot be
superseded any more.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from bot.concurrency.crash_points import crash_point
from bot.domain.component_specs import ProviderKind
from bot.domain.content import MediaKind
from bot.domain.ids import short_id
from bot.errors import ModelError, NoAnswer
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, TextSink, Tool, ToolCall
from bot.outbound.content_filter import is_empty_reply, strip_scaffolding
from bot.outbound.draft import Draft
from bot.pipeline.compose import CONTEXT_KINDS, Composer, generate_text
from bot.pipeline.journal import cached_response, save_response
from bot.pipeline.reply_plan import REPLY, SILENT_ACTIONS
from bot.plugin_system.confirmation import CONFIRM, find_task_to_confirm, read_code
from bot.plugin_system.registry import fold_name
from bot.prompts.history import MAX_OPEN_MESSAGE_LENGTH, HistoryLine, render_history
from bot.prompts.reply_parser.reader import MAX_ACTIONS, NextStep, Reply, partial_reply_text, read_reply, read_step
from bot.prompts.templates import CONTINUE, MESSAGE_HANDLER
from bot.text import truncate_line
from bot.turn import MAX_ANSWERED_INPUTS, Turn, TurnInput
from bot.user_texts import user_text

MAX_TRIES = 3
ANSWER_KEY = "answer"
CHOOSE_OPTION = "CHOOSE_OPTION"
EXCLUDED_TOOLS = frozenset({REPLY, "NONE"})  # these are never offered as functions
MAX_TOOL_NAME_LENGTH = 64  # the limit of most model providers


async def respond(turn: Turn, composer: Composer) -> Reply:
    """Return the model's reply, from the journal if it is there, and commit the turn.

    If the model asks for providers, they are run and it is asked once more. Text or actions that it wrote
    already are its draft: it is shown them then, and they are the reply if no other comes. Raises NoAnswer
    after three empty answers, ModelError if no model can be asked.
    """
    if (cached := await cached_response(turn, ANSWER_KEY)) is not None:
        return build_reply(cached)
    if (count := len(turn.inputs)) > MAX_ANSWERED_INPUTS:
        turn.notes.append(f"of {count} messages the newest {MAX_ANSWERED_INPUTS} were shown as still open")
    include = _select_providers(turn, composer)
    may_ask = True
    tries = 0
    draft: TextResult | None = None
    while tries < MAX_TRIES:
        await composer.compose(turn, include)
        result = await _generate_reply(turn, composer, draft, MESSAGE_HANDLER if may_ask else CONTINUE)
        reply = build_reply(result)
        requested = composer.missing_providers(turn, reply.providers)
        if requested and may_ask:
            include, may_ask = [*include, *requested], False
            draft = None if _is_empty(reply) else result
            continue
        if _is_empty(reply) and draft is not None:
            result, reply = draft, build_reply(draft)
        if not _is_empty(reply):
            turn.commit()  # from here on the journal assigns these messages to this turn
            await save_response(turn, ANSWER_KEY, result)
            if strip_scaffolding(reply.text) != reply.text:
                turn.notes.append("the answer showed parts of the form it was asked in; they were taken out")
            return reply
        tries += 1
    raise NoAnswer(f"the model gave {MAX_TRIES} answers with neither a text nor an action")


async def confirm_by_code(turn: Turn) -> Reply | None:
    """Return the reply that carries out what a message only confirms by its code, and commit the turn.

    No model is asked. None for any other message.
    """
    if len(turn.inputs) > 1 or not (code := read_code(turn.own_text)):
        return None
    if (cached := await cached_response(turn, ANSWER_KEY)) is not None:
        return build_reply(cached)
    task = await find_task_to_confirm(turn, code)
    if task is None or not any(spec.name == CHOOSE_OPTION for spec in turn.actions):
        return None
    turn.commit()
    call = ToolCall(CHOOSE_OPTION, {"option": CONFIRM, "task": str(task.id)})
    result = TextResult(user_text("choices.done", choice=CONFIRM), tool_calls=(call,))
    await save_response(turn, ANSWER_KEY, result)
    return build_reply(result)


def _select_providers(turn: Turn, composer: Composer) -> list[str]:
    has_files = any(
        attachment.kind is not MediaKind.LINK
        for turn_input in turn.inputs
        for attachment in turn_input.message.content.attachments
    )
    kinds = (*CONTEXT_KINDS, ProviderKind.ATTACHMENTS) if has_files else CONTEXT_KINDS
    return composer.registry.provider_names(*kinds)


async def build_first_request(turn: Turn, composer: Composer) -> TextRequest:
    """Compose the state and return the first request for a reply."""
    await composer.compose(turn, _select_providers(turn, composer))
    return _build_request(turn, composer)


def _build_request(
    turn: Turn,
    composer: Composer,
    sink: TextSink | None = None,
    draft: TextResult | None = None,
    template: str = MESSAGE_HANDLER,
) -> TextRequest:
    drafted = truncate_line(build_reply(draft).text, MAX_OPEN_MESSAGE_LENGTH) if draft is not None else ""
    tools = build_tools(turn, EXCLUDED_TOOLS)
    listed = render_open_messages(turn.recent_inputs, min_count=1 if turn.state.is_shortened else 2)
    prompt = composer.render(turn, template, openMessages=listed, hasFunctions=bool(tools), draftText=drafted)
    return TextRequest(prompt, purpose=Purpose.REPLY, system=composer.render_system(turn), tools=tools, sink=sink)


async def _generate_reply(turn: Turn, composer: Composer, draft: TextResult | None, template: str) -> TextResult:
    """Return the model's answer; its draft, if there is one and no model can be asked again."""
    crash_point("model.reply")
    with stream_draft(turn, has_functions=bool(build_tools(turn, EXCLUDED_TOOLS))) as sink:
        request = partial(_build_request, turn, composer, sink, draft, template)
        try:
            result = await generate_text(turn, composer, request, ModelType.TEXT_LARGE)
        except ModelError as error:
            if draft is None:
                raise
            turn.notes.append(f"the draft was sent, written before the requested providers were read: {error}")
            result = draft
    crash_point("model.post")
    return result


def render_open_messages(inputs: Sequence[TurnInput], min_count: int = 2) -> str:
    """Render the messages that one reply must answer; empty if there are fewer than `min_count`."""
    if len(inputs) < min_count:
        return ""
    return render_history([_to_history_line(turn_input, is_newest=turn_input is inputs[-1]) for turn_input in inputs])


def _to_history_line(turn_input: TurnInput, *, is_newest: bool) -> HistoryLine:
    message, author = turn_input.message, turn_input.author
    text = message.content.render_text()
    return HistoryLine(message.created_at, author.name, short_id(author.id), text, is_open=is_newest)


def _is_empty(reply: Reply) -> bool:
    """Whether a reply has no action and no text that may be sent."""
    if any(fold_name(name) != REPLY for name in reply.actions):
        return False
    return is_empty_reply(reply.text)


@contextmanager
def stream_draft(turn: Turn, *, has_functions: bool = False) -> Iterator[TextSink | None]:
    """Stream the reply of a turn as a draft during the block; yields None if it is only sent when complete.

    A reply that replaces an earlier one is streamed only where the platform shows it beside the earlier one, which
    stays until the new one is complete. One that is spoken is not: a message that is shown already could not become
    a voice message.
    """
    adapter = turn.agent.outbox.adapter(turn.room.platform)
    is_whole = turn.is_spoken or (turn.replaces is not None and not (adapter and adapter.shows_versions))
    draft = None if is_whole else turn.agent.outbox.open_draft(turn.room, turn.id, turn.peek_reply)
    if draft is None:
        yield None
        return
    sink = _DraftSink(draft)
    draft.follow(lambda: partial_reply_text(sink.text, has_functions=has_functions), lambda: _commit_to_draft(turn))
    try:
        yield sink
    finally:
        draft.stop()


def _commit_to_draft(turn: Turn) -> bool:
    """Commit the turn, unless it was superseded or cancelled; return whether the draft may be shown."""
    if turn.superseded_by is not None or turn.is_cancelled:
        return False
    turn.is_committed = True
    return True


class _DraftSink:
    """Collects the text that a model streams and notifies the draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text received so far."""
        return "".join(self._pieces)

    async def write(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._draft.notify()

    async def restart(self) -> None:
        self._pieces.clear()


def build_tools(turn: Turn, excluded: Collection[str]) -> tuple[Tool, ...]:
    """Return the actions the author may use as tools, without the excluded ones.

    Empty if the handler that is asked first cannot call tools: then the model writes tags.
    """
    if not turn.agent.models.can_call_tools(ModelType.TEXT_LARGE):
        return ()
    return tuple(
        Tool(spec.name, spec.description, spec.parameters)
        for spec in turn.actions
        if spec.name not in excluded and len(spec.name) <= MAX_TOOL_NAME_LENGTH
    )


def build_reply(result: TextResult) -> Reply:
    """Parse a result; if it calls tools, these are the actions and tags are ignored.

    The text belongs to them, unless the tools only mean silence.
    """
    reply = read_reply(result.text)
    calls = tuple((call.name, call.arguments) for call in result.tool_calls[:MAX_ACTIONS])
    if not calls:
        return reply
    names = [name for name, _ in calls]
    if reply.text and not SILENT_ACTIONS.issuperset(names):
        names.insert(0, REPLY)
    is_complete = reply.is_complete or not result.text.strip()
    return replace(reply, actions=tuple(names), parameters={}, repeated={}, calls=calls, is_complete=is_complete)


def build_step(result: TextResult) -> NextStep:
    """Parse a step; the first tool call, if any, is its action."""
    step = read_step(result.text)
    if not result.tool_calls:
        return step
    call = result.tool_calls[0]
    is_finish = step.is_finish and not step.text
    return replace(step, action=call.name, parameters=call.arguments, is_finish=is_finish, text="", is_complete=True)
