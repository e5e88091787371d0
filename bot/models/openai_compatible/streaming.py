"""Read a streamed chat completion."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import aiohttp
from pydantic import BaseModel, BeforeValidator, ValidationError

from bot.errors import ModelBusy, ModelError
from bot.models.openai_compatible.connection import Endpoint
from bot.models.openai_compatible.responses import (
    Lenient,
    ThinkingFilter,
    ToolCallBody,
    UsageBody,
    build_result,
    parse_completion,
)
from bot.models.types import TextResult, TextSink
from bot.models.usage import note_call

MAX_LINE_BYTES = 4_000_000  # a longer line is treated as an error
MAX_ANSWER_LENGTH = 1_000_000  # characters
END_MARK = "[DONE]"


def _none_is_empty(value: object) -> object:
    return [] if value is None else value


class Delta(BaseModel):
    """The next part of a message."""

    content: Lenient[str] = None
    refusal: Lenient[str] = None
    tool_calls: Lenient[list[ToolCallBody]] = None


class ChunkChoice(BaseModel):
    """A part of a choice; one is requested."""

    delta: Lenient[Delta] = None
    finish_reason: Lenient[str] = None


class Chunk(BaseModel):
    """One event of a stream."""

    choices: Annotated[list[ChunkChoice], BeforeValidator(_none_is_empty)] = []
    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None
    error: Any = None


class CompletionStream:
    """Reads the stream of one response, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink, endpoint: Endpoint) -> None:
        self._model = model
        self._endpoint = endpoint
        self._provider = endpoint.provider
        self._sink = sink
        self._thinking_filter = ThinkingFilter()
        self._text = ""
        self._calls: list[tuple[str, str]] = []
        self._ids: dict[str | int, int] = {}
        self._finish_reason = ""
        self._usage: UsageBody | None = None
        self._is_done = False

    async def read(self, body: AsyncIterator[bytes]) -> TextResult:
        """Read the stream to its end and return the result.

        Raises ModelBusy if the stream breaks off or reports a server error, ModelError if it is invalid.
        """
        unrecognized = ""
        async for line in _split_lines(_read_chunks(body, self._provider), self._provider):
            await self._sink.write("")  # reports progress: any event shows that the server is alive
            field, colon, data = line.partition(":")
            if line.strip() == END_MARK:
                self._is_done = True
            elif colon and field == "data":
                await self._handle_chunk(data.strip())
            elif line.strip() and field not in ("", "event", "id", "retry"):
                unrecognized += line[: MAX_ANSWER_LENGTH - len(unrecognized)]
            if self._is_done:
                break
        if unrecognized and not (self._text or self._calls or self._finish_reason):
            return await self._handle_unstreamed(unrecognized)
        await self._write(self._thinking_filter.finish())
        if not self._is_done and not self._finish_reason:
            raise ModelBusy(f"{self._provider}: the answer of {self._model} broke off")
        return build_result(
            model=self._model,
            text=self._text,
            calls=self._calls,
            finish_reason=self._finish_reason,
            usage=self._usage,
            endpoint=self._endpoint,
        )

    async def _handle_chunk(self, data: str) -> None:
        if data.strip('"').startswith(END_MARK):
            self._is_done = True
            return
        if not data:
            return
        try:
            chunk = Chunk.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"{self._provider}: {self._model} broke its answer off with {data[:80]!r}") from None
        if chunk.error:
            raise ModelBusy(f"{self._provider}: {self._model} broke its answer off: {_error_message(chunk.error)}")
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        note_call(self._model)
        for choice in chunk.choices[:1]:
            self._finish_reason = choice.finish_reason or self._finish_reason
            await self._add_delta(choice.delta or Delta())

    async def _add_delta(self, delta: Delta) -> None:
        for call in delta.tool_calls or ():
            self._add_call(call)
        await self._write(self._thinking_filter.feed(delta.content or delta.refusal or ""))

    async def _write(self, text: str) -> None:
        if not text:
            return
        self._text += text
        if len(self._text) > MAX_ANSWER_LENGTH:
            raise ModelError(f"{self._provider}: {self._model} wrote without an end")
        await self._sink.write(text)

    def _add_call(self, call: ToolCallBody) -> None:
        key = call.index if call.index is not None else call.id
        if key is None:
            index = len(self._calls) if call.function.name or not self._calls else len(self._calls) - 1
        else:
            index = self._ids.setdefault(key, len(self._calls))
        if index == len(self._calls):
            self._calls.append(("", ""))
        name, arguments = self._calls[index]
        new_arguments = call.function.arguments or ""
        if len(arguments) + len(new_arguments) > MAX_ANSWER_LENGTH:
            raise ModelError(f"{self._provider}: {self._model} called a function without an end")
        self._calls[index] = (name or call.function.name or "", arguments + new_arguments)

    async def _handle_unstreamed(self, body: str) -> TextResult:
        """Return the result of a server that sent a whole response instead of a stream."""
        result = parse_completion(body, self._model, self._endpoint)
        await self._sink.write(result.text)
        return result


async def _read_chunks(body: AsyncIterator[bytes], provider: str) -> AsyncIterator[bytes]:
    try:
        async for data in body:
            yield data
    except (aiohttp.ClientError, OSError) as error:
        raise ModelBusy(f"{provider}: an answer broke off: {type(error).__name__}") from error


async def _split_lines(body: AsyncIterator[bytes], provider: str) -> AsyncIterator[str]:
    """Yield the lines of a body, split only at line feeds: a text may contain other separators."""
    rest = b""
    async for data in body:
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > MAX_LINE_BYTES:
            raise ModelError(f"{provider}: a line of an answer has no end")
    if rest:
        yield rest.decode("utf-8", "replace")


def _error_message(error: object) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    return " ".join(text.split())[:200]
