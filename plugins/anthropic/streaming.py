"""Read a streamed message."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from bot.models import ModelBusy, ModelError, TextResult, TextSink, note_call
from bot.platform import LazyModule
from plugins.anthropic.responses import ContentBlock, Lenient, StopDetails, UsageBody, build_result

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")

MAX_ANSWER_LENGTH = 1_000_000  # characters
TRANSIENT_ERRORS = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})


class MessageStart(BaseModel):
    """Model and usage at the start of a message."""

    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None


class Delta(BaseModel):
    """The next part of a block or of the message."""

    text: Lenient[str] = None
    partial_json: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None


class StreamError(BaseModel):
    """An error reported in a stream."""

    type: Lenient[str] = None
    message: Lenient[str] = None


class StreamEvent(BaseModel):
    """One event of a stream."""

    type: str
    index: Lenient[int] = None
    message: Lenient[MessageStart] = None
    content_block: Lenient[ContentBlock] = None
    delta: Lenient[Delta] = None
    usage: Lenient[UsageBody] = None
    error: Lenient[StreamError] = None


class MessageStream:
    """Reads the events of one message, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink) -> None:
        self._model = model
        self._sink = sink
        self._text = ""
        self._calls: dict[int, tuple[str, str]] = {}
        self._stop_reason = ""
        self._stop_details: StopDetails | None = None
        self._usage = UsageBody()
        self._is_done = False

    async def read(self, response: Any) -> TextResult:
        """Read the stream to its end and return the result.

        Raises ModelBusy if the stream breaks off or reports a transient error, ModelError otherwise.
        """
        async for data in _read_events(response):
            await self._sink.write("")  # reports progress: any event shows that the server is alive
            if data:
                await self._handle_event(data)
        if not self._is_done:
            raise ModelBusy(f"anthropic: the answer of {self._model} broke off")
        return build_result(
            model=self._model,
            text=self._text,
            calls=list(self._calls.values()),
            stop_reason=self._stop_reason,
            stop_details=self._stop_details,
            usage=self._usage,
        )

    async def _handle_event(self, data: str) -> None:
        try:
            event = StreamEvent.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"anthropic: {self._model} broke its answer off with {data[:80]!r}") from None
        if event.type == "error":
            raise self._to_model_error(event.error or StreamError())
        if event.type == "message_start" and event.message:
            self._model = event.message.model or self._model
            self._usage = event.message.usage or self._usage
            note_call(self._model, self._usage.to_usage())
        elif event.type == "content_block_start" and event.content_block:
            await self._start_block(event.index or 0, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            await self._add_delta(event.index or 0, event.delta)
        elif event.type == "message_delta":
            self._usage = self._usage.updated(event.usage or UsageBody())
            self._stop_reason = (event.delta.stop_reason if event.delta else None) or self._stop_reason
            self._stop_details = (event.delta.stop_details if event.delta else None) or self._stop_details
        elif event.type == "message_stop":
            self._is_done = True

    async def _start_block(self, index: int, block: ContentBlock) -> None:
        if block.type == "tool_use":
            self._calls[index] = (block.name or "", "")
        elif block.type == "text":
            await self._write(block.text or "")

    async def _add_delta(self, index: int, delta: Delta) -> None:
        await self._write(delta.text or "")
        if delta.partial_json and index in self._calls:
            name, arguments = self._calls[index]
            self._calls[index] = (name, arguments + delta.partial_json)
            if len(arguments) > MAX_ANSWER_LENGTH:
                raise ModelError(f"anthropic: {self._model} called a function without an end")

    async def _write(self, text: str) -> None:
        if not text:
            return
        self._text += text
        if len(self._text) > MAX_ANSWER_LENGTH:
            raise ModelError(f"anthropic: {self._model} wrote without an end")
        await self._sink.write(text)

    def _to_model_error(self, error: StreamError) -> ModelError:
        message = " ".join((error.message or error.type or "no reason given").split())[:200]
        kind = ModelBusy if error.type in TRANSIENT_ERRORS else ModelError
        return kind(f"anthropic: {self._model} broke its answer off: {message}")


async def _read_events(response: Any) -> AsyncIterator[str]:
    """Yield the data of each event, including pings."""
    try:
        async for event in anthropic.AsyncStream.raw_events(response):
            yield event.data
    except Exception as error:  # the SDK's versions use different HTTP libraries
        raise ModelBusy(f"anthropic: an answer broke off: {type(error).__name__}") from error
