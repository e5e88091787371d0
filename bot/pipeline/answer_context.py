"""What the reader of an answer knows: the requested form, the offered actions, and who is in the room."""

from bot.models.types import TextRequest
from bot.prompts.history import parse_history
from bot.prompts.reply_parser.parts import fold
from bot.prompts.reply_parser.reader import AnswerContext, AnswerForm
from bot.text import sanitize_name
from bot.turn import Turn

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
    own_name = sanitize_name(turn.agent.character.name)
    names |= {sanitize_name(turn_input.author.name) for turn_input in turn.inputs}
    actions = [name for spec in turn.actions for name in (spec.name, *spec.similes)]
    return AnswerContext(form, own_name, tuple(sorted(names - {own_name})), frozenset(map(fold, actions)))
