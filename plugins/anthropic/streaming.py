"""Read a streamed message."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from bot.models import ModelBusy, ModelError, ResponseMemory, TextResult, TextSink, note_call
from bot.platform import LazyModule
from plugins.anthropic.responses import (
    ContentBlock,
    ErrorBody,
    Lenient,
    StopDetails,
    UsageBody,
    build_result,
    parse_message,
)

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")

MAX_ANSWER_LENGTH = 1_000_000  # characters
STREAM_STARTS = (b"data:", b"event:", b":")


class MessageStart(BaseModel):
    """Model and usage at the start of a message."""

    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None


class Delta(BaseModel):
    """The next part of a block or of the message."""

    type: Lenient[str] = None
    text: Lenient[str] = None
    partial_json: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None


class StreamEvent(BaseModel):
    """One event of a stream."""

    type: Lenient[str] = None
    index: Lenient[int] = None
    message: Lenient[MessageStart] = None
    content_block: Lenient[ContentBlock] = None
    delta: Lenient[Delta] = None
    usage: Lenient[UsageBody] = None
    error: Lenient[ErrorBody] = None


def is_stream(content_type: str, start: bytes) -> bool:
    """Return whether an answer is a stream of events, by its media type or its first bytes."""
    return "event-stream" in content_type or start.lstrip().startswith(STREAM_STARTS)


class MessageStream:
    """Reads the events of one message, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink | None, memory: ResponseMemory) -> None:
        self._model = model
        self._sink = sink
        self._memory = memory
        self._text = ""
        self._block = 0  # the index of the latest
        self._hidden_blocks: set[int] = set()  # neither text nor calls
        self._calls: dict[int, tuple[str, object, str]] = {}  # name, input at the start, its JSON so far
        self._stop_reason = ""
        self._stop_details: StopDetails | None = None
        self._usage = UsageBody()
        self._is_done = False
        self._whole: TextResult | None = None

    async def read(self, response: Any, start: bytes = b"") -> TextResult:
        """Read the stream to its end, `start` being what was read of it, and return the result.

        Raises ModelBusy if the stream breaks off or reports a transient error, ModelError otherwise.
        """
        async for data in self._read_events(_single(start) if start else response.aiter_bytes()):
            await self._write("")
            if data.strip() not in ("", "null", "[DONE]"):
                await self._handle_event(data)
        if self._whole is not None:
            return self._whole
        if not self._is_done:
            raise ModelBusy(f"anthropic: the answer of {self._model} broke off")
        return build_result(
            model=self._model,
            text=self._text,
            calls=[(name, arguments or start) for name, start, arguments in self._calls.values()],
            stop_reason=self._stop_reason,
            stop_details=self._stop_details,
            usage=self._usage,
        )

    async def _handle_event(self, data: str) -> None:
        try:
            event = StreamEvent.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"anthropic: {self._model} broke its answer off with {data[:80]!r}") from None
        if event.type == "error" or event.error:
            raise (event.error or ErrorBody()).to_model_error(self._model)
        if event.type == "message":  # the whole answer in one event
            self._whole = parse_message(data, self._model)
        elif event.type == "message_start" and event.message:
            self._model = event.message.model or self._model
            self._usage = event.message.usage or self._usage
            note_call(self._model, self._usage.to_usage())
        elif event.type == "content_block_start" and event.content_block:
            self._block = self._block + 1 if event.index is None else event.index
            await self._start_block(self._block, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            await self._add_delta(self._block if event.index is None else event.index, event.delta)
        elif event.type == "message_delta":
            self._usage = self._usage.updated(event.usage or UsageBody())
            self._stop_reason = (event.delta.stop_reason if event.delta else None) or self._stop_reason
            self._stop_details = (event.delta.stop_details if event.delta else None) or self._stop_details
            self._is_done |= bool(self._stop_reason)
        elif event.type == "message_stop":
            self._is_done = True

    async def _start_block(self, index: int, block: ContentBlock) -> None:
        if block.type == "tool_use":
            self._calls[index] = (block.name or "", block.input, "")
        elif block.type in ("text", None):
            await self._write(block.text or "")
        else:
            self._hidden_blocks.add(index)

    async def _add_delta(self, index: int, delta: Delta) -> None:
        if delta.text and index not in self._hidden_blocks and delta.type in ("text_delta", None):
            await self._write(delta.text)
        if delta.partial_json and index in self._calls:
            name, start, arguments = self._calls[index]
            self._calls[index] = (name, start, arguments + delta.partial_json)
            self._memory.extend(sum(len(arguments) for _, _, arguments in self._calls.values()))
            if len(arguments) > MAX_ANSWER_LENGTH:
                raise ModelError(f"anthropic: {self._model} called a function without an end")

    async def _write(self, text: str) -> None:
        """Pass on a piece; an empty one reports progress: any event shows that the server is alive."""
        self._text += text
        self._memory.extend(len(self._text))
        if len(self._text) > MAX_ANSWER_LENGTH:
            raise ModelError(f"anthropic: {self._model} wrote without an end")
        if self._sink is not None:
            await self._sink.write(text)

    async def _read_events(self, body: AsyncIterator[bytes]) -> AsyncIterator[str]:
        """Yield the data of each event, including pings."""
        response: Any = SimpleNamespace(aiter_bytes=lambda: self._memory.count(body))
        try:
            async for event in anthropic.AsyncStream.raw_events(response):
                self._memory.reset()
                yield event.data
        except ModelError:
            raise
        except Exception as error:  # the SDK's versions use different HTTP libraries
            raise ModelBusy(f"anthropic: an answer broke off: {type(error).__name__}") from error


async def _single(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk
