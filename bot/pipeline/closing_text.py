"""The closing text of a turn with actions: a summary by the model, else a fixed text."""

from bot.domain.component_specs import ProviderKind
from bot.domain.results import ActionResult
from bot.errors import ModelError, NoAnswer
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.answer_context import answer_context, recall_context
from bot.pipeline.compose import Composer, generate_text
from bot.pipeline.journal import cached_response, save_response
from bot.pipeline.respond import build_reply
from bot.prompts.reply_parser.reader import NO_CONTEXT
from bot.prompts.templates import MULTI_STEP_SUMMARY, REPLY
from bot.text import escape_line, shorten
from bot.turn import Turn
from bot.user_texts import user_text

MAX_TRIES = 2
SUMMARY_KEY = "summary"
MAX_RESULT_LINE_LENGTH = 4_000
OUTCOME_UNKNOWN = "outcome unknown: the process died while it ran"


async def write_closing_text(turn: Turn, composer: Composer) -> str:
    """Return what became of the turn's actions, in the character's words.

    Where no model can say it, or the budget is spent, a fixed text says whether the actions succeeded.
    """
    try:
        return await write_summary(turn, composer, REPLY)
    except (ModelError, NoAnswer) as error:
        turn.notes.append(f"no model could tell what became of the actions: {error}")
        return user_text(_find_fixed_text(turn.state.data["actionResults"]))


async def write_summary(turn: Turn, composer: Composer, template: str = MULTI_STEP_SUMMARY) -> str:
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
        results = format_results(turn)
        request = composer.build_request(turn, template, Purpose.SUMMARY, ModelType.TEXT_LARGE, actionResults=results)
        context = answer_context(turn, request)
        return request

    for _ in range(MAX_TRIES):
        result = await generate_text(turn, composer, build_request, ModelType.TEXT_LARGE)
        if text := build_reply(result, context).text:
            await save_response(turn, SUMMARY_KEY, result)
            return text
    raise NoAnswer(f"the model gave {MAX_TRIES} summaries without a text")


def format_results(turn: Turn) -> str:
    """Return the results of the turn's actions, one a line."""
    return str(turn.state.data.get("actionResultsText", ""))


def format_result(result: ActionResult) -> str:
    """Return the result of an action as one line of a prompt."""
    text = escape_line(shorten(result.text or result.error or "done", MAX_RESULT_LINE_LENGTH))
    return f"- {result.action}: {'ok' if result.success else 'failed'}: {text}"


def _find_fixed_text(results: list[ActionResult]) -> str:
    """Return the key of the text that fits these results."""
    if any(result.is_outcome_unknown for result in results):
        return "actions.unknown"
    if all(result.success for result in results):
        return "actions.done"
    return "actions.partly_done" if any(result.success for result in results) else "actions.failed"
