"""A prompt that is longer than the model can read: asked once more, with less of what came before."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bot.domain.results import ProviderResult
from bot.errors import PromptTooLong
from bot.models.types import ModelType, TextRequest, TextResult
from bot.pipeline.compose import Composer
from bot.prompts.history import last_lines
from bot.text import last_break
from bot.turn import Turn

HISTORY = "RECENT_MESSAGES"
WHOLE = frozenset({"CHARACTER", "ACTIONS"})
OPEN = frozenset({"ATTACHMENTS"})  # asked for on demand, and yet of the messages that are to be answered
LONGEST_LEFT = 4_000  # characters of each text that is neither whole nor gone

Cut = Callable[[str], str]


async def ask(
    turn: Turn, composer: Composer, request: Callable[[], TextRequest], kind: ModelType
) -> TextResult:
    """Have a text written; where no model can read so long a prompt, once more with a shorter one.

    `request` makes the request from what is composed. Raises PromptTooLong where there is nothing to
    leave out, or that was not enough, and as the router does.
    """
    models = turn.agent.models
    try:
        return await models.text(request(), kind)
    except PromptTooLong:
        cut = lessen(turn)
        if not cut:
            raise
    turn.notes.append(f"the prompt was too long for the model; it was asked with less of {', '.join(cut)}")
    composer.put_together(turn)
    return await models.text(request(), kind)


def lessen(turn: Turn) -> list[str]:
    """Cut what is composed, and name what was cut: what is on demand goes, the oldest of the history goes.

    Of the rest a beginning stays; all of the character, of the actions and of the open messages does.
    """
    state, cut = turn.state, []
    on_demand = {spec.name for spec in turn.agent.catalog.providers if spec.is_dynamic} - OPEN
    for name in state.composed:
        if name in WHOLE:
            continue
        shorter = _last if name == HISTORY else _nothing if name in on_demand else _first
        result = _shortened(state.results[name], shorter)
        if result != state.results[name]:
            state.results[name] = result
            cut.append(name)
    state.is_short |= bool(cut)
    return cut


def _shortened(result: ProviderResult, cut: Cut) -> ProviderResult:
    values = {name: cut(value) if isinstance(value, str) else value for name, value in result.values.items()}
    return replace(result, text=cut(result.text), values=values)


def _first(text: str) -> str:
    return text[: last_break(text, LONGEST_LEFT)]


def _nothing(text: str) -> str:
    return ""


_last = partial(last_lines, limit=LONGEST_LEFT)
