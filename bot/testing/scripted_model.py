"""A model that returns scripted texts and records its requests."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from bot.models.handler import note_call
from bot.models.types import EmbeddingRequest, EmbeddingResult, ModelType, Purpose, TextRequest, TextResult, Usage
from bot.plugin_system.components import Model, model
from bot.plugin_system.plugin import Plugin
from bot.turn import Agent


class Restart:
    """Marker between two pieces: discards the pieces before it, as a retried model call does."""


class StreamedText:
    """A text that is streamed in pieces; an event between two pieces is awaited."""

    def __init__(self, *pieces: str | type[Restart] | asyncio.Event) -> None:
        self._pieces = pieces

    async def stream(self, request: TextRequest) -> str:
        """Stream the pieces to the request's sink; return the whole text."""
        text = ""
        for piece in self._pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, str):
                text += piece
                if request.sink is not None:
                    await request.sink.write(piece)
            else:
                text = ""
                if request.sink is not None:
                    await request.sink.restart()
        return text


ScriptedText = str | StreamedText | TextResult
Script = Callable[[TextRequest], ScriptedText | Awaitable[ScriptedText]]


def model_answer(
    text: str = "",
    *,
    actions: Sequence[str] = ("REPLY",),
    providers: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    thought: str = "a thought",
) -> str:
    """Return a well-formed model answer; `parameters` are by action, or those of the only action."""
    parameter_tags = "".join(
        f"<{name}>{escape(value if isinstance(value, str) else json.dumps(value))}</{name}>"
        for name, value in (parameters or {}).items()
    )
    return (
        f"<response><thought>{escape(thought)}</thought><actions>{','.join(actions)}</actions>"
        f"<parameters>{parameter_tags}</parameters><providers>{','.join(providers)}</providers>"
        f"<text>{escape(text)}</text></response>"
    )


GREETING = model_answer("Hello.")


class ScriptedModel:
    """Serves both sizes of text from a script: texts one after another, or a function of the request.

    The last text repeats; a reflection, a summary of a room and the check of a message of distress get an empty text
    instead. A text may be a `StreamedText` or a `TextResult`, for example with calls. A function may be a coroutine
    function, and may raise.
    `requests` has all requests in order.
    """

    def __init__(
        self,
        script: ScriptedText | Iterable[ScriptedText] | Script = GREETING,
        *,
        can_embed: bool = False,
        can_call_tools: bool = False,
        can_write_json: bool = False,
    ) -> None:
        self.requests: list[TextRequest] = []
        self._script: Script = script if callable(script) else _build_script(script)
        kinds = (ModelType.TEXT_SMALL, ModelType.TEXT_LARGE)
        models = [
            model(kind, can_call_tools=can_call_tools, can_write_json=lambda agent: can_write_json)(self._write)
            for kind in kinds
        ]
        if can_embed:
            models.append(Model(ModelType.TEXT_EMBEDDING, self._embed))
        self.plugin = Plugin("scripted", "Returns scripted texts.", models=models)

    def requests_for(self, purpose: Purpose) -> list[TextRequest]:
        """Return the requests made for one purpose."""
        return [request for request in self.requests if request.purpose is purpose]

    async def _write(self, agent: Agent, request: TextRequest) -> TextResult:
        self.requests.append(request)
        note_call("scripted")
        scripted = self._script(request)
        output = await scripted if inspect.isawaitable(scripted) else scripted
        if isinstance(output, TextResult):
            return output
        text = await output.stream(request) if isinstance(output, StreamedText) else output
        return TextResult(text, "scripted", Usage(len(request.prompt) // 4, len(text) // 4))

    async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        vectors = tuple((float(len(text)), 1.0) for text in request.texts)
        return EmbeddingResult(vectors, "scripted-2", Usage())


def _build_script(script: ScriptedText | Iterable[ScriptedText]) -> Script:
    texts = iter([script] if isinstance(script, ScriptedText) else script)
    last_text: ScriptedText = ""

    def next_text(request: TextRequest) -> ScriptedText:
        nonlocal last_text
        if request.purpose in (Purpose.REFLECTION, Purpose.ROOM_SUMMARY, Purpose.CARE):
            return ""
        last_text = next(texts, last_text)
        return last_text

    return next_text
