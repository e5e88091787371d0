"""The closing text of a turn with actions: a summary by the model, else a fixed text."""

import re
from collections.abc import Iterable, Sequence

from bot.domain.component_specs import ProviderKind
from bot.domain.results import ActionResult
from bot.errors import ModelError, NoAnswer
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.answer_context import answer_context, recall_context
from bot.pipeline.compose import Composer, generate_text
from bot.pipeline.journal import cached_response, save_response
from bot.pipeline.respond import build_reply
from bot.prompts.history import MAX_OPEN_MESSAGE_LENGTH
from bot.prompts.reply_parser.reader import NO_CONTEXT
from bot.prompts.templates import MULTI_STEP_SUMMARY, REPLY
from bot.text import escape_line, shorten, truncate_line
from bot.turn import Turn
from bot.user_texts import user_text

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
        request = composer.build_request(turn, template, Purpose.SUMMARY, ModelType.TEXT_LARGE, **values)
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
