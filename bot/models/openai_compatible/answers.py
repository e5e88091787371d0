"""Assemble the answer of a model from what a server sends, and read vectors and counts."""

import asyncio
import base64
import json
import re
import struct
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from bot.errors import InvalidAnswer, ModelBusy, ModelError
from bot.models.openai_compatible.server import (
    END,
    Connection,
    ServerError,
    is_error,
    parse_values,
    read_values,
    to_text,
)
from bot.models.types import ModelInfo, TextRequest, TextResult, ToolCall, Usage
from bot.models.usage import note_call
from bot.prompts.reply_parser.json_objects import read_mapping
from bot.text import user_text

MAX_ANSWER_LENGTH = 1_000_000  # characters
MAX_CONTEXT_LENGTH = 1_000_000_000  # tokens; a larger number is treated as not reported
REST_SECONDS, FINISH_SECONDS = 5.0, 0.1  # for what follows a finish reason, and the end mark
MAX_TOKENS_PER_CALL = 100_000_000  # larger counts are treated as invalid
FILTERED = re.compile(r"filter|safety|refusal|recitation|prohibited|blocklist|spii|sensitive|guardrail", re.IGNORECASE)
TRUNCATED = ("length", "max_tokens", "model_length")
THOUGHT = re.compile(r"think|reason|thought|summary", re.IGNORECASE)
# How a text ends that is complete although the server sends no mark of its end.
COMPLETE_TAGS = re.compile(r"</(?:response|text)>\s*\Z", re.IGNORECASE)
COMPLETE_TEXT = re.compile(r"[^\w\s,;:<(\[{&/@#+=-]\s*\Z")
MIN_REPEATED_LENGTH = 8  # characters; shorter pieces may begin like the whole text by chance
NAME_AFFIXES = re.compile(r"\A(?:functions?|tools?|default_api|actions?)[.:/]\s*|:\d+\Z", re.IGNORECASE)
FENCES = re.compile(r"\A```\w*\s*|\s*```\Z")
JSON_WORD = re.compile(r"\b(?:true|false|null)\b")
JSON_WORDS = {"true": "True", "false": "False", "null": "None"}


def to_count(value: object, limit: int = MAX_TOKENS_PER_CALL) -> int | None:
    """Return a count below the limit, sent as a number or as text; None if the value is not one."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < limit and number.is_integer() else None


def read_usage(usage: object) -> Usage | None:
    """Return the tokens of a response; None if they are missing or invalid, or the server reports zero."""
    if not isinstance(usage, dict):
        return None

    def count(*names: str) -> int | None:
        return next((number for name in names if (number := to_count(usage.get(name))) is not None), None)

    tokens_in = count("prompt_tokens", "input_tokens", "prompt_eval_count")
    tokens_out = count("completion_tokens", "output_tokens", "eval_count")
    if not tokens_in or tokens_out is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = to_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(tokens_in, tokens_out, min(cached or 0, tokens_in))


def list_entries(value: object) -> list[dict[str, Any]]:
    """Return the entries of a list of models in any of its forms, each with its name as `id`; others are left out."""
    entries = value if isinstance(value, list) else []
    if isinstance(value, dict):
        entries = next((value[name] for name in ("data", "models") if isinstance(value.get(name), list)), [])
    named = (entry if isinstance(entry, dict) else {"id": entry} for entry in entries)
    texts = ((entry, [to_text(entry.get(name)) for name in ("id", "name", "model")]) for entry in named)
    return [{**entry, "id": next(filter(None, names))} for entry, names in texts if any(names)]


def texts_of(value: object) -> list[str] | None:
    """Return the texts of a list; None if the value is not a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else None


def to_model_info(entry: Mapping[str, Any]) -> ModelInfo:
    """Return what a server reports of a model: OpenRouter, vLLM or llama.cpp."""
    parameters = texts_of(entry.get("supported_parameters"))
    architecture, meta = entry.get("architecture"), entry.get("meta")
    modalities = texts_of(architecture.get("input_modalities")) if isinstance(architecture, dict) else None
    lengths = [entry.get("context_length"), entry.get("max_model_len")]
    lengths += [meta.get("n_ctx_train")] if isinstance(meta, dict) else []
    return ModelInfo(
        entry["id"],
        can_call_tools=None if parameters is None else "tools" in parameters,
        can_see=None if modalities is None else "image" in modalities,
        is_embedding="embed" in entry["id"].lower(),
        context_length=next(filter(None, (to_count(length, MAX_CONTEXT_LENGTH) for length in lengths)), None),
    )


