"""Reads answers of the API, whole or in pieces, into results."""

from typing import TYPE_CHECKING

from bot.models import InvalidAnswer, ModelError, TextResult, TextSink, ToolCall, Usage, note_call
from bot.text import user_text

if TYPE_CHECKING:
    from google.genai import types

MAX_ANSWER_LENGTH = 1_000_000  # characters
REFUSAL_REASONS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"}
)
COMPLETE_REASONS = frozenset({"STOP", "MAX_TOKENS"})


class AnswerReader:
    """Collects the pieces of one answer, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink | None) -> None:
        self._model = model
        self._sink = sink
        self._text = ""
        self._calls: list[ToolCall] = []
        self._finish_reason = ""
        self._is_refused = False
        self._usage: types.GenerateContentResponseUsageMetadata | None = None

    async def add(self, piece: "types.GenerateContentResponse") -> None:
        """Add the next piece. Raises ModelError for an answer without an end."""
        if self._sink is not None:
            await self._sink.write("")  # reports progress, also while the model thinks
        self._model = piece.model_version or self._model
        self._usage = piece.usage_metadata or self._usage
        note_call(self._model, self._to_usage())
        self._is_refused |= piece.prompt_feedback is not None and piece.prompt_feedback.block_reason is not None
        for candidate in (piece.candidates or ())[:1]:
            if candidate.finish_reason is not None:
                self._finish_reason = candidate.finish_reason.value
                self._is_refused |= self._finish_reason in REFUSAL_REASONS
            for part in (candidate.content.parts if candidate.content else None) or ():
                await self._add_part(part)

    async def _add_part(self, part: "types.Part") -> None:
        if part.thought:
            return
        if part.function_call is not None and part.function_call.name:
            self._calls.append(ToolCall(part.function_call.name, part.function_call.args or {}))
        if part.text:
            self._text += part.text
            if len(self._text) > MAX_ANSWER_LENGTH:
                raise ModelError(f"google: {self._model} wrote without an end")
            if self._sink is not None:
                await self._sink.write(part.text)

    def finish(self) -> TextResult:
        """Return the result; a notice instead of the text that a refusal has cut off.

        Raises InvalidAnswer if the answer broke off without any text, or ended without one for an unexpected reason.
        """
        if self._is_refused:
            self._text, self._calls = user_text("notices.no_answer"), []
        elif not self._text and not self._calls and self._finish_reason not in COMPLETE_REASONS:
            cause = self._finish_reason or "the answer broke off"
            raise InvalidAnswer(f"google: {self._model} wrote nothing ({cause})")
        return TextResult(
            text=self._text,
            model=self._model,
            usage=self._to_usage(),
            is_truncated=self._finish_reason == "MAX_TOKENS",
            tool_calls=tuple(self._calls),
        )

    def _to_usage(self) -> Usage | None:
        usage = self._usage
        if usage is None or not usage.prompt_token_count:
            return None
        written = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        cached = min(usage.cached_content_token_count or 0, usage.prompt_token_count)
        return Usage(usage.prompt_token_count, written, cached)
