"""An answer that comes piece by piece, and what it is when it is whole."""

from collections.abc import AsyncIterator
from typing import Any

from anthropic import AsyncStream
from pydantic import BaseModel, ValidationError

from bot.models import ModelBusy, ModelError, TextResult, TextSink
from plugins.anthropic.responses import Block, Counted, Details, Perhaps, result_of

LONGEST = 1_000_000  # characters of one answer
PASSING = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})


class Start(BaseModel):
    """What is known of an answer when it begins."""

    model: Perhaps[str] = None
    usage: Perhaps[Counted] = None


class Delta(BaseModel):
    """What comes to a block, or to the answer."""

    text: Perhaps[str] = None
    partial_json: Perhaps[str] = None
    stop_reason: Perhaps[str] = None
    stop_details: Perhaps[Details] = None


class Fault(BaseModel):
    """Why an answer breaks off."""

    type: Perhaps[str] = None
    message: Perhaps[str] = None


class Event(BaseModel):
    """One event of a stream."""

    type: str
    index: Perhaps[int] = None
    message: Perhaps[Start] = None
    content_block: Perhaps[Block] = None
    delta: Perhaps[Delta] = None
    usage: Perhaps[Counted] = None
    error: Perhaps[Fault] = None


class Stream:
    """Reads the events of one answer, shows its text as it comes, and has the whole at the end."""

    def __init__(self, model: str, sink: TextSink) -> None:
        self._model = model
        self._sink = sink
        self._text = ""
        self._calls: dict[int, tuple[str, str]] = {}
        self._stop = ""
        self._why: Details | None = None
        self._counted = Counted()
        self._is_done = False

    async def read(self, response: Any) -> TextResult:
        """Read it all.

        Raises ModelBusy where it ends before its end or the server breaks it off for a passing reason,
        ModelError for any other.
        """
        async for data in _received(response):
            await self._sink.write("")  # whatever comes, the server is alive
            if data:
                await self._take(data)
        if not self._is_done:
            raise ModelBusy(f"anthropic: the answer of {self._model} broke off")
        return result_of(
            model=self._model,
            text=self._text,
            calls=list(self._calls.values()),
            stop=self._stop,
            why=self._why,
            counted=self._counted,
        )

    async def _take(self, data: str) -> None:
        try:
            event = Event.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"anthropic: {self._model} broke its answer off with {data[:80]!r}") from None
        if event.type == "error":
            raise self._fault(event.error or Fault())
        if event.type == "message_start" and event.message:
            self._model = event.message.model or self._model
            self._counted = event.message.usage or self._counted
        elif event.type == "content_block_start" and event.content_block:
            await self._begin(event.index or 0, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            await self._add(event.index or 0, event.delta)
        elif event.type == "message_delta":
            self._counted = self._counted.later(event.usage or Counted())
            self._stop = (event.delta.stop_reason if event.delta else None) or self._stop
            self._why = (event.delta.stop_details if event.delta else None) or self._why
        elif event.type == "message_stop":
            self._is_done = True

    async def _begin(self, index: int, block: Block) -> None:
        if block.type == "tool_use":
            self._calls[index] = (block.name or "", "")
        elif block.type == "text":
            await self._show(block.text or "")

    async def _add(self, index: int, delta: Delta) -> None:
        await self._show(delta.text or "")
        if delta.partial_json and index in self._calls:
            name, given = self._calls[index]
            self._calls[index] = (name, given + delta.partial_json)
            if len(given) > LONGEST:
                raise ModelError(f"anthropic: {self._model} called a function without an end")

    async def _show(self, piece: str) -> None:
        if not piece:
            return
        self._text += piece
        if len(self._text) > LONGEST:
            raise ModelError(f"anthropic: {self._model} wrote without an end")
        await self._sink.write(piece)

    def _fault(self, fault: Fault) -> ModelError:
        said = " ".join((fault.message or fault.type or "no reason given").split())[:200]
        kind = ModelBusy if fault.type in PASSING else ModelError
        return kind(f"anthropic: {self._model} broke its answer off: {said}")


async def _received(response: Any) -> AsyncIterator[str]:
    """Give the data of every event, signs of life included."""
    try:
        async for event in AsyncStream.raw_events(response):
            yield event.data
    except Exception as error:  # of the HTTP library, which is another in every version of the SDK
        raise ModelBusy(f"anthropic: an answer broke off: {type(error).__name__}") from error
