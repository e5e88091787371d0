"""What the model answers: composed, asked, read; what it paid for is journalled at once."""

from collections.abc import Sequence
from functools import partial

from bot.concurrency.crash_points import reached
from bot.domain.content import MediaKind
from bot.domain.ids import short_id
from bot.errors import BotError
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, TextSink
from bot.outbound.content_filter import is_nothing, unscaffolded
from bot.pipeline.compose import Composer
from bot.pipeline.course import REPLY
from bot.pipeline.journal import keep, paid
from bot.pipeline.less import ask
from bot.pipeline.streaming import shown
from bot.pipeline.tools import reply_of, tools_of
from bot.plugin_system.registry import folded_name
from bot.prompts.history import Line, render_history
from bot.prompts.reply_parser.reader import Reply
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
