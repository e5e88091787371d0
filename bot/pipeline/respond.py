"""Asks the large model; streaming sink; native tool calls.

What is seen is the text of a plain reply and nothing else. From the first look on nothing newer takes its
turn over: the room has it already.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from bot.concurrency.crash_points import reached
from bot.domain.content import MediaKind
from bot.domain.ids import short_id
from bot.errors import BotError
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, TextSink, Tool
from bot.outbound.content_filter import is_nothing, unscaffolded
from bot.outbound.draft import Draft
from bot.pipeline.compose import Composer, ask
from bot.pipeline.journal import keep, paid
from bot.pipeline.reply_plan import REPLY, SILENT
from bot.plugin_system.registry import folded_name
from bot.prompts.history import Line, render_history
from bot.prompts.reply_parser.reader import MAX_ACTIONS, NextStep, Reply, read_reply, read_step, text_so_far
from bot.prompts.templates import MESSAGE_HANDLER
from bot.turn import MOST_LISTED, Input, Turn

MOST_TRIES = 3
ANSWER = "answer"
UNCALLED = frozenset({REPLY, "NONE"})  # saying something is no function, and nothing is IGNORE


class NoAnswer(BotError):
    """The model answered as often as it may, and each time with nothing."""


async def respond(turn: Turn, composer: Composer) -> Reply:
    """Have the next message written.

    Providers that the model asks for are fetched and it is asked once more, before anything is said.
    With an answer the turn is committed; one that is already in the journal is taken from there. Raises
    NoAnswer after three empty answers, ModelError where no model could be asked.
    """
    if (journalled := await paid(turn, ANSWER)) is not None:
        return reply_of(journalled)
    if (count := len(turn.inputs)) > MOST_LISTED:
        turn.notes.append(f"of {count} messages the newest {MOST_LISTED} were shown as still open")
    include = _include(turn)
    may_ask = True
    tries = 0
    while tries < MOST_TRIES:
        await composer.compose(turn, include)
        given = await _ask(turn, composer)
        reply = reply_of(given)
        wanted = composer.wanting(turn, reply.providers)
        if wanted and may_ask:
            include, may_ask = [*include, *wanted], False
            continue
        if not _is_empty(reply):
            turn.commit()  # the journal says from now on whom this turn answers
            await keep(turn, ANSWER, given)
            if unscaffolded(reply.text) != reply.text:
                turn.notes.append("the answer showed parts of the form it was asked in; they were taken out")
            return reply
        tries += 1
    raise NoAnswer(f"the model gave {MOST_TRIES} answers with neither a text nor an action")


def _include(turn: Turn) -> list[str]:
    has_files = any(
        attachment.kind is not MediaKind.LINK
        for one in turn.inputs
        for attachment in one.message.content.attachments
    )
    return ["ENTITIES", "WORLD", *(["ATTACHMENTS"] if has_files else [])]


async def first_request(turn: Turn, composer: Composer) -> TextRequest:
    """Compose what a turn's first answer is asked for with."""
    await composer.compose(turn, _include(turn))
    return _request(turn, composer)


def _request(turn: Turn, composer: Composer, sink: TextSink | None = None) -> TextRequest:
    tools = tools_of(turn, UNCALLED)
    listed = open_messages(turn.listed, fewest=1 if turn.state.is_short else 2)
    prompt = composer.render(turn, MESSAGE_HANDLER, openMessages=listed, hasFunctions=bool(tools))
    return TextRequest(prompt, purpose=Purpose.REPLY, system=composer.system(turn), tools=tools, sink=sink)


async def _ask(turn: Turn, composer: Composer) -> TextResult:
    reached("model.reply")
    with shown(turn, has_functions=bool(tools_of(turn, UNCALLED))) as sink:
        written = await ask(turn, composer, partial(_request, turn, composer, sink), ModelType.TEXT_LARGE)
    reached("model.post")
    return written


def open_messages(inputs: Sequence[Input], fewest: int = 2) -> str:
    """Render the messages one reply must answer; nothing where there are fewer."""
    if len(inputs) < fewest:
        return ""
    return render_history([_line(one, is_newest=one is inputs[-1]) for one in inputs])


def _line(one: Input, *, is_newest: bool) -> Line:
    message, author = one.message, one.author
    text = message.content.text
    return Line(message.created_at, author.name, short_id(author.id), text, is_open=is_newest)


def _is_empty(reply: Reply) -> bool:
    """Whether there is nothing to do and nothing to say, or nothing that may leave."""
    if any(folded_name(name) != REPLY for name in reply.actions):
        return False
    return is_nothing(reply.text)


@contextmanager
def shown(turn: Turn, *, has_functions: bool = False) -> Iterator[TextSink | None]:
    """Show a turn's reply while it is written inside the block; None where it is seen only when it is whole.

    What replaces an earlier answer is not shown: that stands until the new one is there.
    """
    draft = turn.agent.outbox.draft(turn.room, turn.upcoming) if turn.replaces is None else None
    if draft is None:
        yield None
        return
    sink = _Sink(draft)
    draft.follow(lambda: text_so_far(sink.written, has_functions=has_functions), lambda: _may_show(turn))
    try:
        yield sink
    finally:
        draft.rest()


def _may_show(turn: Turn) -> bool:
    """Pass the point of no return, unless the turn was taken over or called off."""
    if turn.successor is not None or turn.is_called_off:
        return False
    turn.is_committed = True
    return True


class _Sink:
    """Collects what a model writes; looking at it is the draft's part, now and then."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._pieces: list[str] = []

    @property
    def written(self) -> str:
        """All that is written so far."""
        return "".join(self._pieces)

    async def piece(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._draft.stir()

    async def restart(self) -> None:
        self._pieces.clear()


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
