"""What the model answers: composed, asked, read; what it paid for is journalled at once."""

from collections.abc import Sequence

from bot.domain.content import Content, MediaKind
from bot.domain.ids import short_id
from bot.errors import BotError
from bot.killpoints import reached
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.compose import Composer
from bot.pipeline.journal import keep, paid
from bot.platform.egress import cleared
from bot.prompts.history import Line, render_history
from bot.prompts.reading.reader import Reply, read_reply
from bot.prompts.templates import MESSAGE_HANDLER
from bot.registry import plain
from bot.turn import Input, Turn

MOST_TRIES = 3
ANSWER = "answer"


class NoAnswer(BotError):
    """The model answered as often as it may, and each time with nothing."""


async def respond(turn: Turn, composer: Composer) -> Reply:
    """Have the next message written.

    Providers that the model asks for are fetched and it is asked once more, before anything is said.
    An answer that is already in the journal is taken from there. Raises NoAnswer after three empty
    answers, ModelError where no model could be asked.
    """
    if (journalled := await paid(turn, ANSWER)) is not None:
        return read_reply(journalled)
    include = _include(turn)
    may_ask = True
    tries = 0
    while tries < MOST_TRIES:
        await composer.compose(turn, include)
        raw = await _ask(turn, composer)
        reply = read_reply(raw)
        wanted = composer.wanting(turn, reply.providers)
        if wanted and may_ask:
            include, may_ask = [*include, *wanted], False
            continue
        if not _is_empty(reply):
            await keep(turn, ANSWER, raw)
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


async def _ask(turn: Turn, composer: Composer) -> str:
    prompt = composer.render(turn, MESSAGE_HANDLER, openMessages=open_messages(turn.inputs))
    request = TextRequest(prompt, purpose=Purpose.REPLY, system=composer.system(turn))
    reached("model.reply")
    written = await turn.agent.models.text(request, ModelType.TEXT_LARGE)
    reached("model.post")
    return written.text


def open_messages(inputs: Sequence[Input]) -> str:
    """Render the messages one reply must answer; empty where there is only one."""
    if len(inputs) < 2:
        return ""
    return render_history(
        [
            Line(one.message.created_at, one.author.name, short_id(one.author.id), one.message.content.text)
            for one in inputs
        ]
    )


def _is_empty(reply: Reply) -> bool:
    """Whether there is nothing to do and nothing to say, or nothing that may leave."""
    if any(plain(name) != "REPLY" for name in reply.actions):
        return False
    return cleared(Content(text=reply.text)) is None
