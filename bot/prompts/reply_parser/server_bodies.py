"""Reads what a model server sends where it is the text of an answer: the body of a completion, or its event stream.

Proxies and models that repeat a log write such texts. The bodies are those of OpenAI (chat, legacy and Responses),
Anthropic, Gemini, Ollama, llama.cpp and Text Generation Inference. Other data is not changed. No function raises on any
string, and all run in linear time.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.prompts.reply_parser.dialects import WrittenCall, calls_from_value
from bot.prompts.reply_parser.field_scanner import decode_value, read_mapping

BODY_STARTS = ("{", "[", "data:", "event:")  # a text that begins otherwise is no body
_STREAM_START = re.compile(r"(?:data|event):|\{[^\n]*\}\s*\n\s*\{")
_FIELD = re.compile(r"(?:data|event|id|retry)?:")
_BODY_KEY = re.compile(r"\"(?:choices|candidates|message|output|generated_text|tokens_predicted|parts|content|type)\"")
_TEXT_TYPES = ("text", "output_text")
_CALL_TYPES = ("tool_use", "tool_call", "function_call", "function")
_OTHER_TYPES = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")


@dataclass(slots=True)
class Message:
    """The text and the calls of a message; pieces of arguments are joined."""

    text: str = ""
    calls: list[WrittenCall] = field(default_factory=list)
    pieces: dict[object, dict[str, str]] = field(default_factory=dict)  # name and arguments of a call, by its number

    def add_piece(self, number: object, name: object, arguments: object) -> None:
        """Add a part of a call that is streamed."""
        piece = self.pieces.setdefault(number, {"name": "", "arguments": ""})
        piece["name"] += name if isinstance(name, str) else ""
        piece["arguments"] += arguments if isinstance(arguments, str) else ""


def read_body(text: str) -> Message | None:
    """Return the message in the body of a server's answer; None for other texts."""
    if _STREAM_START.match(text) and (message := _read_stream(text)):
        return message
    if not text.startswith(("{", "[")) or not _BODY_KEY.search(text, 0, 20_000):
        return None
    value, is_whole = read_mapping(text)
    return message_of(value) if is_whole else None


def message_of(value: object) -> Message | None:
    """Return the message in the decoded body of a server's answer, or in the list of its parts."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and isinstance(value[0].get("generated_text"), str):
            return Message(value[0]["generated_text"])
        return _join_parts(value)
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("generated_text"), str) and len(value) == 1:
        return Message(value["generated_text"])
    choice = _first(value.get("choices"))
    if value.get("object") == "text_completion" and isinstance(text := choice.get("text"), str):
        return Message(text)
    content = _first(value.get("candidates")).get("content")
    inner = next(
        (
            found
            for found, is_message in (
                (choice.get("message"), True),
                (content, True),
                (value.get("message"), "done" in value),
                (value, value.get("role") in ("assistant", "model") or "tokens_predicted" in value),
            )
            if is_message
            and isinstance(found, dict)
            and ("role" in found or found.keys() & {"parts", "tokens_predicted"})
        ),
        None,
    )
    if inner is not None:
        return _read_message(inner)
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return _join_parts([part for item in value["output"] for part in _output_parts(item)])
    has_call = isinstance(value.get("parts"), list) and '"functionCall"' in json.dumps(value["parts"])
    return _join_parts(value["parts"]) if has_call else None


def _first(value: object) -> Mapping[str, object]:
    """Return the first item of a list if it is an object, else an empty one."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _output_parts(item: object) -> list[object]:
    """Return the parts of an item in the output of the Responses API."""
    content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
    return content if isinstance(content, list) else [item]


def _read_message(inner: Mapping[str, object]) -> Message | None:
    content = inner.get("content", inner.get("parts"))
    message = (
        _join_parts(content) if isinstance(content, list) else Message(content if isinstance(content, str) else "")
    )
    if message is None:
        return None
    calls = {key: inner[key] for key in ("tool_calls", "function_call") if inner.get(key)}
    message.calls += calls_from_value(calls)
    return message if message.text or message.calls else None


def _join_parts(parts: Sequence[object]) -> Message | None:
    """Return the texts and calls of a list of content parts; None for any other list."""
    message = Message()
    for part in parts:
        kind = part.get("type", "text" if "text" in part else "") if isinstance(part, dict) else None
        if not isinstance(part, dict):
            return None
        if kind in _CALL_TYPES or "functionCall" in part:
            message.calls += calls_from_value(part)
        elif kind in _TEXT_TYPES and isinstance(part.get("text"), str):
            message.text += "" if part.get("thought") is True else part["text"]
        elif kind not in _OTHER_TYPES:
            return None
    is_typed = all(
        isinstance(part, dict) and ("type" in part or part.keys() & {"functionCall", "text"}) for part in parts
    )
    return message if parts and is_typed and (message.text or message.calls) else None


def _read_stream(text: str) -> Message | None:
    """Return the message whose pieces the events of a stream have; the last event may be cut off."""
    message = Message()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    for number, line in enumerate(lines):
        data = line.partition(":")[2].strip() if _FIELD.match(line) else line
        if not _FIELD.match(line) and not line.startswith("{"):
            return None
        decoded = decode_value(data) if data.startswith("{") else None
        if decoded is not None and isinstance(decoded[0], dict):
            _add_event(message, decoded[0])
        elif data.startswith("{") and number < len(lines) - 1:
            return None
    for piece in message.pieces.values():
        message.calls += calls_from_value(piece) or [WrittenCall(piece["name"], {})]
    return message if message.text or message.calls else None


def _add_event(message: Message, event: Mapping[str, object]) -> None:
    """Add what one event of a stream has to the message."""
    kind, delta, inner = event.get("type"), event.get("delta"), _first(event.get("choices")).get("delta")
    if isinstance(inner, dict):
        _add_delta(message, inner)
    elif kind == "content_block_delta" and isinstance(delta, dict):
        message.text += delta["text"] if isinstance(delta.get("text"), str) else ""
        if "partial_json" in delta:
            message.add_piece(event.get("index"), None, delta["partial_json"])
    elif kind == "content_block_start" and isinstance(block := event.get("content_block"), dict):
        if block.get("type") == "tool_use":
            message.add_piece(event.get("index"), block.get("name"), None)
    elif kind == "response.output_text.delta":
        message.text += delta if isinstance(delta, str) else ""
    elif isinstance(event.get("response"), str) and "done" in event:
        message.text += str(event["response"])
    elif kind is None and (found := message_of(event)):
        message.text += found.text
        message.calls += found.calls


def _add_delta(message: Message, delta: Mapping[str, object]) -> None:
    """Add a delta as the chat completions of OpenAI have it."""
    message.text += content if isinstance(content := delta.get("content"), str) else ""
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            message.add_piece(call.get("index"), function.get("name"), function.get("arguments"))
