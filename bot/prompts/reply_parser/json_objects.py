"""JSON objects in model output: inside prose or fences, slightly broken, or truncated.

No function raises on any string: what the decoder refuses (depth, 10,000-digit numbers) is no object.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bot.prompts.reply_parser.cleanup import fix_surrogates


def _merge_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the members of an object; objects under one key are a list, of other values the last counts."""
    members: dict[str, object] = {}
    for key, value in pairs:
        existing = members.get(key)
        if isinstance(value, dict) and existing and isinstance(existing, dict | list):
            members[key] = [*existing, value] if isinstance(existing, list) else [existing, value]
        else:
            members[key] = value
    return members


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_merge_members)
_MAX_OBJECTS = 64  # prose with more of them holds no answer
_OPENING = re.compile(r'\{(?=\s*+(?:\}|"[^"]*+"\s*+:))')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEY = re.compile(r'[\s,]*+"([^"\\]*+)"\s*+:\s*+')
_VALUE_END = re.compile(r"\s*+(?:[,}]|\Z)")
_OBJECT_END = re.compile(r"[\s,]*+\}")
_STRING = re.compile(r'"([^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+)')
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_STRING_END = re.compile(r'"(?=\s*+(?:\}|,\s*+"\w++"\s*+:))')
_BARE_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_MAX_PYTHON = 20_000  # characters; a longer text is not read as Python
_COMMENT = re.compile(r"^[ \t]*//[^\n]*$", re.MULTILINE)
_UNQUOTED_KEY = re.compile(r"([{,]\s*)([A-Za-z_]\w{0,40})\s*:(?!/)")
_CUT_EARLY = re.compile(r'\{\s*+(?:\Z|"[^"]*+(?:\Z|"\s*+\Z))')


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object at `text[start:end]`; `cut_key` is the member whose value is truncated."""

    members: dict[str, object]
    start: int
    end: int
    is_complete: bool = True
    cut_key: str = ""  # in lower case
    partial_text: str = ""  # the beginning of that value, if it is a string

    def lowercase_members(self) -> dict[str, object]:
        """Return the members by key in lower case; the first of a key wins."""
        return {key.lower(): value for key, value in reversed(self.members.items())}


def decode_value(text: str, position: int = 0) -> tuple[object, int] | None:
    """Decode the JSON value at a position; return it and its end, or None."""
    try:
        value, end = _DECODER.raw_decode(text, position)
        if _SURROGATE.search(text, position, end):
            value = json.loads(fix_surrogates(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return value, end


def find_objects(text: str) -> Iterator[JsonObject]:
    """Yield the non-empty objects in `text`, none of them inside another; a truncated one is the last."""
    position = 0
    for _ in range(_MAX_OBJECTS):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        value = decode_value(text, opening.start())
        if value and isinstance(value[0], dict):
            candidate = JsonObject(value[0], opening.start(), value[1])
        else:
            candidate = _parse_leniently(text, opening.start())
        if candidate.members or not candidate.is_complete:
            yield candidate
        position = candidate.end


def first_object(text: str) -> dict[str, object]:
    """Return the first non-empty object in `text`; {} if there is none or it is truncated."""
    candidate = next(find_objects(text), None)
    return candidate.members if candidate and candidate.is_complete else {}


def parse_object(text: str) -> dict[str, object] | None:
    """Parse a text that is one object, fenced or not; None for anything else."""
    stripped = text.strip(" \t\r\n`").removeprefix("json").lstrip()
    if not stripped.startswith("{"):
        return None
    value = decode_value(stripped)
    if value and isinstance(value[0], dict):
        return value[0]
    candidate = _parse_leniently(stripped, 0)
    return candidate.members if candidate.is_complete else None


def parse_objects(text: str) -> list[dict[str, object]] | None:
    """Parse a text that is one list of objects, fenced or not; None for anything else."""
    stripped = text.strip(" \t\r\n`").removeprefix("json").lstrip()
    value = decode_value(stripped) if stripped.startswith("[") else None
    entries = value[0] if value else None
    if not entries or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return entries


def read_mapping(text: str) -> tuple[object, bool]:
    """Return the JSON or Python value at the start of a text, and whether it is the whole text; None if there is none.

    Trailing commas, bare quotes, unquoted keys and Python's quotes and names are accepted.
    """
    decoded = decode_value(text)
    if decoded is None and text.startswith("{") and _OPENING.match(text):
        candidate = _parse_leniently(text, 0)
        decoded = (candidate.members, candidate.end) if candidate.is_complete and candidate.members else None
    if decoded is None and len(text) <= _MAX_PYTHON:
        decoded = _read_python(text)
    return (None, False) if decoded is None else (decoded[0], not text[decoded[1] :].strip())


def _read_python(text: str) -> tuple[object, int] | None:
    """Return a Python dictionary or list, or an object with unquoted keys, that is the whole text."""
    without_comments = _COMMENT.sub("", text)
    for candidate in (without_comments, _UNQUOTED_KEY.sub(r'\1"\2":', without_comments)):
        try:
            value = ast.literal_eval(candidate.strip())
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return value, len(text)
        if candidate != text and (decoded := decode_value(candidate)) and not candidate[decoded[1] :].strip():
            return decoded[0], len(text)
    return None


def find_answer(text: str, keys: Collection[str]) -> JsonObject | None:
    """Return the object with a key of `keys`, complete or truncated; None if there is none.

    An object in the middle of a sentence counts only if it has two of the keys.
    """
    for candidate in find_objects(text):
        if matching_keys := {*candidate.lowercase_members(), candidate.cut_key} & set(keys):
            rest_of_line = text[candidate.end :].partition("\n")[0].strip(" \t\r`")
            return candidate if len(matching_keys) > 1 or not rest_of_line or rest_of_line.startswith("<") else None
        if not candidate.is_complete and candidate.start == 0:
            return candidate
    return _parse_leniently(text, 0) if _CUT_EARLY.match(text) else None


def _parse_leniently(text: str, start: int) -> JsonObject:
    """Parse members as far as possible; trailing commas and bare quotes in strings are accepted."""
    members: dict[str, object] = {}
    position = start + 1
    while key := _KEY.match(text, position):
        value = decode_value(text, key.end())
        if value is None or not _VALUE_END.match(text, value[1]):
            value = _parse_bare_quotes(text, key.end())
        if value is None:
            return JsonObject(members, start, len(text), False, key[1].lower(), _read_partial_string(text, key.end()))
        members.setdefault(key[1], value[0])
        position = value[1]
    end = _OBJECT_END.match(text, position)
    return JsonObject(members, start, end.end() if end else len(text), is_complete=end is not None)


def _parse_bare_quotes(text: str, position: int) -> tuple[object, int] | None:
    """Parse a string with unescaped quotes in it."""
    end = _STRING_END.search(text, position + 1) if text.startswith('"', position) else None
    if end is None:
        return None
    inner = _BARE_QUOTE.sub(lambda quote: quote[1] or '\\"', text[position + 1 : end.start()])
    value = decode_value(f'"{inner}"')
    return None if value is None else (value[0], end.end())


def _read_partial_string(text: str, position: int) -> str:
    """Return the beginning of a truncated string."""
    string = _STRING.match(text, position)
    value = decode_value(f'"{_HALF_PAIR.sub("", string[1])}"') if string else None
    return str(value[0]) if value else ""
