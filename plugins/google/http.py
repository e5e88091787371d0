"""`AnswerClient`: an HTTP client that puts answers into the form that the SDK expects, before the SDK reads them.

The SDK fails on whatever differs from the documentation: a part that is null, arguments as a text, a content that is
a list, a stream that is one body.
"""

import codecs
import json
import re
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from typing import Any

import httpx
from google.genai import errors, types

from bot.models import InvalidAnswer, ResponseMemory, read_arguments
from bot.platform import MemorySemaphore

WRITES_CONTENT = re.compile(r":(?:stream)?generateContent$", re.IGNORECASE)
LINE_END = re.compile(r"\r?\n|\r(?=[^\n])")
STREAM_STARTS = ("data:", "event:", ":")
STREAM_TYPE = {"Content-Type": "text/event-stream"}
COUNTS = (
    "promptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
    "totalTokenCount",
)


class AnswerClient(httpx.AsyncClient):
    """The HTTP client of the SDK; its responses take `memory` while they are read."""

    def __init__(self, memory: MemorySemaphore, **options: Any) -> None:
        super().__init__(event_hooks={"response": [self._count]}, **options)
        self._memory = memory

    async def _count(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _CountedStream(response.stream, ResponseMemory(self._memory, "google"))

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """Send a request; the response to one for content has the documented form.

        Raises InvalidAnswer if it cannot be given that form.
        """
        response = await super().send(request, stream=stream, **options)
        if response.status_code != 200 or not WRITES_CONTENT.search(request.url.path):
            return response
        if stream:
            return httpx.Response(200, headers=STREAM_TYPE, stream=_CleanStream(response), request=request)
        answers = list(_parse_body(response.text))
        for answer in answers:
            if (code := _error_code(answer)) is not None:
                return httpx.Response(code, json=answer, request=request)
        return httpx.Response(200, json=_join(answers), request=request)


class _CountedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, memory: ResponseMemory) -> None:
        self._stream = stream
        self.memory = memory

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.memory.count(self._stream):
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _CleanStream(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for answer in _read_answers(self._response):
            if isinstance(self._response.stream, _CountedStream):
                self._response.stream.memory.reset()
            if (code := _error_code(answer)) is not None:
                raise errors.APIError(code, answer)
            yield f"data: {json.dumps(clean_answer(answer))}\n\n".encode()

    async def aclose(self) -> None:
        await self._response.aclose()


async def _read_answers(response: httpx.Response) -> AsyncIterator[Any]:
    """Yield the answers of a stream of events as they come; those of another body at its end."""
    decode, rest, data = codecs.getincrementaldecoder("utf-8")("replace").decode, "", ""
    others: list[str] = []  # lines that are no events
    async for chunk in response.aiter_bytes():
        *lines, rest = LINE_END.split(rest + decode(chunk))
        for line in lines:
            if line.startswith("data:"):
                data = f"{data}\n{line.removeprefix('data:')}"
            elif not line.strip():
                for answer in _parse_data(data):
                    yield answer
                data = ""
            elif not re.match(r"(?:event|id|retry)?:", line):
                others.append(line)
    if rest.startswith("data:"):
        data = f"{data}\n{rest.removeprefix('data:')}"
    else:
        others.append(rest)
    for answer in _parse_data(data):
        yield answer
    for answer in _parse_body("\n".join(others)):
        yield answer


def _parse_body(text: str) -> Iterator[Any]:
    """Yield the answers of a whole body: one, a list, or events."""
    text = text.lstrip("\ufeff \t\r\n")
    if text.startswith(STREAM_STARTS):
        for event in re.split(r"(?:\r\n|\r|\n){2,}", text):
            lines = [line.removeprefix("data:") for line in LINE_END.split(event) if line.startswith("data:")]
            yield from _parse_data("\n".join(lines))
    else:
        yield from _parse_data(text)


def _parse_data(text: str) -> Iterator[Any]:
    """Yield the answers in the data of an event, of which some servers join several by line ends."""
    if text.strip() in ("", "null", "[DONE]"):
        return
    try:
        values = [json.loads(text, strict=False)]
    except (ValueError, RecursionError):
        try:
            values = [json.loads(line, strict=False) for line in text.splitlines() if line.strip(" ,[]")]
        except (ValueError, RecursionError):
            raise InvalidAnswer("google: the server gave no valid answer, but other text than JSON") from None
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _error_code(answer: Any) -> int | None:
    """Return the status of an error that an answer reports though its own status says success."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _join(answers: list[Any]) -> dict[str, Any]:
    """Return the pieces of a stream as one answer."""
    whole: dict[str, Any] = {}
    for answer in map(clean_answer, answers):
        parts = [part for item in (whole, answer) for part in _parts_of(item)]
        candidate = {**_candidate_of(whole), **_candidate_of(answer)}
        if candidate:
            candidate["content"] = {"role": "model", "parts": parts}
        whole = {**whole, **answer, "candidates": [candidate] if candidate else []}
    return whole


def _candidate_of(answer: dict[str, Any]) -> dict[str, Any]:
    candidates: list[dict[str, Any]] = answer.get("candidates", [])
    return candidates[0] if candidates else {}


def _parts_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = _candidate_of(answer).get("content", {}).get("parts", [])
    return parts


def clean_answer(answer: Any) -> dict[str, Any]:
    """Return what is read of an answer, or of a piece of one, in the documented form.

    Raises InvalidAnswer if the arguments of a function call cannot be read.
    """
    answer = answer if isinstance(answer, dict) else {}
    if isinstance(wrapped := answer.get("response"), dict) and "candidates" not in answer:
        answer = wrapped
    cleaned: dict[str, Any] = {"candidates": []}
    for candidate in _list(answer.get("candidates"))[:1]:
        parts = [part for item in _list(candidate.get("content")) for part in _clean_content(item)]
        kept: dict[str, Any] = {"content": {"role": "model", "parts": parts}}
        if isinstance(reason := _get(candidate, "finishReason"), str) and reason.strip():
            kept["finishReason"] = _known(reason, types.FinishReason)
        cleaned["candidates"].append(kept)
    for feedback in _list(_get(answer, "promptFeedback")):
        if isinstance(reason := _get(feedback, "blockReason"), str):
            cleaned["promptFeedback"] = {"blockReason": _known(reason, types.BlockedReason)}
    for usage in _list(_get(answer, "usageMetadata")):
        counts = {name: _get(usage, name) for name in COUNTS}
        cleaned["usageMetadata"] = {
            name: int(count) for name, count in counts.items() if isinstance(count, int | float) and 0 <= count < 1e9
        }
    if isinstance(model := _get(answer, "modelVersion"), str):
        cleaned["modelVersion"] = model
    return cleaned


def _clean_content(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the texts and calls of a content, or of a part; thoughts are left out."""
    for part in _list(content["parts"]) if "parts" in content else [content]:
        if part.get("thought") not in (None, False, "false"):
            continue
        if isinstance(part.get("text"), str):
            yield {"text": part["text"]}
        for call in _list(_get(part, "functionCall")):
            try:
                every = read_arguments(call.get("args")) if isinstance(call.get("name"), str) else []
            except ValueError:
                every = []
            if not every:
                raise InvalidAnswer("google: the model returned a function call that cannot be read")
            for arguments in every:
                yield {"functionCall": {"name": call["name"], "args": arguments}}


def _known(reason: str, reasons: type[Enum]) -> str:
    """Return a reason as the SDK knows it; it warns about each that is new."""
    name = reason.strip().upper()
    return name if name in reasons.__members__ else "OTHER"


def _get(values: dict[str, Any], name: str) -> Any:
    """Return a value by its name, or by its name in snake case, which some servers write."""
    return values.get(name, values.get(re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)))


def _list(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or of one value; a text is that of a part."""
    values = value if isinstance(value, list) else [value]
    values = [{"text": item} if isinstance(item, str) else item for item in values]
    return [item for item in values if isinstance(item, dict)]
