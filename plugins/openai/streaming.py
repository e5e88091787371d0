"""An answer that comes piece by piece, and what it is when it is whole."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from bot.models import ModelBusy, ModelError, TextResult, TextSink
from plugins.openai.responses import Call, Counted, Perhaps, Thinking, read_completion, result_of

LONGEST_LINE = 4_000_000  # bytes; a server that sends more without an end is broken
LONGEST = 1_000_000  # characters of one answer
END = "[DONE]"


def _none_is_empty(value: object) -> object:
    return [] if value is None else value


class Delta(BaseModel):
    """What comes to an answer."""

    content: Perhaps[str] = None
    refusal: Perhaps[str] = None
    tool_calls: Perhaps[list[Call]] = None


class Part(BaseModel):
    """A step of one of the answers; only one is asked for."""

    delta: Perhaps[Delta] = None
    finish_reason: Perhaps[str] = None


class Chunk(BaseModel):
    """One event of a stream."""

    choices: Annotated[list[Part], BeforeValidator(_none_is_empty)] = []
    model: Perhaps[str] = None
    usage: Perhaps[Counted] = None
    error: Any = None


class Stream:
    """Reads the events of one answer, shows its text as it comes, and has the whole at the end."""

    def __init__(self, model: str, sink: TextSink) -> None:
        self._model = model
        self._sink = sink
        self._thinking = Thinking()
        self._text = ""
        self._calls: list[tuple[str, str]] = []
        self._ids: dict[str | int, int] = {}
        self._finish = ""
        self._counted: Counted | None = None
        self._is_done = False

    async def read(self, body: AsyncIterator[bytes]) -> TextResult:
        """Read it all.

        Raises ModelBusy where it ends before its end or says that the server failed, ModelError for what
        is no stream of an answer.
        """
        other = ""
        async for line in _lines(_received(body)):
            await self._sink.write("")  # whatever comes, the server is alive
            field, colon, data = line.partition(":")
            if line.strip() == END:
                self._is_done = True
            elif colon and field == "data":
                await self._take(data.strip())
            elif line.strip() and field not in ("", "event", "id", "retry"):
                other += line[: LONGEST - len(other)]
            if self._is_done:
                break
        if other and not (self._text or self._calls or self._finish):
            return await self._whole(other)
        await self._show(self._thinking.end())
        if not self._is_done and not self._finish:
            raise ModelBusy(f"openai: the answer of {self._model} broke off")
        return result_of(
            model=self._model,
            text=self._text,
            calls=self._calls,
            finish=self._finish,
            counted=self._counted,
        )

    async def _take(self, data: str) -> None:
        if data.strip('"').startswith(END):
            self._is_done = True
            return
        if not data:
            return
        try:
            chunk = Chunk.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"openai: {self._model} broke its answer off with {data[:80]!r}") from None
        if chunk.error:
            raise ModelBusy(f"openai: {self._model} broke its answer off: {_said(chunk.error)}")
        self._model = chunk.model or self._model
        self._counted = chunk.usage or self._counted
        for part in chunk.choices[:1]:
            self._finish = part.finish_reason or self._finish
            await self._add(part.delta or Delta())

    async def _add(self, delta: Delta) -> None:
        for call in delta.tool_calls or ():
            self._add_call(call)
        await self._show(self._thinking.feed(delta.content or delta.refusal or ""))

    async def _show(self, piece: str) -> None:
        if not piece:
            return
        self._text += piece
        if len(self._text) > LONGEST:
            raise ModelError(f"openai: {self._model} wrote without an end")
        await self._sink.write(piece)

    def _add_call(self, call: Call) -> None:
        key = call.index if call.index is not None else call.id
        if key is None:
            at = len(self._calls) if call.function.name or not self._calls else len(self._calls) - 1
        else:
            at = self._ids.setdefault(key, len(self._calls))
        if at == len(self._calls):
            self._calls.append(("", ""))
        name, arguments = self._calls[at]
        more = call.function.arguments or ""
        if len(arguments) + len(more) > LONGEST:
            raise ModelError(f"openai: {self._model} called a function without an end")
        self._calls[at] = (name or call.function.name or "", arguments + more)

    async def _whole(self, body: str) -> TextResult:
        """Take what was sent in one piece, by a server that does not stream."""
        result = read_completion(body, self._model)
        await self._sink.write(result.text)
        return result


async def _received(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for data in body:
            yield data
    except Exception as error:  # of the HTTP library, which is another in every version of the SDK
        raise ModelBusy(f"openai: an answer broke off: {type(error).__name__}") from error


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Split a body at its line ends, and only there: a text may hold any other separator."""
    rest = b""
    async for data in body:
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > LONGEST_LINE:
            raise ModelError("openai: a line of an answer has no end")
    if rest:
        yield rest.decode("utf-8", "replace")


def _said(error: object) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    return " ".join(text.split())[:200]