def _content_text(content: object) -> str:
    """Return the text of a content: a text, a piece, or a list of them; thoughts are left out."""
    if isinstance(content, list):
        return "".join(map(_content_text, content))
    if isinstance(content, dict):
        kind = str(content.get("type") or "text")
        is_text = "text" in kind and not THOUGHT.search(kind) and not content.get("thought")
        return _content_text(content.get("text") or content.get("value")) if is_text else ""
    return content.replace("\0", "") if isinstance(content, str) else ""


def _list_choices(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the first choice; a body of another API is read as one."""
    choices = value.get("choices")
    if choices is not None or "choices" in value:
        choices = choices if isinstance(choices, list) else [choices]
        return [choice for choice in choices if isinstance(choice, dict) and choice.get("index") in (None, 0, "0")]
    is_part = value.get("done") is False
    content: Any = value.get("message")
    if not isinstance(content, dict):
        names = ("response", "content", "text", "output_text", "generated_text")
        texts = [value[name] for name in names if isinstance(value.get(name), str | list)]
        content = {"content": texts[0]} if texts else None
    reason = value.get("done_reason") or value.get("stop_reason") or (None if is_part else "stop")
    return [{"delta" if is_part else "message": content, "finish_reason": reason}] if content is not None else []


@dataclass(slots=True)
class _Call:
    """A tool call, as far as it is known."""

    index: object
    id: str
    name: str
    arguments: str

    def ends_before(self, call_id: str, name: str, tools: Collection[str]) -> bool:
        """Return whether a part with this id and name begins another call, although it has the same index."""
        if not self.arguments.strip():
            return name != self.name and name in tools and self.name in tools
        is_other = bool(call_id and self.id and call_id != self.id) or name not in ("", self.name)
        return is_other and not parse_values(self.arguments)[1]

    def add(self, name: str, arguments: str) -> None:
        """Add the next part; names and arguments may come whole, in pieces, or repeated from the beginning."""
        if name != self.name and not self.arguments:
            self.name = name if name.startswith(self.name) else self.name + name
        is_repeated = arguments.startswith(self.arguments) and bool(parse_values(self.arguments)[1])
        self.arguments = arguments if is_repeated else self.arguments + arguments


def read_arguments(text: str) -> list[dict[str, Any]]:
    """Return the arguments of one call, or of several that were written one after another. Raises ValueError."""
    text = FENCES.sub("", text.strip())
    values, rest = parse_values("null" if text in ("", "None") else text)
    if not values:
        python = JSON_WORD.sub(lambda word: JSON_WORDS[word[0]], text)
        values, rest = [read_mapping(text)[0] or read_mapping(python)[0] or text], ""
    objects: list[dict[str, Any]] = []
    for value in values[0] if len(values) == 1 and isinstance(values[0], list) else values:
        if isinstance(value, str) and value != text:
            objects += read_arguments(value)
        elif value is None or isinstance(value, dict):
            objects.append(value or {})
        else:
            raise ValueError(text)
    if "{" in rest:
        raise ValueError(text)
    return [value for value in objects if value] or [{}]


class AnswerReader:
    """Reads one answer from chunks or a whole response, and passes its text to a sink, if there is one."""

    def __init__(self, model: str, connection: Connection, request: TextRequest | None) -> None:
        self._model, self._connection, self._provider = model, connection, connection.endpoint.provider
        self._sink, tools = (request.sink, request.tools) if request else (None, ())
        self._tools = frozenset(tool.name for tool in tools)
        self._text, self._last_piece, self._finish_reason = "", "", ""
        self._growing_pieces = 0  # how many pieces so far have each repeated the one before and added to it
        self._calls: list[_Call] = []
        self._usage: Usage | None = None
        self._is_api = self._has_choice = self._is_finished = False
        self._is_cumulative = self._is_refusal = self._has_parts = False

    async def read(self, body: AsyncIterator[bytes]) -> TextResult:
        """Return the answer in the body of a response.

        Raises ServerError for an error in it, ModelBusy if it breaks off, InvalidAnswer if it is not one.
        """
        is_ended, unreadable = False, ""
        try:
            async with asyncio.timeout(None) as rest:
                async for value in read_values(self._connection.read_chunks(body, self._sink)):
                    is_ended = is_ended or value is END
                    if not is_ended:
                        await self._add(value)
                    self._is_finished = self._is_finished or is_ended or bool(self._finish_reason)
                    if self._is_finished:
                        seconds = FINISH_SECONDS if is_ended else REST_SECONDS
                        rest.reschedule(asyncio.get_running_loop().time() + seconds)
        except (TimeoutError, ModelBusy):
            if not self._is_finished:
                raise
        except ValueError as error:
            unreadable = str(error)
        return await self._finish(unreadable)

    async def _add(self, value: object) -> None:
        for item in value if isinstance(value, list) else ():
            await self._add(item)
        value = {"content": value} if isinstance(value, str) else value
        if not isinstance(value, dict):
            return
        if is_error(value):
            raise ServerError(value, is_partial=bool(self._text or self._calls))
        self._is_api = self._is_api or "choices" in value
        self._model = to_text(value.get("model")) or self._model
        for choice in _list_choices(value):
            await self._add_choice(choice)
            self._usage = read_usage(choice.get("usage")) or self._usage
            if self._finish_reason in ("error", "network_error"):
                error = choice.get("error") or "the provider reported an error"
                raise ServerError(error, is_partial=bool(self._text or self._calls))
        self._usage = read_usage(value.get("usage")) or read_usage(value) or self._usage
        note_call(self._model, self._usage)

    async def _add_choice(self, choice: dict[str, Any]) -> None:
        message = choice.get("message")
        parts = [part for part in (choice.get("delta"), message) if isinstance(part, dict)]
        parts += [{"content": choice["text"]}] if isinstance(choice.get("text"), str) else []
        self._finish_reason = to_text(choice.get("finish_reason")) or self._finish_reason
        self._has_choice = self._has_choice or bool(parts or self._finish_reason)
        filled = [part for part in parts if any(map(part.get, ("content", "tool_calls", "function_call", "refusal")))]
        part = next(iter(filled), {})
        is_whole = isinstance(message, dict) and (not filled or part is message)
        self._is_finished = self._is_finished or is_whole
        calls = part.get("tool_calls")
        calls = calls if isinstance(calls, list) else [calls or part.get("function_call")]
        for call in calls if not (is_whole and self._has_parts) else ():
            self._add_call(call, is_whole=is_whole)
        self._has_parts = self._has_parts or bool(part and not is_whole)
        text = _content_text(part.get("content"))
        self._is_refusal = self._is_refusal or (not text and bool(part.get("refusal")))
        await self._add_text(text or to_text(part.get("refusal")), is_whole=is_whole)

    async def _add_text(self, piece: str, *, is_whole: bool) -> None:
        """Add a piece of the text; one that repeats all that there is replaces it."""
        if not piece:
            return
        is_growing = len(piece) > len(self._last_piece) and piece.startswith(self._last_piece)
        self._growing_pieces = self._growing_pieces + 1 if is_growing and self._growing_pieces >= 0 else -1
        self._last_piece = piece
        is_repeated = bool(self._text) and piece.startswith(self._text)
        is_long = len(self._text) >= MIN_REPEATED_LENGTH and len(piece) > len(self._text)
        if is_repeated and (self._is_cumulative or is_long or is_whole):
            self._is_cumulative = True
            piece = piece[len(self._text) :]
        elif self._growing_pieces == 3:
            self._is_cumulative = True
            await self._restart()
        self._text += piece
        if len(self._text) > MAX_ANSWER_LENGTH:
            raise ModelError(f"{self._provider}: {self._model} wrote without an end")
        if self._sink is not None and piece:
            await self._sink.write(piece)

    async def _restart(self) -> None:
        self._text = ""
        if self._sink is not None:
            await self._sink.restart()

    def _add_call(self, call: object, *, is_whole: bool) -> None:
        if not isinstance(call, dict):
            return
        function = call["function"] if isinstance(call.get("function"), dict) else call
        name, call_id, index = to_text(function.get("name")), to_text(call.get("id")), call.get("index")
        arguments = function.get("arguments") or ""
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        earlier = reversed(self._calls)
        same = (known for known in earlier if (known.id == call_id if index is None else known.index == index))
        found = next(same, None) or (self._calls[-1] if index is None and self._calls else None)
        if found is None or (is_whole and name) or found.ends_before(call_id, name, self._tools):
            self._calls.append(_Call(index, call_id, name, arguments))
            return
        found.add(name, arguments)
        if len(found.arguments) > MAX_ANSWER_LENGTH:
            raise ModelError(f"{self._provider}: {self._model} called a function without an end")

    async def _finish(self, unreadable: str) -> TextResult:
        shown = " ".join(unreadable[:80].split())
        if not (self._has_choice or self._text):
            cause = f"no chat completion but {shown!r}; check {self._connection.endpoint.url_name}"
            raise InvalidAnswer(f"{self._provider}: {self._model} returned {'no choice' if self._is_api else cause}")
        is_complete = self._is_finished or (not unreadable and self._looks_complete())
        if not is_complete:
            raise ModelBusy(
                f"{self._provider}: {self._model} broke its answer off" + (f" with {shown!r}" if shown else "")
            )
        calls = self._list_calls()
        if FILTERED.search(self._finish_reason) and not self._is_refusal:
            await self._restart()
            calls = []
            await self._add_text(user_text("notices.no_answer"), is_whole=False)
        return TextResult(
            text=self._text,
            model=self._model,
            usage=self._usage,
            is_truncated=self._finish_reason.casefold() in TRUNCATED,
            tool_calls=tuple(calls),
        )

    def _looks_complete(self) -> bool:
        if self._calls and not self._text:
            return all(not parse_values(call.arguments)[1] for call in self._calls)
        return bool((COMPLETE_TAGS if "<response" in self._text else COMPLETE_TEXT).search(self._text))

    def _list_calls(self) -> list[ToolCall]:
        calls = []
        for call in self._calls:
            name = NAME_AFFIXES.sub("", call.name.strip(" \t\r\n`\"'")).strip()
            if not name and self._text.strip():
                continue
            try:
                every = read_arguments(call.arguments)
            except ValueError:
                every = []
            if not (name and every):
                raise InvalidAnswer(f"{self._provider}: {self._model} returned a tool call that cannot be read")
            calls += [ToolCall(name, arguments) for arguments in every]
        return calls


def read_vectors(body: object, count: int) -> list[list[float]]:
    """Return the vectors of a response in any of its forms, in the order of the texts. Raises ValueError."""
    items = body
    if isinstance(body, dict):
        items = next((body[name] for name in ("data", "embeddings", "embedding") if body.get(name)), None)
    if isinstance(items, str) or (isinstance(items, list) and items and isinstance(items[0], int | float)):
        items = [items]  # one vector
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"{len(items) if isinstance(items, list) else 'no'} vectors")
    indexes = [item.get("index") for item in items if isinstance(item, dict)]
    if any(index is not None for index in indexes):
        if sorted(map(str, indexes)) != sorted(map(str, range(count))):
            raise ValueError("their indexes are wrong")
        items = sorted(items, key=lambda item: int(item["index"]))
    return [_read_vector(item.get("embedding") if isinstance(item, dict) else item) for item in items]


def _read_vector(value: object) -> list[float]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list | str):
        value = value[0]
    if isinstance(value, str):
        try:
            value = [number for (number,) in struct.iter_unpack("<f", base64.b64decode(value, validate=True))]
        except struct.error:
            raise ValueError("one is not a list of numbers") from None
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise ValueError("one is not a list of numbers")
    vector = [float(number) for number in value]
    if not any(vector) or not all(map(isfinite, vector)):
        raise ValueError("one is empty, zero or not finite")
    return vector
